from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from numamirror_build.errors import DiskFullError, SourceError, ToolMissingError
from numamirror_build.upstreams import git
from numamirror_build.upstreams.git import Repository, run_git
from tests.unit.upstreams import hostile
from tests.unit.upstreams.made_up import content, expected_content, write_files

AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def fake_git(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script in git's place."""
    (folder / "bin").mkdir()
    version = '[ "$1" = version ] && echo git version 2.40.1 && exit'
    (folder / "bin/git").write_text(f"#!/bin/sh\n{version}\n{script}\n")
    (folder / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


def test_the_hostile_environment_does_harm_to_plain_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a git that is simply started fails in the environment of the next tests."""
    hostile.make(tmp_path, monkeypatch)
    assert subprocess.run(["git", "init", tmp_path / "x"], capture_output=True).returncode != 0


def test_only_our_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git reports settings from our file alone, whatever the user's files and variables say."""
    hostile.make(tmp_path, monkeypatch)
    listed = run_git("config", "--list", "--show-origin", cwd=tmp_path).decode()
    origins = {line.partition("\t")[0] for line in listed.splitlines()}
    assert origins == {f"file:{Path(git.__file__).with_name('gitconfig')}"}


def test_no_variable_of_the_users_reaches_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all GIT_* variables, git sees those that we set and no other; proxies and the like it still sees."""
    hostile.make(tmp_path, monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    fake_git(tmp_path, "env", monkeypatch)
    lines = run_git("x", env={"GIT_INDEX_FILE": "ours"}).decode().splitlines()
    seen = {line.partition("=")[0] for line in lines if line.startswith("GIT_")}
    assert seen == {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_ATTR_NOSYSTEM",
        "GIT_TERMINAL_PROMPT",
        "GIT_ASKPASS",
        "GIT_INDEX_FILE",
    }
    assert "GIT_INDEX_FILE=ours" in lines and "HTTPS_PROXY=http://proxy.example" in lines


def test_files_go_in_and_out_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's settings nor attributes in the content convert a byte, and no hook runs."""
    hostile.make(tmp_path, monkeypatch)
    repository = Repository.create(tmp_path / "git", tmp_path / "tree")
    write_files(tmp_path / "tree")
    repository.run("add", "--all", "--force")
    repository.run("commit", "--quiet", "--message", "x", env=AUTHOR)
    commit = repository.text("rev-parse", "HEAD")
    other = Repository.create(tmp_path / "other-git", tmp_path / "other")
    other.run("fetch", "--quiet", (tmp_path / "git").as_uri(), commit)
    other.run("checkout", "--quiet", "--detach", commit)
    assert content(tmp_path / "other") == expected_content()
    assert other.run("status", "--porcelain", "--untracked-files=all") == b""
    assert not (tmp_path / "ran").exists() and not (tmp_path / "trace").exists()


def test_ignore_and_attribute_files_in_the_users_home_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file is seen although the user's git ignores everything, and has no attributes of the user's."""
    hostile.make(tmp_path, monkeypatch)
    run_git("init", "--quiet", tmp_path / "tree")
    (tmp_path / "tree/new.c").write_text("new\n")
    assert run_git("status", "--porcelain", cwd=tmp_path / "tree") == b"?? new.c\n"
    assert run_git("check-attr", "text", "new.c", cwd=tmp_path / "tree") == b"new.c: text: unspecified\n"


def test_ssh_never_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote over ssh is asked without a terminal dialogue, whatever ssh command the user's git has."""
    hostile.make(tmp_path, monkeypatch)
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch evil")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\nexit 1\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SourceError):
        run_git("ls-remote", "ssh://git@host.example/x", cwd=tmp_path)
    assert (tmp_path / "args").read_text().startswith("-o BatchMode=yes")
    assert not (tmp_path / "evil").exists()


def test_nothing_goes_on_in_the_background(tmp_path: Path) -> None:
    """A fetch starts no maintenance that would still write to the folder when git has ended."""
    source = Repository.create(tmp_path / "source", tmp_path / "tree")
    source.run("commit", "--quiet", "--allow-empty", "--message", "x", env=AUTHOR)
    other = Repository.create(tmp_path / "other")
    trace = tmp_path / "trace"
    other.run("fetch", "--quiet", (tmp_path / "source").as_uri(), "HEAD", env={"GIT_TRACE": str(trace)})
    assert "upload-pack" in trace.read_text()
    assert "maintenance" not in trace.read_text() and " gc " not in trace.read_text()


def test_a_new_process_in_the_hostile_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What GitPython does when it is first imported minds the user's variables as little."""
    hostile.make(tmp_path, monkeypatch)
    program = "from numamirror_build.upstreams.git import run_git; print(run_git('version').decode())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("git version") and done.stderr == ""


def test_a_repository_of_somebody_else_can_be_read(tmp_path: Path) -> None:
    """Fetching from a clone that belongs to another user works without the user's safe.directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    repository = Repository.create(tmp_path / "git", tmp_path / "tree")
    (tmp_path / "tree/x").write_text("x")
    repository.run("add", "x")
    repository.run("commit", "--quiet", "--message", "x", env=AUTHOR)
    for place in [tmp_path / "git", *(tmp_path / "git").rglob("*")]:
        os.chown(place, 12345, 12345)
    other = Repository.create(tmp_path / "other")
    other.run("fetch", "--quiet", (tmp_path / "git").as_uri(), "HEAD")
    assert other.text("cat-file", "-t", "FETCH_HEAD") == "commit"


class AsksForPassword(BaseHTTPRequestHandler):
    """A server that lets nobody in."""

    def do_GET(self) -> None:
        """Ask for a password."""
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def locked_server() -> Iterator[str]:
    """The address of a server that asks for a password."""
    server = HTTPServer(("127.0.0.1", 0), AsksForPassword)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/x"
    server.shutdown()
    server.server_close()


def test_git_never_asks(locked_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote that wants a password is an error at once: no prompt, no helper program, no saved password."""
    helper = tmp_path / "ask"
    helper.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho secret\n")
    helper.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n[core]\n\taskPass = {helper}\n")
    for name in ("SSH_ASKPASS", "GIT_ASKPASS"):
        monkeypatch.setenv(name, str(helper))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SourceError, match="prompts disabled"):
        run_git("ls-remote", locked_server)
    assert not (tmp_path / "asked").exists()


def test_failure_says_command_and_reason(tmp_path: Path) -> None:
    """A git command that fails is an error with exit code 12, the command and git's own words."""
    with pytest.raises(SourceError) as caught:
        run_git("cat-file", "-t", "HEAD", cwd=tmp_path, env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert caught.value.exit_code == 12
    assert caught.value.where == "git cat-file -t HEAD"
    assert "not a git repository" in str(caught.value.why)


def test_git_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git the error says so, with exit code 20 and how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="apt install git") as caught:
        run_git("version")
    assert caught.value.exit_code == 20


def test_package_can_be_imported_without_git(tmp_path: Path) -> None:
    """Nothing looks for git before it is needed: imports work on a machine that has none."""
    modules = "numamirror_build.upstreams.checkout, numamirror_build.upstreams.git"
    done = subprocess.run([sys.executable, "-c", f"import {modules}"], env={"PATH": str(tmp_path)})
    assert done.returncode == 0


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When git runs out of space the error is "disk full", exit code 23."""
    fake_git(tmp_path, "echo 'fatal: write error: No space left on device' >&2; exit 128", monkeypatch)
    with pytest.raises(DiskFullError) as caught:
        run_git("fetch")
    assert caught.value.exit_code == 23


def test_interrupt_leaves_no_git_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When this program alone gets the interrupt, the git that it waits for ends, too."""
    fake_git(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60", monkeypatch)
    program = "from numamirror_build.upstreams.git import run_git; run_git('fetch')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    pid = wait_for_pid(tmp_path / "pid")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def wait_for_pid(path: Path) -> int:
    """The number that a process writes to a file."""
    for _ in range(400):
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("it never started")
