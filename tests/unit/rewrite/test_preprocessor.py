"""Directives: what is parsed together, and that every branch is parsed at least once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numamirror_build.rewrite.preprocessor import Directives, is_active, scan, variants
from numamirror_build.rewrite.text import Text


def directives(source: str) -> Directives:
    """The directives of a text."""
    return scan(Text.of(source.encode()))


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        ("int a;\n#ifdef A\nint b;\n#else\nint c;\n#endif\n", True),
        ("{\n#ifdef A\nif (x) {\n#else\nif (y) {\n#endif\n}}\n", False),
        ("f(a,\n#ifdef A\nb,\n#endif\nc);\n", True),
        ("f(a\n#ifdef A\n, b\n#endif\n);\n", False),
        ("x =\n#ifdef A\n1;\n#else\n2;\n#endif\n", False),
        ("if (x) {}\n#ifdef A\nelse {}\n#endif\n", False),
        ("int a;\n#ifdef A\n#endif\n", True),
        ("int a;\n#if 0\nint b;\n#endif\n", False),
        ("{\n#ifdef A\nint b;\n#ifdef B\nif (x) {\n#else\nif (y) {\n#endif\n}\n#endif\n}\n", True),
    ],
)
def test_conditionals_of_whole_statements(source: str, whole: bool) -> None:
    """The branches of the first conditional are parsed together only if each is a list of whole things."""
    assert directives(source).groups[0].whole == whole


def test_include_guard_is_no_conditional() -> None:
    """The conditional around a whole file that defines its own condition does not count."""
    found = directives("// note\n#ifndef A_H\n#define A_H\nint x;\n#endif // A_H\n")
    assert found.groups[0].guard
    assert found.depth(30) == 0
    assert not directives("#ifndef A_H\n#define A_H\n#endif\nint x;\n").groups[0].guard


def test_definitions_and_includes() -> None:
    """Definitions have parameters and a body, over several lines too; includes have a name and a kind."""
    found = directives(
        '#define A\n# define B(x, ...) x \\\n + 1\n#define C (1)\n#include "a.h"\n#import <b/c.h>\n'
    )
    assert [(d.name, d.params, d.variadic) for d in found.defines] == [
        (b"A", None, False),
        (b"B", (b"x", b"__VA_ARGS__"), True),
        (b"C", None, False),
    ]
    assert [(i.name, i.quoted) for i in found.includes] == [("a.h", True), ("b/c.h", False)]


def test_what_excludes_each_other() -> None:
    """Places in different branches of a conditional are never compiled together."""
    source = "#ifdef A\nint a;\n#else\nint b;\n#endif\nint c;\n"
    found = directives(source)
    first, second, third = (source.index(name) for name in ("int a", "int b", "int c"))
    assert not found.compatible(first, second)
    assert found.compatible(first, third)


def test_conditions_are_the_same_in_all_conditionals() -> None:
    """A variant takes the same side of a condition everywhere, however it is written."""
    first = "#ifdef A\nif (1) {\n#else\nif (2) {\n#endif\n}\n"
    second = "#if !defined(A)\nif (3) {\n#else\nif (4) {\n#endif\n}\n"
    source = f"{{\n{first}{second}}}\n"
    texts = [active(source, inactive) for inactive in variants(directives(source), [], {})]
    assert [re.findall(r"if \((\d)\)", text) for text in texts] == [["1", "4"], ["2", "3"]]


def test_known_macros_decide() -> None:
    """What is known about a macro holds in every variant."""
    source = '#ifdef __cplusplus\nextern "C" {\n#endif\nint a;\n#ifdef __cplusplus\n}\n#endif\n'
    (inactive,) = variants(directives(source), [], {b"__cplusplus": False})
    assert "extern" not in active(source, inactive)


def active(source: str, inactive: tuple[tuple[int, int], ...]) -> str:
    """The text without what a variant leaves out."""
    return "".join(char for offset, char in enumerate(source) if is_active(inactive, offset))


LINES = st.lists(
    st.sampled_from(
        [
            "#ifdef A",
            "#ifndef A",
            "#if defined(B) && !A",
            "#elif C",
            "#else",
            "#endif",
            "#if 0",
            "if (x) {",
            "}",
            "data;",
        ]
    ),
    max_size=14,
)


@given(LINES)
def test_every_place_is_in_some_variant(lines: list[str]) -> None:
    """Whatever the nesting, each place that is asked for is active in at least one variant."""
    source = "\n".join(["{", *lines, ""])
    offsets = [match.start() for match in re.finditer("data", source)]
    found = variants(directives(source), offsets, {})
    assert all(any(is_active(inactive, offset) for inactive in found) for offset in offsets)
