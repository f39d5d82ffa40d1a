"""Pins: the upstream commits that are known, as values read from ``patches/<upstream>/``.

A pin never goes by tag or branch: it is a full commit id, and content is checked against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numamirror_build import data
from numamirror_build.errors import (
    ConfigError,
    UnknownPinError,
    UnknownUpstreamError,
    cause_of,
    content_as_error,
)
from numamirror_build.toml import read_toml
from numamirror_build.upstreams.folder import Blob
from numamirror_build.upstreams.manifest import parse_manifest

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
_COMMIT_PREFIX = re.compile(r"[0-9a-f]{7,39}")


@dataclass(frozen=True)
class Binding:
    """The release of a Python binding that belongs to a commit.

    Attributes:
        package: its name on the package index.
        version: the release.
        sdist: file name of its source distribution.
        sha256: of that file, hex.
    """

    package: str
    version: str
    sdist: str
    sha256: str


@dataclass(frozen=True)
class Pin:
    """One commit of an upstream.

    Attributes:
        upstream: the upstream's name.
        name: what people call the pin; for a commit that is not listed its first 12 digits.
        commit: full commit id, 40 hex digits.
        tree: git's id of the pin's files, if known without looking.
        date: when it was committed, ISO 8601, if known.
        binding: the matching release of the binding; for a commit that is not listed that of the default pin.
        listed: whether the pin stands in ``pins.toml``; otherwise it is "unlocked".
        manifest: the file of ids that stands for the commit, where sources carry no git data:
            the pin's files are then those that it lists. None: all of the commit's.
    """

    upstream: str
    name: str
    commit: str
    tree: str | None
    date: str | None
    binding: Binding | None
    listed: bool
    manifest: str | None = None


@dataclass(frozen=True)
class Upstream:
    """What is known about an upstream whatever the pin.

    Attributes:
        name: its name, also of its folder under ``patches/``.
        git_url: where its commits can be fetched.
        default_pin: name of the pin that is taken when none is asked for.
        sdist_repository: where the binding's sdists carry a git repository with the commit, if they do.
        sdist_folder: where they carry the commit's files without git data, if they do.
    """

    name: str
    git_url: str
    default_pin: str
    sdist_repository: str | None
    sdist_folder: str | None


def load_upstream(name: str) -> Upstream:
    """The facts about an upstream.

    Raises:
        UnknownUpstreamError: there is no data for it.
        ConfigError: the data is not valid.
    """
    table = _read(name, "upstream.toml")
    with content_as_error(data.patches(name) / "upstream.toml"):
        return Upstream(
            name,
            table["git_url"],
            table["default_pin"],
            table.get("sdist_repository"),
            table.get("sdist_folder"),
        )


def load_pins(upstream: str) -> tuple[Pin, ...]:
    """The listed pins of an upstream, oldest first.

    Raises:
        UnknownUpstreamError: there is no data for it.
        ConfigError: the list is not valid.
    """
    tables = _read(upstream, "pins.toml")
    with content_as_error(data.patches(upstream) / "pins.toml"):
        return tuple(_pin(upstream, number, table) for number, table in enumerate(tables["pin"], start=1))


def find_pin(upstream: str, wanted: str | None) -> Pin:
    """The pin somebody asks for.

    Args:
        upstream: the upstream's name.
        wanted: a pin's name, its commit or a unique prefix of it (7 digits or more), or the full id of any
            other commit; None for the default pin. Of several pins with one commit it is the newest.

    Raises:
        UnknownUpstreamError: there is no such upstream.
        UnknownPinError: none of these, or a prefix of several.
    """
    pins = load_pins(upstream)
    name = load_upstream(upstream).default_pin if wanted is None else wanted
    commit = name.lower()
    by_commit = {pin.commit: pin for pin in pins}
    for pin in pins:
        if name == pin.name:
            return pin
    if commit in by_commit:
        return by_commit[commit]
    if FULL_COMMIT.fullmatch(commit):
        default = find_pin(upstream, None)
        return Pin(upstream, commit[:12], commit, None, None, default.binding, listed=False)
    matches = [
        pin for full, pin in by_commit.items() if _COMMIT_PREFIX.fullmatch(commit) and full.startswith(commit)
    ]
    if len(matches) == 1:
        return matches[0]
    raise UnknownPinError(
        f"There is no pin {name!r} of {upstream}",
        why="it is the beginning of several commits" if matches else None,
        hint=f"known pins: {', '.join(pin.name for pin in pins)}; a full commit id (40 digits) works too",
        details={"pins": [pin.name for pin in pins]},
    )


def submodules(pin: Pin) -> dict[str, str]:
    """Paths and commits of what a pin's tree links to without containing it; empty for unlisted pins."""
    tables = _read(pin.upstream, "pins.toml")["pin"]
    return next((table.get("submodules", {}) for table in tables if table["commit"] == pin.commit), {})


def manifest(pin: Pin) -> dict[str, Blob] | None:
    """Modes and ids of a pin's files by path, where a manifest stands for its commit."""
    if pin.manifest is None:
        return None
    return parse_manifest((data.patches(pin.upstream) / pin.manifest).read_text(encoding="utf-8"))


def _pin(upstream: str, number: int, table: Mapping[str, Any]) -> Pin:
    try:
        facts = {name: str(table[name]) for name in ("name", "commit", "tree", "date")}
        for name in ("commit", "tree"):
            if not FULL_COMMIT.fullmatch(facts[name]):
                raise ValueError(f"{name} has not 40 hex digits")
        manifest = table.get("manifest")
        if manifest and not (data.patches(upstream) / manifest).is_file():
            raise ValueError(f"there is no file {manifest}")
        texts = {name: str(value) for name, value in table.get("binding", {}).items()}
        binding = Binding(**texts) if texts else None
        return Pin(upstream, **facts, binding=binding, listed=True, manifest=manifest)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            "A pin is not as it should be",
            where=f"{data.patches(upstream) / 'pins.toml'}, pin {number}",
            why=cause_of(error),
            hint="docs/new-commit.md says what a pin has",
        ) from error


def _read(upstream: str, file_name: str) -> dict[str, Any]:
    names = data.upstream_names()
    if upstream not in names:
        raise UnknownUpstreamError(f"There is no upstream {upstream!r}", hint=f"known: {', '.join(names)}")
    return read_toml(data.patches(upstream) / file_name, "A data file")
