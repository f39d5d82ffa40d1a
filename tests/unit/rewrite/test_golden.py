"""Each form of an access, before and after; and what has no rule, with the errors."""

from __future__ import annotations

import pytest

from numamirror_build.rewrite import apply_edits, find_accesses, invert_edits
from tests.unit.rewrite.trees import HEADER, Case, cases, reasons

BEFORE = pytest.mark.parametrize("case", cases("before"), ids=lambda case: case.name)


@BEFORE
def test_result_is_the_expected_one(case: Case) -> None:
    """The edits turn the file before into the file after, byte for byte."""
    content = case.before.read_bytes()
    report = find_accesses({"ggml.h": HEADER, case.name: content}, [case.name])
    assert apply_edits(content, report.edits).decode() == case.after.read_text()


@BEFORE
def test_planning_the_result_gives_nothing(case: Case) -> None:
    """A rewritten file has no sites that need an edit, and no errors."""
    files = {"ggml.h": HEADER, case.name: case.after.read_bytes()}
    assert find_accesses(files).edits == ()


@BEFORE
def test_taking_the_edits_back_gives_the_file_before(case: Case) -> None:
    """The inverse of the edits restores every byte."""
    content = case.before.read_bytes()
    edits = find_accesses({"ggml.h": HEADER, case.name: content}).edits
    assert apply_edits(apply_edits(content, edits), invert_edits(edits)) == content


@pytest.mark.parametrize("case", cases("error"), ids=lambda case: case.name)
def test_errors_are_the_announced_ones(case: Case) -> None:
    """Every line that announces errors has them, with the reason, and no other line has any."""
    found = [
        (line, reason) for _, line, reason in reasons({"ggml.h": HEADER, case.name: case.before.read_bytes()})
    ]
    for line, part in case.errors():
        match = next((f for f in found if f[0] == line and part in f[1]), None)
        assert match, f"line {line}: no error with {part!r} among {found}"
        found.remove(match)
    assert found == []


def test_nothing_changes_in_code_without_tensors() -> None:
    """Other structs, functions called data, comments and strings give no edit."""
    case = next(case for case in cases("before") if case.name == "others.cpp")
    assert case.before.read_bytes() == case.after.read_bytes()
