"""``report``: what is read, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.bench.results import Journal, Measured, Point
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import ConfigError, OutputError
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
    placed = {"placement": {"whole": {"0": 1 << 29, "1": 1 << 28}, "model": {"1": 1 << 20}}}
    tokens = {"first_token": 0.3, "token_times": [0.1, 0.2, 0.3]}
    nodes = [{"id": 0, "bytes": 1 << 29}, {"id": 1, "bytes": 1 << 29}]
    mirror = {"mirror": {"active": True, "nodes": nodes}, **placed}
    for number in range(4):
        journal.add(Measured(Point("none", 2, "tg8", number), "done", 10 + number / 10, facts=placed))
        journal.add(Measured(Point("none", 2, "tok8x2", number), "done", 9.0, facts=tokens))
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
        "Generating through the binding: tok8x2",
        "Each token: tok8x2",
        "Memory of each node",
        "Without a mirror",
        "What was measured on",
        "What is to be expected",
        "How near to the limits",
        "What was verified",
        "The replicas are there",
        "Loads from other nodes",
    ):
        assert title in titles
    page = (folder / "out/report.html").read_text()
    text = (folder / "out/report.md").read_text()
    assert "17 points measured, 1 of them failed. 1 checks passed, 1 failed, 0 skipped." in page
    assert page.count("<svg") == 10
    memory = next(one for one in document["sections"] if one["title"] == "Memory of each node")
    labels = [bar["label"] for bar in memory["plots"][0]["bars"]]
    assert labels == ["none, node 0", "none, node 1", "mirror, node 0", "mirror, node 1"]
    assert [bar["label"] for bar in memory["plots"][1]["bars"]] == ["none, node 1", "mirror, node 1"]
    assert [plot["unit"] for plot in memory["plots"]] == ["MiB"] * 3
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


def test_what_was_measured_of_a_predicted_model(folder: Path) -> None:
    """It is marked beside what was expected, several requests further right; of another model it is not."""
    assert run(["report", "--results", "bench.jsonl", "--prediction", "advise.json"]) == 0
    sections = json.loads((folder / "report.json").read_text())["sections"]
    plot = next(one["roofline"] for one in sections if one["roofline"])
    assert not any(mark["measured"] for mark in plot["marks"])
    assert [roof["label"] for roof in plot["roofs"]] == [
        "all nodes, each its own memory",
        "one node",
        "the link between nodes",
    ]
    prediction = json.loads((folder / "advise.json").read_text())
    (folder / "advise.json").write_text(json.dumps({**prediction, "model": "m"}))
    assert run(["report", "--results", "bench.jsonl", "--prediction", "advise.json"]) == 0
    document = json.loads((folder / "report.json").read_text())
    assert document["title"] == "What the mirror brings: m"
    plot = next(one["roofline"] for one in document["sections"] if one["roofline"])
    marks = {mark["label"]: mark for mark in plot["marks"] if mark["measured"]}
    assert set(marks) == {"none, tg8 10.1 t/s", "mirror, tg8 15.1 t/s", "none, tok8x2 9 t/s"}
    one, two = marks["none, tg8 10.1 t/s"], marks["none, tok8x2 9 t/s"]
    assert two["x"] == pytest.approx(2 * one["x"])
    elements = prediction["traffic"]["elements_read"]
    assert one["y"] == pytest.approx(10.15 * elements / 1e9)


@pytest.mark.parametrize("place", [("arms", 0, "tokens_per_second"), ("machine", "nodes", 0, "bandwidth")])
@pytest.mark.parametrize("value", [0, -1, "fast", None, float("nan"), float("inf")])
def test_a_prediction_that_cannot_be(folder: Path, place: tuple[str | int, ...], value: Any) -> None:
    """A rate or bandwidth that is no positive number is an error, not a plot."""
    prediction = json.loads((folder / "advise.json").read_text())
    inner = prediction
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    (folder / "advise.json").write_text(json.dumps(prediction))
    assert run(["report", "--prediction", "advise.json"]) == ConfigError.exit_code


@pytest.mark.parametrize(
    ("option", "file", "old", "new"),
    [
        ("--results", "bench.jsonl", '"id": 0, "total"', '"other": 0, "total"'),
        ("--results", "bench.jsonl", '"total": 1073741824', '"total": "large"'),
        ("--results", "bench.jsonl", '"builds": {}', '"builds": []'),
        ("--results", "bench.jsonl", '"governors": []', '"governors": [1]'),
        ("--results", "bench.jsonl", '"pretend": 2', '"lab": {"kernel": "6"}'),
        ("--results", "bench.jsonl", '"first_token": 0.3', '"first_token": [0.3, [1]]'),
        ("--results", "bench.jsonl", '"reason": "it | ended"', '"reason": 5'),
        ("--prediction", "advise.json", '"bound": "', '"bound": 5, "was": "'),
        ("--prediction", "advise.json", '"arm": "', '"arm": 5, "was": "'),
        ("--prediction", "advise.json", '"advice": [', '"advice": [{}, '),
        ("--prediction", "advise.json", '"assumptions": ', '"assumptions": [5], "was": '),
        ("--verification", REPORT, '"pin": "', '"other": "'),
        ("--verification", REPORT, '"upstream": "', '"other": "'),
        ("--verification", REPORT, '"passed": ', '"other": '),
        ("--trace", "trace.json", '"loaded": ', '"loaded": "a", "was": '),
        ("--trace", "trace.json", '"loaded": ', '"loaded": [], "was": '),
    ],
)
def test_files_that_are_not_as_they_were_written(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, file: str, old: str, new: str
) -> None:
    """What another program or a person has changed is an error that says why, and nothing is written."""
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert run(["report", option, file]) == ConfigError.exit_code
    err = capsys.readouterr().err
    assert f"where: {file}" in err and ("Error: " in err or "it lacks '" in err)
    assert not list(folder.glob("report.*"))


def test_a_verification_in_the_lab(folder: Path) -> None:
    """What each arm read from other nodes is plotted, by machine and class."""
    figures = {"weights": {"remote_share": 0.475}, "kv": {"remote_share": 0.5}}
    nothing = {"weights": {"remote_share": 0.0}, "kv": {"remote_share": 0.0}}
    checks = [
        replace(GOOD, id="lab-remote/2-nodes/mirror/dense", facts={"generation": nothing}),
        replace(GOOD, id="lab-arms/2-nodes/none/dense", facts={"generation": figures}),
        replace(GOOD, id="lab-pages/2-nodes/mirror/dense", facts={}),
    ]
    save(folder, checks, {**SUBJECT, "lab": {"qemu": "QEMU 7", "kernel": "6.1"}})
    assert run(["report", "--verification", REPORT]) == 0
    sections = json.loads((folder / "report.json").read_text())["sections"]
    loads = next(one for one in sections if one["title"] == "Loads from other nodes")
    plots = {plot["title"]: {bar["label"]: bar["value"] for bar in plot["bars"]} for plot in loads["plots"]}
    assert plots["Weights, 2-nodes"] == {"mirror, dense": 0, "none, dense": 47.5}
    assert plots["KV cache, 2-nodes"] == {"mirror, dense": 0, "none, dense": 50}
    verified = next(one for one in sections if one["title"] == "What was verified")
    assert "6.1, QEMU 7" in [row["cells"][1] for row in verified["table"]["rows"]]


@pytest.mark.parametrize("option", ["--results", "--prediction", "--verification", "--trace"])
@pytest.mark.parametrize("content", ["nonsense", "[]", "{}", '{"checks": 1, "loads": 2, "arms": 3}'])
def test_other_files(folder: Path, capsys: pytest.CaptureFixture[str], option: str, content: str) -> None:
    """A file of another kind is an error that says why and what to do, and nothing is written."""
    (folder / "x").write_text(content)
    assert run(["report", option, "x"]) == ConfigError.exit_code
    err = capsys.readouterr().err
    assert all(part in err for part in ("where: x\n", "why: ", "next: ")) and "indices" not in err
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("to", ["/proc/x", "trace.json/x", "taken"])
def test_a_place_that_cannot_take_the_report(
    folder: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    """It is named, and no part of the report is written."""
    (folder / "taken/report.json").mkdir(parents=True)
    assert run(["report", "--trace", "trace.json", "--to", to]) == OutputError.exit_code
    assert f"{to}/report." in capsys.readouterr().err
    assert [path.name for path in (folder / "taken").iterdir()] == ["report.json"]


def test_nothing_to_report_on(folder: Path) -> None:
    """Something must be given, and be there."""
    assert run(["report"]) == USAGE
    assert run(["report", "--results", "none"]) == USAGE
