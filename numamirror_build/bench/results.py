"""Results on disk: a line for what was measured on, and a line for each point, added as it is done."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from numamirror_build.errors import ConfigError, StateError, cause_of, output_as_error
from numamirror_build.machine.state import State
from numamirror_build.store import check_writable

SCHEMA = 1

Outcome = Literal["done", "failed"]

_TEST = re.compile(r"(?:tg|pp|tok)\d+")

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
            OutputError: it cannot be written.
        """
        self.path = path
        self.subject = dict(json.loads(json.dumps(subject)))
        self.done: dict[Point, Measured] = {}
        if found := results_so_far(path):
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
        with output_as_error(str(self.path)):
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


def results_so_far(path: Path) -> Results | None:
    """The results of a file that more can be added to; None if there are none yet.

    Raises:
        ConfigError: it holds something else than results.
        OutputError: it cannot be written.
    """
    if not path.exists():
        check_writable(path)
        return None
    with output_as_error(str(path)), path.open("ab") as stream:
        empty = stream.tell() == 0
    return None if empty else load_results(path)


def load_results(path: Path) -> Results:
    """The results of a file. A line that a killed run did not finish is left out.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        first, *lines = path.read_text().splitlines()
        head = json.loads(first)
        _see(isinstance(head, dict), "what a file of results begins with")
        if head["schema"] != SCHEMA:
            raise ValueError(f"schema {head['schema']}")
        subject = dict(head["subject"])
        _see(isinstance(subject["model"]["name"], str), "the model's name")
        for node in subject["state"]["nodes"]:
            _see(isinstance(node["usable"], str), "the CPUs of a node")
        measured = tuple(_measured(row) for row in map(_parsed, lines) if row is not None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "These are no results of bench",
            where=str(path),
            why=cause_of(error),
            hint="name another file",
        ) from error
    return Results(subject, measured)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _measured(row: Any) -> Measured:
    """A point as :class:`Journal` writes it; anything else is an error."""
    made = Measured(**{**row, "point": Point(**row["point"])})
    _see(bool(_TEST.match(made.point.test)) and isinstance(made.point.arm, str), f"a point: {made.point}")
    _see(isinstance(made.point.threads, int), f"a number of threads: {made.point.threads}")
    _see(made.rate is None or _is_rate(made.rate), f"a rate: {made.rate}")
    _see(made.reason is None or isinstance(made.reason, str), f"a reason: {made.reason}")
    facts = made.facts
    times = facts.get("token_times", ())
    _see(all(map(_is_rate, times)), f"the token_times of {made.point}")
    timed = bool(times) or "first_token" in facts
    _see(not timed or _is_rate(facts["first_token"]), f"the first_token of {made.point}")
    for part in ("whole", "model"):
        sizes = (facts.get("placement") or {}).get(part, {})
        _see(all(int(node) >= 0 <= size for node, size in sizes.items()), f"the placement of {made.point}")
    for node in (facts.get("mirror") or {}).get("nodes") or ():
        _see(node["id"] >= 0 <= node["bytes"], f"the replicas of {made.point}")
    _see("settling" not in facts or "settled" in facts["settling"], f"the settling of {made.point}")
    _see(facts.get("load", 0) >= 0, f"the load of {made.point}")
    return made


def _is_rate(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf


def _see(right: bool, what: str) -> None:
    if not right:
        raise ValueError(f"this is not {what}")
