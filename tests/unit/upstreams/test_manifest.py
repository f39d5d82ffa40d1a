"""Manifests: ids of files as text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError
from numamirror_build.upstreams.folder import FILE, LINK, PROGRAM, Blob, scan, tree_id
from numamirror_build.upstreams.manifest import format_manifest, parse_manifest

BLOBS = {
    "README": Blob(FILE, "1" * 40),
    "src/a b.c": Blob(FILE, "2" * 40),
    "src/deep/run.sh": Blob(PROGRAM, "3" * 40),
    "src/link": Blob(LINK, "4" * 40),
}
TEXT = f"""\
./
{"1" * 40} README
src/
{"2" * 40} a b.c
{"4" * 40}@ link
src/deep/
{"3" * 40}* run.sh
"""


def test_a_manifest_says_what_it_was_made_of() -> None:
    """Paths, modes and ids survive as text, folders are named once, comments do not count."""
    assert format_manifest(BLOBS) == TEXT
    assert parse_manifest(f"# made by hand\n\n{TEXT}") == BLOBS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("./\nabc README\n", 2),
        (f"{'1' * 40} a\n{'2' * 40} a\n", 2),
        (f"{'1' * 40} a/b\n", 1),
        (f"{'1' * 40}x a\n", 1),
        (f"{'1' * 40}\n", 1),
    ],
    ids=["short id", "twice", "path", "mark", "no name"],
)
def test_what_is_no_manifest_is_an_error(text: str, line: int) -> None:
    """A line that is neither folder nor file is an error that names it, and so is a second one of a path."""
    with pytest.raises(ConfigError) as caught:
        parse_manifest(text)
    assert caught.value.where == f"line {line}"


def test_the_writer_keeps_what_all_folders_have(tmp_path: Path) -> None:
    """A file that differs, a link, and what is named as a submodule are left out, and said to be."""
    for number in ("1", "2"):
        folder = tmp_path / number
        (folder / "sub").mkdir(parents=True)
        (folder / "same.c").write_text("int a;\n")
        (folder / "other.c").write_text(number)
        (folder / "sub/more.c").write_text("int b;\n")
        (folder / "link").symlink_to("same.c")
    script = Path(__file__).parents[3] / "ci/manifest.py"
    command: list[str | Path] = [sys.executable, script, tmp_path / "1", tmp_path / "2", "--without", "sub"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    same = {"same.c": scan(tmp_path / "1")["same.c"]}
    assert parse_manifest(done.stdout) == same
    assert done.stderr == f"tree = {tree_id(same)}\nleft out: link\nleft out: other.c\n"
