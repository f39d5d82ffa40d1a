"""Which sources of a tree the rewrite covers: all of them, except those that a list names with its reason.

The lists are the ``[scope.<name>]`` tables of ``patches/<upstream>/upstream.toml``.
In a glob ``*`` matches any characters, ``/`` included.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Any

from numamirror_build.errors import ConfigError

_TENSOR = b"ggml_tensor"


@dataclass(frozen=True)
class Rule:
    """One entry of a scope: the paths it is about, and why."""

    glob: str
    reason: str

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(translate(self.glob))

    def matches(self, path: str) -> bool:
        """Whether a path (from the tree's root, with slashes) is one of those."""
        return self._regex.match(path) is not None


@dataclass(frozen=True)
class Scope:
    """A named choice of sources.

    Attributes:
        name: ``cpu`` or ``all``.
        include: what counts as a source.
        exclude: the sources that are left as they are.
    """

    name: str
    include: tuple[Rule, ...]
    exclude: tuple[Rule, ...]

    def is_source(self, path: str) -> bool:
        """Whether a path is a source, in scope or not."""
        return any(rule.matches(path) for rule in self.include)

    def excluded_by(self, path: str) -> Rule | None:
        """The first rule that leaves a source out."""
        return next((rule for rule in self.exclude if rule.matches(path)), None)


@dataclass(frozen=True)
class OutOfScope:
    """What one rule leaves out of a tree: the sources that name tensors, and the reason."""

    glob: str
    reason: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """The sources of one tree.

    Attributes:
        all: content by path, in the order of the paths.
        targets: the paths of those that the rewrite covers.
        out_of_scope: the others, by rule.
    """

    all: Mapping[str, bytes]
    targets: tuple[str, ...]
    out_of_scope: tuple[OutOfScope, ...]


class TreeFiles(Mapping[str, bytes]):
    """A tree's files by path, each read when it is asked for. Links and ``.git`` are not looked at."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __getitem__(self, path: str) -> bytes:
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self._root):
            folders[:] = sorted(name for name in folders if name != ".git")
            base = os.path.relpath(folder, self._root)
            prefix = "" if base == "." else f"{base}/"
            for name in sorted(names):
                if not (Path(folder) / name).is_symlink():
                    yield prefix + name

    def __len__(self) -> int:
        return sum(1 for _ in self)


def scope_from_table(name: str, tables: Mapping[str, Any]) -> Scope:
    """The scope of that name.

    Args:
        name: of the scope.
        tables: the ``scope`` table of an ``upstream.toml``.

    Raises:
        ConfigError: there is no such scope.
    """
    if name not in tables:
        raise ConfigError(
            f"There is no scope {name!r}", why=f"the scopes are: {', '.join(sorted(tables)) or 'none'}"
        )
    include, exclude = (
        tuple(Rule(entry["glob"], entry["reason"]) for entry in tables[name].get(kind, ()))
        for kind in ("include", "exclude")
    )
    return Scope(name, include, exclude)


def select_sources(files: Mapping[str, bytes], scope: Scope) -> Sources:
    """Sort a tree's sources by whether they are in scope."""
    sources = {path: files[path] for path in sorted(filter(scope.is_source, files))}
    targets = []
    left_out: dict[Rule, list[str]] = {rule: [] for rule in scope.exclude}
    for path, content in sources.items():
        rule = scope.excluded_by(path)
        if rule is None:
            targets.append(path)
        elif _TENSOR in content:
            left_out[rule].append(path)
    listed = (OutOfScope(rule.glob, rule.reason, tuple(names)) for rule, names in left_out.items() if names)
    return Sources(sources, tuple(targets), tuple(listed))
