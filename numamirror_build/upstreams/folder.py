"""A plain folder of files as git sees it: modes and object ids, computed here, without a repository.

Everything counts except ``.git`` entries, at any depth, and empty folders.
A file's mode is "executable by its owner" or not, as in git; links are not followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from numamirror_build.errors import SourceError

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = "100644", "100755", "120000", "40000", "160000"


class Blob(NamedTuple):
    """What git knows about one path: mode, and object id (for a submodule its commit)."""

    mode: str
    id: str


def scan(folder: Path, *, without: Iterable[str] = ()) -> dict[str, Blob]:
    """All files and links below a folder, by path.

    Args:
        folder: the folder.
        without: paths below it that are left out.

    Raises:
        SourceError: something is neither file, folder nor link, or cannot be read.
    """
    left_out = set(without)
    found: dict[str, Blob] = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            names = [place.name for place in (folder / prefix).iterdir()]
        except OSError as error:
            raise SourceError(
                "A folder cannot be read", where=str(folder / prefix), why=error.strerror
            ) from error
        for name in names:
            path = f"{prefix}{name}"
            if name == ".git" or path in left_out:
                continue
            blob = read(folder, path)
            if blob is None:
                pending.append(f"{path}/")
            else:
                found[path] = blob
    return found


def read(folder: Path, path: str) -> Blob | None:
    """Mode and id of one path below a folder; None if it is a folder or is not there.

    Raises:
        SourceError: it is neither file, folder nor link, or cannot be read.
    """
    place = folder / path
    try:
        facts = place.lstat()
        if stat.S_ISDIR(facts.st_mode):
            return None
        if stat.S_ISLNK(facts.st_mode):
            return Blob(LINK, _object_id("blob", os.fsencode(place.readlink())))
        if stat.S_ISREG(facts.st_mode):
            with place.open("rb") as stream:
                return Blob(
                    PROGRAM if facts.st_mode & stat.S_IXUSR else FILE, _blob_id(facts.st_size, stream)
                )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError("A file cannot be read", where=str(place), why=error.strerror) from error
    raise SourceError(
        "A source folder contains what no source has", where=str(place), why="neither file nor link"
    )


def differences(folder: Path, expected: Mapping[str, Blob]) -> dict[str, str]:
    """How a folder differs from what it should contain, by path: ``missing``, ``changed`` or ``mode``.

    What it contains besides, and submodules, do not count.
    """
    found: dict[str, str] = {}
    for path, blob in expected.items():
        if blob.mode == SUBMODULE:
            continue
        got = read(folder, path)
        if got is None:
            found[path] = "missing"
        elif got.id != blob.id:
            found[path] = "changed"
        elif got.mode != blob.mode:
            found[path] = "mode"
    return found


def tree_id(blobs: Mapping[str, Blob]) -> str:
    """The id of the git tree that consists of these paths."""
    entries: dict[str, Blob] = {}
    folders: dict[str, dict[str, Blob]] = {}
    for path, blob in blobs.items():
        name, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(name, {})[rest] = blob
        else:
            entries[name] = blob
    entries |= {name: Blob(FOLDER, tree_id(below)) for name, below in folders.items()}
    # Git sorts a folder as if its name ended with a slash.
    order = sorted(entries, key=lambda name: os.fsencode(name + "/" * (entries[name].mode == FOLDER)))
    content = [
        b"%s %s\0%s" % (entries[name].mode.encode(), os.fsencode(name), bytes.fromhex(entries[name].id))
        for name in order
    ]
    return _object_id("tree", b"".join(content))


def _object_id(kind: str, content: bytes) -> str:
    return _sha1(kind, len(content), [content])


def _blob_id(size: int, stream: BinaryIO) -> str:
    return _sha1("blob", size, iter(lambda: stream.read(1 << 20), b""))


def _sha1(kind: str, size: int, blocks: Iterable[bytes]) -> str:
    sha = hashlib.sha1(f"{kind} {size}\0".encode(), usedforsecurity=False)
    for block in blocks:
        sha.update(block)
    return sha.hexdigest()
