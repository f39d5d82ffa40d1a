"""Finding tools, and what is said when there are none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from numamirror_build.building.toolchain import find_toolchain
from numamirror_build.errors import ToolMissingError


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only place for tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere/python"))
    return folder


def tool(folder: Path, name: str, says: str = "1.2.3", status: int = 0) -> Path:
    """A program that says the same whatever it is asked."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_no_compiler(only: Path) -> None:
    """Without a compiler the error says which package has one."""
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain()
    assert caught.value.exit_code == 20
    assert caught.value.what == "No C compiler is installed"
    assert "apt install g++" in str(caught.value.hint)


def test_no_cpp_compiler(only: Path) -> None:
    """A C compiler alone is not enough."""
    tool(only, "cc")
    with pytest.raises(ToolMissingError, match=r"No C\+\+ compiler is installed"):
        find_toolchain()


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_no_build_tool(only: Path, name: str) -> None:
    """Without CMake or Ninja the error names the package on Debian and on the package index."""
    for present in {"cc", "c++", "cmake", "ninja"} - {name}:
        tool(only, present)
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain()
    assert name in caught.value.what
    assert f"apt install {'cmake' if name == 'cmake' else 'ninja-build'}" in str(caught.value.hint)
    assert f"pip install {name}" in str(caught.value.hint)


def test_compiler_of_the_environment(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC and CXX choose the compilers, with options; they reach CMake through the environment."""
    for name in ("cc", "c++", "mine", "mine++", "cmake", "ninja"):
        tool(only, name)
    before = find_toolchain()
    monkeypatch.setenv("CC", "mine -m32")
    monkeypatch.setenv("CXX", str(only / "mine++"))
    after = find_toolchain()
    assert before.c.command == (str(only / "cc"),)
    assert after.c.command == (str(only / "mine"), "-m32")
    assert after.environment()["CC"] == f"{only / 'mine'} -m32"
    assert after.environment()["CXX"] == str(only / "mine++")
    assert after.environment()["LC_ALL"] == "C", "messages are read"
    assert before.inputs() != after.inputs()


def test_ccache_in_front_of_the_compiler(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler variable that calls ccache names the compiler behind it."""
    for name in ("cc", "c++", "ccache", "cmake", "ninja"):
        tool(only, name)
    monkeypatch.setenv("CC", "ccache cc -m64")
    assert find_toolchain().c.command == (str(only / "cc"), "-m64")


def test_compiler_that_is_not_there(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that CC names and that is not there is an error, even when there is another."""
    tool(only, "cc")
    monkeypatch.setenv("CC", "gone")
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain()
    assert (caught.value.where, caught.value.why) == ("CC=gone", "none of these is on PATH: gone")


def test_compiler_that_does_not_run(only: Path) -> None:
    """A compiler that fails when it is asked for its version is shown with what it says."""
    tool(only, "cc", "cannot run", 1)
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain()
    assert caught.value.why == "cannot run"


@pytest.mark.parametrize(
    ("name", "differs"), [("ninja", False), ("ccache", False), ("cmake", True), ("c++", True)]
)
def test_versions_that_count(
    only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, differs: bool
) -> None:
    """Another version of a compiler or of CMake makes other builds; another Ninja or ccache does not."""
    for present in ("cc", "c++", "cmake", "ninja"):
        tool(only, present)
    before = find_toolchain().inputs()
    shutil.copytree(only, tmp_path / "updated")
    tool(tmp_path / "updated", name, "7.8.9")
    monkeypatch.setenv("PATH", str(tmp_path / "updated"))
    monkeypatch.setenv("CC", str(only / "cc"))
    after = find_toolchain().inputs()
    assert ({**before, "cxx": before["cxx"][1:]} != {**after, "cxx": after["cxx"][1:]}) == differs


@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler is installed")
def test_real_compiler() -> None:
    """The compiler of this machine says its version, its target and what native means here."""
    tools = find_toolchain()
    assert tools.c.version[0].isdigit()
    assert tools.c.target.count("-") >= 2
    assert tools.cxx.native == tools.c.native
    assert "-mno-" not in tools.c.native
    facts = tools.facts()
    assert facts["cmake"] and facts["ninja"]
    assert not any(str(value).startswith("/") for value in facts.values())
