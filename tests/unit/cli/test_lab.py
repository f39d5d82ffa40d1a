"""``lab run``: arguments -> what is asked of the lab, and what is answered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.cli import lab
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import ConfigError, LabError, LabTimeoutError, NumaMirrorError, OutputError
from numamirror_build.lab.layout import even_layout
from numamirror_build.lab.run import Outcome, SeenNode
from numamirror_build.lab.trace import Count, Trace


@dataclass
class FakeLab:
    """Stands for the lab: keeps what it is asked, writes some output."""

    asked: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    stderr: bytes = b"err\n"
    status: int = 3

    def run(self, layout: Any, command: Any, parts: Any, **more: Any) -> Outcome:
        """Answers with a status."""
        self.asked = {"layout": layout, "command": command, **more}
        more["on_stdout"](b"out\n")
        more["on_stderr"](self.stderr)
        if self.error:
            raise self.error
        trace = Trace((Count("generation", "kv", 0, 0, 8, 0),)) if more["plugin"] else None
        return Outcome(self.status, (SeenNode(0, "0", 1, (10,)),), {"file": 4}, 1.5, 2.5, trace)


@dataclass
class FakeParts:
    """Stands for the parts."""

    release: str = "6.1"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLab:
    """Put the fake in the lab's place, in an empty folder."""
    made = FakeLab()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(lab, "run_in_lab", made.run)
    monkeypatch.setattr(lab, "find_parts", lambda store, progress: FakeParts())
    return made


def test_defaults(fake: FakeLab, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Two nodes of two CPUs and 1 GiB; output passes through as it is, the status is the command's."""
    fake.stderr = b"err\xff\n"
    assert run(["lab", "run", "--", "prog", "--json", "-x"]) == 3
    out, error = capfdbinary.readouterr()
    assert (out, error) == (b"out\n", b"err\xff\n")
    assert fake.asked["layout"] == even_layout(2, 2, "1G", 21)
    assert fake.asked["command"].words == ("prog", "--json", "-x")
    assert fake.asked["command"].folder == tmp_path
    assert fake.asked["command"].scratch is None
    assert fake.asked["timeout"] == 600


def test_a_program_for_other_cpus(fake: FakeLab, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """An illegal instruction, of which the shell in the machine says nothing, is explained."""
    fake.status = 132
    assert run(["lab", "run", "--quiet", "--", "prog"]) == 132
    assert b"build with --cmake-arg -DGGML_NATIVE=OFF" in capfdbinary.readouterr().err
    assert run(["lab", "run", "--quiet", "--json", "--", "prog"]) == 132
    assert b"GGML_NATIVE" not in capfdbinary.readouterr().err


def test_all_options(fake: FakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option reaches the lab; relative folders count from the current one."""
    monkeypatch.setenv("MINE", "1")
    words = ["--nodes", "3", "--cpus-per-node", "1", "--mem-per-node", "512M", "--distance", "30"]
    words += ["--env", "A=b", "--env", "MINE", "--scratch", "x", "--timeout", "1.5"]
    assert run(["lab", "run", *words, "prog", "--nodes", "5"]) == 3
    assert fake.asked["layout"] == even_layout(3, 1, "512M", 30)
    assert fake.asked["command"].words == ("prog", "--nodes", "5"), (
        "what follows the command is the command's"
    )
    assert {"A": "b", "MINE": "1"}.items() <= fake.asked["command"].env.items()
    assert fake.asked["command"].scratch == tmp_path / "x"
    assert fake.asked["timeout"] == 1.5


def test_the_scratch_folder_is_where_its_path_leads(
    fake: FakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest mounts it by that path before it sees the host's links; the root is known by that path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert run(["lab", "run", "--scratch", "link/new", "--", "x"]) == 3
    assert fake.asked["command"].scratch == tmp_path / "real/new"
    monkeypatch.chdir("/tmp")
    assert run(["lab", "run", "--scratch", "..", "--", "x"]) == 3
    assert fake.asked["command"].scratch == Path("/")
    (tmp_path / "loop").symlink_to("loop")
    fake.asked = {}
    status = run(["lab", "run", "--scratch", f"{tmp_path}/loop", "--", "x"])
    assert status == ConfigError.exit_code or fake.asked["command"].scratch == tmp_path / "loop"


def test_json(fake: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The document has all that is known, and is alone on stdout; the status is the command's."""
    fake.stderr = b"err\xff\n"
    assert run(["lab", "run", "--json", "--nodes", "1", "--", "prog", "word"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document.pop("settings")["json"]["value"] is True
    assert document == {
        "command": ["prog", "word"],
        "layout": {"nodes": [{"id": 0, "cpus": 2, "memory": 1 << 30}], "distances": [[10]]},
        "kernel": "6.1",
        "exit_status": 3,
        "nodes": [{"id": 0, "cpus": "0", "memory": 1, "distances": [10]}],
        "files": {"file": 4},
        "boot_seconds": 1.5,
        "seconds": 2.5,
        "trace": None,
        "stdout": "out\n",
        "stderr": "err\ufffd\n",
    }


def test_a_trace(fake: FakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --trace the plugin is made and loaded, and the counts are written to the file; else neither."""
    monkeypatch.setattr(lab, "make_plugin", lambda store: Path("/plugin"))
    assert run(["lab", "run", "--trace", "t.json", "--", "x"]) == 3
    assert fake.asked["plugin"] == Path("/plugin")
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["loads"]["generation"]["kv"]["remote_share"] == 0
    assert run(["lab", "run", "--", "x"]) == 3
    assert fake.asked["plugin"] is None


def test_a_trace_that_cannot_be_written_is_told_before(fake: FakeLab) -> None:
    """The machine is not started for nothing."""
    assert run(["lab", "run", "--trace", "/proc/x", "--", "x"]) == OutputError.exit_code
    assert not fake.asked


def test_a_layout_from_a_file(fake: FakeLab, tmp_path: Path) -> None:
    """A file describes the nodes; beside it no option may."""
    (tmp_path / "l.toml").write_text('[[node]]\ncpus = 1\nmemory = "1G"\n')
    assert run(["lab", "run", "--layout", "l.toml", "--", "x"]) == 3
    assert fake.asked["layout"] == even_layout(1, 1, "1G", 21)
    fake.asked = {}
    assert run(["lab", "run", "--layout", "l.toml", "--cpus-per-node", "1", "--", "x"]) == USAGE
    assert run(["lab", "run", "--layout", "none.toml", "--", "x"]) == ConfigError.exit_code
    assert fake.asked == {}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--nodes", "0", "x"],
        ["--timeout", "0", "x"],
        ["--nonsense", "x"],
        ["--distance", "x", "x"],
    ],
)
def test_wrong_command_lines(fake: FakeLab, words: list[str]) -> None:
    """A command is needed, and numbers that mean something."""
    assert run(["lab", "run", *words]) == USAGE
    assert fake.asked == {}


def test_failures_of_the_lab_have_their_own_status(fake: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """They are told from the command's by a message, or by the document."""
    fake.error = LabTimeoutError("The command did not end within 5 seconds")
    assert run(["lab", "run", "--", "x"]) == LabTimeoutError.exit_code == 41
    assert "did not end within 5 seconds" in capsys.readouterr().err
    capsys.readouterr()
    assert run(["lab", "run", "--json", "--", "x"]) == 41
    assert json.loads(capsys.readouterr().out)["error"] == "lab-timeout"


@pytest.mark.parametrize("kind", [LabError, LabTimeoutError])
def test_output_before_a_failure_is_in_the_document(
    fake: FakeLab, capsys: pytest.CaptureFixture[str], kind: type[NumaMirrorError]
) -> None:
    """What the command wrote says how far it got, beside what the console says."""
    fake.error = kind("late", details={"console": ["line"]})
    assert run(["lab", "run", "--json", "--", "x"]) == kind.exit_code
    details = json.loads(capsys.readouterr().out)["details"]
    assert details == {"console": ["line"], "stdout": "out\n", "stderr": "err\n"}


def test_a_commands_own_json_is_not_ours(fake: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """--json after the dashes belongs to the command: a failure is then no document."""
    fake.error = LabTimeoutError("late")
    run(["lab", "run", "--", "prog", "--json"])
    assert capsys.readouterr().out == "out\n"
