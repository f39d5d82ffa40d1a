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

from numamirror_build.errors import ApplyError, NumaMirrorError
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.lock import compare_counts
from numamirror_build.patching.plan import Plan, plan_files
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.store import write_atomic, write_together
from numamirror_build.upstreams.git import run_git


@dataclass(frozen=True)
class Changed:
    """A tree that was changed.

    Attributes:
        path: the tree.
        plan: what was done to it.
        edited: files that were there before.
        added: files of ours.
        beside: by file and kind, how many accesses more (or, negative, fewer) it has than the pin.
    """

    path: Path
    plan: Plan
    edited: tuple[str, ...]
    added: tuple[str, ...]
    beside: Mapping[str, Mapping[str, int]]

    def as_json(self) -> dict[str, Any]:
        """What was done, for machines."""
        return {
            "path": str(self.path),
            "plan": self.plan.digest,
            "sites": self.plan.counts(),
            "edited": list(self.edited),
            "added": list(self.added),
        }


def change_tree(root: Path, of_pin: Plan) -> Changed:
    """Plan for a tree as it is, and change it.

    Files that the tree's git ignores are left alone. Nothing is staged or committed.

    Args:
        root: the tree's top folder.
        of_pin: the plan of the pin to compare the tree with; upstream and scope are those of both.

    Raises:
        ApplyError: the folder has no such tree, an unresolved conflict, or one of our files already;
            or a file lies where it cannot be changed.
        AnchorError: a hook does not fit the tree.
        AccessError: an access has no known type, or a form without a rule.
        EditConflictError: two edits change the same text.
        SourceError: git does not tell which files belong to the tree.
        OutputError: a file cannot be written.
        DiskFullError: no space left.
    """
    files = _OwnFiles(root)
    _check_tree(root, files, of_pin)
    plan = plan_files(files, of_pin.pin, tree=None, scope=of_pin.scope)
    contents = patch_files(TreeFiles(root), plan)
    added = tuple(new.path for new in plan.new_files)
    edited = tuple(path for path in contents if path not in added)
    for path in contents:
        _check_place(root, path)
    # ours first: a run that is killed half-way is then recognised by the next one
    _write(root, {path: contents[path] for path in (*added, *edited)}, {path: files[path] for path in edited})
    return Changed(root, plan, edited, added, compare_counts(of_pin.counts(), plan.counts()))


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


def _check_tree(root: Path, files: Mapping[str, bytes], of_pin: Plan) -> None:
    """See that it is a tree of the upstream, as its owner wants it, and without the change."""
    upstream = of_pin.upstream
    edited = {edit.path for edit in of_pin.edits}
    lacking = sorted(edited - set(files))
    # The oldest pin has two thirds of what the newest one changes, the other upstream less than a half.
    if len(lacking) > len(edited) / 2:
        raise ApplyError(
            f"This is no tree of {upstream}",
            where=str(root),
            why=f"it lacks {len(lacking)} of the {len(edited)} files to change, {lacking[0]} among them",
            hint=f"name the top folder of a checkout of {upstream}, or another upstream with --upstream",
        )
    if (root / ".git").exists():
        unmerged = run_git("diff", "--name-only", "-z", "--diff-filter=U", cwd=root)
        if unmerged:
            raise ApplyError(
                "The tree has conflicts that are not resolved",
                where=", ".join(os.fsdecode(name) for name in unmerged.split(b"\0") if name),
                hint="resolve them, then run the same command again",
            )
    ours = [new.path for new in of_pin.new_files]
    there = [path for path in ours if os.path.lexists(root / path)]
    if there:
        raise ApplyError(
            "The tree has the change already, or a part of it",
            where=str(root),
            why=f"of the {len(ours)} files that the change adds it has {len(there)}: {', '.join(there)}",
            hint="to make it anew, take back what is there first: see docs/export.md",
        )


def _check_place(root: Path, path: str) -> None:
    place = root / path
    folder = next(parent for parent in place.parents if parent.exists())
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ApplyError("A file lies outside of the tree", where=path, why=f"{folder} is a link out of it")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        why = f"{folder} is not writable" if folder.is_dir() else f"{folder} is no folder"
        raise ApplyError("A file cannot be changed", where=path, why=why)


def _write(root: Path, contents: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """Write all of the files, or leave all as they were."""
    try:
        write_together({root / path: content for path, content in contents.items()})
    except BaseException as error:
        now = TreeFiles(root)
        for path in (path for path, content in contents.items() if now.get(path) == content):
            if path in before:
                write_atomic(root / path, before[path])
            else:
                (root / path).unlink()
        if isinstance(error, NumaMirrorError):
            error.hint = "the tree is as it was; see that there is room and it can be written, and try again"
        raise
