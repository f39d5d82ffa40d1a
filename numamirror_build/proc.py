"""Running other programs: the only module that starts processes.

Arguments are lists, never shell strings. Output goes to a log file as it comes.
When this program is interrupted, the whole process group that it started ends too.
When it is killed, nobody reads what they write any more, and they end with their next line;
those that are tethered end at once.
Programs do not see inherited ``GIT_*`` variables: many of them ask git about the folder they work in.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import DISK_FULL_HINT, DiskFullError, ToolMissingError

_NO_PROGRAM = (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP)
NO_SPACE = "No space left on device"


@dataclass(frozen=True)
class Completed:
    """An ended program: its exit status (negative: ended by that signal) and its output, stderr included."""

    args: tuple[str, ...]
    returncode: int
    output: str


def environment() -> dict[str, str]:
    """This process's environment without ``GIT_*`` variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def find_tool(name: str, *, hint: str) -> Path:
    """The full path of a program.

    Raises:
        ToolMissingError: it is neither on PATH nor beside this Python's executable.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise ToolMissingError(
            f"The program {name} is needed and not installed", why="not found on PATH", hint=hint
        )
    return Path(found)


def run(
    args: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout: float | None = None,
    keep_open: Sequence[int] = (),
    tethered: bool = False,
) -> Completed:
    """Run a program to its end and return its status and output; the caller judges the status.

    Args:
        args: program and arguments.
        cwd: folder to run in.
        env: the whole environment; None for :func:`environment`.
        log: file that the output is appended to while it comes.
        on_start: called with the number of the process.
        on_line: called with each line of output, for progress.
        timeout: seconds after which the program is ended; it then counts as ended by SIGKILL.
        keep_open: file descriptors that the program inherits, such as that of :func:`exclusive`.
        tethered: whether it ends, with all that it started, when this process is killed.
            A program that a signal ended then has the status 128 and the signal's number.

    Raises:
        ToolMissingError: the program is not there.
        DiskFullError: the program failed, and its output says that the disk is full, or the log's disk is.
    """
    words = tuple(str(arg) for arg in args)
    if tethered and not shutil.which(words[0]):
        raise _missing(words[0])
    started = [*_TETHER_FOR_ALL, str(os.getpid()), *words] if tethered else words
    lines: list[str] = []
    process: subprocess.Popen[str] | None = None
    timer: threading.Timer | None = None
    try:
        with interrupt_deferred():
            try:
                process = subprocess.Popen(
                    started,
                    cwd=cwd,
                    env=environment() if env is None else dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                    pass_fds=keep_open,
                )
            except FileNotFoundError as error:
                raise _missing(started[0], package="util-linux" if tethered else None) from error
            except OSError as error:
                if error.errno not in _NO_PROGRAM:
                    raise
                raise ToolMissingError(
                    f"The program {words[0]} cannot be run",
                    why=error.strerror,
                    hint=f"install {words[0]} anew, or take what is in its place away",
                ) from error
        if timeout is not None:
            timer = threading.Timer(timeout, _end_group, [process])
            timer.daemon = True
            timer.start()
        if on_start:
            on_start(process.pid)
        assert process.stdout is not None
        with log.open("a") if log else contextlib.nullcontext() as stream:
            for line in process.stdout:
                lines.append(line)
                if stream:
                    stream.write(line)
                    stream.flush()
                if on_line:
                    on_line(line.rstrip("\n"))
        returncode = process.wait()
    except BaseException:
        if process:
            _end_group(process, patience=5)
        raise
    finally:
        if timer:
            timer.cancel()
        if process and process.stdout:
            process.stdout.close()
    output = "".join(lines)
    if returncode != 0 and (NO_SPACE in output or (log is not None and _is_full(log))):
        raise DiskFullError(
            "No space left on the device",
            where=" ".join(words[:4]),
            hint=DISK_FULL_HINT,
        )
    return Completed(words, returncode, output)


def run_tethered(
    args: Callable[[tuple[Path, ...]], Sequence[str | Path]],
    channels: Sequence[Callable[[bytes], None]],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float,
    keep_open: Sequence[int] = (),
) -> int | None:
    """Run a program that ends with this process, even when that is killed; return its status.

    Args:
        args: program and arguments, made from one path per channel that the program can write to.
        channels: called with what the program writes: the first with its output, stderr included,
            each other one with what it writes to that channel's path.
        env: the whole environment; None for :func:`environment`.
        timeout: seconds after which the program is ended.
        keep_open: file descriptors that the program inherits.

    Returns:
        The exit status (negative: ended by that signal), or None if the time was up.

    Raises:
        ToolMissingError: the program is not there.
    """
    pipes = [os.pipe() for _ in channels]
    ends = [write for _, write in pipes]
    process: subprocess.Popen[bytes] | None = None
    try:
        words = [str(word) for word in args(tuple(Path(f"/proc/self/fd/{end}") for end in ends))]
        until = time.monotonic() + timeout
        with interrupt_deferred():
            try:
                process = subprocess.Popen(
                    [*_TETHER, str(os.getpid()), *words],
                    env=environment() if env is None else dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=ends[0],
                    stderr=ends[0],
                    start_new_session=True,
                    pass_fds=(*ends[1:], *keep_open),
                )
            except FileNotFoundError as error:
                raise _missing(_TETHER[0], package="util-linux") from error
        while ends:
            os.close(ends.pop())
        if not _pump({read: channel for (read, _), channel in zip(pipes, channels, strict=True)}, until):
            _end_group(process)
            return None
        return process.wait()
    except BaseException:
        if process:
            _end_group(process, patience=5)
        raise
    finally:
        for end in [*ends, *(read for read, _ in pipes)]:
            os.close(end)


def _is_full(path: Path) -> bool:
    """Whether a file system has no room worth speaking of: not every program says why it cannot write."""
    return shutil.disk_usage(path.parent).free < 1 << 20


# the kernel ends the shell, and what it becomes, with its parent; a parent that was gone before is noticed
_TETHER = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')


# a shell that is told of its parent's end, and then ends the whole group that it leads
_TETHER_FOR_ALL = (
    *("setpriv", "--pdeathsig", "TERM", "sh", "-c"),
    'trap "kill -KILL 0" TERM; [ "$PPID" = "$0" ] || exit; "$@" & wait $!',
)


def _missing(program: str, package: str | None = None) -> ToolMissingError:
    return ToolMissingError(
        f"The program {program} is needed and not installed", hint=f"install {package or program}"
    )


def _pump(channels: Mapping[int, Callable[[bytes], None]], until: float) -> bool:
    """Hand on what is read until nobody can write any more; whether that was in time."""
    with selectors.DefaultSelector() as selector:
        for number, channel in channels.items():
            selector.register(number, selectors.EVENT_READ, channel)
        while selector.get_map():
            remaining = until - time.monotonic()
            if remaining <= 0:
                return False
            for key, _ in selector.select(remaining):
                data = os.read(key.fd, 1 << 16)
                if data:
                    key.data(data)
                else:
                    selector.unregister(key.fd)
    return True


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Let Ctrl-C wait while a program is being started: there would be one, and nobody who knows it."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pending:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold a lock that outlives this process for as long as a program runs that was started with it.

    A build tool leaves compilers behind when its parent is killed; who takes the lock next waits for them.

    Args:
        path: the lock's file.

    Yields:
        The file descriptor, for ``keep_open`` of :func:`run`.
    """
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def _end_group(process: subprocess.Popen[Any], patience: float = 0) -> None:
    """End a program and what it started: at once, or after it had some seconds to end by itself."""
    with contextlib.suppress(ProcessLookupError):
        if patience:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
