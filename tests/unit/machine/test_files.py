"""Small files of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.machine import files


@pytest.mark.parametrize(
    ("written", "numbers"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), (None, ()), ("5", (5,)), ("2,0", (0, 2)), ("x,1-", (1,))],
)
def test_lists(written: str | None, numbers: tuple[int, ...]) -> None:
    """Ranges and single numbers; what is no number says nothing."""
    assert files.ids(written) == numbers


@pytest.mark.parametrize("written", ["0-3,8", "", "1", "0-1,3-4,6"])
def test_lists_and_back(written: str) -> None:
    """Numbers are written as the kernel writes them."""
    assert files.as_list(files.ids(written)) == written


def test_what_is_not_there(tmp_path: Path) -> None:
    """A missing file is no error and no value."""
    nowhere = tmp_path / "nowhere"
    assert files.text(nowhere) is None
    assert files.number(nowhere) is None
    assert files.chosen(nowhere) is None
    assert files.sizes(nowhere) == {}
    assert files.status(tmp_path, "Name") is None


def test_a_choice(tmp_path: Path) -> None:
    """The word in brackets is the one that holds."""
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert files.chosen(tmp_path / "enabled") == "madvise"
