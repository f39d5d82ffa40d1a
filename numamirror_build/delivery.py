"""Handing over what was made: copies in one folder of the user's, with a manifest.

The manifest names every file that is ours, so nothing else in the folder is ever touched.
It is written first with ``complete: false`` and last with ``complete: true``;
files appear by atomic rename. What has not changed is not copied again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import OutputError, output_as_error
from numamirror_build.store import check_writable, file_sha256, locked, write_json

MANIFEST = "numamirror-build.json"
VERSION = 1
HIDDEN = "numamirror-build"


@dataclass(frozen=True)
class Item:
    """Something to hand over.

    Attributes:
        kind: ``tree``, ``program``, ``library``, ``licence``, ``wheel`` or ``report``.
        source: a file, a symbolic link or a folder.
        target: path in the output folder, with slashes.
        key: name of the cache entry that it comes from.
        seconds: how long it took to make.
        fresh: whether this run made it.
    """

    kind: str
    source: Path
    target: str
    key: str
    seconds: float
    fresh: bool


@dataclass(frozen=True)
class Product:
    """Something that was handed over.

    Attributes:
        kind: as of the item.
        path: where it is.
        size: bytes; of a folder, of all its files.
        sha256: of the content; of a folder, of the lines ``<sha256>  <path>`` of its files, sorted by path.
        seconds: how long it took to make.
        fresh: whether this run made it.
    """

    kind: str
    path: Path
    size: int
    sha256: str
    seconds: float
    fresh: bool

    def as_json(self) -> dict[str, Any]:
        """The product for machines."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "size": self.size,
            "sha256": self.sha256,
            "seconds": self.seconds,
            "fresh": self.fresh,
        }


def deliver(
    out: Path, items: Sequence[Item], facts: Mapping[str, Any], *, locks: Path
) -> tuple[Product, ...]:
    """Bring the output folder up to date: these items, and no longer those of an earlier delivery.

    Args:
        out: the output folder; made when it is not there.
        items: what to hand over; links point to another item's target in the same folder.
        facts: JSON-like facts for the manifest.
        locks: folder for the lock that keeps two deliveries to one folder apart.

    Raises:
        OutputError: something that no delivery made is in the way, or the folder cannot be written.
        DiskFullError: no space left.
        ConfigError: the cache, where the lock is, cannot be written to.
    """
    name = f"out-{hashlib.sha256(os.fsencode(out)).hexdigest()[:20]}"
    with locked(locks / name), output_as_error(str(out), hint="choose another with --out"):
        return _deliver(out, items, facts)


def check_place(out: Path) -> None:
    """See that there can be an output folder, before work that would be lost; errors as of that."""
    check_writable(out / MANIFEST)


def _deliver(out: Path, items: Sequence[Item], facts: Mapping[str, Any]) -> tuple[Product, ...]:
    out.mkdir(parents=True, exist_ok=True)
    before = _read_manifest(out)
    ours: dict[str, Any] = {entry["path"]: entry for entry in before.get("files", [])}
    for item in items:
        if item.target not in ours and os.path.lexists(out / item.target):
            raise OutputError(
                "Something that this program did not make is in the way",
                where=str(out / item.target),
                why=f"{out / MANIFEST} does not list it",
                hint="move it away, or choose another folder with --out",
            )
    entries = {item.target: ours.get(item.target) for item in items}
    stale = [item for item in items if not _is_current(out, item, entries[item.target])]
    header = {"version": VERSION, **facts}
    if stale or before != {**header, "complete": True, "files": list(entries.values())}:
        pending = [entry or {"path": path} for path, entry in {**ours, **entries}.items()]
        write_json(out / MANIFEST, {**header, "complete": False, "files": pending})
        for path in ours.keys() - entries.keys():
            _remove(out / path)
        for item in stale:
            entries[item.target] = _place(out, item)
        write_json(out / MANIFEST, {**header, "complete": True, "files": list(entries.values())})
    return tuple(_product(out, item, entries[item.target] or {}) for item in items)


def _read_manifest(out: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((out / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) and manifest.get("version") == VERSION else {}


def _origin(item: Item) -> str:
    status = item.source.lstat()
    return f"{item.key}/{item.source.name}" + (
        "" if item.source.is_dir() else f"/{status.st_size}/{status.st_mtime_ns}"
    )


def _is_current(out: Path, item: Item, entry: Mapping[str, Any] | None) -> bool:
    if entry is None or entry.get("origin") != _origin(item):
        return False
    try:
        status = (out / item.target).lstat()
    except FileNotFoundError:
        return False
    return item.source.is_dir() or [status.st_size, status.st_mtime_ns] == entry["status"]


def _place(out: Path, item: Item) -> dict[str, Any]:
    """Copy an item to its place; its manifest entry."""
    target = out / item.target
    target.parent.mkdir(parents=True, exist_ok=True)
    new, old = (target.with_name(f".{target.name}.{HIDDEN}-{what}") for what in ("new", "old"))
    _remove(new)
    if item.source.is_symlink():
        new.symlink_to(item.source.readlink())
        size, sha256 = 0, ""
    elif item.source.is_dir():
        shutil.copytree(item.source, new, symlinks=True)
        size, sha256 = _folder_facts(new)
        _remove(old)
        if target.exists():
            target.rename(old)
    else:
        shutil.copy(item.source, new)
        size, sha256 = new.stat().st_size, file_sha256(new)
    new.replace(target)
    _remove(old)
    status = target.lstat()
    return {
        "path": item.target,
        "kind": item.kind,
        "size": size,
        "sha256": sha256,
        "origin": _origin(item),
        "status": [status.st_size, status.st_mtime_ns],
    }


def _folder_facts(folder: Path) -> tuple[int, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    lines = (f"{file_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    sha = hashlib.sha256("".join(lines).encode(errors="surrogateescape"))
    return sum(path.stat().st_size for path in files), sha.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _product(out: Path, item: Item, entry: Mapping[str, Any]) -> Product:
    return Product(item.kind, out / item.target, entry["size"], entry["sha256"], item.seconds, item.fresh)
