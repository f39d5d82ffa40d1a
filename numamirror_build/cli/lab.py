"""``lab run``: what is asked of the lab, and what it answers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from numamirror_build.cli.answers import Answer
from numamirror_build.errors import ConfigError, LabError, LabTimeoutError
from numamirror_build.lab.guest import Command, passed_environment
from numamirror_build.lab.layout import DISTANCE, Layout, even_layout, load_layout
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.lab.trace import make_plugin
from numamirror_build.store import check_writable, write_json

if TYPE_CHECKING:
    from numamirror_build.progress import Progress
    from numamirror_build.store import Store

EVEN: Mapping[str, Any] = {"nodes": 2, "cpus_per_node": 2, "mem_per_node": "1G", "distance": DISTANCE}

_ILLEGAL = """\
numamirror-build: the program ended with an instruction that the machine's CPUs do not have
  next:  they have no AVX-512; build with --cmake-arg -DGGML_NATIVE=OFF, see docs/lab.md"""


def chosen_layout(file: Path | None, given: Mapping[str, Any]) -> Layout:
    """The layout of a file, or that of the options; a usage error if both are there.

    Args:
        file: what ``--layout`` names.
        given: values of those options of :data:`EVEN` that the command line has.
    """
    if file is None:
        values = {**EVEN, **given}
        return even_layout(*(values[name] for name in EVEN))
    if given:
        option = "--" + next(iter(given)).replace("_", "-")
        raise click.UsageError(f"--layout says what the machine has: leave out {option}.")
    return load_layout(file)


def run(
    store: Store,
    layout: Layout,
    words: Sequence[str],
    *,
    env: Sequence[str],
    scratch: Path | None,
    timeout: float,
    trace: Path | None,
    cpu: str,
    json: bool,
    progress: Progress,
) -> Answer:
    """Run a command in the lab; its output passes through, or becomes a part of the document."""
    command = Command(
        words=tuple(words),
        env=passed_environment(os.environ, env),
        folder=Path.cwd(),
        scratch=_resolved(scratch) if scratch else None,
    )
    if trace:
        check_writable(trace)
    collected = {"stdout": bytearray(), "stderr": bytearray()}

    def sink(name: str, stream: BinaryIO) -> Callable[[bytes], None]:
        return collected[name].extend if json else lambda data: _pass_on(stream, data)

    parts = find_parts(store, progress=progress)
    plugin = make_plugin(store) if trace else None
    try:
        outcome = run_in_lab(
            layout,
            command,
            parts,
            timeout=timeout,
            on_stdout=sink("stdout", sys.stdout.buffer),
            on_stderr=sink("stderr", sys.stderr.buffer),
            progress=progress,
            plugin=plugin,
            cpu=cpu,
        )
    except (LabError, LabTimeoutError) as error:
        if json:
            error.details.update(_texts(collected))
        raise
    if outcome.exit_status == 128 + signal.SIGILL and not json:
        click.echo(_ILLEGAL, err=True)
    if trace and outcome.trace:
        write_json(trace.absolute(), outcome.trace.as_json())
    document = {
        "command": list(words),
        "layout": layout.as_json(),
        "kernel": parts.release,
        **outcome.as_json(),
        **_texts(collected),
    }
    return Answer(document, "", outcome.exit_status)


def _texts(collected: Mapping[str, bytearray]) -> dict[str, str]:
    return {name: data.decode(errors="replace") for name, data in collected.items()}


def _resolved(scratch: Path) -> Path:
    try:
        return scratch.resolve()
    except (OSError, RuntimeError) as error:  # which of them a loop of links is depends on Python's version
        raise ConfigError(
            "The scratch folder's path leads nowhere", where=str(scratch), why=str(error)
        ) from error


def _pass_on(stream: BinaryIO, data: bytes) -> None:
    """Hand on output; when nobody reads it, the machine has no use any more."""
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError as error:
        raise click.exceptions.Exit(128 + signal.SIGPIPE) from error
