"""``doctor``: what is asked, printed, and what the status is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.cli import machine
from numamirror_build.cli.main import run
from numamirror_build.machine.state import read_state
from tests.machines import Machine, Node

GOOD = {0: Node("0-1", package=0), 1: Node("2-3", package=1)}

Put = Callable[[Machine], None]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Put:
    """Make the program see a made-up machine, whose memory gives 100 GB/s, and 40 from elsewhere."""

    def program(arguments: Any) -> dict[str, Any]:
        local = (arguments[0] == "0") == (arguments[2][0] == "0")
        return {"bytes_per_second": 100e9 if local else 40e9, "bound": True, "on_node": 1.0}

    def put(made: Machine) -> None:
        root = made.write(tmp_path / "machine")
        monkeypatch.setattr(machine, "read_state", lambda: read_state(root))

    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "refused_policy", lambda node: None)
    monkeypatch.setattr(machine, "make_program", lambda store: program)
    monkeypatch.setattr(machine, "NEEDED", {})
    return put


def test_a_good_machine(on: Put, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes, bandwidths and notes are printed; the status is 0."""
    on(Machine(GOOD))
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "100.0 GB/s" in out and "40.0 GB/s" in out
    assert "note: Remote memory gives 40% of what local memory gives" in out


def test_without_bandwidth(on: Put, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not measured is not judged."""
    on(Machine(GOOD))
    assert run(["doctor", "--no-bandwidth", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bandwidth"] is None
    assert document["healthy"] is True
    assert [finding["id"] for finding in document["findings"]] == ["room"]


def test_a_bad_machine(on: Put, capsys: pytest.CaptureFixture[str]) -> None:
    """What prevents the mirror is printed with advice, and the status tells."""
    on(Machine({0: Node("0-1")}))
    assert run(["doctor", "--json"]) == machine.UNHEALTHY == 60
    document = json.loads(capsys.readouterr().out)
    assert document["findings"][0]["id"] == "one-node"
    assert len(document["bandwidth"]["flows"]) == 1


def test_missing_compiler(
    on: Put, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a compiler nothing is measured, and the packages are named."""
    on(Machine(GOOD))
    monkeypatch.setattr(machine, "NEEDED", {"no-such-compiler": "gcc"})
    assert run(["doctor"]) == machine.UNHEALTHY
    out = capsys.readouterr().out
    assert "sudo apt-get install gcc" in out
    assert "GB/s" not in out
