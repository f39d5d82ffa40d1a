"""Where the accessors' header is included."""

from __future__ import annotations

import pytest

from tests.unit.rewrite.trees import HEADER, OURS, rewritten

USE = "void * f(struct ggml_tensor * t) { return t->data; }\n"


def included(source: str, path: str = "a.cpp") -> str:
    """The file with its edits made, the access itself shortened to make the tests readable."""
    return rewritten({"ggml.h": HEADER, "x.h": b"int x;\n", path: source.encode()})[path].decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # after the first block of includes
        (
            '#include "x.h"\n#include "ggml.h"\n\n#include <math.h>\n',
            '#include "x.h"\n#include "ggml.h"\n@\n#include <math.h>\n',
        ),
        # not inside of a conditional
        (
            '#ifdef A\n#include "x.h"\n#endif\n#include "ggml.h"\n',
            '#ifdef A\n#include "x.h"\n#endif\n#include "ggml.h"\n@',
        ),
        # a definition before the first include stays before
        ('#define _GNU_SOURCE\n#include "ggml.h"\n', '#define _GNU_SOURCE\n#include "ggml.h"\n@'),
        # a comment behind the include goes on in the next line
        ('#include "ggml.h" /* one\ntwo */\n', '#include "ggml.h" /* one\ntwo */\n@'),
        # an include guard is no conditional
        (
            '#ifndef A_H\n#define A_H\n#include "ggml.h"\n+#endif\n',
            '#ifndef A_H\n#define A_H\n#include "ggml.h"\n@+#endif\n',
        ),
        ('#pragma once\n#include "ggml.h"\n', '#pragma once\n#include "ggml.h"\n@'),
        # not inside of extern "C"
        (
            'extern "C" {\n#include "ggml.h"\n}\n#include "x.h"\n',
            'extern "C" {\n#include "ggml.h"\n}\n#include "x.h"\n@',
        ),
        # without an include outside of conditionals: before them
        (
            '// note\n#if defined(A)\n#include "ggml.h"\n+#endif\n',
            '// note\n@#if defined(A)\n#include "ggml.h"\n+#endif\n',
        ),
        # a comment that names an include is none
        ('// #include "x.h"\n#include "ggml.h"\n', '// #include "x.h"\n#include "ggml.h"\n@'),
    ],
)
def test_place(before: str, after: str) -> None:
    """The include stands where it is valid for everything that follows."""
    use = before if "+" in before else f"{before}+"
    expected = after if "+" in after else f"{after}+"
    result = included(use.replace("+", USE))
    assert result == expected.replace("@", OURS.decode()).replace(
        "+", USE.replace("t->data", "tensor_data(t)")
    )


def test_an_include_behind_the_first_use_is_too_late() -> None:
    """If the first free include comes behind an access, the header is included before all code."""
    source = '#ifdef A\n#include "ggml.h"\n#endif\n' + USE + '#include "x.h"\n'
    assert included(source).startswith(OURS.decode() + "#ifdef A\n")


def test_a_file_that_has_it_gets_no_second_one() -> None:
    """A file that includes the header already gets no second include."""
    source = '#include "ggml.h"\n#include "ggml-numa-mirror.h"\n' + USE
    assert included(source).count("ggml-numa-mirror.h") == 1


def test_last_line_without_its_end() -> None:
    """An include in an unfinished last line is finished first."""
    files = {
        "ggml.h": HEADER,
        "a.h": b'#define D(t) ((t)->data)\n#include "ggml.h"',
        "b.c": b'#include "a.h"\nvoid * f(struct ggml_tensor * t) { return D(t); }\n',
    }
    assert rewritten(files)["a.h"] == b'#define D(t) (tensor_data(t))\n#include "ggml.h"\n' + OURS


def test_fragment_is_served_by_the_file_around_it() -> None:
    """A file that others include inside of a function gets no include; they do."""
    files = {
        "ggml.h": HEADER,
        "part.inc": b"ggml_use(((ggml_tensor *) p)->data);\n",
        "a.cpp": b'#include "ggml.h"\nvoid f(void * p) {\n#include "part.inc"\n}\n',
    }
    result = rewritten(files)
    assert result["part.inc"] == b"ggml_use(tensor_data((ggml_tensor *) p));\n"
    assert result["a.cpp"] == files["a.cpp"].replace(b'"ggml.h"\n', b'"ggml.h"\n' + OURS)
