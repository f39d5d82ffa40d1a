from __future__ import annotations

import errno
import json

import pytest

from numamirror_build import errors
from numamirror_build.errors import DiskFullError, NumaMirrorError, disk_full_as_error

ALL = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, NumaMirrorError)
]


def test_every_kind_has_its_own_exit_code_and_name() -> None:
    """No two kinds of error share an exit code or a name; none is 0, 2 (usage) or beyond what shells keep."""
    assert len({kind.exit_code for kind in ALL}) == len({kind.kind for kind in ALL}) == len(ALL) > 15
    assert all(0 < kind.exit_code < 126 and kind.exit_code != 2 for kind in ALL)


def test_message_has_four_parts() -> None:
    """What, where, why and what next stand on lines of their own; longer parts are indented."""
    error = NumaMirrorError("It failed", where="a.c:1", why="first\nsecond", hint="try that")
    assert str(error) == ("It failed\n  where: a.c:1\n  why:   first\n         second\n  next:  try that")


def test_parts_that_are_unknown_are_left_out() -> None:
    """A message without cause or hint has no empty lines for them."""
    assert str(NumaMirrorError("It failed")) == "It failed"


@pytest.mark.parametrize("kind", ALL)
def test_errors_for_machines(kind: type[NumaMirrorError]) -> None:
    """Every error can be written as JSON with its kind, exit code, the four parts and details."""
    value = json.loads(json.dumps(kind("w", where="x", why="y", hint="z", details={"n": 1}).as_json()))
    assert value == {
        "error": kind.kind,
        "exit_code": kind.exit_code,
        "what": "w",
        "where": "x",
        "why": "y",
        "next": "z",
        "details": {"n": 1},
    }


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_expected_failure(code: int) -> None:
    """No space and no quota become "disk full", with where it happened and what helps."""
    with pytest.raises(DiskFullError) as caught, disk_full_as_error("/cache/x"):
        raise OSError(code, "full")
    assert caught.value.where == "/cache/x" and "--cache-dir" in str(caught.value.hint)


def test_other_errors_of_the_system_stay_what_they_are() -> None:
    """Only a full disk is translated."""
    with pytest.raises(PermissionError), disk_full_as_error("x"):
        raise PermissionError(errno.EACCES, "no")
