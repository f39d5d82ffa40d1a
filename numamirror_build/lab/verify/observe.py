"""Running an arm on a machine, with the trace, and pristine outside; each run is a cache entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build import proc
from numamirror_build.errors import BuildError
from numamirror_build.lab.guest import Command
from numamirror_build.lab.parts import Parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.lab.trace import HEADER, SOURCE, Count, Trace, make_plugin
from numamirror_build.lab.verify.arms import NO_MMAP, Arm, Setting
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify.models import Model
from numamirror_build.verify.profile import Profile

if TYPE_CHECKING:
    from numamirror_build.building.build import Build

DRIVER = Path(__file__).with_name("driver.cpp")
TOKENS = 8  # generated
SECONDS = 600.0  # after which a machine is switched off

_FLAGS = ("-std=c++17", "-O2", "-rdynamic")
_LOGITS = "logits.bin"
_BALANCED = 'echo "$1" >/proc/sys/kernel/numa_balancing && shift && exec "$@"'
_LAST = 2000  # characters of what a failed run said

# There are fewer CPUs than threads: those that spin while they wait keep from running what they wait for.
_ENV = {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}


@dataclass(frozen=True)
class Observation:
    """What came of a run.

    Attributes:
        reason: why there is nothing but this; None when the run went well.
        facts: what the driver said: the status record, pages of weights and caches by node, threads' CPUs.
        trace: what was counted; nothing outside of the lab.
        logits: the file with all logits.
    """

    reason: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    trace: Trace = field(default_factory=lambda: Trace(()))
    logits: Path | None = None


@dataclass(frozen=True)
class Laboratory:
    """What runs are made with.

    Attributes:
        store: the cache.
        builds: by name, ``pristine`` and ``patched``; for a CPU that the machine has.
        profile: the upstream, as verification sees it.
        parts: what machines are made of.
        progress: what is told how far it got.
    """

    store: Store
    builds: Mapping[str, Build]
    profile: Profile
    parts: Parts
    progress: Progress

    def inside(self, setting: Setting, arm: Arm, model: Model) -> Observation:
        """Run an arm on a machine.

        Raises:
            LabError: the machine did not start, or broke down.
            LabTimeoutError: it took too long.
        """
        machine = {
            "layout": setting.layout.as_json(),
            "kernel": self.parts.release,
            "qemu": self.parts.qemu_release,
            "trace": [file_sha256(SOURCE), file_sha256(HEADER)],
        }

        def make(folder: Path) -> dict[str, Any]:
            driver = make_driver(self.store, self.builds[arm.library], self.profile)
            scratch = folder.resolve()
            words = _words(driver, arm, setting, model, scratch / _LOGITS)
            balanced = ("sh", "-c", _BALANCED, "sh", str(int(arm.balancing)), *words)
            output, errors = bytearray(), bytearray()
            outcome = run_in_lab(
                setting.layout,
                Command(balanced, _ENV, scratch, scratch),
                self.parts,
                timeout=SECONDS,
                on_stdout=output.extend,
                on_stderr=errors.extend,
                progress=self.progress,
                plugin=make_plugin(self.store),
            )
            said = errors.decode(errors="replace")
            if outcome.exit_status or outcome.trace is None:
                raise _Died(f"the program ended with status {outcome.exit_status}: {said[-_LAST:]}")
            facts = json.loads(output.decode().splitlines()[-1])
            return {"facts": facts, "counts": [asdict(count) for count in outcome.trace.counts]}

        return self._observe(arm, model, {"machine": machine, "threads": arm.threads(setting)}, make)

    def outside(self, setting: Setting, arm: Arm, model: Model) -> Observation:
        """Run pristine on this machine, with the model and as many threads as the arm has on that one."""

        def make(folder: Path) -> dict[str, Any]:
            driver = make_driver(self.store, self.builds["pristine"], self.profile)
            words = _words(driver, NO_MMAP, setting, model, folder / _LOGITS, threads=arm.threads(setting))
            done = proc.run(words, env=_ENV, timeout=SECONDS, tethered=True)
            if done.returncode:
                raise _Died(f"the program ended with status {done.returncode}: {done.output[-_LAST:]}")
            return {"facts": {}, "counts": []}

        return self._observe(NO_MMAP, model, {"machine": None, "threads": arm.threads(setting)}, make)

    def _observe(self, arm: Arm, model: Model, inputs: Mapping[str, Any], make: Any) -> Observation:
        whole = {
            **inputs,
            "arm": {**asdict(arm), "title": None},
            "build": self.builds[arm.library].key,
            "model": model.identity,
            "driver": [file_sha256(DRIVER), _FLAGS, TOKENS],
            "env": _ENV,
        }
        try:
            entry = self.store.make("verifications", f"lab-{digest(whole)[:20]}", make)
        except _Died as died:
            return Observation(str(died))
        counts = tuple(Count(**count) for count in entry.made["counts"])
        return Observation(None, entry.made["facts"], Trace(counts), entry.path / _LOGITS)


class _Died(Exception):
    """Ends a maker, so that a failed run is not taken for finished."""


def make_driver(store: Store, build: Build, profile: Profile) -> Path:
    """The program that generates, linked with a build's libraries.

    Raises:
        ToolMissingError: there is no C++ compiler.
        BuildError: it does not compile.
    """
    compiler = proc.find_tool("c++", hint="install it (Debian, Ubuntu: apt install g++)")
    version = proc.run([compiler, "--version"], tethered=True).output.partition("\n")[0]
    key = digest([file_sha256(DRIVER), file_sha256(HEADER), _FLAGS, version, build.key, profile.libraries])
    tree, libraries = build.tree.path, build.libraries

    def make(folder: Path) -> dict[str, Any]:
        done = proc.run(
            [
                *(compiler, *_FLAGS, f"-I{tree / 'include'}", f"-I{tree / 'ggml' / 'include'}"),
                *(f"-I{HEADER.parent}", DRIVER, "-o", folder / "driver", f"-L{libraries}"),
                *(f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"),
                *(*(f"-l:{name}" for name in profile.libraries), "-ldl"),
            ],
            tethered=True,
        )
        if done.returncode:
            errors = [line for line in done.output.splitlines() if "error" in line]
            raise BuildError(
                "The program that generates in the lab does not compile",
                where=str(DRIVER),
                why=errors[0] if errors else done.output[-500:],
            )
        return {"compiler": version}

    return store.make("lab", f"driver-{key[:20]}", make).path / "driver"


def _words(
    driver: Path, arm: Arm, setting: Setting, model: Model, logits: Path, *, threads: int | None = None
) -> tuple[str, ...]:
    n_threads = arm.threads(setting) if threads is None else threads
    values = (arm.strategy, n_threads, arm.loading, arm.policy, TOKENS, logits)
    return (str(driver), str(model.path), *map(str, values))
