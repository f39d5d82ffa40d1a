"""What results say: a row per arm, thread count and test, how arms compare, and which to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from numamirror_build.bench.results import Measured, Results
from numamirror_build.bench.statistics import BETTER, Comparison, Summary, compare, summarise
from numamirror_build.machine import files

MIRRORS = ("mirror", "mirror-weights")
OFF = "off"
SETTLES = "distribute"
BUSY = 1.5  # of the load that the program itself can make

Series = tuple[str, int, str]  # arm, threads, test


@dataclass(frozen=True)
class TokenTimes:
    """How long single tokens took, in milliseconds: all steps of all repetitions, but the first of each."""

    first: float
    median: float
    slow: float  # one of twenty took longer
    slowest: float

    def as_json(self) -> dict[str, Any]:
        """The times for machines."""
        return asdict(self)


@dataclass(frozen=True)
class Row:
    """All repetitions of an arm with so many threads at a test.

    Attributes:
        arm: the arm's name.
        threads: how many.
        test: the test's name.
        samples: tokens per second of each repetition.
        failed: why others gave none.
        times: how long single tokens took, where that was measured.
    """

    arm: str
    threads: int
    test: str
    samples: tuple[float, ...]
    failed: tuple[str, ...]
    times: TokenTimes | None = None

    @property
    def summary(self) -> Summary | None:
        """What they say; None if none succeeded."""
        return summarise(self.samples) if self.samples else None

    def as_json(self) -> dict[str, Any]:
        """The row for machines."""
        return {
            "arm": self.arm,
            "threads": self.threads,
            "test": self.test,
            "samples": list(self.samples),
            "failed": list(self.failed),
            "summary": self.summary.as_json() if self.summary else None,
            "token_times_ms": self.times.as_json() if self.times else None,
        }


@dataclass(frozen=True)
class Duel:
    """The mirror's best against the best of everything else, at a test."""

    test: str
    mirror: Row
    other: Row
    comparison: Comparison

    def as_json(self) -> dict[str, Any]:
        """The duel for machines."""
        sides = {
            name: {"arm": row.arm, "threads": row.threads}
            for name, row in (("mirror", self.mirror), ("other", self.other))
        }
        return {"test": self.test, **sides, "comparison": self.comparison.as_json()}


def rows_of(measured: Sequence[Measured]) -> list[Row]:
    """A row for each series, in the order in which they were first measured."""
    series: dict[Series, list[Measured]] = {}
    for one in measured:
        series.setdefault((one.point.arm, one.point.threads, one.point.test), []).append(one)
    return [
        Row(
            *key,
            tuple(one.rate for one in points if one.rate is not None),
            tuple(one.reason or "" for one in points if one.rate is None),
            _times(points),
        )
        for key, points in series.items()
    ]


def _times(points: Sequence[Measured]) -> TokenTimes | None:
    first = [one.facts["first_token"] for one in points if "first_token" in one.facts]
    every = [seconds for one in points for seconds in one.facts.get("token_times", ())]
    if not every:
        return None
    median, slow, slowest = np.percentile(every, [50, 95, 100])
    return TokenTimes(*(round(1000 * float(value), 3) for value in (np.median(first), median, slow, slowest)))


def placements_of(measured: Sequence[Measured], what: str = "whole") -> dict[str, dict[str, int]]:
    """For each arm the bytes that its process had on each node; where they differ, when it had most.

    Args:
        measured: what was measured.
        what: ``whole``, or ``model`` for the model's files as far as they were mapped.
    """
    made: dict[str, dict[str, int]] = {}
    for one in measured:
        whole = (one.facts.get("placement") or {}).get(what, {})
        if sum(whole.values()) > sum(made.get(one.point.arm, {}).values()):
            made[one.point.arm] = dict(sorted(whole.items(), key=lambda entry: int(entry[0])))
    return made


def best(rows: Sequence[Row]) -> Row | None:
    """The row with the highest median."""
    return max((row for row in rows if row.summary), key=_median, default=None)


def duels_of(rows: Sequence[Row], baseline: str = "") -> list[Duel]:
    """One for each test that both sides were measured at; each side with its own best thread count.

    Args:
        rows: what was measured.
        baseline: beginning of the names of arms that count as others; empty for all of them.
    """
    made = []
    for test in dict.fromkeys(row.test for row in rows):
        here = [row for row in rows if row.test == test]
        mirror = best([row for row in here if row.arm in MIRRORS])
        others = [row for row in here if row.arm not in (*MIRRORS, OFF) and row.arm.startswith(baseline)]
        if mirror and (other := best(others)):
            made.append(Duel(test, mirror, other, compare(mirror.samples, other.samples)))
    return made


def cost_when_off(rows: Sequence[Row]) -> list[tuple[str, int, Comparison]]:
    """The patched program without a mirror against upstream's, by test and threads."""
    by_key = {(row.arm, row.threads, row.test): row for row in rows if row.samples}
    return [
        (row.test, row.threads, compare(row.samples, other.samples))
        for row in by_key.values()
        if row.arm == OFF and (other := by_key.get(("none", row.threads, row.test)))
    ]


def advice(results: Results) -> list[str]:
    """Which arm to use, with how many threads; "no gain" where none was shown."""
    rows = rows_of(results.measured)
    duels = duels_of(rows)
    words = []
    if not duels:
        reasons = dict.fromkeys(reason for row in rows if row.arm in MIRRORS for reason in row.failed)
        told = "; ".join(reasons) or "the machine has one node, and none were pretended"
        words.append(f"The mirror was not measured: {told}.")
    for duel in duels:
        words += [_verdict(duel), *_besides(duel, rows)]
    if results.subject.get("pretend"):
        words.append("The nodes are pretended: these speeds say nothing about a machine with several.")
    if results.subject.get("lab"):
        words.append(
            "The machine is emulated: its speeds say nothing, but each way runs, and where its memory is."
        )
    cpus = sum(len(files.ids(node["usable"])) for node in results.state["nodes"])
    if any(one.facts.get("load", 0) > BUSY * cpus for one in results.measured):
        words.append("Other work ran on the machine meanwhile: measure again when it is idle.")
    unsettled = [
        one for one in results.measured if (settling := one.facts.get("settling")) and not settling["settled"]
    ]
    if unsettled:
        words.append("distribute did not settle: its figures may be too low.")
    return words


def _verdict(duel: Duel) -> str:
    mirror, other, found = duel.mirror, duel.other, duel.comparison
    sides = (
        f"{duel.test}: {mirror.arm} with {mirror.threads} threads makes {_median(mirror):.2f} t/s, "
        f"{other.arm} with {other.threads} {_median(other):.2f}"
    )
    if found.verdict == "unknown":
        return f"{sides}: {found.ratio:.2f} times, but too few repetitions to tell them apart."
    told = f"{found.ratio:.2f} times, p = {found.p:.2g}"
    if found.verdict == "better":
        return f"{sides}: {told}. Use {mirror.arm}."
    if found.verdict == "worse":
        return f"{sides}: {told}. No gain: use {other.arm}."
    if found.verdict == "same" and found.ratio >= BETTER:
        return f"{sides}: {told}. The runs vary too much: no gain is shown. Repeat on an idle machine."
    return f"{sides}: {told}. No gain that is worth the memory: use {other.arm}."


def _besides(duel: Duel, rows: Sequence[Row]) -> list[str]:
    """Where the best of the others has to settle first: what the mirror brings over the best that has not."""
    if duel.other.arm != SETTLES:
        return []
    here = [row for row in rows if row.test == duel.test and row.arm not in (*MIRRORS, OFF, SETTLES)]
    other = best(here)
    if other is None:
        return []
    ratio = _median(duel.mirror) / _median(other)
    return [
        f"{duel.test}: {SETTLES} had settled before. Where it cannot, {other.arm} with {other.threads} "
        f"threads is next with {_median(other):.2f} t/s, {duel.mirror.arm} makes {ratio:.2f} times of that."
    ]


def _median(row: Row) -> float:
    assert row.summary
    return row.summary.median


def document(results: Results) -> dict[str, Any]:
    """Everything, for machines."""
    rows = rows_of(results.measured)
    return {
        "subject": dict(results.subject),
        "rows": [row.as_json() for row in rows],
        "duels": [duel.as_json() for duel in duels_of(rows)],
        "cost_when_off": [
            {"test": test, "threads": threads, **found.as_json()}
            for test, threads, found in cost_when_off(rows)
        ],
        "memory_per_node": placements_of(results.measured),
        "advice": advice(results),
    }


def against(results: Results, others: Results) -> list[tuple[Row, Row, Comparison]]:
    """Results against earlier ones, series by series."""
    earlier: Mapping[Series, Row] = {
        (row.arm, row.threads, row.test): row for row in rows_of(others.measured) if row.samples
    }
    return [
        (row, other, compare(row.samples, other.samples))
        for row in rows_of(results.measured)
        if row.samples and (other := earlier.get((row.arm, row.threads, row.test)))
    ]
