"""Comparing structures of the binding with those of the headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.errors import BuildError
from numamirror_build.verify.layout import Structures, compiled_layout, layout_differences

HEADER = """
#include <stdint.h>
struct llama_pair { int32_t first; int64_t second; };
typedef struct llama_named { char c; double d; } llama_named;
"""
PAIR = {"size": 16, "fields": {"first": [0, 4], "second": [8, 8]}}


def compiled(tmp_path: Path, structures: Structures) -> Structures:
    """What the compiler says with the made-up header."""
    (tmp_path / "llama.h").write_text(HEADER)
    return compiled_layout(structures, [tmp_path], tmp_path)


@pytest.mark.build
def test_the_compiler_is_asked(tmp_path: Path) -> None:
    """Sizes and offsets are the compiler's; structures and fields that the header lacks are left out."""
    asked: Structures = {
        "llama_pair": {"fields": {"first": [], "second": [], "third": []}},
        "llama_named": {"fields": {"d": []}},
        "llama_absent": {"fields": {"x": []}},
    }
    assert compiled(tmp_path, asked) == {
        "llama_pair": PAIR,
        "llama_named": {"size": 16, "fields": {"d": [8, 8]}},
    }


@pytest.mark.build
def test_headers_that_do_not_compile(tmp_path: Path) -> None:
    """The error has the compiler's own words."""
    (tmp_path / "llama.h").write_text('#error "no such thing"\n')
    with pytest.raises(BuildError, match="no such thing"):
        compiled_layout({}, [tmp_path], tmp_path)


def test_equal_layouts() -> None:
    """What agrees is not mentioned, nor what only one side knows."""
    assert list(layout_differences({"a": PAIR, "b": PAIR}, {"a": PAIR, "c": PAIR})) == []


def test_shifted_field() -> None:
    """A field in another place is told with both places."""
    shifted = {"size": 16, "fields": {"first": [0, 4], "second": [4, 8]}}
    (difference,) = layout_differences({"s": shifted}, {"s": PAIR})
    assert difference == "s.second is 8 bytes at 8, the binding says 8 at 4"


def test_other_size_and_missing_field() -> None:
    """A structure that grew, and a field that is gone."""
    old = {"size": 24, "fields": {**PAIR["fields"], "gone": [16, 8]}}  # type: ignore[dict-item]
    assert list(layout_differences({"s": old}, {"s": PAIR})) == [
        "s has 16 bytes, the binding says 24",
        "s has no field gone, the binding has one",
    ]
