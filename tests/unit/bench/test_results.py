"""Files of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.bench.results import Journal, Measured, Point, differences, load_results, state_of
from numamirror_build.errors import ConfigError
from numamirror_build.machine.state import read_state
from tests.machines import GIB, Machine, Node

SUBJECT = {"state": {"nodes": [{"usable": "0-3"}]}, "model": {"name": "m"}}
POINT = {"arm": "none", "threads": 2, "test": "tg4", "repetition": 0}


def test_there_and_back(tmp_path: Path) -> None:
    """What was added is what is loaded."""
    journal = Journal(tmp_path / "new/r.jsonl", SUBJECT)
    one = Measured(Point("none", 2, "tg4", 0), "done", 3.5, facts={"load": 0.5})
    two = Measured(Point("mirror", 2, "tg4", 0), "failed", reason="no")
    journal.add(one)
    journal.add(two)
    loaded = load_results(tmp_path / "new/r.jsonl")
    assert loaded.measured == journal.results().measured == (one, two)
    assert loaded.subject == SUBJECT


@pytest.mark.parametrize(
    "content", ["", "nonsense\n", "[]\n", '{"schema": 99, "subject": {}}\n', '{"schema": 1, "subject": {}}\n']
)
def test_other_files(tmp_path: Path, content: str) -> None:
    """A file that holds something else is not taken for results."""
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(ConfigError, match="no results"):
        load_results(path)


@pytest.mark.parametrize(
    "row",
    [
        5,
        {"point": {**POINT, "test": "zz"}},
        {"point": {**POINT, "threads": "x"}},
        {"point": POINT, "more": 1},
        {"point": POINT, "rate": "fast"},
        {"point": POINT, "rate": 0},
        {"point": POINT, "rate": float("inf")},
        {"point": POINT, "facts": 3},
        {"point": POINT, "facts": {"token_times": [0.1, "x"]}},
        {"point": POINT, "facts": {"token_times": [0.1], "first_token": None}},
        {"point": POINT, "facts": {"token_times": [0.1], "first_token": [0.1]}},
        {"point": POINT, "facts": {"token_times": [0.1]}},
        {"point": POINT, "facts": {"token_times": 0.1, "first_token": 0.1}},
        {"point": POINT, "reason": 5},
        {"point": POINT, "facts": {"placement": 3}},
        {"point": POINT, "facts": {"placement": {"whole": {"a": 1}}}},
        {"point": POINT, "facts": {"mirror": {"nodes": [{"id": 0}]}}},
        {"point": POINT, "facts": {"settling": {}}},
        {"point": POINT, "facts": {"load": "high"}},
    ],
)
def test_lines_that_are_no_points(tmp_path: Path, row: Any) -> None:
    """What bench did not write is not taken for a result; the same line in its own form is."""
    path = tmp_path / "r.jsonl"
    head = json.dumps({"schema": 1, "subject": SUBJECT})
    if isinstance(row, dict):
        row = {"outcome": "done", **row}
    path.write_text(f"{head}\n{json.dumps(row)}\n")
    with pytest.raises(ConfigError, match="no results"):
        load_results(path)
    path.write_text(f'{head}\n{json.dumps({"point": POINT, "outcome": "done", "rate": 2})}\n{{"point": {{')
    assert [one.rate for one in load_results(path).measured] == [2]


def test_differences() -> None:
    """Each value that differs is named by its path."""
    one = {"a": 1, "n": [{"x": 1}, {"x": 2}], "only": 5}
    other = {"a": 1, "n": [{"x": 1}, {"x": 3}], "l": [1]}
    assert list(differences(one, other)) == ["l: None and [1]", "n[1].x: 2 and 3", "only: 5 and None"]


def test_what_belongs_to_a_state(tmp_path: Path) -> None:
    """Free memory changes from moment to moment and does not count; CPUs and settings do."""

    def of(number: int, machine: Machine) -> object:
        return state_of(read_state(machine.write(tmp_path / str(number))))

    first = of(1, Machine({0: Node("0-1")}))
    assert of(2, Machine({0: Node("0-1", free=GIB, cache=0)})) == first
    assert of(3, Machine({0: Node("0-1")}, cpus_allowed="0")) != first
    files = {"sys/kernel/mm/transparent_hugepage/enabled": "[always] never"}
    assert of(4, Machine({0: Node("0-1")}, files=files)) != first
