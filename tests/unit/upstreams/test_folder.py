from __future__ import annotations

import os
from pathlib import Path

import pytest

from numamirror_build.errors import SourceError
from numamirror_build.upstreams import folder as plain
from tests.unit.upstreams.made_up import LINK, PROGRAM, Tiny


@pytest.fixture
def files(tiny: Tiny) -> Path:
    """The made-up upstream's files without git."""
    return tiny.plain_folder("plain")


def test_tree_id_is_gits(tiny: Tiny, files: Path) -> None:
    """The id computed from a folder is the one that git gave its files, with odd names, links and modes."""
    assert plain.tree_id(plain.scan(files)) == tiny.pin.tree


def test_submodules_take_part_in_the_id() -> None:
    """A tree with a link to another repository's commit has the id that `git mktree` gives it."""
    blobs = {
        "sub/module": plain.Blob(plain.SUBMODULE, "4565194ed7c32d1d2efa32ceab4d3c6cae006306"),
        "sub/a": plain.Blob(plain.FILE, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
    }
    assert plain.tree_id(blobs) == "18b9c462d34456a6ee11a2bb4617d9d35a3086b9"


def test_git_entries_and_empty_folders_do_not_count(tiny: Tiny, files: Path) -> None:
    """`.git` at any depth, as a folder or as a file, and folders without files change nothing."""
    (files / ".git/objects").mkdir(parents=True)
    (files / ".git/HEAD").write_text("x")
    (files / "src/.git").write_text("gitdir: nowhere\n")
    (files / "nothing/below").mkdir(parents=True)
    assert plain.tree_id(plain.scan(files)) == tiny.pin.tree


def test_left_out_paths(tiny: Tiny, files: Path) -> None:
    """Paths that are left out are left out with all that is below them."""
    (files / "src/sub/deep").mkdir(parents=True)
    (files / "src/sub/deep/x").write_text("x")
    assert plain.tree_id(plain.scan(files)) != tiny.pin.tree
    assert plain.tree_id(plain.scan(files, without=["src/sub"])) == tiny.pin.tree


def test_differences_by_kind(files: Path) -> None:
    """Each way in which a path can differ has its name; paths that are there besides do not count."""
    expected = plain.scan(files)
    assert plain.differences(files, expected) == {}
    (files / "README").write_bytes(b"x")
    (files / "src/a.c").unlink()
    (files / PROGRAM).chmod(0o644)
    (files / LINK).unlink()
    (files / LINK).symlink_to("README")
    (files / "empty").unlink()
    (files / "empty").mkdir()
    (files / "more").write_text("x")
    assert plain.differences(files, expected) == {
        "README": "changed",
        "src/a.c": "missing",
        PROGRAM: "mode",
        LINK: "changed",
        "empty": "missing",
    }


def test_a_file_in_place_of_a_folder_is_a_missing_file(files: Path) -> None:
    """What should lie below a folder is missing when a file has taken the folder's name."""
    expected = plain.scan(files)
    for name in ("a.c", "dos.c"):
        (files / "src" / name).unlink()
    (files / "src").rmdir()
    (files / "src").write_text("x")
    assert plain.differences(files, expected) == {"src/a.c": "missing", "src/dos.c": "missing"}


def test_special_files_are_refused(files: Path) -> None:
    """A named pipe in a source folder is an error that names it, not something to wait for."""
    os.mkfifo(files / "pipe")
    with pytest.raises(SourceError, match="pipe"):
        plain.scan(files)
