"""The golden files of the rewrite engine are code: they compile before, and after without the field."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from numamirror_build.proc import find_tool, run
from numamirror_build.rewrite import ACCESSOR_HEADER
from tests.unit.rewrite.trees import HEADER, Case, cases

pytestmark = pytest.mark.build

COMPILED = [case for case in cases("before") if case.name.endswith((".c", ".cpp"))]
STUB = b"""\
#pragma once
#include "ggml.h"
static inline void * tensor_data(const struct ggml_tensor * t) { return t->hidden; }
static inline void * tensor_data_in_loop(const struct ggml_tensor * t) { return t->hidden; }
static inline void tensor_set_data(struct ggml_tensor * t, void * p) { t->hidden = p; }
"""


@pytest.fixture(params=COMPILED, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Each case in a language that every compiler knows."""
    found: Case = request.param
    return found


def complaints(source: Path, header: bytes, folder: Path, name: str) -> str:
    """What the compiler says about a file in a folder with a header and the accessors' stub."""
    (folder / "ggml.h").write_bytes(header)
    (folder / ACCESSOR_HEADER).write_bytes(STUB)
    shutil.copy(source, folder / name)
    cpp = name.endswith(".cpp")
    compiler = find_tool("c++" if cpp else "cc", hint="install a C and C++ compiler")
    options = ["-std=c++17" if cpp else "-std=gnu11", "-fsyntax-only", "-Wall", "-Wno-unused"]
    return run([compiler, *options, folder / name]).output


def test_code_before_compiles(case: Case, tmp_path: Path) -> None:
    """The compiler has nothing to say about the code before."""
    assert complaints(case.before, HEADER, tmp_path, case.name) == ""


def test_code_after_compiles_without_the_field(case: Case, tmp_path: Path) -> None:
    """The compiler has nothing to say about the code after, in which only the accessors name the field."""
    hidden = HEADER.replace(b"void * data;", b"void * hidden;")
    assert hidden != HEADER
    assert complaints(case.after, hidden, tmp_path, case.name) == ""
