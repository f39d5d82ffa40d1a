"""Progress: who sees what."""

from __future__ import annotations

import io

from numamirror_build.progress import reporting


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def report(stream: io.StringIO, *, quiet: bool = False, verbose: bool = False) -> str:
    """What a short job leaves on a stream."""
    with reporting(quiet=quiet, verbose=verbose, stream=stream) as progress:
        progress.step("Cooking")
        progress.update("half done")
        progress.step("Eating")
    return stream.getvalue()


def test_a_stream_that_is_no_terminal_gets_nothing() -> None:
    """Logs and pipes stay empty unless somebody asks."""
    assert report(io.StringIO()) == ""


def test_verbose_prints_lines_anywhere() -> None:
    """Asked for, every step and update is a line of its own, without control characters."""
    lines = report(io.StringIO(), verbose=True).splitlines()
    assert [line[7:].strip() for line in lines] == ["Cooking", "half done", "Eating"]


def test_a_terminal_sees_steps_and_updates() -> None:
    """An update is shown in the step's line, which then ends with the step alone."""
    text = report(Screen())
    assert "Cooking: half done" in text
    left = [line.rsplit("\x1b[K", 1)[-1] for line in text.split("\n")]
    assert left == ["Cooking", "Eating", ""]


def test_quiet_silences_a_terminal() -> None:
    """--quiet means nothing at all."""
    assert report(Screen(), quiet=True) == ""
