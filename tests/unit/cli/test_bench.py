"""``bench`` and ``bench compare``: arguments, output, status."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build.cli import bench, commands
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import ConfigError, OutputError, StateError, ToolMissingError
from numamirror_build.lab import parts
from numamirror_build.machine.state import read_state
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model
from tests.machines import Machine, Node
from tests.unit.bench.made_up import write_program


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A command line for a made-up machine with one node, and programs that are fast with the mirror."""
    program = write_program(tmp_path / "bin")
    store = Store(tmp_path / "cache")

    def pipeline(*_: Any) -> SimpleNamespace:
        builds = {
            f"{name}_build": SimpleNamespace(key=name, programs={"llama-bench": program})
            for name in ("pristine", "patched")
        }
        pin = SimpleNamespace(upstream="u", name="p", commit="c")
        return SimpleNamespace(store=store, progress=Quiet(), pin=pin, **builds)

    root = Machine({0: Node("0-3")}).write(tmp_path / "machine")
    monkeypatch.setattr(commands, "Pipeline", pipeline)
    monkeypatch.setattr(bench, "read_state", lambda: read_state(root))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    model = make_model(Store(tmp_path / "models"), RECIPES[0]).path
    return ["bench", "--model", str(model), "--repetitions", "4"]


def calls(folder: Path) -> int:
    """How often the program ran."""
    return len((folder / "bin/calls").read_text().splitlines())


def test_a_run(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arms, thread counts and advice are printed; the same again measures nothing and says the same."""
    assert run([*words, "--pretend", "2", "--prompt", "16", "--depth", "0", "--depth", "8"]) == 0
    out = capsys.readouterr().out
    assert calls(tmp_path) == 4 * 2 * 4 * 4, "repetitions, thread counts, arms, tests"
    assert "Use mirror" in out and "pretended" in out
    assert "tg64@d8" in out and "pp16" in out
    assert run([*words, "--pretend", "2", "--prompt", "16", "--depth", "0", "--depth", "8"]) == 0
    assert capsys.readouterr().out == out
    assert calls(tmp_path) == 4 * 2 * 4 * 4
    assert (tmp_path / "numamirror-bench.jsonl").exists()


def test_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The document has the state, every sample, comparisons and advice."""
    assert run([*words, "--json", "--threads", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["arm"] for row in document["rows"]] == ["none", "off"]
    assert document["rows"][0]["samples"] == [2.0] * 4
    assert document["cost_when_off"][0]["verdict"] == "same"
    assert document["subject"]["state"]["nodes"][0]["usable"] == "0-3"
    assert "one node" in document["advice"][0]


def test_another_subject(words: list[str]) -> None:
    """A file of other results is not added to."""
    assert run([*words, "--threads", "1", "--results", "r.jsonl"]) == 0
    assert (
        run([*words, "--threads", "1", "--results", "r.jsonl", "--pretend", "2"])
        == StateError.exit_code
        == 51
    )


def test_wrong_command_lines(words: list[str]) -> None:
    """A model is needed, and arms that there are."""
    assert run(["bench"]) == USAGE
    assert run([*words, "--arm", "isolate-7"]) == USAGE
    assert run([*words, "--slots", "2"]) == USAGE
    assert run([*words, "--lab", "--pretend", "2"]) == USAGE
    assert run([*words, "--token-times", "1"]) == USAGE


@pytest.mark.parametrize(
    ("place", "status"),
    [
        (".", OutputError.exit_code),
        ("/proc/x/r.jsonl", OutputError.exit_code),
        ("file/r.jsonl", OutputError.exit_code),
        ("file", ConfigError.exit_code),
    ],
)
def test_results_that_cannot_be_kept_are_told_before_the_builds(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, status: int
) -> None:
    """Nothing is built to measure what cannot be written, or would be written among something else."""
    built: list[Any] = []
    monkeypatch.setattr(bench, "_builds", lambda *_: built.append(_))
    (tmp_path / "file").write_text("something else")
    assert run([*words, "--results", place]) == status
    assert not built and (tmp_path / "file").read_text() == "something else"


def test_an_arm_that_the_lab_does_not_have(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and so is a part of the lab that is missing, before anything is built."""

    def missing(*_: Any, **__: Any) -> None:
        raise ToolMissingError("no machine")

    monkeypatch.setattr(parts, "find_parts", missing)
    assert run([*words, "--lab", "--arm", "isolate-7"]) == USAGE
    assert "isolate-0, isolate-1" in capsys.readouterr().err
    assert run([*words, "--lab", "--arm", "isolate-1"]) == ToolMissingError.exit_code


def test_results_that_are_not_as_they_were_written(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing is named, with the file."""
    for name in ("a", "b"):
        assert run([*words, "--threads", "2", "--results", f"{name}.jsonl"]) == 0
    text = (tmp_path / "b.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text(text.replace('"pretend": 0', '"other": 0'))
    assert run(["bench", "compare", "a.jsonl", "b.jsonl"]) == ConfigError.exit_code
    err = capsys.readouterr().err
    assert "b.jsonl" in err and "it lacks 'pretend'" in err


def test_comparing(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files of one state are compared; of two states they are not, and what differs is said."""
    for name in ("a", "b"):
        assert run([*words, "--threads", "2", "--results", f"{name}.jsonl"]) == 0
    capsys.readouterr()
    assert run(["bench", "compare", "a.jsonl", "b.jsonl", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in document["comparisons"]] == ["same", "same"]
    other = (tmp_path / "b.jsonl").read_text().replace('"huge_pages": null', '"huge_pages": "never"')
    (tmp_path / "b.jsonl").write_text(other)
    assert run(["bench", "compare", "a.jsonl", "b.jsonl"]) == StateError.exit_code
    assert "huge_pages: None and never" in capsys.readouterr().err
    (tmp_path / "c").write_text("x")
    assert run(["bench", "compare", "a.jsonl", "c"]) == ConfigError.exit_code
    capsys.readouterr()
    assert run(["bench", "compare", "a.jsonl", "none"]) == ConfigError.exit_code
    assert "2x-epyc-9275f" in capsys.readouterr().err
    assert run(["bench", "compare", "none", "a.jsonl"]) == USAGE


def test_a_published_table(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios are shown beside those of others, and nothing is called better; of which arm is said."""
    assert run([*words, "--threads", "2", "--pretend", "2"]) == 0
    capsys.readouterr()
    assert run(["bench", "compare", "numamirror-bench.jsonl", "2x-epyc-9275f"]) == 0
    out = capsys.readouterr().out
    assert "QwQ-32B FP16" in out and "6.66" in out and "1.62" in out
    assert "rates are not compared" in out and "better" not in out
    assert "Yours have no generation with a mirror and with isolate" in out
    table = Path("own.toml")
    table.write_text(
        'name = "n"\nsource = "s"\nmachine = "m"\nbaseline = "none"\n'
        '[[row]]\nmodel = "DENSE F16"\nratio = 1.5\n'
    )
    assert run(["bench", "compare", "numamirror-bench.jsonl", str(table), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["comparable"] is False
    assert document["own"]["tg64"]["comparison"]["ratio"] == 2
    assert run(["bench", "compare", "numamirror-bench.jsonl", str(table)]) == 0
    out = capsys.readouterr().out
    assert "your model" in out and "pretended" in out
