"""Telling a person what goes on, on stderr, and nothing to anybody else."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO


class Progress(Protocol):
    """What long steps report to."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def update(self, text: str) -> None:
        """The current step got further; replaces the last update."""


class Quiet:
    """Says nothing."""

    def step(self, text: str) -> None:
        """Ignored."""

    def update(self, text: str) -> None:
        """Ignored."""


class Terminal:
    """One line per step, rewritten in place while the step goes on."""

    def __init__(self, stream: TextIO = sys.stderr, width: int = 100) -> None:
        self._stream = stream
        self._width = width
        self._text = ""
        self._last = 0.0

    def step(self, text: str) -> None:
        """End the line of the last step and begin a new one."""
        self._text = text
        self._write(text, end="\n")

    def update(self, text: str) -> None:
        """Show how far the step got, at most five times a second."""
        now = time.monotonic()
        if now - self._last >= 0.2:
            self._last = now
            self._write(f"  {text}", end="\r")

    def _write(self, text: str, end: str) -> None:
        self._stream.write("\r\x1b[K" + text[: self._width] + end)
        self._stream.flush()


def for_stream(stream: TextIO = sys.stderr) -> Progress:
    """A reporter that speaks only to a terminal."""
    return Terminal(stream) if stream.isatty() else Quiet()
