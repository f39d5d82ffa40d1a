"""The translation units of a tree, and how each is compiled.

They are those of a build that is configured and no more, or those of a finished one in another folder:
in either the sources can be changed and compiled.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from numamirror_build.building.build import Build, BuildOptions, Tree, configured
from numamirror_build.building.cmake import HEADERS, SOURCES
from numamirror_build.proc import Completed, environment, run
from numamirror_build.progress import Progress


@dataclass(frozen=True)
class Unit:
    """One translation unit.

    Attributes:
        file: its main source.
        folder: where its compiler runs.
        command: the compiler and its options, without those about input and output files.
    """

    file: Path
    folder: Path
    command: tuple[str, ...]

    def check_syntax(self, options: Iterable[str], dependencies: Path) -> Completed:
        """Compile without making anything.

        Args:
            options: further options.
            dependencies: file for the names of all files that were included.
        """
        return run(
            [*self.command, *options, "-fsyntax-only", "-MD", "-MF", dependencies, self.file],
            cwd=self.folder,
            env={**environment(), "LC_ALL": "C"},
        )


def configured_units(
    tree: Tree, options: BuildOptions, folder: Path, log: Path, progress: Progress
) -> tuple[Unit, ...]:
    """Configure a tree's build in a folder, make the sources that it generates, and compile nothing else.

    Args:
        tree: what would be built.
        options: how.
        folder: an absolute path; gets ``source/<place of the tree>`` and ``build``.
        log: gets the tools' output.
        progress: told what goes on.

    Raises:
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        BuildError: configuring or generating failed, or the tree has none of the programs asked for.
        DiskFullError: no space left.
    """
    build = folder / "build"
    with configured(tree, options, folder, log, progress) as ready:
        targets = ready.project.closure(ready.targets)
        sources = sorted({path for target in targets for path in target.generated if not path.exists()})
        if sources:
            # as Ninja knows them
            ready.make([str(path.relative_to(build) if build in path.parents else path) for path in sources])
    return _units((build / "compile_commands.json").read_text())


def mirror_build(build: Build, into: Path) -> tuple[Unit, ...]:
    """Copy a build's sources, those that it generated included, and say how they are compiled there."""
    old, new = str(build.path), str(into)
    shutil.copytree(build.path / "source", into / "source", symlinks=True)
    (into / "build").mkdir()
    for path in _walk(build.path / "build"):
        copy = into / path.relative_to(build.path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    return _units(build.compile_commands.read_text().replace(old, new))


def _units(compile_commands: str) -> tuple[Unit, ...]:
    units = (
        Unit(
            file=Path(os.path.normpath(Path(entry["directory"]) / entry["file"])),
            folder=Path(entry["directory"]),
            command=_without_files(shlex.split(entry["command"]), entry["file"]),
        )
        for entry in json.loads(compile_commands)
    )
    return tuple(unit for unit in units if unit.file.suffix in SOURCES)


def included(dependencies: Path) -> frozenset[Path]:
    """The files in a list that a compiler wrote for make."""
    words = shlex.split(dependencies.read_text().replace("\\\n", " ").partition(":")[2])
    return frozenset(Path(os.path.normpath(word)) for word in words)


def in_parallel(work: Callable[[Unit], Completed], units: Iterable[Unit]) -> Iterator[tuple[Unit, Completed]]:
    """Do something with each unit, on all CPUs that this process may use, and give the results in order."""
    units = tuple(units)
    executor = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield from zip(units, executor.map(work, units), strict=True)
    finally:
        executor.shutdown(cancel_futures=True)


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix in SOURCES | HEADERS and not path.is_symlink():
                yield path


def _without_files(words: list[str], source: str) -> tuple[str, ...]:
    kept = []
    rest = iter(words)
    for word in rest:
        if word == "-o":
            next(rest)
        elif word not in ("-c", source):
            kept.append(word)
    return tuple(kept)
