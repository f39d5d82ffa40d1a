"""The values that a report is made of; what they are made from and how they are written are elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

SCHEMA = 1

Status = Literal["pass", "fail", "skip", ""]


@dataclass(frozen=True)
class Bar:
    """A value in a plot, with an interval where there is one; what a report is about stands out."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    stands_out: bool = False


@dataclass(frozen=True)
class Plot:
    """Bars that begin at zero, all of one unit."""

    title: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Roof:
    """A limit in a roofline plot: y is at most x times the slope, and the ceiling where there is one."""

    label: str
    slope: float
    ceiling: float | None = None


@dataclass(frozen=True)
class Mark:
    """A point in a roofline plot, predicted or measured; what a report is about stands out."""

    label: str
    x: float
    y: float
    measured: bool = False
    stands_out: bool = False


@dataclass(frozen=True)
class Roofline:
    """Work by work per byte, both axes by powers of ten: how near to their limits the marks are."""

    title: str
    x: str
    y: str
    roofs: tuple[Roof, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table, with a status where it has one."""

    cells: tuple[str, ...]
    status: Status = ""


@dataclass(frozen=True)
class Table:
    """A table; ``right`` names the columns of numbers."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    title: str
    text: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    table: Table | None = None
    roofline: Roofline | None = None


@dataclass(frozen=True)
class Report:
    """A report: what it is about, what it comes to, and its parts."""

    title: str
    verdict: str
    status: Status
    made: str
    sections: tuple[Section, ...]

    def as_json(self) -> dict[str, Any]:
        """The report for machines."""
        return {"schema": SCHEMA, **asdict(self)}
