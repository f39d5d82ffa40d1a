"""How an upstream is built: ``[build]`` and ``[binding]`` of its ``upstream.toml`` as a value."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from numamirror_build import data

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class VersionLine:
    """A place that says the binding's version: the line ``<name> = "<version>"`` of a file."""

    file: str
    name: str


@dataclass(frozen=True)
class Asked:
    """Code in a library that runs only where it has asked the CPU for what it needs.

    Attributes:
        library: the file's name, up to ``.so``.
        needs: names of CPUID features, or of a level, which has many.
        reason: who asks.
    """

    library: str
    needs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Recipe:
    """How to build an upstream, whatever the pin.

    Attributes:
        switch: the CMake option that turns the mirror code of a patched tree on.
        settings: CMake cache variables; ``{commit}`` in a value stands for the pin's short commit,
            ``{build}`` for the build folder.
        programs: targets that people want. A tree that lacks one is built without it.
        optional: further ones, which only some settings bring, or only some trees have.
        libraries: targets to build when no program is wanted.
        vendored: where the binding's sources have the tree; builds without the binding use the same place.
        package: the binding's Python package.
        licences: globs of licence files in the tree, to go with whatever is made from it.
        versions: the places in the binding's sources that say its version.
        wheel_files: what must be in its wheel.
        exports: names of symbols by the library in its wheel that must export them.
        wheel_settings: CMake cache variables that only the wheel's build has.
        backend: settings of scikit-build-core beside the binding's own.
        no_wheel: why there can be no wheel for a level, by the level.
        portable: CMake cache variables by the level of x86-64 that a build is for.
        asked: what a portable build may have beyond its level.
        asks_git: whether upstream's build has no other way to learn the commit than to ask git.
    """

    switch: str
    settings: Mapping[str, str]
    programs: tuple[str, ...]
    optional: tuple[str, ...]
    libraries: tuple[str, ...]
    vendored: str
    package: str
    licences: tuple[str, ...]
    versions: tuple[VersionLine, ...]
    wheel_files: tuple[str, ...]
    exports: Mapping[str, tuple[str, ...]]
    wheel_settings: Mapping[str, str]
    backend: Mapping[str, str]
    no_wheel: Mapping[str, str]
    portable: Mapping[str, Mapping[str, str]]
    asked: tuple[Asked, ...]
    asks_git: bool


def load_recipe(upstream: str) -> Recipe:
    """The recipe of an upstream that there is data for."""
    text = (data.patches(upstream) / "upstream.toml").read_text(encoding="utf-8")
    facts = tomllib.loads(text)
    table, binding = facts["build"], facts["binding"]
    return Recipe(
        switch=table["switch"],
        settings=table["settings"],
        programs=tuple(table["programs"]),
        optional=tuple(table["optional"]),
        libraries=tuple(table["libraries"]),
        vendored=table["vendored"],
        package=table["package"],
        licences=tuple(table["licences"]),
        versions=tuple(VersionLine(**line) for line in binding["versions"]),
        wheel_files=tuple(binding["files"]),
        exports={path: tuple(names) for path, names in binding.get("exports", {}).items()},
        wheel_settings=binding.get("settings", {}),
        backend=binding.get("backend", {}),
        no_wheel=binding.get("no_wheel", {}),
        portable=table.get("portable", {}),
        asked=tuple(
            Asked(entry["library"], tuple(entry["needs"]), entry["reason"])
            for entry in table.get("asked", ())
        ),
        asks_git=table.get("asks_git", False),
    )
