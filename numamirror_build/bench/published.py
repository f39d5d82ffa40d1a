"""What other people have published: tables of how fast generation was with a mirror and without, as data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import ConfigError, cause_of
from numamirror_build.toml import read_toml

TABLES = Path(__file__).with_name("published")

_KEYS = {"name", "source", "machine", "baseline", "row"}
_ROW_KEYS = {"model", "without", "mirror", "ratio"}


@dataclass(frozen=True)
class Line:
    """A model in a table.

    Attributes:
        model: the model and its quantisation.
        ratio: the mirror's tokens per second, by those of what it was compared with.
        without: tokens per second without a mirror; None where only the ratio was published.
        mirror: tokens per second with it.
    """

    model: str
    ratio: float
    without: float | None = None
    mirror: float | None = None

    def is_for(self, model: str) -> bool:
        """Whether this is that model, however its name is written."""
        return _plain(self.model) == _plain(model)


@dataclass(frozen=True)
class Published:
    """A table.

    Attributes:
        name: what it is.
        source: where the figures come from, in words.
        machine: what they were measured on.
        baseline: the arm that the mirror was compared with, as ``bench`` names it, without a node's number.
        lines: a model each.
    """

    name: str
    source: str
    machine: str
    baseline: str
    lines: tuple[Line, ...]

    def as_json(self) -> dict[str, Any]:
        """The table for machines."""
        return {**asdict(self), "lines": [asdict(line) for line in self.lines]}


def known_tables() -> list[str]:
    """Names of the tables that the package has."""
    return sorted(path.stem for path in TABLES.glob("*.toml"))


def load_table(name: str) -> Published:
    """The table of a file, or one that the package has by its name.

    Raises:
        ConfigError: it is not there, is no TOML, or is no such table.
    """
    path = TABLES / f"{name}.toml" if name in known_tables() else Path(name)
    table = read_toml(path, "The published table", hint=f"a file, or one of: {', '.join(known_tables())}")
    try:
        _known(table, _KEYS)
        name, source, machine, baseline = (
            str(table[key]) for key in ("name", "source", "machine", "baseline")
        )
        return Published(name, source, machine, baseline, tuple(_line(row) for row in table["row"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "The published table is not complete",
            where=str(path),
            why=cause_of(error),
            hint="docs/machine.md says what it needs",
        ) from error


def _line(row: Mapping[str, Any]) -> Line:
    _known(row, _ROW_KEYS)
    if "ratio" in row:
        if len(row) > 2:
            raise ValueError("a ratio stands alone, or follows from both rates")
        return Line(str(row["model"]), _positive(row["ratio"]))
    without, mirror = _positive(row["without"]), _positive(row["mirror"])
    return Line(str(row["model"]), _positive(mirror / without), without, mirror)


def _positive(value: Any) -> float:
    if not 0 < float(value) < math.inf:
        raise ValueError(f"not a positive number: {value}")
    return float(value)


def _known(table: Mapping[str, Any], keys: set[str]) -> None:
    if unknown := sorted(set(table) - keys):
        raise ValueError(f"unknown keys: {', '.join(unknown)}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
