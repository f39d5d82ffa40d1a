"""``report``: what is read, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.bench.results import Journal, Measured, Point
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import ConfigError
from numamirror_build.lab.trace import Count, Trace
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model
from numamirror_build.verify.report import REPORT, save
from tests.unit.verify.test_report import BAD, GOOD, SUBJECT


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with everything that can be reported on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    state = {"nodes": [{"id": 0, "usable": "0-1", "total": 1 << 30}], "governors": [], "processor": "P<1>"}
    subject = {
        "state": state,
        "model": {"name": "m"},
        "pretend": 2,
        "upstream": "u",
        "commit": "c",
        "builds": {},
    }
    journal = Journal(tmp_path / "bench.jsonl", subject)
    mirror = {"mirror": {"active": True, "nodes": [{"id": 0, "bytes": 1 << 29}, {"id": 1, "bytes": 1 << 29}]}}
    for number in range(4):
        journal.add(Measured(Point("none", 2, "tg8", number), "done", 10 + number / 10))
        journal.add(Measured(Point("off", 2, "tg8", number), "done", 10 + number / 10))
        journal.add(Measured(Point("mirror", 2, "tg8", number), "done", 15 + number / 10, facts=mirror))
    journal.add(Measured(Point("distribute", 2, "tg8", 0), "failed", reason="it | ended"))
    save(tmp_path, [GOOD, BAD], SUBJECT)
    trace = Trace(
        (Count("generation", "weights", 0, 0, 900, 0), Count("generation", "weights", 0, 1, 100, 0))
    )
    (tmp_path / "trace.json").write_text(json.dumps(trace.as_json()))
    model = make_model(Store(tmp_path / "models"), RECIPES[0]).path
    assert run(["advise", "--model", str(model), "--machine", "2x-epyc-9275f", "--json"]) == 0
    (tmp_path / "advise.json").write_text(capsys.readouterr().out)
    return tmp_path


def test_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One page, one Markdown file and one document have all of it."""
    words = ["--results", "bench.jsonl", "--prediction", "advise.json", "--verification", REPORT]
    assert run(["report", *words, "--trace", "trace.json", "--to", "out", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["report"]
    assert written == {kind: str(folder / f"out/report.{kind}") for kind in ("html", "md", "json")}
    document = json.loads((folder / "out/report.json").read_text())
    assert (document["schema"], document["status"]) == (1, "fail"), "a check of the verification failed"
    titles = [section["title"] for section in document["sections"]]
    for title in (
        "Which way to use",
        "Generating: tg8",
        "Memory of replicas",
        "Without a mirror",
        "What was measured on",
        "What is to be expected",
        "The replicas are there",
        "Loads from other nodes",
    ):
        assert title in titles
    page = (folder / "out/report.html").read_text()
    text = (folder / "out/report.md").read_text()
    assert "13 points measured, 1 of them failed. 1 checks passed, 1 failed, 0 skipped." in page
    assert page.count("<svg") == 4
    assert "P&lt;1&gt;" in page and "990 of 1000 &amp; more" in page
    assert "it \\| ended" in text and "Use mirror." in text
    assert "| generation, weights | 1,000 | 100 |" in text
    assert "A remote stream gets 43% of a local one: not measured." in text


def test_one_thing(folder: Path) -> None:
    """Of one file the report has that alone, in the current folder."""
    assert run(["report", "--trace", "trace.json"]) == 0
    document = json.loads((folder / "report.json").read_text())
    assert [section["title"] for section in document["sections"]] == ["Loads from other nodes"]
    assert document["sections"][0]["plots"][0]["bars"][0]["value"] == pytest.approx(10)


@pytest.mark.parametrize("option", ["--results", "--prediction", "--verification", "--trace"])
@pytest.mark.parametrize("content", ["nonsense", "[]", "{}", '{"checks": 1, "loads": 2, "arms": 3}'])
def test_other_files(folder: Path, option: str, content: str) -> None:
    """A file of another kind is an error, and nothing is written."""
    (folder / "x").write_text(content)
    assert run(["report", option, "x"]) == ConfigError.exit_code
    assert not (folder / "report.html").exists()


def test_nothing_to_report_on(folder: Path) -> None:
    """Something must be given, and be there."""
    assert run(["report"]) == USAGE
    assert run(["report", "--results", "none"]) == USAGE
