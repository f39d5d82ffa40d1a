"""The change in somebody's own tree: a clone or a fork, with changes of its own.

The plan is made for the tree as it is, not for the pin:
accesses that only the fork has are rewritten as well, and lines that moved are found again.
What our data does not fit is an error, and then nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import ApplyError
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.lock import compare_counts
from numamirror_build.patching.plan import Plan, plan_files
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.store import write_atomic
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import Pin


@dataclass(frozen=True)
class Changed:
    """A tree that was changed.

    Attributes:
        path: the tree.
        plan: what was done to it.
        edited: files that were there before.
        added: files of ours.
    """

    path: Path
    plan: Plan
    edited: tuple[str, ...]
    added: tuple[str, ...]

    def beside(self, plan: Plan) -> dict[str, dict[str, int]]:
        """By file and kind, how many accesses more (or, negative, fewer) it has than another plan."""
        return compare_counts(plan.counts(), self.plan.counts())

    def as_json(self) -> dict[str, Any]:
        """What was done, for machines."""
        return {
            "path": str(self.path),
            "plan": self.plan.digest,
            "sites": self.plan.counts(),
            "edited": list(self.edited),
            "added": list(self.added),
        }


def change_tree(root: Path, pin: Pin, *, scope: str) -> Changed:
    """Plan for a tree as it is, and change it.

    Files that the tree's git ignores are left alone. Nothing is staged or committed.

    Args:
        root: the tree's top folder.
        pin: names the upstream.
        scope: ``cpu`` or ``all``.

    Raises:
        ApplyError: the folder is not there or cannot be written, or has one of our files already.
        AnchorError: a hook does not fit the tree.
        AccessError: an access has no known type, or a form without a rule.
        EditConflictError: two edits change the same text.
        SourceError: git does not tell which files belong to the tree.
    """
    if not root.is_dir():
        raise ApplyError("There is no such folder to apply the change to", where=str(root))
    files = _OwnFiles(root)
    plan = plan_files(files, pin, tree=None, scope=scope)
    contents = patch_files(TreeFiles(root), plan)
    added = tuple(new.path for new in plan.new_files)
    edited = tuple(path for path in contents if path not in added)
    for path in contents:
        _check_place(root, path)
    # ours first: a run that is killed half-way is then recognised by the next one
    _write(root, {path: contents[path] for path in (*added, *edited)}, {path: files[path] for path in edited})
    return Changed(root, plan, edited, added)


class _OwnFiles(Mapping[str, bytes]):
    """The files of a tree that its git knows or would add; without git, all."""

    def __init__(self, root: Path) -> None:
        files = TreeFiles(root)
        self._files = files
        self._names: dict[str, None]
        if not (root / ".git").exists():
            self._names = dict.fromkeys(files)
            return
        listed = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
        names = sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})
        there = (name for name in names if not (root / name).is_symlink() and (root / name).is_file())
        self._names = dict.fromkeys(there)

    def __getitem__(self, path: str) -> bytes:
        if path not in self._names:
            raise KeyError(path)
        return self._files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _check_place(root: Path, path: str) -> None:
    place = root / path
    folder = next(parent for parent in place.parents if parent.exists())
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ApplyError("A file lies outside of the tree", where=path, why=f"{folder} is a link out of it")
    if place.is_symlink() or not os.access(folder, os.W_OK):
        why = "it is a link" if place.is_symlink() else f"{folder} is not writable"
        raise ApplyError("A file cannot be changed", where=path, why=why)


def _write(root: Path, contents: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """Write all of the files, or leave all as they were."""
    written: list[str] = []
    try:
        for path, content in contents.items():
            written.append(path)
            _write_one(root / path, content)
    except BaseException:
        for path in written:
            if path in before:
                _write_one(root / path, before[path])
            else:
                (root / path).unlink(missing_ok=True)
        raise


def _write_one(place: Path, content: bytes) -> None:
    mode = place.stat().st_mode if place.exists() else None
    write_atomic(place, content)
    if mode is not None:
        place.chmod(mode & 0o7777)
