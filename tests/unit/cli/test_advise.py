"""``advise``: what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.cli import advise
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import ConfigError, MirrorUnavailableError, ModelError
from numamirror_build.machine.state import read_state
from numamirror_build.store import Store
from numamirror_build.verify.models import ADAPTER, RECIPES, make_model
from tests.machines import Machine, Node


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A small model, and a cache folder of the test's own."""
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    return str(make_model(Store(tmp_path / "models"), RECIPES[0]).path)


def test_on_a_described_machine(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes, arms, advice and every assumption are printed."""
    words = ["advise", "--model", model, "--machine", "2x-xeon-6248r"]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "a token reads" in out and "No gain expected" in out
    assert "A remote stream gets 43% of a local one: not measured." in out
    assert "together_share 0.83" in out
    for arm in ("isolate", "none", "interleave", "distribute", "mirror-weights", "mirror"):
        assert f"\n{arm} " in out
    assert run([*words, "--json", "--context", "800", "--cache-type", "q8_0"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["traffic"]["depth"] == 100
    assert document["traffic"]["cache_type"] == "q8_0"
    assert len(document["arms"]) == 6


def test_on_this_machine(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a description the machine is measured; without a usable node there is nothing to measure."""
    said = {"bytes_per_second": 50e9, "bound": True, "on_node": 1.0}
    monkeypatch.setattr(advise, "make_program", lambda store: lambda arguments: said)
    root = Machine({0: Node("0"), 1: Node("1")}).write(tmp_path / "machine")
    monkeypatch.setattr(advise, "read_state", lambda: read_state(root))
    assert run(["advise", "--model", model, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["source"] == "measured by doctor"
    assert document["machine"]["remote_share"] == 1
    none = Machine({0: Node("0", total=0)}).write(tmp_path / "none")
    monkeypatch.setattr(advise, "read_state", lambda: read_state(none))
    assert run(["advise", "--model", model]) == MirrorUnavailableError.exit_code


def test_wrong_command_lines(model: str, tmp_path: Path) -> None:
    """A model is needed; a file must be one, and a machine must be known."""
    assert run(["advise"]) == USAGE
    assert run(["advise", "--model", str(tmp_path / "none.gguf")]) == ModelError.exit_code
    assert run(["advise", "--model", model, "--machine", "none"]) == ConfigError.exit_code


def test_a_file_that_is_no_whole_model_is_named(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an adapter, and of a model of which parts are missing, the file and the next step are said."""
    adapter = Path(model).with_name(ADAPTER)
    part = tmp_path / "s-00001-of-00003.gguf"
    part.write_bytes(Path(model).read_bytes())
    for path, lacking in ((adapter, adapter), (part, tmp_path / "s-00002-of-00003.gguf")):
        assert run(["advise", "--model", str(path), "--machine", "2x-epyc-9275f"]) == ModelError.exit_code
        err = capsys.readouterr().err
        assert f"where: {lacking}\n" in err and "next: " in err
