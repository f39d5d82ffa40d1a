"""The steps of one pin."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build.errors import LockMismatchError
from numamirror_build.regress.steps import LEVELS, Level, PinResult, result_from_json, run_steps
from numamirror_build.upstreams.pins import find_pin
from tests.unit.regress.made_up import Pipeline

PLANNED = ["checkout", "plan", "apply"]


def steps(level: Level, **values: Any) -> tuple[Pipeline, PinResult]:
    """What the steps of a made-up pin make."""
    pipeline = Pipeline(**values)
    return pipeline, run_steps(pipeline, level)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("plan", PLANNED),
        ("audit", [*PLANNED, "audit"]),
        ("build", [*PLANNED, "audit", "build", "wheel"]),
        ("verify", [*PLANNED, "audit", "build", "wheel", "verify"]),
    ],
)
def test_each_level_adds_to_the_one_before(level: Level, names: list[str]) -> None:
    """A level's steps, all passed; nothing of a higher level is made."""
    pipeline, made = steps(level)
    assert [step.name for step in made.steps] == names
    assert made.passed and made.failed is None
    for name in ("patched_build", "wheel"):
        assert (name in pipeline.asked) == (level in ("build", "verify"))


def test_a_step_says_what_it_found_and_how_long_it_took() -> None:
    """Times are those of making, whichever run made it; the plan's is that on the clock."""
    _, made = steps("verify")
    by_name = {step.name: step for step in made.steps}
    assert (by_name["checkout"].seconds, by_name["checkout"].cached) == (1.5, True)
    assert (by_name["verify"].seconds, by_name["verify"].cached) == (6.5, False)
    assert by_name["plan"].facts == "5 accesses, 2 hooks, as locked in 0.3.36"
    assert 0 <= by_name["plan"].seconds < 1 and by_name["plan"].cached is None
    assert by_name["verify"].facts == "7 checks passed, 1 skipped"


def test_accesses_are_counted_by_kind() -> None:
    """The sum over the files, and the files' own numbers."""
    _, made = steps("plan")
    assert made.sites == {"read": 4, "write": 1}
    assert made.by_file["b.c"] == {"read": 2}


def test_what_follows_a_failure_is_not_run() -> None:
    """The failed step has the error of the command that does it alone; nothing behind it is begun."""
    error = LockMismatchError("The plan differs", why="a.c")
    pipeline, made = steps("audit", plan=error)
    assert [step.status for step in made.steps] == ["pass", "fail", "not run", "not run"]
    assert made.failed is not None and made.failed.error == error.as_json()
    assert not made.passed and made.sites == {}
    assert "patched_tree" not in pipeline.asked


def test_a_listed_pin_must_have_its_lock() -> None:
    """Without it the plan has not been compared with anything; another commit need not have one."""
    nearest = SimpleNamespace(locked=False, lock="0.3.30")
    _, made = steps("plan", lock_report=nearest)
    assert made.failed is not None and made.failed.error is not None
    assert (made.failed.name, made.failed.error["error"]) == ("plan", "lock-mismatch")
    assert made.failed.error["where"] == "patches/llama.cpp/locks/0.3.36.toml, scope cpu"
    assert "--pin 0.3.36 --scope cpu --update-lock" in made.failed.error["next"]
    pipeline = Pipeline(lock_report=nearest)
    pipeline.pin = find_pin("llama.cpp", "f" * 40)
    assert run_steps(pipeline, "plan").passed  # type: ignore[arg-type]


def test_a_failed_check_fails_the_step() -> None:
    """A verification that did not pass is a failure, with the report's place."""
    verification = Pipeline().verification
    verification.passed = False
    verification.counts = lambda: {"pass": 1, "skip": 0, "fail": 3}
    _, made = steps("verify", verification=verification)
    assert made.failed is not None and made.failed.error is not None
    assert (made.failed.name, made.failed.error["where"], made.failed.error["why"]) == (
        "verify",
        "r",
        "3 checks",
    )


def test_mistakes_of_ours_are_not_results() -> None:
    """An exception that is no expected failure ends the run."""
    with pytest.raises(ZeroDivisionError):
        steps("plan", checkout=ZeroDivisionError())


@pytest.mark.parametrize("level", LEVELS)
def test_a_result_goes_through_json(level: Level) -> None:
    """What a process sends is what another reads."""
    _, made = steps(level)
    assert result_from_json(json.loads(json.dumps(made.as_json()))) == made
