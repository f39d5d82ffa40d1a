"""Expansion of macros, with the origin of every token."""

from __future__ import annotations

import pytest

from numamirror_build.rewrite.macros import Macro, expand, pieces
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.text import tokens


def project(source: str) -> Project:
    """A project of one file."""
    return Project({"a.c": source.encode()})


def expansion(source: str, text: str) -> str:
    """A text with the macros of a file expanded."""
    tree = project(source)

    def find(name: bytes) -> Macro | None:
        return next(iter(tree.macros(name, "a.c")), None)

    return b" ".join(piece.text for piece in expand(pieces(tokens(text.encode()), "x"), find)).decode()


@pytest.mark.parametrize(
    ("source", "text", "result"),
    [
        ("#define A 1 + 2", "A * A", "1 + 2 * 1 + 2"),
        ("#define F(x) (x)", "F(a, b)", "( a )"),
        ("#define F(x, y) y x", "F((a, b), c)", "c ( a , b )"),
        ("#define F(x) (x)", "F + 1", "F + 1"),
        ("#define F(x) x\n#define G(y) F(F(y))", "G(1)", "1"),
        ("#define A A + B\n#define B A", "A", "A + A"),
        ("#define S(x) #x", 'S(a "b")', '"a \\"b\\""'),
        ("#define P(a, b) a##b", "P(x, 1)", "x1"),
        ("#define V(f, ...) f(__VA_ARGS__)", "V(g, 1, 2)", "g ( 1 , 2 )"),
        ("#define E(x) x", "E()", ""),
        ("#define F(x) x", "F(a", "F ( a"),
    ],
)
def test_expansion(source: str, text: str, result: str) -> None:
    """Macros expand as the preprocessor expands them."""
    assert expansion(source, text) == result


def test_origin_of_tokens() -> None:
    """Each token knows whether it comes from the body or from an argument, and from where."""
    tree = project("#define F(x) x->b\n")
    macro = tree.macros(b"F", "a.c")[0]
    found = expand(pieces(tokens(b"F(a)"), "x"), lambda name: macro if name == b"F" else None)
    assert [(piece.text, piece.origin) for piece in found] == [
        (b"a", ("x", 2)),
        (b"->", ("a.c", 14)),
        (b"b", ("a.c", 16)),
    ]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("#define M", "blank"),
        ("#define M extern __attribute__((x(1)))", "blank"),
        ("#define N static\n#define M N inline", "blank"),
        ("#define M(f, hint) f __attribute__((deprecated(hint)))", 0),
        ("#define M(hint, f) __declspec(x(hint)) f", 1),
        ("#define M(x) int x;", "statement"),
        ("#define N(x) { x }\n#define M(x) N(x)", "statement"),
        ("#define M(x) (x)", ""),
        ("#define M 1", ""),
        ("#ifdef A\n#define M extern\n#else\n#define M 1\n#endif", ""),
    ],
)
def test_kind_of_a_macro(source: str, kind: str | int) -> None:
    """A macro stands for attributes, wraps an argument in them, ends a statement, or none of these."""
    assert project(source).macro_kind(b"M", "a.c") == kind


def test_macros_are_those_that_a_file_can_see() -> None:
    """A file sees the macros of what it includes; a fragment those of the files that include it."""
    tree = Project(
        {
            "a.h": b"#define M 1\n",
            "b.h": b"#define M 2\n",
            "a.c": b'#include "a.h"\n#include "part.inc"\n',
            "part.inc": b"M\n",
            "other.c": b"M\n",
        }
    )
    seen = {
        path: [macro.path for macro in tree.macros(b"M", path)] for path in ("a.c", "part.inc", "other.c")
    }
    assert seen == {"a.c": ["a.h"], "part.inc": ["a.h"], "other.c": []}
