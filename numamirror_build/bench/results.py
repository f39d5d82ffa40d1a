"""Results on disk: a line for what was measured on, and a line for each point, added as it is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from numamirror_build.errors import ConfigError, StateError
from numamirror_build.machine.state import State

SCHEMA = 1

Outcome = Literal["done", "failed"]

# of a node these change from moment to moment, and say nothing about the machine
_FLEETING = ("free", "reclaimable", "skipped")


@dataclass(frozen=True)
class Point:
    """One process: an arm with a number of threads, a test, and which repetition it is."""

    arm: str
    threads: int
    test: str
    repetition: int


@dataclass(frozen=True)
class Measured:
    """What a point gave: tokens per second, or why there are none."""

    point: Point
    outcome: Outcome
    rate: float | None = None
    reason: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """What was measured on, and what was measured."""

    subject: Mapping[str, Any]
    measured: tuple[Measured, ...]

    @property
    def state(self) -> Mapping[str, Any]:
        """The machine's state, as :func:`state_of` writes it."""
        return dict(self.subject["state"])


def state_of(state: State) -> dict[str, Any]:
    """What must be the same for two results to be comparable."""
    document = state.as_json()
    document["nodes"] = [
        {key: value for key, value in node.items() if key not in _FLEETING} for node in document["nodes"]
    ]
    document["memory_limit"] = document["memory_limit"] is not None
    return dict(json.loads(json.dumps(document)))


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """What differs between two JSON-like values, by its path."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{where}[{number}]")
    elif one != other:
        yield f"{where}: {one} and {other}"


def require_same(one: Any, other: Any, what: str, where: str) -> None:
    """See that two values are the same.

    Raises:
        StateError: they are not; it names what differs.
    """
    if found := list(differences(one, other)):
        raise StateError(
            f"{what} is not the same: the results cannot be compared",
            where=where,
            why="\n".join(found[:10]),
            hint="measure both again in one state, or write to another file with --results",
            details={"differences": found},
        )


class Journal:
    """A file of results that grows; what is in it is not measured again."""

    def __init__(self, path: Path, subject: Mapping[str, Any]) -> None:
        """Open a file, or begin it.

        Raises:
            StateError: it holds results of something else.
            ConfigError: it holds something else than results.
        """
        self.path = path
        self.subject = dict(json.loads(json.dumps(subject)))
        self.done: dict[Point, Measured] = {}
        if path.exists() and path.stat().st_size:
            found = load_results(path)
            require_same(found.subject, self.subject, "What was measured on", str(path))
            self.done = {one.point: one for one in found.measured}
        else:
            self._add({"schema": SCHEMA, "subject": self.subject})

    def add(self, measured: Measured) -> None:
        """Keep a result; it is on disk when this returns."""
        self.done[measured.point] = measured
        self._add({**asdict(measured), "facts": dict(measured.facts)})

    def results(self) -> Results:
        """What there is so far."""
        return Results(self.subject, tuple(self.done.values()))

    def _add(self, row: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as stream:
            stream.seek(0, os.SEEK_END)
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # a line that a killed run did not finish
                    stream.write(b"\n")
            stream.write(json.dumps(row, sort_keys=True).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def load_results(path: Path) -> Results:
    """The results of a file. A line that a killed run did not finish is left out.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        first, *lines = path.read_text().splitlines()
        head = json.loads(first)
        if head["schema"] != SCHEMA:
            raise ValueError(f"schema {head['schema']}")
        subject = dict(head["subject"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "These are no results of bench", where=str(path), why=str(error), hint="name another file"
        ) from error
    measured = []
    for line in lines:
        try:
            row = json.loads(line)
            measured.append(Measured(**{**row, "point": Point(**row["point"])}))
        except (ValueError, KeyError, TypeError):
            continue
    return Results(subject, tuple(measured))
