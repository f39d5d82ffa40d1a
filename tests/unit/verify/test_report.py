"""The report as JSON and as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.store import Entry
from numamirror_build.verify import checks, matrix
from numamirror_build.verify.document import Check
from numamirror_build.verify.report import FAMILIES, PAGE, REPORT, load, save

SUBJECT: dict[str, Any] = {
    "tool": "0.1.0",
    "upstream": "llama.cpp",
    "pin": "0.3.36",
    "commit": "c" * 40,
    "plan": "p" * 64,
    "level": "quick",
    "builds": {"pristine": "aaa", "patched": "bbb"},
    "wheel": {"file": "w.whl", "version": "1", "sha256": "s" * 64},
    "models": [{"name": "dense-q8_0", "identity": "i" * 64}],
    "machine": {"processor": "P<1>", "cpus": 2, "nodes": 1, "kernel": "Linux 6", "python": "3.11"},
}
GOOD = Check("same-answers/m/off", "m: off", "pass", None, {"cases": 29})
SKIPPED = Check("repacked/m", "m: repacked", "skip", "this build does not repack")
BAD = Check("engaged/m/mirror-2", "m: <all> weights", "fail", "990 of 1000 & more", {"replicas": 2})


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The page of a report with one check of each status."""
    save(tmp_path, [GOOD, SKIPPED, BAD], SUBJECT)
    return (tmp_path / PAGE).read_text()


def test_json_and_back(tmp_path: Path) -> None:
    """What was saved is what is loaded."""
    save(tmp_path, [GOOD, SKIPPED], SUBJECT)
    loaded = load(Entry(tmp_path, {}, 12.5, fresh=True), "key")
    assert loaded.checks == (GOOD, SKIPPED)
    assert loaded.passed
    assert loaded.counts() == {"pass": 1, "fail": 0, "skip": 1}
    assert (loaded.seconds, loaded.fresh, loaded.key) == (12.5, True, "key")


def test_json_has_a_schema_and_a_verdict(tmp_path: Path) -> None:
    """Machines find the schema's version and whether it passed."""
    save(tmp_path, [GOOD, BAD], SUBJECT)
    document = json.loads((tmp_path / REPORT).read_text())
    assert (document["schema"], document["passed"]) == (1, False)
    assert document["checks"][1]["reason"] == BAD.reason


def test_nothing_passed_is_not_passed(tmp_path: Path) -> None:
    """A verification in which every check was skipped has not passed."""
    save(tmp_path, [SKIPPED], SUBJECT)
    assert not load(Entry(tmp_path, {}, 0.0, fresh=True), "key").passed
    assert not json.loads((tmp_path / REPORT).read_text())["passed"]


def test_the_page_loads_nothing(page: str) -> None:
    """The page is complete in itself: no address, no script, no link."""
    assert not re.search(r"https?:|src=|href=|url\(|<script|<link|@import", page)


def test_the_page_shows_what_failed(page: str) -> None:
    """Verdict, reason and figures are there, and markup in them is harmless."""
    assert "FAILED" in page
    assert "990 of 1000 &amp; more" in page
    assert "m: &lt;all&gt; weights" in page
    assert "P&lt;1&gt;" in page
    assert "this build does not repack" in page


def test_the_page_suits_dark_screens_and_paper(page: str) -> None:
    """Dark mode and print have their own colours."""
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_every_family_has_a_title() -> None:
    """No check that can be made lacks its place on the page."""
    source = Path(checks.__file__).read_text()
    families = set(re.findall(r'_?[Cc]heck\(f?"([a-z-]+)/', source))
    assert families
    assert families <= set(FAMILIES)
    assert matrix.AGAIN.name not in FAMILIES
