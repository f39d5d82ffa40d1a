"""Applying edits to bytes, and taking them back."""

from __future__ import annotations

from collections.abc import Iterable

from numamirror_build.errors import ApplyError
from numamirror_build.rewrite.sites import Edit


def apply_edits(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content with all edits of one file made.

    Args:
        content: the file's bytes.
        edits: its edits, in order.

    Raises:
        ApplyError: an edit does not find the bytes it replaces, or overlaps the one before it.
    """
    parts = []
    position = 0
    for edit in edits:
        if edit.start < position or content[edit.start : edit.end] != edit.old:
            raise ApplyError(
                "An edit does not fit the file",
                where=f"{edit.path}, byte {edit.start}",
                why=f"the rule {edit.rule} expects {edit.old!r}, there is {content[edit.start : edit.end]!r}",
            )
        parts += [content[position : edit.start], edit.new]
        position = edit.end
    return b"".join([*parts, content[position:]])


def invert_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits that take one file's edits back, in order."""
    shift = 0
    inverse = []
    for edit in edits:
        start = edit.start + shift
        inverse.append(Edit(edit.path, start, start + len(edit.new), edit.new, edit.old, edit.rule))
        shift += len(edit.new) - len(edit.old)
    return tuple(inverse)
