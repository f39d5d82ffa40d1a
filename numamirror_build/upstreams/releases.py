"""Releases of a binding that are no pins yet, as what their pins would be.

Which commit a release vendors is read from the git repository in its sdist.
Where sdists carry none, a release is recognised if it vendors the files that a listed pin's manifest names.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from numamirror_build import data
from numamirror_build.errors import ConfigError, SourceError
from numamirror_build.progress import Progress
from numamirror_build.store import Store, write_atomic
from numamirror_build.upstreams import folder as plain
from numamirror_build.upstreams.checkout import Checkout, local_url, make_checkout
from numamirror_build.upstreams.git import Repository, run_git
from numamirror_build.upstreams.pins import (
    FULL_COMMIT,
    Binding,
    Pin,
    Upstream,
    find_pin,
    load_pins,
    load_upstream,
    manifest,
)
from numamirror_build.upstreams.sdist import fetch_release, fetch_sdist, list_releases, unpack_sdist

_PIN = r"[ \t]*\[\[[ \t]*pin[ \t]*\]\]"
_REST = r"[^\r\n]*"
_ENTRY = re.compile(
    rf"(?m)^{_PIN}{_REST}(?:\r?\n(?:[ \t]*(?:#{_REST})?\r?\n)*(?!{_PIN})[ \t]*[^\s#]{_REST})*"
)
"""A pin in the list, up to its last line that is no comment: what follows may speak of the next one."""


@dataclass(frozen=True)
class Release:
    """A release as a pin.

    Attributes:
        pin: what is to be listed.
        checkout: its files, checked.
        submodules: paths and commits of what the tree links to without containing it.
    """

    pin: Pin
    checkout: Checkout
    submodules: Mapping[str, str]


def newer_releases(upstream: str) -> list[str]:
    """The versions that the index offers of the binding and that are newer than all pins', oldest first.

    Raises:
        SourceError: pip could not ask the index, or no pin has a binding.
    """
    listed = [version for pin in load_pins(upstream) if (version := version_of(pin))]
    offered = map(Version, list_releases(package_of(upstream)))
    return [str(version) for version in sorted(offered) if version > max(listed)]


def version_of(pin: Pin) -> Version | None:
    """The release that a pin belongs to, as something to compare; None without one.

    Raises:
        ConfigError: the list of pins says something else than a version.
    """
    try:
        return Version(pin.binding.version) if pin.binding else None
    except InvalidVersion as error:
        raise ConfigError("A pin's release is no version", where=f"pin {pin.name}", why=str(error)) from error


def package_of(upstream: str) -> str:
    """The binding's name on the package index.

    Raises:
        SourceError: no pin has a binding.
    """
    for pin in load_pins(upstream):
        if pin.binding:
            return pin.binding.package
    raise SourceError(f"No pin of {upstream} belongs to a release of a Python binding")


def release_as_pin(store: Store, upstream: str, version: str, *, progress: Progress) -> Release:
    """The pin that a release of the binding would be, with its files.

    Raises:
        SourceError: the release could not be had, or does not say which commit it vendors.
        ContentMismatchError: it does not hold what it says.
    """
    binding = fetch_release(store, package_of(upstream), version, progress=progress)
    facts = load_upstream(upstream)
    if facts.sdist_repository is None:
        pin = _pin_with_manifest(store, facts, binding, progress)
    else:
        archive = fetch_sdist(store, _unlisted(upstream, binding, ""), progress=progress)
        pin = _unlisted(upstream, binding, _head(archive, facts.sdist_repository))
    checkout = make_checkout(store, pin, source="sdist", progress=progress)
    if pin.manifest:
        return Release(pin, checkout, {})
    repository = Repository(checkout.path.with_name("git"), checkout.path)
    tree, date = repository.text("log", "-1", "--format=%T %cI").split()
    entries = (line.split() for line in repository.text("ls-tree", "-r", "HEAD").splitlines())
    links = {path: commit for mode, _, commit, path, *_ in entries if mode == plain.SUBMODULE}
    pin = replace(pin, tree=tree, date=date)
    return Release(pin, replace(checkout, pin=pin), links)


def commit_as_pin(
    store: Store, upstream: str, commit: str, *, git_url: str | None = None, progress: Progress
) -> Release:
    """A commit that need not belong to a release, with its files.

    Args:
        store: the cache.
        upstream: the upstream's name.
        commit: a full id, or what the remote calls one, such as ``HEAD``.
        git_url: remote to fetch from instead of upstream's own.
        progress: told what goes on.

    Raises:
        SourceError: the remote could not be had, or has no such commit.
    """
    url = local_url(git_url or load_upstream(upstream).git_url)
    if not FULL_COMMIT.fullmatch(commit.lower()):
        progress.step(f"Asking {url} for {commit}")
        commit = _named(url, commit)
    pin = find_pin(upstream, commit)
    return Release(pin, make_checkout(store, pin, source="git", git_url=git_url, progress=progress), {})


def _named(url: str, name: str) -> str:
    """The commit that a remote calls so: as git looks for names, and the tag's commit instead of the tag."""
    listed = run_git("ls-remote", "--", url, name, f"{name}^{{}}").decode()
    commits = {ref: commit for commit, ref in (line.split("\t") for line in listed.splitlines())}
    for ref in (name, f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}"):
        if ref in commits:
            return commits[ref]
    raise SourceError(
        "There is no such commit",
        where=f"{url}: {name}",
        hint="name a branch, a tag or a full id (40 digits)",
    )


def list_pin(release: Release) -> Path:
    """Write a release into the list of pins; the list's file.

    It takes the place of the pin of its name, or else stands before the first newer release.
    All other text stays as it is.

    Raises:
        ConfigError: the list is not one that can be added to.
        OutputError: it cannot be written.
    """
    pin = release.pin
    path = data.patches(pin.upstream) / "pins.toml"
    text, pins, version = path.read_bytes().decode(), load_pins(pin.upstream), version_of(pin)
    assert version is not None
    entries = list(_ENTRY.finditer(text))
    if len(entries) != len(pins):
        raise ConfigError(
            "Not every pin in the list begins with [[pin]]", where=str(path), hint="add this one by hand"
        )
    same = next((number for number, old in enumerate(pins) if old.name == pin.name), None)
    newer = (number for number, old in enumerate(pins) if (version_of(old) or version) > version)
    before = entries[: next(newer, len(pins))]
    if same is not None:
        (start, end), new = entries[same].span(), _entry(release)
    elif before:
        start = end = before[-1].end()
        new = f"\n\n{_entry(release)}"
    else:
        start = end = entries[0].start()
        new = f"{_entry(release)}\n\n"
    write_atomic(path, text[:start] + new + text[end:])
    return path


def _entry(release: Release) -> str:
    pin, binding = release.pin, release.pin.binding
    assert binding is not None
    facts = {"name": pin.name, "commit": pin.commit, "tree": pin.tree, "date": pin.date}
    if pin.manifest:
        facts["manifest"] = pin.manifest
    tables = [("[[pin]]", facts)]
    if release.submodules:
        tables.append(("[pin.submodules]", {f'"{path}"': id for path, id in release.submodules.items()}))
    tables.append(
        (
            "[pin.binding]",
            {
                "package": binding.package,
                "version": binding.version,
                "sdist": binding.sdist,
                "sha256": binding.sha256,
            },
        )
    )
    return "\n\n".join(
        "\n".join([head, *(f'{key} = "{value}"' for key, value in table.items())]) for head, table in tables
    )


def _unlisted(upstream: str, binding: Binding, commit: str) -> Pin:
    return Pin(upstream, binding.version, commit, None, None, binding, listed=True)


def _head(archive: Path, repository: str) -> str:
    """The commit that is checked out in the git repository that an sdist carries."""
    with tempfile.TemporaryDirectory() as scratch:
        name = f"{repository}/HEAD"
        place = unpack_sdist(archive, Path(scratch), only=name) / name
        try:
            with place.open("rb") as stream:
                head = stream.read(80).decode(errors="replace").strip()
        except OSError as error:
            head = error.strerror or ""
    if not FULL_COMMIT.fullmatch(head):
        raise SourceError(
            "A release does not say which commit it vendors",
            where=f"{archive}: {name}",
            why=f"there is no commit id, but {head!r}",
        )
    return head


def _pin_with_manifest(store: Store, facts: Upstream, binding: Binding, progress: Progress) -> Pin:
    assert facts.sdist_folder is not None
    archive = fetch_sdist(store, _unlisted(facts.name, binding, ""), progress=progress)
    differences: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpack_sdist(archive, Path(scratch), only=facts.sdist_folder) / facts.sdist_folder
        for pin in reversed(load_pins(facts.name)):
            if (blobs := manifest(pin)) is None:
                continue
            if not (different := plain.differences(folder, blobs)):
                return replace(pin, name=binding.version, binding=binding)
            differences = differences or dict(different)
    raise SourceError(
        f"{binding.sdist} vendors other files than any listed pin, and does not say of which commit they are",
        where=str(archive),
        why="\n".join(f"{path}: {how}" for path, how in list(differences.items())[:10]),
        hint="find the commit and write its manifest: docs/new-commit.md says how",
        details={"differences": differences},
    )
