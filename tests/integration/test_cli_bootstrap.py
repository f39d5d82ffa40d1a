"""The script at the root of the repository: it brings its own environment, once, come what may."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PYTHON = """\
#!/bin/sh
# Stands for Python: notes what it is asked for, and makes an environment that only echoes.
echo "$*" >>"$STUB_LOG"
case "$*" in
--version) echo "Python 3.99.0" ;;
"-c import ensurepip"*) exit "${STUB_VENV_STATUS:-0}" ;;
"-m venv "*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    sleep "${STUB_SECONDS:-0}" ;;
*install*)
    echo "ERROR: from pip"
    printf '#!/bin/sh\\necho ran "$@"\\n' >"${0%/*}/numamirror-build"
    chmod +x "${0%/*}/numamirror-build"
    exit "${STUB_PIP_STATUS:-0}" ;;
esac
"""


class Clone:
    """A copy of what the script needs, with a stand-in for Python and a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "clone"
        self.log = folder / "log"
        self.log.touch()
        (self.root / "ci").mkdir(parents=True)
        for name in ("numamirror-build", "ci/environment.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root / name)
        python = folder / "python3"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHON": str(python),
            "STUB_LOG": str(self.log),
            "NUMAMIRROR_CACHE_DIR": str(folder / "cache"),
        }

    def start(self, *arguments: str, script: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        """Start the script in a process group of its own."""
        return subprocess.Popen(
            [script or self.root / "numamirror-build", *arguments],
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, script: Path | None = None, **environ: str) -> tuple[int, str, str]:
        """Run the script to its end: status, stdout, stderr."""
        process = self.start(*arguments, script=script, **environ)
        out, error = process.communicate(timeout=60)
        return process.returncode, out, error

    def times_made(self) -> int:
        """How often an environment was begun."""
        return self.log.read_text().count("-m venv")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone in a path with a space."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    return Clone(folder)


def test_the_environment_is_made_once_and_the_arguments_arrive(clone: Clone) -> None:
    """The first run says in one line what it does; the second only runs the program."""
    status, out, error = clone.run("plan", "--pin", "two words")
    assert (status, out) == (0, "ran plan --pin two words\n")
    assert len(error.splitlines()) == 1
    assert clone.run("--version") == (0, "ran --version\n", "")
    assert clone.times_made() == 1


def test_it_works_through_a_link(clone: Clone, tmp_path: Path) -> None:
    """A link from a folder on PATH finds the repository."""
    link = tmp_path / "link"
    link.symlink_to(clone.root / "numamirror-build")
    assert clone.run("x", script=link)[:2] == (0, "ran x\n")


def test_two_at_once_make_one_environment(clone: Clone) -> None:
    """The second waits for the first, and uses what it made."""
    both = [clone.start(word, STUB_SECONDS="1") for word in ("a", "b")]
    assert [process.communicate(timeout=60)[0] for process in both] == ["ran a\n", "ran b\n"]
    assert clone.times_made() == 1


def test_a_killed_creation_is_begun_again(clone: Clone) -> None:
    """kill -9 in the middle leaves nothing that is taken for finished."""
    process = clone.start(STUB_SECONDS="60")
    while not clone.times_made():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert clone.run("x")[:2] == (0, "ran x\n")
    assert clone.times_made() == 2


def test_a_change_of_pyproject_makes_a_new_environment(clone: Clone) -> None:
    """New dependencies are installed without anybody asking."""
    clone.run()
    (clone.root / "pyproject.toml").write_text("# changed\n")
    assert clone.run("x")[0] == 0
    assert clone.times_made() == 2


def test_what_is_missing_is_named_by_debian_package(clone: Clone, tmp_path: Path) -> None:
    """A bare system gets one line to install everything, also as JSON, and exit code 20."""
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env", "readlink", "dirname", "cat", "sha256sum", "mkdir", "rm", "tail", "flock"):
        found = shutil.which(name)
        assert found
        (bare / name).symlink_to(found)
    status, out, error = clone.run("--json", PATH=str(bare), STUB_VENV_STATUS="1")
    assert status == 20
    assert "apt-get install python3-venv g++ git" in error
    document = json.loads(out)
    assert (document["error"], document["exit_code"]) == ("tool-missing", 20)
    assert clone.times_made() == 0
    status, out, error = clone.run(PATH=str(bare), PYTHON="python3")
    assert (status, out) == (20, "")
    assert "apt-get install python3" in error


def test_a_failure_of_pip_is_told_and_tried_again(clone: Clone) -> None:
    """The end of pip's output is shown, the whole is in a log, and the next run starts anew."""
    status, out, error = clone.run(STUB_PIP_STATUS="1")
    assert (status, out) == (12, "")
    assert "ERROR: from pip" in error
    log = next(line.split("see ")[1] for line in error.splitlines() if "see " in line)
    assert Path(log).is_file()
    assert clone.run("x")[:2] == (0, "ran x\n")
