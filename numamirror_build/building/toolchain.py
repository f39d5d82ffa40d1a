"""What compiles here: compilers, CMake, Ninja, and ccache when there is one.

The environment's ``CC`` and ``CXX`` are honoured.
What the compilers are, and what ``native`` means to them on this machine, is part of a build's key.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from numamirror_build.errors import ToolMissingError
from numamirror_build.proc import environment, find_tool, run

COMPILER_HINT = "install a C and C++ compiler (Debian, Ubuntu: apt install g++), or set CC and CXX to yours"


@dataclass(frozen=True)
class Compiler:
    """A compiler.

    Attributes:
        command: how it is called: the program's path, then options that its variable carries.
        name: first line of what it says about itself.
        version: its version.
        target: machine, vendor and system it compiles for.
        native: the options that ``-march=native`` (or ``-mcpu=native``) stands for on this machine.
    """

    command: tuple[str, ...]
    name: str
    version: str
    target: str
    native: str


@dataclass(frozen=True)
class Tool:
    """A program and its version."""

    path: Path
    version: str


@dataclass(frozen=True)
class Toolchain:
    """Everything that a build calls. ``ccache`` is None when it is not installed."""

    c: Compiler
    cxx: Compiler
    cmake: Tool
    ninja: Tool
    ccache: Tool | None

    def inputs(self, *, native: bool = True) -> dict[str, Any]:
        """What of it has an influence on the objects made, JSON-like: part of a build's key.

        Args:
            native: whether objects are made for this machine.
        """
        compilers = {"c": self.c, "cxx": self.cxx}
        return {
            "cmake": self.cmake.version,
            **{
                name: [
                    *(shlex.join(compiler.command), compiler.name, compiler.target),
                    *([compiler.native] if native else []),
                ]
                for name, compiler in compilers.items()
            },
        }

    def facts(self) -> dict[str, Any]:
        """The tools for people and records: names and versions, no paths."""
        return {
            "c": self.c.name,
            "cxx": self.cxx.name,
            "target": self.cxx.target,
            "cmake": self.cmake.version,
            "ninja": self.ninja.version,
            "ccache": self.ccache.version if self.ccache else None,
        }

    def environment(self) -> dict[str, str]:
        """An environment in which CMake finds exactly these tools, and all of them speak as we expect."""
        folders = [str(tool.path.parent) for tool in (self.cmake, self.ninja)]
        path = os.environ.get("PATH", os.defpath)
        return {
            **environment(),
            "CC": shlex.join(self.c.command),
            "CXX": shlex.join(self.cxx.command),
            "PATH": os.pathsep.join([*dict.fromkeys(folders), path]),
            "LC_ALL": "C",
            "NINJA_STATUS": "[%f/%t] ",
        }


def find_toolchain() -> Toolchain:
    """The tools of this machine, looked for once per environment.

    Raises:
        ToolMissingError: there is no compiler, no CMake or no Ninja.
    """
    return _find(tuple(os.environ.get(name, "") for name in ("CC", "CXX", "PATH")))


@cache
def _find(environment: tuple[str, ...]) -> Toolchain:
    return Toolchain(
        c=_compiler("CC", ("cc", "gcc", "clang"), "c"),
        cxx=_compiler("CXX", ("c++", "g++", "clang++"), "c++"),
        cmake=_tool("cmake"),
        ninja=_tool("ninja"),
        ccache=_optional("ccache"),
    )


def _compiler(variable: str, names: Sequence[str], language: str) -> Compiler:
    command = _command(variable, names)
    says = run([*command, "--version"])
    version = run([*command, "-dumpfullversion", "-dumpversion"])
    target = run([*command, "-dumpmachine"])
    if says.returncode or version.returncode or target.returncode or not says.output.strip():
        raise ToolMissingError(
            f"The compiler {command[0]} does not run",
            where=shlex.join(command),
            why=says.output.strip()[:500] or None,
            hint=COMPILER_HINT,
        )
    return Compiler(
        command=command,
        name=says.output.splitlines()[0].strip(),
        version=version.output.strip(),
        target=target.output.strip(),
        native=_native(command, language),
    )


def _command(variable: str, names: Sequence[str]) -> tuple[str, ...]:
    words = shlex.split(os.environ.get(variable, ""))
    if len(words) > 1 and Path(words[0]).name == "ccache":
        words = words[1:]  # it is called in front of any compiler anyway
    for name in words[:1] or names:
        if found := shutil.which(name):
            return (found, *words[1:])
    raise ToolMissingError(
        f"No {'C' if variable == 'CC' else 'C++'} compiler is installed",
        where=f"{variable}={shlex.join(words)}" if words else None,
        why=f"none of these is on PATH: {', '.join(words[:1] or names)}",
        hint=COMPILER_HINT,
    )


def _native(command: Sequence[str], language: str) -> str:
    """The options in the compiler's own inner command line; empty when it knows no ``native``."""
    values = ("--param", "-target-cpu", "-target-feature")
    for option in ("-march=native", "-mcpu=native"):
        shown = run([*command, option, "-E", "-x", language, "-v", os.devnull])
        inner = next((line for line in shown.output.splitlines() if "cc1" in line), "")
        if shown.returncode == 0:
            words = shlex.split(inner)
            found = [
                f"{word} {following}" if word in values else word
                for word, following in pairwise([*words, ""])
                if word in values or (word.startswith("-m") and not word.startswith("-mno-"))
            ]
            return " ".join(found)
    return ""


def _tool(name: str) -> Tool:
    hint = f"install it (Debian, Ubuntu: apt install {name}-build; any system: pip install {name})"
    if name == "cmake":
        hint = hint.replace("cmake-build", "cmake")
    path = find_tool(name, hint=hint)
    return Tool(path, _version(path, hint))


def _optional(name: str) -> Tool | None:
    path = shutil.which(name)
    return Tool(Path(path), _version(Path(path), f"install {name} anew, or remove it")) if path else None


def _version(path: Path, hint: str) -> str:
    done = run([path, "--version"])
    found = re.search(r"\d+(?:\.[0-9A-Za-z]+)+", done.output)
    if done.returncode or found is None:
        raise ToolMissingError(
            f"The program {path.name} does not say its version",
            where=str(path),
            why=done.output.strip()[:500] or f"it ended with status {done.returncode}",
            hint=hint,
        )
    return found.group()
