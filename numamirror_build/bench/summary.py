"""What results say: a row per arm, thread count and test, how arms compare, and which to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numamirror_build.bench.results import Measured, Results
from numamirror_build.bench.statistics import BETTER, Comparison, Summary, compare, summarise
from numamirror_build.machine import files

MIRRORS = ("mirror", "mirror-weights")
OFF = "off"
BUSY = 1.5  # of the load that the program itself can make

Series = tuple[str, int, str]  # arm, threads, test


@dataclass(frozen=True)
class Row:
    """All repetitions of an arm with so many threads at a test."""

    arm: str
    threads: int
    test: str
    samples: tuple[float, ...]
    failed: tuple[str, ...]

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
    rates: dict[Series, list[float]] = {}
    failed: dict[Series, list[str]] = {}
    for one in measured:
        key = (one.point.arm, one.point.threads, one.point.test)
        rates.setdefault(key, [])
        failed.setdefault(key, [])
        if one.rate is not None:
            rates[key].append(one.rate)
        else:
            failed[key].append(one.reason or "")
    return [Row(*key, tuple(rates[key]), tuple(failed[key])) for key in rates]


def best(rows: Sequence[Row]) -> Row | None:
    """The row with the highest median."""
    return max((row for row in rows if row.summary), key=_median, default=None)


def duels_of(rows: Sequence[Row]) -> list[Duel]:
    """One for each test that both sides were measured at; each side with its own best thread count."""
    made = []
    for test in dict.fromkeys(row.test for row in rows):
        here = [row for row in rows if row.test == test]
        mirror = best([row for row in here if row.arm in MIRRORS])
        other = best([row for row in here if row.arm not in (*MIRRORS, OFF)])
        if mirror and other:
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
    words += [_verdict(duel) for duel in duels]
    if results.subject.get("pretend"):
        words.append("The nodes are pretended: these speeds say nothing about a machine with several.")
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
