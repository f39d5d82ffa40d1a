"""Compiling the C++ drivers of these tests against a build, and running them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from numamirror_build.building.build import Build
from numamirror_build.building.recipe import load_recipe

_HERE = Path(__file__).parent
_MIRROR = ("-DGGML_NUMA_MIRROR", "-DGGML_SHARED", "-DGGML_NUMA_MIRROR_SHARED")


def compile_driver(build: Build, source: str, program: Path, *options: str, mirror: bool = False) -> Path:
    """Compile a driver and link it with a build's libraries.

    Args:
        build: whose headers and libraries.
        source: name of the C++ file beside this one.
        program: the file to make.
        options: further arguments for the compiler.
        mirror: whether the driver uses the mirror's own functions.
    """
    tree = build.path / "source" / load_recipe(build.tree.checkout.pin.upstream).vendored
    libraries = [f"-l{path.stem.removeprefix('lib')}" for path in build.libraries.glob("libggml*.so")]
    subprocess.run(
        [
            *("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"),
            *(_MIRROR if mirror else ()),
            *(f"-I{tree / 'include'}", f"-I{tree / 'ggml/include'}", str(_HERE / source), "-o", str(program)),
            *(*options, f"-L{build.libraries}", f"-Wl,-rpath,{build.libraries}"),
            *("-lllama", *sorted(libraries), "-ldl"),
        ],
        check=True,
    )
    return program


def run_driver(
    program: Path,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a driver, or a program of upstream's; the environment is clean but for ``env``.

    Threads that wait sleep, or they would keep others from running: there may be fewer CPUs than threads.
    """
    return subprocess.run(
        [program, *map(str, arguments)],
        env={
            "PATH": os.environ["PATH"],
            "OMP_WAIT_POLICY": "passive",
            "GGML_NO_BACKTRACE": "1",
            **(env or {}),
        },
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )
