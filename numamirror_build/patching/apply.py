"""Applying a plan: a new tree beside the checkout, which stays as it is. And taking a plan back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from numamirror_build import data
from numamirror_build.errors import ApplyError
from numamirror_build.patching.plan import Plan
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.progress import Progress
from numamirror_build.rewrite import apply_edits, invert_edits
from numamirror_build.store import Store, digest
from numamirror_build.upstreams.checkout import Checkout


@dataclass(frozen=True)
class PristineTree:
    """Upstream's files as they are, as something to build."""

    checkout: Checkout

    @property
    def path(self) -> Path:
        """The tree's folder."""
        return self.checkout.path

    @property
    def key(self) -> str:
        """The key of the content."""
        return self.checkout.key


@dataclass(frozen=True)
class PatchedTree:
    """A checkout's files with a plan applied.

    Attributes:
        plan: the plan.
        checkout: what it was applied to.
        path: the tree's folder; never edited.
        key: the key of the content.
        seconds: how long making it took, when it was made.
        fresh: whether this run made it.
    """

    plan: Plan
    checkout: Checkout
    path: Path
    key: str
    seconds: float
    fresh: bool


def apply_plan(store: Store, checkout: Checkout, plan: Plan, *, progress: Progress) -> PatchedTree:
    """The patched tree, from the cache when it is there.

    Nothing but the plan's edits and new files differs from the checkout, and files that the source lacks
    and a build needs are supplied; modes, links and times are kept.

    Args:
        store: the cache.
        checkout: what the plan was made for.
        plan: the plan.
        progress: told what goes on.

    Raises:
        ApplyError: an edit does not find the bytes that it replaces, a new file is there already,
            or a link in the tree would lead a change out of it.
        DiskFullError: no space left.
    """

    def maker(folder: Path) -> Mapping[str, Any]:
        progress.step(f"Writing the patched tree of {plan.upstream} {plan.pin.name}")
        changed = patch_files(TreeFiles(checkout.path), plan)
        _copy_tree(checkout.path, folder, {**changed, **supplied})
        return {"commit": plan.pin.commit, "plan": plan.digest, "changed": len(changed)}

    supplied = supplied_files(plan.upstream, checkout.path)
    inputs = {"checkout": checkout.key, "plan": plan.digest}
    if supplied:
        inputs["supplied"] = digest(sorted((path, content.decode()) for path, content in supplied.items()))
    key = digest(inputs)[:20]
    entry = store.make("trees", key, maker)
    return PatchedTree(plan, checkout, entry.path, key, entry.seconds, entry.fresh)


def supplied_files(upstream: str, tree: Path) -> dict[str, bytes]:
    """The files that a tree lacks and its build needs, by path: sdists do not carry all that a commit has.

    They are no part of a plan, which also fits sources that have them.
    """
    folder = data.supplied(upstream)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not (tree / name).exists()}


def patch_files(files: Mapping[str, bytes], plan: Plan) -> dict[str, bytes]:
    """The content of every file that the plan changes or adds, by path.

    Raises:
        ApplyError: the plan does not fit the files.
    """
    changed = {}
    for path, edits in groupby(plan.edits, lambda edit: edit.path):
        if path not in files:
            raise ApplyError("An edit does not fit the tree", where=path, why="the file is not there")
        changed[path] = apply_edits(files[path], edits)
    for new in plan.new_files:
        if new.path in files:
            raise ApplyError("A new file is in the tree already", where=new.path)
        changed[new.path] = new.content
    return changed


def unpatch_files(files: Mapping[str, bytes], plan: Plan) -> dict[str, bytes | None]:
    """The content that every file of a patched tree had before, by path; None for a file that was not there.

    Raises:
        ApplyError: the files are not as the plan leaves them.
    """
    before: dict[str, bytes | None] = {}
    for path, edits in groupby(plan.edits, lambda edit: edit.path):
        if path not in files:
            raise ApplyError("A plan cannot be taken back", where=path, why="the file is not there")
        before[path] = apply_edits(files[path], invert_edits(edits))
    for new in plan.new_files:
        if files.get(new.path) != new.content:
            raise ApplyError("A plan cannot be taken back", where=new.path, why="it is not the file of ours")
        before[new.path] = None
    return before


def _copy_tree(source: Path, target: Path, changed: Mapping[str, bytes]) -> None:
    for folder, folders, names in os.walk(source):
        if ".git" in folders:
            folders.remove(".git")
        base = Path(folder).relative_to(source)
        (target / base).mkdir(exist_ok=True)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*names, *links]:
            if (base / name).as_posix() not in changed:
                shutil.copy2(Path(folder) / name, target / base / name, follow_symlinks=False)
    for path, content in changed.items():
        if not (target / path).parent.resolve().is_relative_to(target.resolve()):
            raise ApplyError(
                "A change would lead out of the tree", where=path, why="a folder of it is a link"
            )
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)
        if (source / path).exists():
            shutil.copymode(source / path, target / path)
