"""What a command line ends in: exit codes, messages, documents, logs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from numamirror_build import errors
from numamirror_build.cli import commands
from numamirror_build.cli.main import INTERRUPTED, TERMINATED, UNEXPECTED, USAGE, run
from numamirror_build.errors import NumaMirrorError

Break = Callable[[BaseException], None]
PROGRAM = [sys.executable, "-c", "from numamirror_build.cli.main import main; main()"]


def classes() -> list[type[NumaMirrorError]]:
    """Every kind of expected failure."""
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, NumaMirrorError) and kind is not NumaMirrorError
    ]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Break:
    """Let the main job raise something."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))

    def fail_with(error: BaseException) -> None:
        def job(*_: object) -> None:
            raise error

        monkeypatch.setattr(commands, "run_job", job)

    return fail_with


def test_exit_codes_are_distinct() -> None:
    """No two kinds of failure share an exit code or a name, and none takes one that has another meaning."""
    codes = [kind.exit_code for kind in classes()] + [0, 1, USAGE, UNEXPECTED, INTERRUPTED, TERMINATED]
    assert len(set(codes)) == len(codes)
    kinds = [kind.kind for kind in classes()]
    assert len(set(kinds)) == len(kinds)
    assert all(2 < kind.exit_code < 64 for kind in classes())


@pytest.mark.parametrize("kind", classes())
def test_an_expected_failure_is_a_message_and_its_exit_code(
    kind: type[NumaMirrorError], breaks: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    """What, where, why and what next go to stderr, without a traceback; stdout stays empty."""
    breaks(kind("It broke", where="file:1", why="old age", hint="buy another", details={"n": 1}))
    assert run([]) == kind.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "numamirror-build: It broke",
        "  where: file:1",
        "  why:   old age",
        "  next:  buy another",
    ]


def test_with_json_the_error_is_the_one_document(breaks: Break, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout has the error with all its parts, also when only the environment asks for JSON."""
    breaks(errors.AnchorError("It broke", where="file:1", details={"n": 1}))
    assert run(["--json"]) == errors.AnchorError.exit_code
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "error": "anchor",
        "exit_code": errors.AnchorError.exit_code,
        "what": "It broke",
        "where": "file:1",
        "why": None,
        "next": None,
        "details": {"n": 1},
    }


def test_json_by_the_environment_counts_for_errors(
    breaks: Break, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that sets NUMAMIRROR_JSON gets a document in any case."""
    monkeypatch.setenv("NUMAMIRROR_JSON", "yes")
    breaks(errors.BuildError("It broke"))
    assert run([]) == errors.BuildError.exit_code
    assert json.loads(capsys.readouterr().out)["error"] == "build"


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["--jobs", "many"], ["plan", "extra"]])
def test_a_wrong_command_line_is_a_usage_error(
    arguments: list[str], breaks: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the mistake, and how to get help."""
    assert run(arguments) == USAGE
    assert "--help" in capsys.readouterr().err
    assert run([*arguments, "--json"]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"] == "usage"


def test_ctrl_c_says_how_to_go_on(breaks: Break, capsys: pytest.CaptureFixture[str]) -> None:
    """130 as shells expect, one line, no traceback."""
    breaks(KeyboardInterrupt())
    assert run([]) == INTERRUPTED
    error = capsys.readouterr().err.strip()
    assert error == "numamirror-build: Interrupted; run the same command again to continue"


def test_sigterm_unwinds_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service manager that ends the job leaves no running compilers: cleanup code runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    cleaned = []

    def job(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append(True)

    monkeypatch.setattr(commands, "run_job", job)
    assert run([]) == TERMINATED
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_unexpected_error_leaves_a_log_for_the_report(
    breaks: Break, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70, no traceback on the screen; the log has it, with the command, and without secrets or the home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    breaks(ZeroDivisionError("by zero"))
    assert run(["--git-url", "https://me:secret@example.org/x.git"]) == UNEXPECTED
    error = capsys.readouterr().err
    assert "Traceback" not in error
    log = Path(next(line.split()[-1] for line in error.splitlines() if "log:" in line))
    text = log.read_text()
    assert "ZeroDivisionError: by zero" in text
    assert "numamirror-build --git-url" in text
    assert "NUMAMIRROR_CACHE_DIR=~/cache" in text
    assert "secret" not in text
    assert str(tmp_path) not in text


def test_disk_full_outside_the_cache_is_recognised(breaks: Break) -> None:
    """The operating system's error becomes the class, whoever ran into it."""
    breaks(OSError(errno.ENOSPC, "No space left on device"))
    assert run([]) == errors.DiskFullError.exit_code


def test_a_cache_folder_that_cannot_be_made_is_a_config_error(
    breaks: Break, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the folder and the option."""
    (tmp_path / "file").write_text("")
    assert run(["pins", "--cache-dir", "file/below"]) == errors.ConfigError.exit_code
    error = capsys.readouterr().err
    assert str(tmp_path / "file/below") in error
    assert "--cache-dir" in error


@pytest.mark.parametrize(
    "words",
    [
        "init-ci --install x --into",
        "plan --source",
        "pins --cache-dir",
        "advise --model",
    ],
)
def test_a_path_that_is_too_long(words: str, breaks: Break, capsys: pytest.CaptureFixture[str]) -> None:
    """No mistake of ours: the message names the path."""
    assert run([*words.split(), "a" * 256]) == errors.ConfigError.exit_code
    error = capsys.readouterr().err
    assert "a" * 256 in error
    assert os.strerror(errno.ENAMETOOLONG) in error


def test_a_path_in_a_folder_that_is_closed(breaks: Break, capsys: pytest.CaptureFixture[str]) -> None:
    """No mistake of ours, either."""
    breaks(PermissionError(errno.EACCES, "Permission denied", "closed/file"))
    assert run([]) == errors.ConfigError.exit_code
    assert "closed/file" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["plan --pin no --json", "--nonsense", "pins"])
@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
def test_nobody_reads(words: str, closed: str, tmp_path: Path) -> None:
    """A reader who has gone ends the program as the signal would, also where that reads an error; quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    out = writing if closed in ("stdout", "both") else subprocess.PIPE
    error = writing if closed in ("stderr", "both") else subprocess.PIPE
    done = subprocess.run(
        [*PROGRAM, *words.split(), "--cache-dir", tmp_path],
        stdout=out,
        stderr=error,
        text=True,
        check=False,
    )
    os.close(writing)
    fails = words != "pins"
    says = {"stdout": not fails or "--json" in words, "stderr": fails, "both": True}[closed]
    assert (done.returncode == 128 + signal.SIGPIPE) == says
    assert "Traceback" not in (done.stderr or "")
    assert "BrokenPipe" not in (done.stderr or "")


@pytest.mark.parametrize(("closed", "words", "status"), [(">&-", "pins", 0), ("2>&-", "plan --pin no", 11)])
def test_a_stream_that_is_closed(closed: str, words: str, status: int) -> None:
    """Whoever closes an output gets the exit code all the same."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *words.split()]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """A file's name may be any bytes, and is printed as it is."""
    words = [*PROGRAM, "settings", "--out", "a\udcff", "--cache-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"/a\xff" in done.stdout


def test_a_log_of_a_name_that_is_no_text(breaks: Break, capsys: pytest.CaptureFixture[str]) -> None:
    """The log is written with whatever the command line had."""
    breaks(ZeroDivisionError())
    assert run(["--out", "a\udcff"]) == UNEXPECTED
    log = next(line.split()[-1] for line in capsys.readouterr().err.splitlines() if "log:" in line)
    assert r"--out a\udcff" in Path(log).read_text()


def test_a_current_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No mistake of ours."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert run(["pins"]) == errors.ConfigError.exit_code
    assert "current folder" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version names the program and its version."""
    from numamirror_build import __version__

    assert run(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["numamirror-build,", "version", __version__]
