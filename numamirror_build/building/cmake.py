"""Calling CMake and Ninja: initial cache, targets through the file API, progress, the first real error."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import BuildError
from numamirror_build.proc import Completed, run
from numamirror_build.progress import Progress

SOURCES = frozenset((".c", ".cc", ".cpp", ".cxx"))
HEADERS = frozenset((".h", ".hh", ".hpp", ".inc", ".inl", ".def"))

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")
_COMPILER_ERROR = re.compile(r"^(?P<where>[^\s:][^:]*:\d+(?::\d+)?): (?:fatal )?error: (?P<why>.*)")
_CMAKE_ERROR = re.compile(r"^CMake Error(?: at (?P<where>\S+:\d+))?[^:]*:(?P<why>.*)")
_OTHER_ERRORS = (
    re.compile(r"(?P<why>undefined reference to .*)"),
    re.compile(r"^(?:\S*/)?ld(?:\.\w+)?: (?!warning)(?:error: )?(?P<why>.*[^:])$"),
    re.compile(r"^collect2: (?:fatal )?error: (?P<why>.*)"),
    re.compile(r"(?P<why>Killed signal terminated program .*|.*internal compiler error.*)"),
    re.compile(r"^ninja: (?:error|fatal): (?P<why>.*)"),
    re.compile(r"^CMake Error: (?P<why>.*)"),
)


@dataclass(frozen=True)
class Target:
    """A target of a configured project.

    Attributes:
        name: what Ninja is asked for.
        kind: CMake's word for it: ``EXECUTABLE``, ``SHARED_LIBRARY``, ``UTILITY`` ...
        artifacts: the files it makes, the real one first.
        needs: names of the targets it depends on directly.
        generated: those of its sources and headers that building makes, by what the tree lists.
    """

    name: str
    kind: str
    artifacts: tuple[Path, ...]
    needs: tuple[str, ...]
    generated: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Project:
    """A configured build folder, as CMake itself describes it.

    Attributes:
        targets: by name.
        cache: CMake's variables.
    """

    targets: Mapping[str, Target]
    cache: Mapping[str, str]

    def closure(self, names: Iterable[str]) -> list[Target]:
        """These targets and everything that they depend on, each once."""
        found: dict[str, Target] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self.targets[name]
                waiting.extend(found[name].needs)
        return list(found.values())


def initial_cache(settings: Mapping[str, str]) -> str:
    """The text of a script for ``cmake -C`` that sets cache variables."""
    lines = [f'set({name} [==[{value}]==] CACHE STRING "")' for name, value in sorted(settings.items())]
    return "\n".join(["# Written by numamirror-build.", *lines, ""])


def configure(
    source: Path,
    build: Path,
    arguments: Sequence[str],
    *,
    cmake: Path,
    tree: str,
    env: Mapping[str, str],
    log: Path,
    keep_open: Sequence[int] = (),
) -> Project:
    """Configure a build folder for Ninja and say what is in it.

    A folder that an interrupted run left without build files is made anew.

    Args:
        source: folder of the topmost ``CMakeLists.txt``.
        build: the build folder.
        arguments: for CMake, after ours.
        cmake: the program.
        tree: how the path of the tree ends, for messages.
        env: the whole environment.
        log: file that the output is appended to.
        keep_open: file descriptors for the programs to inherit.

    Raises:
        BuildError: CMake failed.
        DiskFullError: no space left.
    """
    if not (build / "build.ninja").exists():
        shutil.rmtree(build, ignore_errors=True)
    query = build / ".cmake/api/v1/query"
    query.mkdir(parents=True, exist_ok=True)
    for kind in ("codemodel-v2", "cache-v2"):
        (query / kind).touch()
    done = run(
        [cmake, "-S", source, "-B", build, "-G", "Ninja", *arguments],
        env=env,
        log=log,
        keep_open=keep_open,
    )
    check(done, "CMake could not configure the build", tree=tree, log=log)
    return read_project(build)


def ninja(
    build: Path,
    targets: Sequence[str],
    *,
    program: Path,
    jobs: int,
    tree: str,
    env: Mapping[str, str],
    log: Path,
    progress: Progress,
    keep_open: Sequence[int] = (),
) -> None:
    """Build targets in a configured folder.

    Raises:
        BuildError: a step failed.
        DiskFullError: no space left.
    """
    done = run(
        [program, "-C", build, "-j", str(jobs), *targets],
        env=env,
        log=log,
        on_line=lambda line: report_step(line, progress),
        keep_open=keep_open,
    )
    check(done, "The build failed", tree=tree, log=log)


def report_step(line: str, progress: Progress) -> None:
    """Tell the progress what a line of Ninja's output says about it."""
    if step := _STEP.match(line.strip()):
        number, total, what = step.groups()
        progress.update(f"{number}/{total} {what.rsplit('/', 1)[-1].removesuffix('.o')}")


def check(done: Completed, what: str, *, tree: str, log: Path) -> None:
    """Raise the error that a failed tool's output tells about.

    Args:
        done: the ended program.
        what: the sentence to begin with.
        tree: how the path of the tree ends; places inside are shown relative to it.
        log: where the whole output is.

    Raises:
        BuildError: the program failed.
    """
    if done.returncode == 0:
        return
    where, why = first_error(done.output, tree)
    raise BuildError(
        what,
        where=where,
        why=why or f"{done.args[0]} ended with status {done.returncode}",
        hint=f"the whole output is in {log}",
        details={"log": str(log), "returncode": done.returncode},
    )


def first_error(output: str, tree: str) -> tuple[str | None, str | None]:
    """Place and text of the first error that is a cause, not a consequence, in a build tool's output.

    Args:
        output: what the tool printed.
        tree: how the path of the tree ends; places inside are shown relative to it.
    """
    lines = [line.strip() for line in _COLOUR.sub("", output).splitlines()]
    for line in lines:
        if found := _COMPILER_ERROR.match(line):
            return found["where"].split(f"{tree}/")[-1], found["why"]
    for number, line in enumerate(lines):
        if found := _CMAKE_ERROR.match(line):
            text = found["why"].strip() or " ".join(_paragraph(lines[number + 1 :]))
            return found["where"], text
    for line in lines:
        for pattern in _OTHER_ERRORS:
            if found := pattern.search(line):
                return None, found["why"]
    return None, None


def read_project(build: Path) -> Project:
    """What CMake's file API says about a configured folder.

    Raises:
        BuildError: it says nothing, or nothing that can be understood.
    """
    reply = build / ".cmake/api/v1/reply"
    try:
        return _project(build, reply)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BuildError(
            "CMake does not say what it has configured",
            where=str(reply),
            why=f"{type(error).__name__}: {error}",
            hint="see that the program cmake is CMake 3.25 or newer",
        ) from error


def _project(build: Path, reply: Path) -> Project:
    index = _json(max(reply.glob("index-*.json")))
    objects = {entry["kind"]: reply / entry["jsonFile"] for entry in index["objects"]}
    model = _json(objects["codemodel"])
    tables = [_json(reply / entry["jsonFile"]) for entry in model["configurations"][0]["targets"]]
    names = {table["id"]: table["name"] for table in tables}
    root = Path(model["paths"]["source"])
    targets = {
        table["name"]: Target(
            name=table["name"],
            kind=table["type"],
            artifacts=tuple(build / artifact["path"] for artifact in table.get("artifacts", [])),
            needs=tuple(
                names[entry["id"]] for entry in table.get("dependencies", []) if entry["id"] in names
            ),
            generated=tuple(
                path
                for source in table.get("sources", [])
                if source.get("isGenerated") and (path := root / source["path"]).suffix in SOURCES | HEADERS
            ),
        )
        for table in tables
    }
    cache = {entry["name"]: entry["value"] for entry in _json(objects["cache"])["entries"]}
    return Project(targets, cache)


def _paragraph(lines: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if not line.strip() and kept:
            break
        if line.strip():
            kept.append(line.strip())
    return kept


def _json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value
