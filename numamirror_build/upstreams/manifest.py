"""Manifests: git's ids of a commit's files as text, for sources that carry the files without git data.

Files of a folder follow a line with its path, which ends with a slash (``./`` is the root).
A line of a file is its id and its name; behind the id, ``*`` marks a program and ``@`` a link.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from numamirror_build.errors import ConfigError
from numamirror_build.upstreams.folder import FILE, LINK, PROGRAM, Blob

_MARKS = {"": FILE, "*": PROGRAM, "@": LINK}
_ENTRY = re.compile(r"([0-9a-f]{40})([*@]?) ([^/]+)")


def parse_manifest(text: str) -> dict[str, Blob]:
    """Modes and ids by path.

    Raises:
        ConfigError: a line is not what it should be, or a path is there twice.
    """
    found: dict[str, Blob] = {}
    folder = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        if line.endswith("/"):
            folder = "" if line == "./" else line
            continue
        entry = _ENTRY.fullmatch(line)
        path = f"{folder}{entry[3]}" if entry else ""
        if entry is None or path in found:
            raise ConfigError("A manifest is not valid", where=f"line {number}", why=line)
        found[path] = Blob(_MARKS[entry[2]], entry[1])
    return found


def format_manifest(blobs: Mapping[str, Blob]) -> str:
    """The text of a manifest: folders and names in order."""
    marks = {mode: mark for mark, mode in _MARKS.items()}
    folders: dict[str, list[str]] = {}
    for path, blob in sorted(blobs.items()):
        folder, name = posixpath.split(path)
        folders.setdefault(f"{folder or '.'}/", []).append(f"{blob.id}{marks[blob.mode]} {name}")
    return "".join(
        f"{folder}\n" + "".join(f"{line}\n" for line in folders[folder]) for folder in sorted(folders)
    )
