"""Counting instructions, with made-up tools."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build.errors import BuildError, ToolMissingError, VerificationError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.callgrind import Instructions, count_instructions
from tests.unit.verify.made_up import MODEL

# 1000 instructions to start, 10 per token, and 1 more per token for the patched libraries
VALGRIND = """\
[ "$1" = --version ] && { echo valgrind-3; exit 0; }
for last; do :; done
per=10
[ "$(cat "$3")" = patched ] && per=11
echo "==1== Collected : $((1000 + last * per))"
"""
COMPILER = """\
for word; do case "$word" in -L*) build=${word##*/};; esac; done
while [ "$1" != -o ]; do shift; done
echo "$build" > "$2"
"""


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Put made-up tools where alone tools are found."""
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_text("#!/bin/sh\n" + body)
        (folder / name).chmod(0o755)
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def build(tmp_path: Path, name: str) -> Any:
    """Something with what a build has."""
    return SimpleNamespace(key=name, libraries=tmp_path / name, tree=SimpleNamespace(path=tmp_path / name))


def count(tmp_path: Path) -> Instructions:
    """Count with the made-up tools and builds."""
    pristine, patched = (build(tmp_path, name) for name in ("pristine", "patched"))
    return count_instructions(Store(tmp_path / "store"), pristine, patched, MODEL, progress=Quiet())


def test_start_up_cancels_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what each further token costs is counted."""
    tools(tmp_path / "tools", monkeypatch, valgrind=VALGRIND, cc=COMPILER)
    counted = count(tmp_path)
    assert (counted.pristine, counted.patched) == (10, 11)
    assert counted.excess == pytest.approx(0.1)


def test_counts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same builds are not counted again."""
    tools(tmp_path / "tools", monkeypatch, valgrind=VALGRIND, cc=COMPILER)
    first = count(tmp_path)
    tools(tmp_path / "others", monkeypatch, valgrind=VALGRIND, cc="exit 1\n")
    assert count(tmp_path) == first


def test_no_valgrind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    tools(tmp_path / "tools", monkeypatch, cc=COMPILER)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    with pytest.raises(ToolMissingError, match="apt install valgrind"):
        count(tmp_path)


def test_an_instruction_that_valgrind_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build for the newest processors dies under valgrind; the error says what to build instead."""
    dies = '[ "$1" = --version ] && exit 0\necho "==1== Illegal opcode at 0x1"; exit 132\n'
    tools(tmp_path / "tools", monkeypatch, valgrind=dies, cc=COMPILER)
    with pytest.raises(VerificationError, match="GGML_NATIVE=OFF"):
        count(tmp_path)


def test_a_driver_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the compiler's line."""
    fails = 'echo "driver.c:3: error: no such function"; exit 1\n'
    tools(tmp_path / "tools", monkeypatch, valgrind=VALGRIND, cc=fails)
    with pytest.raises(BuildError, match="no such function"):
        count(tmp_path)
