"""The change in somebody's own tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from numamirror_build.errors import AnchorError, ApplyError
from numamirror_build.patching import into
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.into import change_tree
from numamirror_build.patching.plan import Plan
from numamirror_build.store import write_atomic
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
    made = change_tree(tree, made_up.PIN, scope="cpu")
    assert content(tree) == before | patch_files(made_up.FILES, made_up.make())
    assert (made.edited, made.added) == (("src/a.c", "src/b.c"), ("src/mirror.h",))
    assert (tree / "src/a.c").stat().st_mode & 0o777 == 0o755
    assert b"AM src/a.c" in run_git("status", "--short", cwd=tree)


def test_what_git_ignores_is_not_planned_for(tree: Path) -> None:
    """A build folder's generated sources are left out; files that are not added yet are not."""
    change_tree(tree, made_up.PIN, scope="cpu")
    assert set(Planner.seen) >= {"src/a.c", "src/b.c"}
    assert not {"build/generated.c", "link"} & set(Planner.seen)


def test_without_git_all_files_count(tree: Path) -> None:
    """An unpacked archive has no list of its files."""
    (tree / ".git").rename(tree.with_name("away"))
    change_tree(tree, made_up.PIN, scope="cpu")
    assert "build/generated.c" in Planner.seen


def test_a_second_time_is_refused(tree: Path) -> None:
    """Our files are there already: an error, and the tree stays as the first time left it."""
    change_tree(tree, made_up.PIN, scope="cpu")
    after = content(tree)
    with pytest.raises(ApplyError):
        change_tree(tree, made_up.PIN, scope="cpu")
    assert content(tree) == after


def test_what_does_not_fit_leaves_the_tree_alone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collision with the tree's own changes is the planner's error, and nothing is written."""

    def refuse(*_: object, **__: object) -> Plan:
        raise AnchorError("gone")

    before = content(tree)
    monkeypatch.setattr(into, "plan_files", refuse)
    with pytest.raises(AnchorError):
        change_tree(tree, made_up.PIN, scope="cpu")
    assert content(tree) == before


def test_a_failure_half_way_is_taken_back(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever file cannot be written, all are as before."""
    before = content(tree)
    write = write_atomic
    for number in range(3):
        countdown = [number]

        def failing(path: Path, body: bytes, countdown: list[int] = countdown) -> None:
            countdown[0] -= 1
            if countdown[0] == -1:
                raise OSError("no")
            write(path, body)

        monkeypatch.setattr(into, "write_atomic", failing)
        with pytest.raises(OSError, match="no"):
            change_tree(tree, made_up.PIN, scope="cpu")
        assert content(tree) == before


def test_nothing_is_written_through_a_link(tree: Path, tmp_path: Path) -> None:
    """A folder that is a link out of the tree is refused, and what it points to stays."""
    (tree / "src").rename(tmp_path / "outside")
    (tree / "src").symlink_to(tmp_path / "outside")
    before = content(tmp_path / "outside")
    with pytest.raises(ApplyError, match="outside of the tree"):
        change_tree(tree, made_up.PIN, scope="cpu")
    assert content(tmp_path / "outside") == before


def test_no_folder(tmp_path: Path) -> None:
    """A place that is not there is told as such."""
    with pytest.raises(ApplyError, match="no such folder"):
        change_tree(tmp_path / "missing", made_up.PIN, scope="cpu")
