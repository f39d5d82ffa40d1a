"""The steps of one pin, up to a level, and how each went.

A step's values come from the cache when they are there: what an interrupted run made is not made again.
A step that fails ends its pin, not the others'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from numamirror_build.config import APP
from numamirror_build.errors import LockMismatchError, NumaMirrorError, VerificationError
from numamirror_build.pipeline import Pipeline

Level = Literal["plan", "audit", "build", "verify"]
Status = Literal["pass", "fail", "not run"]
LEVELS: tuple[Level, ...] = ("plan", "audit", "build", "verify")


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: what was done.
        status: how it went.
        seconds: how long it took when it was made, in this run or an earlier one; a plan: in this run,
            whether it was made or read.
        cached: whether it was made by an earlier run; None: nobody knows.
        facts: what it found, in one line.
        error: the failure, as the command that does the step alone has it.
    """

    name: str
    status: Status
    seconds: float = 0.0
    cached: bool | None = False
    facts: str = ""
    error: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The step for machines."""
        return asdict(self)


@dataclass(frozen=True)
class PinResult:
    """How the steps of a pin went.

    Attributes:
        upstream: name of the upstream.
        pin: name of the pin.
        commit: its commit.
        date: when it was committed, if known.
        steps: in order; those behind a failed one are not run.
        sites: by kind, the number of accesses; empty without a plan.
        by_file: the same by file.
    """

    upstream: str
    pin: str
    commit: str
    date: str | None
    steps: tuple[Step, ...]
    sites: Mapping[str, int] = field(default_factory=dict)
    by_file: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all steps passed."""
        return all(step.status == "pass" for step in self.steps)

    @property
    def failed(self) -> Step | None:
        """The step that failed, if one did."""
        return next((step for step in self.steps if step.status == "fail"), None)

    def as_json(self) -> dict[str, Any]:
        """The result for machines; :func:`result_from_json` reads it."""
        return asdict(self)


def result_from_json(value: Mapping[str, Any]) -> PinResult:
    """The result that :meth:`PinResult.as_json` made the data of."""
    return PinResult(**{**value, "steps": tuple(Step(**step) for step in value["steps"])})


def run_steps(pipeline: Pipeline, level: Level) -> PinResult:
    """Do the steps of the pipeline's pin, up to a level.

    Raises:
        UnknownPinError: there is no such pin.
    """
    pin = pipeline.pin
    steps: list[Step] = []
    for name, do in _steps(pipeline, level):
        if any(step.status != "pass" for step in steps):
            steps.append(Step(name, "not run"))
            continue
        start = time.monotonic()
        try:
            seconds, fresh, facts = do()
        except NumaMirrorError as error:
            steps.append(Step(name, "fail", time.monotonic() - start, error=error.as_json()))
        else:
            took = time.monotonic() - start if seconds is None else seconds
            steps.append(Step(name, "pass", took, None if fresh is None else not fresh, facts))
    planned = any(step.name == "plan" and step.status == "pass" for step in steps)
    by_file = pipeline.plan.counts() if planned else {}
    kinds = sorted({kind for counts in by_file.values() for kind in counts})
    sites = {kind: sum(counts.get(kind, 0) for counts in by_file.values()) for kind in kinds}
    return PinResult(pin.upstream, pin.name, pin.commit, pin.date, tuple(steps), sites, by_file)


_Did = tuple[float | None, bool | None, str]
"""Seconds (None: those on the clock), whether made just now (None: nobody knows), and what was found."""


def _steps(pipeline: Pipeline, level: Level) -> list[tuple[str, Callable[[], _Did]]]:
    by_level: dict[Level, list[tuple[str, Callable[[Pipeline], _Did]]]] = {
        "plan": [("checkout", _checkout), ("plan", _plan), ("apply", _apply)],
        "audit": [("audit", _audit)],
        "build": [("build", _build), ("wheel", _wheel)],
        "verify": [("verify", _verify)],
    }
    wanted = LEVELS[: LEVELS.index(level) + 1]
    return [(name, partial(do, pipeline)) for one in wanted for name, do in by_level[one]]


def _checkout(pipeline: Pipeline) -> _Did:
    made = pipeline.checkout
    return made.seconds, made.fresh, "content checked" if made.verified else "content NOT checked"


def _plan(pipeline: Pipeline) -> _Did:
    made, report, pin = pipeline.plan, pipeline.lock_report, pipeline.pin
    if pin.listed and not report.locked:
        raise LockMismatchError(
            "The pin is listed, but not locked",
            where=f"patches/{pin.upstream}/locks/{pin.name}.toml, scope {made.scope}",
            why="there is no such file, or it lacks the scope",
            hint=f"{APP} plan --upstream {pin.upstream} --pin {pin.name} --scope {made.scope} --update-lock",
        )
    lock = f"as locked in {report.lock}" if report.locked else "not locked"
    return None, None, f"{len(made.sites)} accesses, {len(made.hooks())} hooks, {lock}"


def _apply(pipeline: Pipeline) -> _Did:
    made = pipeline.patched_tree
    return made.seconds, made.fresh, made.key


def _build(pipeline: Pipeline) -> _Did:
    made = pipeline.patched_build
    return made.seconds, made.fresh, f"{len(made.programs)} programs"


def _audit(pipeline: Pipeline) -> _Did:
    made = pipeline.audit
    return made.seconds, made.fresh, f"{len(made.compiled)} units compile with the field hidden"


def _wheel(pipeline: Pipeline) -> _Did:
    made = pipeline.wheel
    return made.seconds, made.fresh, made.path.name


def _verify(pipeline: Pipeline) -> _Did:
    made = pipeline.verification
    counts = made.counts()
    if not made.passed:
        raise VerificationError("A check failed", where=str(made.report), why=f"{counts['fail']} checks")
    return made.seconds, made.fresh, f"{counts['pass']} checks passed, {counts['skip']} skipped"
