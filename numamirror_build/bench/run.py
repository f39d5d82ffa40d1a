"""Measuring: a fresh process per point, the arms' order turned around with each repetition."""

from __future__ import annotations

import functools
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.bench.arms import Arm, Files, Kind, Task, Tree, threads_of
from numamirror_build.bench.meters import Meter
from numamirror_build.bench.placement import moved
from numamirror_build.bench.results import Journal, Measured, Point, require_same, state_of
from numamirror_build.machine.state import State
from numamirror_build.progress import Progress

SETTLED = 0.02  # a round that is no more faster than this has settled
MOVED = 0.01  # and so has one with no more than this of the model elsewhere than in the one before
MOST_ROUNDS = 30

_SETTLING = 64  # tokens of a round, where the test is a prompt


@dataclass(frozen=True)
class Plan:
    """What is measured: every arm with its thread counts and every test, so many times."""

    arms: tuple[Arm, ...]
    threads: tuple[int, ...]
    tests: tuple[Task, ...]
    repetitions: int

    def points(self, state: State) -> list[tuple[Arm, Task, Point]]:
        """All points in the order in which they are measured.

        A repetition goes through all arms before the next begins, and every other one backwards:
        what changes slowly on the machine meets all arms alike.
        """
        nodes = {node.id: node for node in state.nodes}
        made = []
        for repetition in range(self.repetitions):
            arms = self.arms if repetition % 2 == 0 else self.arms[::-1]
            made += [
                (arm, test, Point(arm.name, threads, test.name, repetition))
                for test in self.tests
                for arm in arms
                for threads in threads_of(arm, nodes, self.threads)
            ]
        return made


def measure(
    plan: Plan,
    meters: Mapping[tuple[Kind, Tree], Meter],
    model: Files,
    journal: Journal,
    read_state: Callable[[], State],
    progress: Progress,
) -> None:
    """Measure what is not in the journal yet.

    Args:
        plan: what to measure.
        meters: what measures each kind of test with each tree's build.
        model: the GGUF file, with its other parts.
        journal: where results are kept; points that are in it are not measured again.
        read_state: asks for the machine's state, before each point.
        progress: what is told how far it is.

    Raises:
        StateError: the machine's state is not that which the journal began with.
    """
    state = read_state()
    todo = [one for one in plan.points(state) if one[2] not in journal.done]
    settled: set[tuple[str, int]] = set()
    for number, (arm, test, point) in enumerate(todo, 1):
        require_same(
            journal.subject["state"], state_of(read_state()), "The machine's state", str(journal.path)
        )
        progress.update(
            f"{number} of {len(todo)}: {point.arm}, {point.threads} threads, {point.test}, "
            f"repetition {point.repetition + 1}"
        )
        facts: dict[str, Any] = {}
        if arm.settles and (arm.name, point.threads) not in settled:
            forget(model)
            # generating is what reads all weights, and an empty cache leaves time for nothing else
            round_of = Task("tg", test.tokens if test.kind != "pp" else _SETTLING)
            again = functools.partial(_run, meters["tg", arm.tree], arm, model, point, round_of)
            facts["settling"] = settle(again)
            settled.add((arm.name, point.threads))
        made = _run(meters[test.kind, arm.tree], arm, model, point, test)
        journal.add(Measured(point, made.outcome, made.rate, made.reason, {**made.facts, **facts}))


def forget(model: Files) -> None:
    """Take a model's files out of the page cache, so that whoever reads a page next decides where it is."""
    for part in model.parts:
        with part.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def settle(run: Callable[[], Measured]) -> dict[str, Any]:
    """Run until a round reads nothing from disk, is no faster than the one before, and has moved no page.

    Where the kernel does not say where these are, the first two count.

    Returns:
        Whether it settled, the rates of all rounds, and the model's bytes on each node after each round.
    """
    rates: list[float] = []
    places: list[dict[str, int] | None] = []
    settled = False
    while not settled and len(rates) < MOST_ROUNDS:
        made = run()
        if made.rate is None:
            break
        rates.append(made.rate)
        places.append(made.facts["placement"]["model"] if made.facts.get("placement") else None)
        if len(rates) > 1 and not made.facts["major_faults"]:
            before, after = places[-2:]
            stays = before is None or after is None or moved(before, after) <= MOVED
            settled = stays and rates[-1] <= rates[-2] * (1 + SETTLED)
    return {"settled": settled, "rates": rates, "places": places}


def _run(meter: Meter, arm: Arm, model: Files, point: Point, test: Task) -> Measured:
    if reason := meter.refusal(test):
        return Measured(point, "failed", reason=reason)
    with tempfile.TemporaryDirectory(prefix="numamirror-bench-") as folder:
        status = Path(folder) / "status.json"
        start, faults = time.monotonic(), _major_faults()
        told = meter.measure(arm, model, point.threads, test, Path(folder), arm.environment(status))
        facts: dict[str, Any] = {
            "seconds": round(time.monotonic() - start, 3),
            "major_faults": _major_faults() - faults,
            "load": os.getloadavg()[0],
            **told.facts,
        }
        if told.placement:
            facts["placement"] = told.placement.as_json()
        if told.done.returncode or told.rate is None:
            reason = _reason(told.done.output) or f"the program ended with status {told.done.returncode}"
            return Measured(point, "failed", reason=reason, facts=facts)
        if arm.mirror:
            facts["mirror"] = _status(status)
            if not facts["mirror"].get("active"):
                return Measured(point, "failed", reason="the mirror was not active", facts=facts)
    return Measured(point, "done", rate=told.rate, facts=facts)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_majflt


def _reason(output: str) -> str | None:
    """The line that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    mirror = [line for line in lines if "numa mirror:" in line]
    errors = [line for line in lines if "error" in line.lower() or "_ASSERT(" in line]
    return next(iter([*mirror[-1:], *errors, *lines]), "")[:300] or None


def _status(path: Path) -> dict[str, Any]:
    """Of the mirror's status record what a result needs: whether it was there, of how much, and where."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    names = ("active", "policy", "pretend", "replicas", "bytes_per_replica", "page_kind", "nodes")
    return {name: record.get(name) for name in names}
