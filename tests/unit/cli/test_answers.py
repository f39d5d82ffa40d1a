"""What commands answer, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numamirror_build.cli import answers
from numamirror_build.delivery import Product
from numamirror_build.patching.into import Changed
from numamirror_build.patching.lock import LockReport
from numamirror_build.pipeline import Pipeline
from numamirror_build.upstreams.pins import Binding, Pin
from tests.unit.patching import made_up

PIN = Pin(
    "llama.cpp", "0.3.36", "c" * 40, "t" * 40, "2026-10-01T00:00:00Z", Binding("pkg", "1.0", "f", "s"), True
)


def pipeline(**values: Any) -> Pipeline:
    """A pipeline whose values are there; those that are given replace the usual ones."""
    made = {"key": "k", "seconds": 2.0, "fresh": True}
    usual: dict[str, Any] = {
        "pin": PIN,
        "checkout": SimpleNamespace(
            pin=PIN, path=Path("/c"), source="sdist", tree="t", verified=True, **made
        ),
        "plan": SimpleNamespace(
            digest="d", scope="cpu", counts=dict, hooks=dict, new_files=(), summary=lambda: "the plan"
        ),
        "wheel": SimpleNamespace(path=Path("/w.whl"), version="1.0+x", sha256="s", warning=None, **made),
        "audit": SimpleNamespace(as_json=dict, summary=lambda: "All is seen.\nIn detail: ..."),
        "verification": SimpleNamespace(
            passed=True,
            counts=lambda: {"pass": 3, "fail": 0, "skip": 1},
            report=Path("/v.json"),
            page=Path("/v.html"),
            **made,
        ),
    }
    return cast(Pipeline, SimpleNamespace(**{**usual, **values}))


def test_no_document_has_a_number_that_json_does_not_have() -> None:
    """NaN and Infinity are refused where documents are printed."""
    assert json.loads(answers.printed({"a": 1.5})) == {"a": 1.5}
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            answers.printed({"a": [value]})


def test_the_table_of_what_was_made() -> None:
    """Path, size, sha256 and time of each product, links left out; then how verification ended."""
    products = [
        Product("program", Path("/dist/bin/tool"), 1234567, "a" * 64, 61.25, True),
        Product("library", Path("/dist/bin/link.so"), 0, "", 61.25, True),
        Product("wheel", Path("/dist/w.whl"), 12, "b" * 64, 3.0, False),
    ]
    answer = answers.job(pipeline(), products)
    assert answer.text.splitlines() == [
        f"{'path':14}  {'size':>9}  {'sha256':64}  {'time':>13}",
        f"/dist/bin/tool  1,234,567  {'a' * 64}  {'61.2 s':>13}",
        f"/dist/w.whl            12  {'b' * 64}  3.0 s, cached",
        "",
        "audit: All is seen.",
        "verification: 3 checks passed, 0 failed, 1 skipped",
    ]
    assert len(answer.document["products"]) == 3
    json.dumps(answer.document)


def test_what_is_not_sure_is_said() -> None:
    """An unchecked source and a binding of another commit are warnings, in text and document."""
    wheel = SimpleNamespace(**{**vars(pipeline().wheel), "warning": "it may not fit"})
    unsure = pipeline(
        checkout=SimpleNamespace(**{**vars(pipeline().checkout), "verified": False}), wheel=wheel
    )
    for answer in (answers.job(unsure, []), answers.wheel(unsure)):
        assert [line for line in answer.text.splitlines() if line.startswith("warning: ")] == [
            f"warning: {warning}" for warning in answer.document["warnings"]
        ]
        assert len(answer.document["warnings"]) == 2
    assert "NOT checked" in answers.checkout(unsure).text


def test_a_plan_says_how_it_stands_to_the_locks() -> None:
    """Locked, or the differences from the nearest lock, or that there is none."""
    for report, words in (
        (LockReport("0.3.36", True, ()), ["as locked in 0.3.36"]),
        (LockReport("0.3.30", False, ("a.c: read 2 instead of 1",)), ["nearest lock, 0.3.30", "a.c: read 2"]),
        (LockReport(None, False, ()), ["no lock to compare with"]),
    ):
        answer = answers.plan(pipeline(lock_report=report))
        assert answer.text.startswith("the plan\n")
        assert all(word in answer.text for word in words)
        assert answer.document["lock"]["differences"] == list(report.differences)


def test_pins_mark_the_default() -> None:
    """Name, commit, date and binding in one line each."""
    text = answers.pins([PIN], "0.3.36").text
    assert text.splitlines()[1].split() == ["0.3.36", "(default)", "c" * 40, "2026-10-01", "pkg", "1.0"]


def test_a_changed_tree() -> None:
    """The files of ours are named, and what it has beside the pin; the pipeline need make nothing for it."""
    plan = made_up.make()
    beside = {"src/fork.c": {"read": 2, "write": -1}}
    made = Changed(Path("/fork"), plan, ("src/a.c", "src/b.c"), ("src/mirror.h",), beside)
    answer = answers.changed(pipeline(plan=None), made)
    assert answer.text.splitlines() == [
        "/fork: 1 accesses and 2 hooks in 2 files; nothing is staged or committed",
        "files added:",
        "  src/mirror.h",
        "accesses beside those of the pin:",
        "  src/fork.c: read +2, write -1",
    ]
    assert answer.document["changed"]["added"] == ["src/mirror.h"]
    assert answer.document["beside_the_pin"] == beside
