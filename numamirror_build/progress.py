"""Telling a person what goes on, on stderr, and nothing to anybody else."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO


class Progress(Protocol):
    """What long steps report to."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def update(self, text: str) -> None:
        """The current step got further; replaces the last update."""

    def done(self) -> None:
        """The current step has ended, and somebody else may write to the terminal."""


class Quiet:
    """Says nothing."""

    def step(self, text: str) -> None:
        """Ignored."""

    def update(self, text: str) -> None:
        """Ignored."""

    def done(self) -> None:
        """Ignored."""


class Lines:
    """One line per step and per update, with the seconds since the start: for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start = time.monotonic()

    def step(self, text: str) -> None:
        """Print the step."""
        self._print(text)

    def update(self, text: str) -> None:
        """Print the update, indented."""
        self._print(f"  {text}")

    def done(self) -> None:
        """A line has ended anyhow."""

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f}  {text}", file=self._stream, flush=True)


class Terminal:
    """One line per step, rewritten in place while the step goes on, and left with the time it took."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._start = 0.0
        self._last = 0.0

    def step(self, text: str) -> None:
        """Leave the line of the last step as it ended, and begin a new one."""
        self.done()
        self._text, self._start = text, time.monotonic()
        self._rewrite(text)

    def update(self, text: str) -> None:
        """Show how far the step got, at most five times a second."""
        now = time.monotonic()
        if now - self._last >= 0.2:
            self._last = now
            self._rewrite(f"{self._text}: {text}" if self._text else text)

    def done(self) -> None:
        """End the current line."""
        if self._text:
            seconds = time.monotonic() - self._start
            self._rewrite(f"{self._text} ({seconds:.0f} s)" if seconds >= 1 else self._text)
            self._stream.write("\n")
            self._text = ""
        else:
            self._rewrite("")
        self._stream.flush()

    def _rewrite(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()


@contextmanager
def reporting(
    *, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None
) -> Iterator[Progress]:
    """A reporter for the time of a job: a terminal sees progress, anything else only when ``verbose``.

    Args:
        quiet: report nothing.
        verbose: report line by line, to whatever the stream is.
        stream: where to; None for stderr.
    """
    stream = sys.stderr if stream is None else stream
    if quiet:
        yield Quiet()
    elif verbose:
        yield Lines(stream)
    elif stream.isatty():
        terminal = Terminal(stream)
        try:
            yield terminal
        finally:
            terminal.done()
    else:
        yield Quiet()
