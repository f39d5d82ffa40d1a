"""What is made of the binding's sources: our tree in them, our version, licences, hooks into their Python.

The hooks and files of ours for an upstream's binding are in ``patches/<upstream>/binding/``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from numamirror_build import data
from numamirror_build.building.build import copy_tree
from numamirror_build.building.install import licence_files
from numamirror_build.building.recipe import Recipe, VersionLine
from numamirror_build.errors import WheelError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.store import file_sha256
from numamirror_build.upstreams.checkout import unpack_sdist

LICENCES = "licences"
"""The folder of the prepared sources that has all licences."""


def prepare_sources(
    archive: Path, into: Path, tree: PatchedTree, recipe: Recipe, *, upstream: str, version: str
) -> Path:
    """Unpack the binding's sdist, and make of it the sources of our wheel.

    Args:
        archive: the sdist.
        into: a folder, which is made anew.
        tree: takes the place of the tree that the sdist vendors.
        recipe: says where things are.
        upstream: whose binding it is.
        version: what the package says to be.

    Returns:
        The folder of the sources.

    Raises:
        WheelError: the sdist does not look as expected.
        AnchorError: a hook's anchor is missing, or there more than once.
    """
    top = _unpack(archive, into, recipe.vendored)
    _hook(top, data.binding(upstream))
    for line in recipe.versions:
        _set_version(top, line, version)
    copy_tree(tree.path, top / recipe.vendored)
    for name, path in licence_files(recipe, top / recipe.vendored).items():
        _copy(path, top / LICENCES / name)
    return top


def binding_inputs(upstream: str) -> Mapping[str, str]:
    """Digests of the hooks and files of ours for a binding, by name, for keys."""
    folder = data.binding(upstream)
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _unpack(archive: Path, into: Path, vendored: str) -> Path:
    """The sdist's content without the tree it vendors and without what is left of its git repository."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    top = unpack_sdist(archive, into)
    if not (top / vendored).is_dir():
        raise WheelError("The binding's sdist has no tree where one is expected", where=vendored)
    shutil.rmtree(top / vendored)
    shutil.rmtree(top / ".git", ignore_errors=True)
    return top


def _hook(sources: Path, folder: Path) -> None:
    # Imported here: a wheel that comes from the cache needs no parser.
    from numamirror_build.patching.scope import TreeFiles
    from numamirror_build.rewrite import apply_edits
    from numamirror_build.rewrite.hooks import load_hooks, plan_hooks

    files = TreeFiles(sources)
    edits = sorted(plan_hooks(files, load_hooks(folder)), key=lambda edit: (edit.path, edit.start))
    for path, group in groupby(edits, lambda edit: edit.path):
        (sources / path).write_bytes(apply_edits(files[path], group))
    ours = folder / "files"
    for path in sorted(ours.rglob("*")):
        target = sources / path.relative_to(ours)
        if path.is_file():
            if target.exists():
                raise WheelError("The binding has a file of our name", where=str(path.relative_to(ours)))
            _copy(path, target)


def _set_version(sources: Path, line: VersionLine, version: str) -> None:
    path = sources / line.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    pattern = re.compile(rf'^{re.escape(line.name)} = "[^"\n]+"$', re.MULTILINE)
    text, count = pattern.subn(f'{line.name} = "{version}"', text)
    if count != 1:
        raise WheelError(
            "The binding does not say its version as expected",
            where=line.file,
            why=f"{count} lines set {line.name}",
        )
    path.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
