"""Applying edits and taking them back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numamirror_build.errors import ApplyError
from numamirror_build.rewrite import Edit, apply_edits, invert_edits


def edit(start: int, old: bytes, new: bytes) -> Edit:
    """An edit of a file called a."""
    return Edit("a", start, start + len(old), old, new, "test")


def test_edits_at_one_place_apply_in_order() -> None:
    """Insertions at the same offset follow each other as they are listed."""
    assert apply_edits(b"ab", [edit(1, b"", b"1"), edit(1, b"", b"2"), edit(1, b"b", b"3")]) == b"a123"


@pytest.mark.parametrize(
    "edits",
    [[edit(0, b"x", b"")], [edit(0, b"ab", b""), edit(1, b"b", b"")], [edit(1, b"", b""), edit(0, b"", b"")]],
)
def test_edits_that_do_not_fit_are_refused(edits: list[Edit]) -> None:
    """Other bytes than expected, overlaps and a wrong order are errors that name file and offset."""
    with pytest.raises(ApplyError) as caught:
        apply_edits(b"abc", edits)
    assert caught.value.where is not None
    assert caught.value.where.startswith("a, byte ")


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, list[Edit]]:
    """A text and edits that fit it."""
    content = draw(st.binary(max_size=40))
    bounds = sorted(draw(st.lists(st.integers(0, len(content)), max_size=8)))
    pairs = zip(bounds[::2], bounds[1::2], strict=False)
    return content, [edit(start, content[start:end], draw(st.binary(max_size=5))) for start, end in pairs]


@given(edited())
def test_inverse_takes_back(case: tuple[bytes, list[Edit]]) -> None:
    """Edits, then their inverse, give the bytes from before."""
    content, edits = case
    assert apply_edits(apply_edits(content, edits), invert_edits(edits)) == content


@given(st.binary(max_size=40))
def test_no_edits_change_nothing(content: bytes) -> None:
    """Without edits a file is itself."""
    assert apply_edits(content, ()) == content
