"""The values that the engine makes, and the file of exceptions."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from numamirror_build import data
from numamirror_build.errors import ConfigError
from numamirror_build.rewrite import Edit, TypeException, load_exceptions
from numamirror_build.rewrite.sites import AccessReport, in_order

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENTRY = {"path": "a.c", "function": "f", "base": "x [i]", "tensor": True, "reason": "because"}


def test_exceptions_are_read() -> None:
    """A table becomes an exception; white space in the base does not matter."""
    assert load_exceptions({"exception": [ENTRY]}) == (TypeException("a.c", "f", "x[i]", True, "because"),)
    assert load_exceptions({}) == ()


@pytest.mark.parametrize(
    "entry",
    [{**ENTRY, "tensor": "yes"}, {**ENTRY, "more": 1}, {k: v for k, v in ENTRY.items() if k != "reason"}],
)
def test_wrong_exceptions_are_refused(entry: dict[str, Any]) -> None:
    """A key too many or too few, or a value of the wrong type, is an error that says which entry."""
    with pytest.raises(ConfigError) as caught:
        load_exceptions({"exception": [ENTRY, entry]})
    assert "number 2" in str(caught.value)


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_delivered_exceptions_are_valid(upstream: str) -> None:
    """The files that the package carries can be read."""
    with (data.patches(upstream) / "exceptions.toml").open("rb") as stream:
        assert isinstance(load_exceptions(tomllib.load(stream)), tuple)


def test_order_of_edits() -> None:
    """Edits are sorted by file and place; those at one place keep their order."""
    edits = [
        Edit("b", 0, 0, b"", b"1", "r"),
        Edit("a", 2, 2, b"", b"2", "r"),
        Edit("a", 2, 2, b"", b"1", "r"),
    ]
    assert [edit.new for edit in in_order(edits)] == [b"2", b"1", b"1"]
    assert list(AccessReport((), in_order(edits)).edits_by_file()) == ["a", "b"]
