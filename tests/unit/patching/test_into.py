"""The change in somebody's own tree."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.errors import AnchorError, ApplyError, DiskFullError, SourceError
from numamirror_build.patching import into
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.into import change_tree
from numamirror_build.patching.plan import NewFile, Plan
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import Pin
from tests.unit.patching import made_up


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made-up tree as a clone, and a planner that knows it."""
    root = tmp_path / "fork"
    made_up.checkout(root)
    (root / ".git/config").unlink()
    run_git("init", "--quiet", root)
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    (root / "build/generated.c").write_text("ignored\n")
    run_git("add", "src/a.c", cwd=root)
    monkeypatch.setattr(into, "plan_files", Planner())
    return root


class Planner:
    """Makes the made-up plan; keeps which files it was given."""

    def __call__(self, files: Mapping[str, bytes], pin: Pin, *, tree: str | None, scope: str) -> Plan:
        Planner.seen = dict(files)
        return made_up.make(tree=tree)

    seen: Mapping[str, bytes]


def content(root: Path) -> dict[str, bytes]:
    """All plain files but git's."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }


def test_the_tree_is_changed_and_nothing_is_committed(tree: Path) -> None:
    """Edited and new files are as planned, all others as before; git sees it as work in progress."""
    before = content(tree)
    (tree / "src/a.c").chmod(0o755)
    made = change_tree(tree, made_up.make())
    assert content(tree) == before | patch_files(made_up.FILES, made_up.make())
    assert (made.edited, made.added) == (("src/a.c", "src/b.c"), ("src/mirror.h",))
    assert (tree / "src/a.c").stat().st_mode & 0o777 == 0o755
    assert b"AM src/a.c" in run_git("status", "--short", cwd=tree)


def test_what_git_ignores_is_not_planned_for(tree: Path) -> None:
    """A build folder's generated sources are left out; files that are not added yet are not."""
    change_tree(tree, made_up.make())
    assert set(Planner.seen) >= {"src/a.c", "src/b.c"}
    assert not {"build/generated.c", "link"} & set(Planner.seen)


def test_without_git_all_files_count(tree: Path) -> None:
    """An unpacked archive has no list of its files."""
    (tree / ".git").rename(tree.with_name("away"))
    change_tree(tree, made_up.make())
    assert "build/generated.c" in Planner.seen


@pytest.mark.parametrize("what", ["change", "folder", "link"])
def test_what_lies_where_ours_goes_is_named(tree: Path, tmp_path: Path, what: str) -> None:
    """After a first time, and where something else has the place: one error, and the tree stays as it is."""
    place = tree / "src/mirror.h"
    if what == "change":
        change_tree(tree, made_up.make())
    elif what == "folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "nowhere")
    after = content(tree)
    with pytest.raises(ApplyError, match="has the change already") as caught:
        change_tree(tree, made_up.make())
    assert "of the 1 files that the change adds it has 1: src/mirror.h" in str(caught.value)
    assert caught.value.hint and content(tree) == after


@pytest.mark.parametrize("git", [True, False], ids=["git", "no-git"])
def test_another_tree_is_told_as_such(tmp_path: Path, git: bool) -> None:
    """A folder that lacks most of what is to be changed is no tree of the upstream, whatever else it has."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/other.c").write_text("other\n")
    if git:
        run_git("init", "--quiet", tmp_path)
    with pytest.raises(ApplyError, match="no tree of tiny") as caught:
        change_tree(tmp_path, made_up.make())
    assert "it lacks 2 of the 2 files to change, src/a.c among them" in str(caught.value)
    assert sorted(content(tmp_path)) == ["src/other.c"]


def test_a_tree_that_lacks_a_little_is_planned_for(tree: Path) -> None:
    """What a fork has removed is the planner's business."""
    (tree / "src/b.c").unlink()
    with pytest.raises(ApplyError, match="does not fit the tree"):
        change_tree(tree, made_up.make())


def test_conflicts_are_named(tree: Path) -> None:
    """In the middle of a merge that stopped, the files with conflicts are what is wrong."""
    somebody = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def commit(line: str) -> None:
        (tree / "src/a.c").write_text(line)
        run_git("commit", "--quiet", "--all", "--message", "one", cwd=tree, env=somebody)

    run_git("add", "--all", cwd=tree)
    commit("first\n")
    run_git("branch", "theirs", cwd=tree)
    commit("ours\n")
    run_git("checkout", "--quiet", "theirs", cwd=tree)
    commit("theirs\n")
    with pytest.raises(SourceError):
        run_git("rebase", "--quiet", "-", cwd=tree, env=somebody)
    before = content(tree)
    with pytest.raises(ApplyError, match="conflicts that are not resolved") as caught:
        change_tree(tree, made_up.make())
    assert caught.value.where == "src/a.c"
    assert content(tree) == before


def test_what_does_not_fit_leaves_the_tree_alone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collision with the tree's own changes is the planner's error, and nothing is written."""

    def refuse(*_: object, **__: object) -> Plan:
        raise AnchorError("gone")

    before = content(tree)
    monkeypatch.setattr(into, "plan_files", refuse)
    with pytest.raises(AnchorError):
        change_tree(tree, made_up.make())
    assert content(tree) == before


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_half_way_is_taken_back(
    tree: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Whatever file cannot be written or put in its place, all are as before, and nothing is beside them."""
    before = content(tree)
    (tree / "src/b.c").chmod(0o755)
    done = {"fsync": os.fsync, "replace": Path.replace}[call]
    countdown = iter(range(number, -99, -1))

    def failing(*arguments: Any) -> None:
        if next(countdown) == 0:
            raise OSError(errno.ENOSPC, "full")
        done(*arguments)  # type: ignore[operator]

    monkeypatch.setattr(os if call == "fsync" else Path, call, failing)
    with pytest.raises(DiskFullError) as caught:
        change_tree(tree, made_up.make())
    assert content(tree) == before
    assert (tree / "src/b.c").stat().st_mode & 0o777 == 0o755
    assert "--cache-dir" not in str(caught.value)


def test_nothing_is_written_through_a_link(tree: Path, tmp_path: Path) -> None:
    """A folder that is a link out of the tree is refused, and what it points to stays."""
    (tree / "src").rename(tmp_path / "outside")
    (tree / "src").symlink_to(tmp_path / "outside")
    before = content(tmp_path / "outside")
    with pytest.raises(ApplyError, match="outside of the tree"):
        change_tree(tree, made_up.make())
    assert content(tmp_path / "outside") == before


def test_a_file_where_a_folder_should_be(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before anything is written."""
    before = content(tree)
    other = made_up.make(new_files=(NewFile("README/mirror.h", b""),))
    monkeypatch.setattr(into, "plan_files", lambda *_, **__: other)
    with pytest.raises(ApplyError, match="cannot be changed") as caught:
        change_tree(tree, other)
    assert "README is no folder" in str(caught.value)
    assert content(tree) == before


def test_what_it_has_beside_the_pin_is_counted(tree: Path) -> None:
    """Accesses of the tree's that the pin has not, and the other way round."""
    assert change_tree(tree, made_up.make(sites=())).beside == {"src/a.c": {"read": 1}}
