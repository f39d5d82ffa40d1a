from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from numamirror_build import proc
from numamirror_build.errors import DiskFullError, ToolMissingError


def sh(script: str) -> list[str]:
    """A command that runs a shell script."""
    return ["sh", "-c", script]


def gone(pid: int) -> bool:
    """Whether a process has ended (or is a zombie that nobody waits for), after some patience."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def written_number(path: Path) -> int:
    """The number that another process writes to a file."""
    for _ in range(400):
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("it never started")


def test_output_and_status() -> None:
    """Output is stdout and stderr in order; the status is the caller's to judge; stdin is empty."""
    done = proc.run(sh("echo one; echo two >&2; cat; exit 3"))
    assert (done.returncode, done.output) == (3, "one\ntwo\n")


def test_lines_come_while_the_program_runs(tmp_path: Path) -> None:
    """Each line is handed on, and stands in the log, before the program ends; logs are appended to."""
    log = tmp_path / "log"
    log.write_text("before\n")
    seen: list[str] = []

    def on_line(line: str) -> None:
        seen.append(line)
        assert log.read_text() == "before\n" + "".join(f"{text}\n" for text in seen)
        (tmp_path / f"go-{line}").touch()

    script = "for i in 1 2; do echo $i; until [ -e go-$i ]; do sleep 0.01; done; done"
    proc.run(sh(script), cwd=tmp_path, log=log, on_line=on_line, timeout=20)
    assert seen == ["1", "2"]


def test_output_that_is_no_text_does_no_harm() -> None:
    """Bytes that are no UTF-8 are replaced."""
    assert proc.run(["printf", "a\\377b"]).output == "a\ufffdb"


def test_environment_is_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs inherit the environment except GIT_*; with ``env`` they get exactly that."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("OTHER", "kept")
    assert proc.run(sh("echo $GIT_DIR-$OTHER")).output == "-kept\n"
    assert proc.run(["/usr/bin/env"], env={"GIT_DIR": "/given"}).output == "GIT_DIR=/given\n"


def test_missing_program() -> None:
    """A program that is not there is an error with exit code 20 and its name."""
    with pytest.raises(ToolMissingError, match="no-such-program") as caught:
        proc.run(["no-such-program"])
    assert caught.value.exit_code == 20


def test_find_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are found on PATH and beside this Python; else the error has exit code 20 and the hint."""
    tool = tmp_path / "some-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert proc.find_tool("some-tool", hint="x") == tool
    assert proc.find_tool(Path(sys.executable).name, hint="x").parent == Path(sys.executable).parent
    with pytest.raises(ToolMissingError, match="apt install other-tool") as caught:
        proc.find_tool("other-tool", hint="apt install other-tool")
    assert caught.value.exit_code == 20


def test_full_disk_is_recognised() -> None:
    """A program that fails and says that the disk is full is "disk full"; one that only says so is not."""
    with pytest.raises(DiskFullError) as caught:
        proc.run(sh("echo 'cc: fatal: No space left on device'; exit 1"))
    assert caught.value.exit_code == 23
    assert proc.run(sh("echo 'No space left on device'")).returncode == 0


def test_timeout_ends_the_program_and_what_it_started(tmp_path: Path) -> None:
    """After the timeout all of it is gone, and the status is that of SIGKILL."""
    start = time.monotonic()
    done = proc.run(sh(f"sleep 60 & echo $! > {tmp_path}/pid; wait"), timeout=0.5)
    assert done.returncode == -signal.SIGKILL and time.monotonic() - start < 20
    assert gone(written_number(tmp_path / "pid"))


def test_an_error_while_reading_ends_the_program(tmp_path: Path) -> None:
    """When the caller's own code fails on a line, the program does not stay behind."""

    def broken(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError):
        proc.run(sh(f"echo $$ > {tmp_path}/pid; echo x; sleep 60"), on_line=broken)
    assert gone(written_number(tmp_path / "pid"))


def test_interrupt_while_a_program_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the moment between the start of a program and our knowing it ends that program, too."""
    popen = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        process = popen(*args, **kwargs)
        written_number(tmp_path / "pid")
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        proc.run(sh(f"echo $$ > {tmp_path}/pid; exec sleep 60"))
    assert gone(written_number(tmp_path / "pid"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


PROGRAM = "import sys; from numamirror_build import proc; proc.run(['sh', '-c', sys.argv[1]])"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_nothing_stays_behind(tmp_path: Path, end: signal.Signals) -> None:
    """When this program ends, what it started ends: at once by Ctrl-C, with its next line by kill -9."""
    quiet = "sleep 60 & echo $! > child; wait"
    talking = "echo $$ > child; while echo x; do sleep 0.1; done"
    script = quiet if end is signal.SIGINT else talking
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, script], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    child = written_number(tmp_path / "child")
    os.kill(child, 0)
    process.send_signal(end)
    process.wait(timeout=20)
    assert gone(child)


def test_all_that_a_tethered_program_started_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """After kill -9 of the process that started it, its children end, too."""
    script = f"sleep 60 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/program; wait"
    code = f"from numamirror_build import proc; proc.run(['sh', '-c', {script!r}], tethered=True)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    pids = [written_number(tmp_path / name) for name in ("child", "program")]
    assert all(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
    parent.kill()
    parent.wait()
    assert all(gone(pid) for pid in pids)


def test_a_tethered_program_is_run_as_any_other(tmp_path: Path) -> None:
    """Words, folder, output and status are its own; a signal's number is added to 128."""
    words = ["sh", "-c", 'pwd; printf "%s|" "$@" >&2; cat; exit 3', "sh", "two words", "$HOME 'x'"]
    done = proc.run(words, cwd=tmp_path, tethered=True)
    assert (done.returncode, done.output) == (3, f"{tmp_path}\ntwo words|$HOME 'x'|")
    assert done.args == tuple(words)
    assert proc.run(sh("kill -9 $$"), tethered=True).returncode == 128 + signal.SIGKILL
    begun = time.monotonic()
    assert proc.run(sh("sleep 60 & sleep 60"), tethered=True, timeout=1).returncode == -signal.SIGKILL
    assert time.monotonic() - begun < 30
    with pytest.raises(ToolMissingError, match="nowhere"):
        proc.run(["nowhere"], tethered=True)


def tethered(script: str, *channels: bytearray, timeout: float = 30) -> int | None:
    """Run a shell script that gets the channels' paths as arguments."""
    return proc.run_tethered(
        lambda paths: [*sh(script), *paths], [channel.extend for channel in channels], timeout=timeout
    )


def test_channels_are_read_apart() -> None:
    """Output comes through the first channel, stderr included; what is written to a path through its own."""
    output, one, other = bytearray(), bytearray(), bytearray()
    script = 'echo a; echo b >&2; head -c 300000 /dev/zero >"$1"; echo two >"$2"; exit 4'
    assert tethered(script, output, one, other) == 4
    assert (bytes(output), len(one), bytes(other)) == (b"a\nb\n", 300000, b"two\n")


def test_tethered_programs_end_when_the_time_is_up() -> None:
    """The status is None then, and the program is gone."""
    output = bytearray()
    begun = time.monotonic()
    assert tethered("echo $$; sleep 60", output, timeout=1) is None
    assert time.monotonic() - begun < 20
    assert gone(int(output))


def test_a_reader_that_fails_ends_the_program(tmp_path: Path) -> None:
    """When output cannot be handed on, what makes it ends, and the error is the caller's."""
    pid = tmp_path / "pid"

    def fail(data: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        proc.run_tethered(lambda _: sh(f"echo $$ >{pid}; yes"), [fail], timeout=30)
    assert gone(written_number(pid))


def test_tethered_programs_end_with_a_killed_parent(tmp_path: Path) -> None:
    """After kill -9 of the process that started it, the kernel ends the program."""
    pid = tmp_path / "pid"
    code = (
        "from numamirror_build import proc; "
        f"proc.run_tethered(lambda _: ['sh', '-c', 'echo $$ >{pid}; exec sleep 60'], [print], timeout=60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    child = written_number(pid)
    assert Path(f"/proc/{child}/cmdline").read_bytes() != b""
    parent.kill()
    parent.wait()
    assert gone(child)


def test_tethered_programs_do_not_start_without_their_parent(tmp_path: Path) -> None:
    """A parent that was gone before the tether was fastened is noticed."""
    marker = tmp_path / "started"
    subprocess.run([*proc._TETHER, "1", "touch", str(marker)], check=False)
    assert not marker.exists()
    subprocess.run([*proc._TETHER, str(os.getpid()), "touch", str(marker)], check=True)
    assert marker.exists()


def test_nothing_stays_open_after_a_tethered_program() -> None:
    """Descriptors of channels are closed, whatever the end was."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    tethered("true", bytearray(), bytearray())
    tethered("sleep 60", bytearray(), timeout=0.2)

    def fail(paths: tuple[Path, ...]) -> list[str]:
        raise ValueError

    with pytest.raises(ValueError):
        proc.run_tethered(fail, [print, print], timeout=30)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
