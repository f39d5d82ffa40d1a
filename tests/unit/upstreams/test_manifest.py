"""Manifests: ids of files as text."""

from __future__ import annotations

import pytest

from numamirror_build.errors import ConfigError
from numamirror_build.upstreams.folder import FILE, LINK, PROGRAM, Blob
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
