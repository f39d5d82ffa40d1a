"""Meters: the programs that measure one test of one arm, and how they are asked and understood.

``llama-bench`` says how many tokens a second; a script that drives the binding, how long each token took.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numamirror_build import proc
from numamirror_build.bench.arms import Arm, Files, Kind, Task
from numamirror_build.bench.placement import Placement, look, placement_of
from numamirror_build.toml import read_toml

TOKEN_TIMES = Path(__file__).with_name("token_times.py")

# enum ggml_numa_strategy
STRATEGIES = {"": 0, "distribute": 1, "isolate": 2, "numactl": 3, "mirror": 4}

_SPELLINGS = Path(__file__).with_name("llama-bench.toml")
_PATIENCE = 3600
_AFTERWARDS = 8  # tokens that are generated after the test, for a look at where the memory is


@dataclass(frozen=True)
class Told:
    """What a meter told.

    Attributes:
        done: the ended program.
        rate: tokens per second; None if it did not get so far.
        facts: what else it said.
        placement: where its memory was when it had measured; None if that was not seen.
    """

    done: proc.Completed
    rate: float | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    placement: Placement | None = None


class Meter(Protocol):
    """A program that measures."""

    def refusal(self, task: Task) -> str | None:
        """Why it cannot measure a test; None if it can."""

    def measure(
        self, arm: Arm, model: Files, threads: int, task: Task, folder: Path, env: Mapping[str, str]
    ) -> Told:
        """Measure a test once, in a process of its own that works in a folder."""


@dataclass(frozen=True)
class LlamaBench:
    """A ``llama-bench`` and the words that it understands.

    Attributes:
        path: the program.
        mapped: that the model's file shall be mapped.
        read: that it shall be read into memory.
        deep: by kind, a test with tokens in the cache before it.
    """

    path: Path
    mapped: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    deep: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict)

    def refusal(self, task: Task) -> str | None:
        """Some have no option for a depth, or not for prompts."""
        if task.depth and task.kind not in self.deep:
            return f"this llama-bench cannot measure {task.name}: it has no option for tokens before it"
        return None

    def command(self, arm: Arm, model: Path, threads: int, task: Task) -> list[str]:
        """The command line of one measurement; its output is JSON."""
        prompt, generate = (task.tokens, 0) if task.kind == "pp" else (0, task.tokens)
        if task.depth:
            values = {"prompt": prompt, "generate": generate, "depth": task.depth}
            what = [word.format_map(values) for word in self.deep[task.kind]]
        else:
            # a second test with the same model, so that it is still there when the first has been measured
            after = ",".join(map(str, [*([generate] if generate else []), _AFTERWARDS]))
            what = ["-p", str(prompt), "-n", after]
        numa = ["--numa", arm.numa] if arm.numa else []
        words = ["-m", str(model), *what, "-t", str(threads), "-r", "1"]
        words += [*(self.mapped if arm.mapped else self.read), *numa, "-o", "json"]
        return [*arm.prefix, str(self.path), *words]

    def measure(
        self, arm: Arm, model: Files, threads: int, task: Task, folder: Path, env: Mapping[str, str]
    ) -> Told:
        """The first result counts; when it is there, the process is looked at."""
        process: list[int] = []
        seen: list[Placement | None] = []

        def hear(line: str) -> None:
            if not task.depth and not seen and _rate(line):
                seen.append(look(process[0], model.names))

        done = proc.run(
            self.command(arm, model.path, threads, task),
            env=env,
            cwd=folder,
            timeout=_PATIENCE,
            on_start=process.append,
            on_line=hear,
        )
        return Told(done, _rate(done.output), placement=seen[0] if seen else None)


@functools.cache
def _spellings() -> Mapping[str, Any]:
    return read_toml(_SPELLINGS, "The list of spellings")


def ask_program(path: Path) -> LlamaBench:
    """A ``llama-bench`` with what it understands."""
    said = proc.run([path, "--help"]).output
    nothing: Mapping[str, Any] = {"mapped": (), "read": (), "kinds": (), "words": ()}

    def first(what: str) -> Mapping[str, Any]:
        return next((entry for entry in _spellings()[what] if entry["help"] in said), nothing)

    load, depth = first("load"), first("depth")
    deep = {kind: tuple(depth["words"]) for kind in depth["kinds"]}
    return LlamaBench(path, tuple(load["mapped"]), tuple(load["read"]), deep)


def _rate(output: str) -> float | None:
    """Tokens per second of the first result; lines of the standard error may stand in the middle of it."""
    found = re.search(r'"avg_ts": ([0-9.]+)', output)
    return float(found[1]) or None if found else None


@dataclass(frozen=True)
class TokenTimes:
    """The binding in a Python of its own, with a build's libraries.

    Attributes:
        python: the interpreter.
        runner: the folder with classes for bindings.
        binding: the binding's package.
        env: variables that make the binding load these libraries.
        several_slots: parameters of a context in which several requests are generated at once.
    """

    python: Path
    runner: Path
    binding: str
    env: Mapping[str, str]
    several_slots: Mapping[str, int] = field(default_factory=dict)

    def refusal(self, task: Task) -> str | None:
        """It can all that there is."""
        return None

    def measure(
        self, arm: Arm, model: Files, threads: int, task: Task, folder: Path, env: Mapping[str, str]
    ) -> Told:
        """The rate is that of all tokens after the first step, of all slots together."""
        said = folder / "times.json"
        request = {
            "binding": self.binding,
            "model": str(model.path),
            "strategy": STRATEGIES[arm.numa],
            "mapped": arm.mapped,
            "threads": threads,
            "tokens": task.tokens,
            "depth": task.depth,
            "slots": task.slots,
            "context": self.several_slots if task.slots > 1 else {},
            "facts": str(said),
        }
        asked = folder / "request.json"
        asked.write_text(json.dumps(request))
        # -E: variables that choose packages are meant for this Python
        script = (str(self.python), "-E", str(TOKEN_TIMES), str(self.runner), str(asked))
        done = proc.run([*arm.prefix, *script], env={**env, **self.env}, cwd=folder, timeout=_PATIENCE)
        if done.returncode or not said.is_file():
            return Told(done, None)
        facts = json.loads(said.read_text())
        times = facts["seconds"]
        placement = placement_of(facts["numa_maps"], model.names)
        kept = {"first_token": facts["first"], "token_times": times}
        return Told(done, task.slots * len(times) / sum(times), kept, placement)
