"""The lexical layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numamirror_build.rewrite.text import Text, closing, occurrences, tokens


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"a /* x */ b", b"a         b"),
        (b"a // x\nb", b"a     \nb"),
        (b"a // x \\\n y\nb", b"a          \nb"),
        (b'f("a->data", 1)', b'f("       ", 1)'),
        (b'"a\\"b" c', b'"    " c'),
        (b"'\"' x", b"' ' x"),
        (b"1'000'000 /* x */ + 2", b"1'000'000         + 2"),
        (b'R"(a " b)" c', b'R        " c'),
        (b'R"x(a)" )x" c', b'R         " c'),
        (b"u8\"a\" L'b'", b"u8\" \" L' '"),
        (b"it's // x", b"it's     "),
        (b'"/* no */" /* "yes" */', b'"        "            '),
    ],
)
def test_comments_and_literals_are_blanked(source: bytes, code: bytes) -> None:
    """Comments become spaces, and so do the insides of literals; everything else stays in place."""
    text = Text.of(source)
    assert (text.code, len(text.plain), len(text.code)) == (code, len(source), len(source))


@given(st.text(alphabet="ab/*\"'\\\n R()->.x", max_size=60))
def test_all_forms_have_the_same_length(source: str) -> None:
    """Whatever the text, an offset means the same place in all its forms."""
    content = source.encode()
    text = Text.of(content)
    assert text.content == content
    assert len(text.plain) == len(text.code) == len(content)


@given(st.text(alphabet="ab1/*\"'\\\n R()->.x#", max_size=60))
def test_tokens_lose_nothing_but_white_space(source: str) -> None:
    """The tokens of a text are, put together, the text without white space."""
    content = source.encode()
    found = tokens(content)
    assert all(content[token.start :].startswith(token.text) for token in found)
    joined = b"".join(token.text for token in found)
    skipped = content
    for token in found:
        skipped = skipped.replace(token.text, b"", 1)
    assert not skipped.strip(b" \n\\") or len(joined) + len(skipped) == len(content)


def test_line_and_column_count_from_one() -> None:
    """Lines and columns count bytes, from 1."""
    text = Text.of(b"ab\ncd\n")
    assert [(text.line(o), text.column(o)) for o in (0, 1, 3, 4)] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_closing_bracket() -> None:
    """Brackets of all kinds are matched; an open one has no end."""
    assert closing(b"f(a[1], {2}) b", 1) == 11
    assert closing(b"f(a", 1) is None


def test_occurrences_are_whole_words() -> None:
    """A part of a longer identifier is none."""
    assert list(occurrences(b"data xdata data_ data1 (data)", b"data")) == [0, 24]
