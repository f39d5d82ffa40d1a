"""The program: a thin shell around commands that raise."""

from __future__ import annotations

import io
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from numamirror_build import __version__
from numamirror_build.cli.answers import printed, without_passwords
from numamirror_build.cli.commands import cli
from numamirror_build.config import APP, ENVIRONMENT_PREFIX, default_cache_dir, load_settings
from numamirror_build.errors import ConfigError, NumaMirrorError, disk_full_as_error, path_as_error

USAGE = 2
UNEXPECTED = 70
INTERRUPTED = 130
TERMINATED = 143


def main() -> NoReturn:
    """The entry point of the installed program."""
    _prepare_streams()
    sys.exit(run(sys.argv[1:]))


def _prepare_streams() -> None:
    """What is said to a closed stream goes nowhere, and a file's name is said whatever bytes it is of."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return the exit code; expected failures become messages."""
    try:
        return _run(arguments)
    except (BrokenPipeError, SystemExit):  # also while an error is told; click makes the second of the first
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  (nobody reads; keeps the exit quiet)
        return 128 + signal.SIGPIPE


def _run(arguments: Sequence[str]) -> int:
    try:
        with _terminable(), path_as_error(), disk_full_as_error("the cache or the output folder"):
            code = cli.main(list(arguments), prog_name=APP, standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        what = error.format_message()
        return _fail(arguments, [what, _help_line(error)], {"error": "usage", "what": what}, USAGE)
    except NumaMirrorError as error:
        return _fail(arguments, error.lines(), error.as_json(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        what = "Interrupted; run the same command again to continue"
        return _fail(arguments, [what], {"error": "interrupted", "what": what}, INTERRUPTED)
    except _TerminatedError:
        what = "Terminated; run the same command again to continue"
        return _fail(arguments, [what], {"error": "terminated", "what": what}, TERMINATED)
    except BrokenPipeError:
        raise
    except Exception:
        log = _write_log(arguments)
        what = "An unexpected error: this is a mistake in numamirror-build"
        lines = [what, f"  log:   {log}", "  next:  please report it with the content of the log"]
        return _fail(arguments, lines, {"error": "unexpected", "what": what, "log": str(log)}, UNEXPECTED)


class _TerminatedError(BaseException):
    """Somebody asked this process to end."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that started programs end too."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise _TerminatedError

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, terminate) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(arguments: Sequence[str], lines: Sequence[str], document: dict[str, Any], code: int) -> int:
    """Say what went wrong: to people on stderr, to machines as the one document on stdout."""
    print(f"{APP}: " + "\n".join(lines), file=sys.stderr)
    if _wants_json(arguments):
        print(printed({**document, "exit_code": code}), flush=True)
    return code


def _wants_json(arguments: Sequence[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own:
        return True
    try:
        return load_settings({}, os.environ, Path.cwd()).json
    except (ConfigError, OSError):
        return False


def _help_line(error: click.UsageError) -> str:
    return f"  next:  {error.ctx.command_path if error.ctx else APP} --help"


def _write_log(arguments: Sequence[str]) -> Path:
    """Write what a report needs to a file, and nothing that a report should not have."""
    settings = [
        f"    {name}={value}" for name, value in os.environ.items() if name.startswith(ENVIRONMENT_PREFIX)
    ]
    lines = [
        f"### {APP} {__version__}: unexpected error",
        "",
        f"    command: {' '.join([APP, *arguments])}",
        f"    python:  {platform.python_version()}",
        f"    system:  {platform.platform()}",
        *settings,
        "",
        "```",
        traceback.format_exc().rstrip(),
        "```",
        "",
    ]
    text = without_passwords("\n".join(lines).replace(str(Path("~").expanduser()), "~"))
    name = f"error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.md"
    for folder in (default_cache_dir() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return folder / name
    print(text, file=sys.stderr)
    return Path("standard error, above")
