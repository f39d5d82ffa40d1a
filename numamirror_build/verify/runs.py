"""Running variants: each in a process of its own, each a cache entry, so that an interrupted run goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numamirror_build import proc
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify.matrix import Case, Variant
from numamirror_build.verify.models import Model
from numamirror_build.verify.profile import Profile

RUNNER = Path(__file__).with_name("runner")
SECONDS = 3600.0

# Where a debugger begins to talk, which some versions of upstream call when they abort.
_DEBUGGER = re.compile(r"^(?:\[New LWP|\[Thread debugging|ptrace:|warning: )", re.MULTILINE)

# What the user's environment says must not reach the libraries that are compared.
_STRIPPED = ("GGML_", "LLAMA_", "IK_LLAMA_", "OMP_", "GOMP_", "KMP_", "PYTHON")

# Threads that spin while they wait take five times as long on busy CPUs; what they compute is the same.
# A debugger's backtrace of Python hides what a failed assertion says.
_OURS = {"OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": "1", "GGML_NO_BACKTRACE": "1"}


@dataclass(frozen=True)
class Binding:
    """A Python in which the binding can be imported.

    Attributes:
        python: the interpreter.
        package: the distribution's name, to ask for its version.
        key: tells one environment from another.
        profile: which binding it is, and how it is made to load other libraries than its own.
        env: variables that it needs besides.
    """

    python: Path
    package: str
    key: str
    profile: Profile
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Libraries:
    """Libraries of a build.

    Attributes:
        folder: where llama's own library is.
        root: the build's folder, which has all of them.
        key: the build's.
    """

    folder: Path
    root: Path
    key: str


@dataclass(frozen=True)
class Run:
    """What a process came to.

    Attributes:
        outcome: ``done``; ``refused`` when the model was not loaded; ``died`` when the process failed.
        facts: what the runner wrote.
        reason: for ``died`` and ``refused``: how, with the log's last lines.
        folder: where the request, the log and the logits are.
    """

    outcome: Literal["done", "refused", "died"]
    facts: Mapping[str, Any]
    reason: str | None
    folder: Path

    @property
    def status(self) -> Mapping[str, Any] | None:
        """The mirror's status record, if the library has one."""
        status = self.facts.get("status")
        return status if isinstance(status, Mapping) else None


class _Died(Exception):
    """Ends a maker, so that a failed run is not taken for finished; holds what to say, and the log."""


def run_logits(
    store: Store,
    binding: Binding,
    libraries: Libraries,
    model: Model,
    variant: Variant,
    cases: Sequence[Case],
    *,
    reference: Run | None,
    other: Model | None = None,
) -> Run:
    """Evaluate cases with a variant; compare with ``reference``, or keep the logits when it is None.

    ``other`` is the second model of the cases that take two.
    """
    request = {
        "mode": "logits",
        "model": str(model.path),
        "other": str(other.path) if other else None,
        "adapter": str(model.adapter) if model.adapter else None,
        "strategy": variant.strategy,
        "cases": [case.as_json() for case in cases],
        "reference": str(reference.folder) if reference else None,
    }
    identities = [model.identity, *([other.identity] if other else [])]
    return _run(store, binding, libraries, request, variant.env, *identities)


def run_text(
    store: Store,
    binding: Binding,
    libraries: Libraries | None,
    model: Model,
    *,
    strategy: int,
    env: Mapping[str, str],
    prompt: str = "the northern tern returned and then",
    generate: int = 24,
) -> Run:
    """Generate text through the class that people use; with the binding's own libraries or with others."""
    request = {
        "mode": "text",
        "python": str(binding.python),  # where the libraries are that it says it loaded
        "model": str(model.path),
        "strategy": strategy,
        "prompt": prompt,
        "generate": generate,
    }
    return _run(store, binding, libraries, request, env, model.identity)


def run_layout(store: Store, binding: Binding, libraries: Libraries | None) -> Run:
    """List the structures as the binding declares them."""
    return _run(store, binding, libraries, {"mode": "layout"}, {})


def _run(
    store: Store,
    binding: Binding,
    libraries: Libraries | None,
    request: Mapping[str, Any],
    env: Mapping[str, str],
    *identities: str,
) -> Run:
    key = digest(
        {
            "runner": [file_sha256(path) for path in sorted(RUNNER.glob("*.py"))],
            "binding": binding.key,
            "libraries": libraries.key if libraries else None,
            "request": request,
            "env": dict(env),
            "models": identities,
        }
    )[:20]
    inherited = proc.environment().items()
    whole_env = {name: value for name, value in inherited if not name.startswith(_STRIPPED)}
    whole_env |= {**_OURS, **binding.env, **env}
    if libraries:
        whole_env[binding.profile.variable] = str(libraries.folder / binding.profile.file)

    def make(folder: Path) -> dict[str, Any]:
        if env or request.get("strategy"):
            whole_env["GGML_NUMA_MIRROR_STATUS"] = str(folder / "status.json")
        asked = folder / "request.json"
        which = {"folder": str(folder), "package": binding.package, "binding": binding.profile.binding}
        asked.write_text(json.dumps({**request, **which}, indent=1))
        log = folder / "log.txt"
        done = proc.run([binding.python, RUNNER, asked], env=whole_env, log=log, timeout=SECONDS)
        facts = folder / "facts.json"
        if done.returncode or not facts.is_file():
            raise _Died(_how_it_ended(done), done.output)
        return {"facts": json.loads(facts.read_text()), "log": done.output}

    folder = store.folder("verifications", f"run-{key}")
    try:
        made = store.make("verifications", f"run-{key}", make).made
    except _Died as died:
        reason, log = died.args
        return Run("died", {"log": log}, reason, folder)
    facts = {**made["facts"], "log": made["log"]}
    if facts.get("loaded", True):
        return Run("done", facts, None, folder)
    return Run("refused", facts, _last_lines(made["log"]), folder)


def _how_it_ended(done: proc.Completed) -> str:
    if done.returncode == -9:
        how = f"the process was killed (no end within {SECONDS:.0f} s, or no memory)"
    elif done.returncode < 0:
        how = f"the process died of signal {-done.returncode}"
    else:
        how = f"the process ended with status {done.returncode}"
    return f"{how}; last output:\n{_last_lines(_DEBUGGER.split(done.output)[0])}"


def _last_lines(text: str, count: int = 8) -> str:
    return "\n".join(text.strip().splitlines()[-count:])
