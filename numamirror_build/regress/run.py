"""The pins of a regression, one after the other or several at once.

Several at once are processes, not threads: planning forks, and one that breaks down takes nobody with it.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from numamirror_build.patching.lock import compare_counts
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Progress, Quiet
from numamirror_build.regress.steps import Level, PinResult, Step, result_from_json, run_steps
from numamirror_build.store import Store
from numamirror_build.upstreams.pins import find_pin

_CPUS_A_PIN = 4
"""A build cannot keep many more cores busy all the time; several builds can."""


@dataclass(frozen=True)
class Regression:
    """The results of all pins, in the pins' order.

    Attributes:
        level: how far it went, at pins that were not to go to another level.
        results: one per pin.
        seconds: how long this run took.
    """

    level: Level
    results: tuple[PinResult, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all steps of all pins passed."""
        return all(result.passed for result in self.results)

    @property
    def exit_code(self) -> int:
        """0, or what the command would end with that does the first failed step alone."""
        failed = (result.failed for result in self.results)
        return next((int((step.error or {})["exit_code"]) for step in failed if step), 0)

    def changes(self) -> list[Mapping[str, Mapping[str, int]]]:
        """By pin, how the number of accesses by file and kind differs from the pin before it."""
        changes: list[Mapping[str, Mapping[str, int]]] = []
        before: PinResult | None = None
        for result in self.results:
            known = before if before and before.upstream == result.upstream else None
            both = known and known.by_file and result.by_file
            changes.append(compare_counts(known.by_file, result.by_file) if known and both else {})
            before = result
        return changes

    def as_json(self) -> dict[str, Any]:
        """The regression for machines."""
        return {
            "level": self.level,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "pins": [
                {**result.as_json(), "passed": result.passed, "changes": change}
                for result, change in zip(self.results, self.changes(), strict=True)
            ],
        }


def parallel_by_default(cpus: int) -> int:
    """How many pins to do at once."""
    return max(1, cpus // _CPUS_A_PIN)


def run_regression(
    store: Store,
    requests: Sequence[Request],
    level: Level,
    *,
    defaults: Level | None = None,
    parallel: int = 1,
    progress: Progress,
) -> Regression:
    """Do the steps of every request's pin.

    Args:
        store: the cache.
        requests: one per pin, in the order of the results.
        level: how far to go.
        defaults: how far to go at upstreams' default pins; None: as far.
        parallel: how many pins at once; they share the jobs that the requests allow.
        progress: told which pin is being done.

    Raises:
        UnknownPinError: a request names none; nothing was done then.
    """
    levels = [
        defaults or level
        if find_pin(request.upstream, request.pin) == find_pin(request.upstream, None)
        else level
        for request in requests
    ]
    start = time.monotonic()
    if parallel == 1 or len(requests) == 1:
        results = []
        for number, (request, one) in enumerate(zip(requests, levels, strict=True), start=1):
            progress.step(f"Pin {request.pin} of {request.upstream}, {number} of {len(requests)}")
            results.append(run_steps(Pipeline(store, request, progress), one))
    else:
        jobs = max(1, max(request.jobs for request in requests) // parallel)
        shared = [replace(request, jobs=jobs) for request in requests]
        found = dict(_in_processes(store.root, shared, levels, parallel, progress))
        results = [found[number] for number in range(len(shared))]
    return Regression(level, tuple(results), time.monotonic() - start)


def _in_processes(
    root: Path, requests: Sequence[Request], levels: Sequence[Level], parallel: int, progress: Progress
) -> Iterator[tuple[int, PinResult]]:
    context = multiprocessing.get_context("spawn")
    waiting = list(enumerate(requests))
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                number, request = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(theirs, root, request, levels[number]))
                process.start()
                theirs.close()
                running[ours] = number, process
                progress.step(f"Pin {request.pin} of {request.upstream} begins")
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                number, ended = running[connection]
                result = _received(connection)
                ended.join()
                del running[connection]
                request = requests[number]
                done = result or _broken(request, ended.exitcode)
                progress.step(f"Pin {request.pin}: {'passed' if done.passed else 'FAILED'}")
                yield number, done
    finally:
        for _, started in running.values():
            started.terminate()
        for _, started in running.values():
            started.join()


def _received(connection: Connection) -> PinResult | None:
    with suppress(EOFError), connection:
        return result_from_json(connection.recv())
    return None


def _broken(request: Request, status: int | None) -> PinResult:
    """What is told of a process that ended without a word."""
    pin = find_pin(request.upstream, request.pin)
    error = {"error": "unexpected", "exit_code": 70, "what": f"its process ended with status {status}"}
    return PinResult(pin.upstream, pin.name, pin.commit, pin.date, (Step("process", "fail", error=error),))


def _child(results: Connection, root: Path, request: Request, level: Level) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    with suppress(KeyboardInterrupt), results:
        results.send(run_steps(Pipeline(Store(root), request, Quiet()), level).as_json())
