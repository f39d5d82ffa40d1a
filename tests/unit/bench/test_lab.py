"""Measuring in the lab, with this machine in the place of the lab's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build import proc
from numamirror_build.bench import lab
from numamirror_build.bench.arms import Task
from numamirror_build.bench.results import load_results
from numamirror_build.errors import LabError
from numamirror_build.lab.guest import Command
from numamirror_build.progress import Quiet
from tests.unit.bench.test_job import job

LAYOUT = lab.layout_for(3_500_000)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """What was run on a machine of the lab: each command runs here instead."""
    ran: list[Command] = []

    def run(layout: Any, command: Command, parts: Any, **given: Any) -> SimpleNamespace:
        ran.append(command)
        done = proc.run(command.words, env=command.env, cwd=command.folder)
        given["on_stderr"](done.output.encode())
        return SimpleNamespace(exit_status=done.returncode)

    monkeypatch.setattr(lab, "run_in_lab", run)
    return ran


def test_a_machine_for_a_model() -> None:
    """Two nodes, each with room for the model thrice; there can be such a machine."""
    assert [node.cpus for node in LAYOUT.nodes] == [2, 2]
    large = lab.layout_for(2 << 30)
    assert all(node.memory > 3 * (2 << 30) for node in large.nodes)


def test_results_come_back(tmp_path: Path, machines: list[Command]) -> None:
    """What was measured there is in the job's file, and the same job measures nothing again."""
    made = replace(job(tmp_path, "none"), tests=(Task("tg", 4),), threads=(1,))
    calls = tmp_path / "bin/calls"
    lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert len(load_results(made.results).measured) == 2
    assert len(calls.read_text().splitlines()) == 2
    lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert len(load_results(made.results).measured) == 2
    assert len(calls.read_text().splitlines()) == 2
    assert machines[0].scratch == machines[0].folder != tmp_path
    assert not machines[0].folder.exists(), "nothing is left but the results"


def test_a_job_that_fails_there(tmp_path: Path, machines: list[Command]) -> None:
    """The reason is what it said; what had been measured before is kept."""
    made = replace(job(tmp_path, "none"), tests=(Task("tg", 4),), threads=(1,))
    lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
    with pytest.raises(LabError, match="elsewhere"):
        lab.carry_out_in_lab(replace(made, arms=("elsewhere",)), LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert len(load_results(made.results).measured) == 2
