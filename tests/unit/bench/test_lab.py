"""Measuring in the lab, with this machine in the place of the lab's."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build import proc
from numamirror_build.bench import lab
from numamirror_build.bench.arms import Task
from numamirror_build.bench.results import load_results
from numamirror_build.errors import DiskFullError, LabError
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


def test_whatever_the_file_is_called(tmp_path: Path, machines: list[Command]) -> None:
    """The job's own file does not come back in the place of the results."""
    made = replace(job(tmp_path, "none"), tests=(Task("tg", 4),), threads=(1,))
    made = replace(made, results=tmp_path / "job.json")
    for _ in range(2):
        lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
        assert len(load_results(made.results).measured) == 2
    assert not list(tmp_path.glob(".job.json*"))


def test_results_that_cannot_be_copied_back(
    tmp_path: Path, machines: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there was before is as it was."""
    made = replace(job(tmp_path, "none"), tests=(Task("tg", 4),), threads=(1,))
    lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
    before = made.results.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError):
        lab.carry_out_in_lab(replace(made, repetitions=3), LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert made.results.read_bytes() == before


def test_the_arms_of_a_machine() -> None:
    """They are known before there is one."""
    every = "none off isolate-0 isolate-1 interleave distribute mirror-weights mirror"
    assert lab.arms_there(LAYOUT) == every.split()


@pytest.mark.parametrize(("status", "hint"), [(1, True), (3, False), (51, False)])
def test_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, *, hint: bool) -> None:
    """The same again is of no use where the job or the file of results is wrong."""
    monkeypatch.setattr(lab, "run_in_lab", lambda *_, **__: SimpleNamespace(exit_status=status))
    with pytest.raises(LabError) as caught:
        lab.carry_out_in_lab(job(tmp_path), LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert bool(caught.value.hint) == hint


def test_a_job_that_fails_there(tmp_path: Path, machines: list[Command]) -> None:
    """The reason is what it said; what had been measured before is kept."""
    made = replace(job(tmp_path, "none"), tests=(Task("tg", 4),), threads=(1,))
    lab.carry_out_in_lab(made, LAYOUT, None, Quiet())  # type: ignore[arg-type]
    with pytest.raises(LabError, match="elsewhere"):
        lab.carry_out_in_lab(replace(made, arms=("elsewhere",)), LAYOUT, None, Quiet())  # type: ignore[arg-type]
    assert len(load_results(made.results).measured) == 2
