"""Random code with known accesses: the plan finds them all, changes nothing else, and can be taken back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from numamirror_build.rewrite import apply_edits, find_accesses, invert_edits
from tests.unit.rewrite.trees import HEADER

HEAD = """\
#include "ggml.h"
struct other { void * data; struct other * next; struct ggml_tensor * tensor; struct ggml_tensor own; };
#define OF(o) ((o)->tensor)
#define CHECK(x) do { if (!(x)) { ggml_use(#x); } } while (0)
void f(struct ggml_tensor * t, struct ggml_tensor ** list, struct ggml_tensor s, struct other * o,
       void * p, int n) {
"""

Pair = tuple[str, str]
"""A piece of code, and what the rewrite makes of it."""


def same(code: str) -> Pair:
    """Code that the rewrite leaves alone."""
    return code, code


SPACE = st.sampled_from(["", " ", "\n    ", "  "])
POINTERS = st.deferred(lambda: pointers())
OBJECTS = st.deferred(lambda: objects())
VALUES = st.deferred(lambda: values())


def pointers() -> st.SearchStrategy[Pair]:
    """Postfix expressions that point to a tensor; the second of the pair has inner accesses rewritten."""
    return st.one_of(
        st.sampled_from(["t", "list[n]", "o->tensor", "OF(o)", "ggml_get(n)", "o->next->tensor"]).map(same),
        POINTERS.map(lambda e: (f"{e[0]}->src[0]", f"{e[1]}->src[0]")),
        POINTERS.map(lambda e: (f"{e[0]}->view_src", f"{e[1]}->view_src")),
    )


def objects() -> st.SearchStrategy[Pair]:
    """Expressions that are a tensor."""
    return st.one_of(
        st.sampled_from(["s", "o->own", "list[0][1]", "t[n]"]).map(same),
        POINTERS.map(lambda e: (f"{e[0]}[0]", f"{e[1]}[0]")),
    )


def parenthesised() -> st.SearchStrategy[Pair]:
    """What can stand in parentheses before ``->``."""
    return st.one_of(
        POINTERS,
        st.tuples(POINTERS, POINTERS).map(
            lambda e: (f"n ? {e[0][0]} : {e[1][0]}", f"n ? {e[0][1]} : {e[1][1]}")
        ),
        POINTERS.map(lambda e: (f"(struct ggml_tensor *) {e[0]}", f"(struct ggml_tensor *) {e[1]}")),
        VALUES.map(
            lambda e: (f"(const struct ggml_tensor *) {e[0]}", f"(const struct ggml_tensor *) {e[1]}")
        ),
        OBJECTS.map(lambda e: (f"&{e[0]}", f"&{e[1]}")),
    )


def bases() -> st.SearchStrategy[tuple[str, str, str]]:
    """The base of an access with its operator, and the accessor's argument."""
    return st.one_of(
        st.tuples(POINTERS, SPACE, SPACE).map(lambda e: (e[0][0], f"{e[1]}->{e[2]}", e[0][1])),
        parenthesised().map(lambda e: (f"({e[0]})", "->", e[1])),
        OBJECTS.map(lambda e: (e[0], ".", f"&{e[1]}")),
        POINTERS.map(lambda e: (f"(*{e[0]})", ".", e[1])),
    )


def values() -> st.SearchStrategy[Pair]:
    """Expressions of type ``void *``."""
    return st.one_of(
        st.sampled_from(["p", "o->data", "NULL", "o->next->data"]).map(same),
        bases().map(lambda b: (f"{b[0]}{b[1]}data", f"tensor_data({b[2]})")),
    )


def statements() -> st.SearchStrategy[Pair]:
    """Statements with accesses."""
    simple = st.one_of(
        VALUES.map(lambda v: (f"ggml_use({v[0]});", f"ggml_use({v[1]});")),
        VALUES.map(lambda v: (f"CHECK({v[0]} != p);", f"CHECK({v[1]} != p);")),
        VALUES.map(lambda v: (f"o->data = (char *) {v[0]} + n;", f"o->data = (char *) {v[1]} + n;")),
        VALUES.map(lambda v: (f"*(float *) {v[0]} = 1;", f"*(float *) {v[1]} = 1;")),
        st.tuples(bases(), VALUES).map(
            lambda e: (f"{e[0][0]}{e[0][1]}data = {e[1][0]};", f"tensor_set_data({e[0][2]}, {e[1][1]});")
        ),
    )
    return st.one_of(
        simple,
        st.tuples(VALUES, simple).map(lambda e: (f"if ({e[0][0]}) {e[1][0]}", f"if ({e[0][1]}) {e[1][1]}")),
        st.tuples(simple, simple).map(
            lambda e: (
                f"\n#ifdef A\n{e[0][0]}\n#else\n{e[1][0]}\n#endif\n",
                f"\n#ifdef A\n{e[0][1]}\n#else\n{e[1][1]}\n#endif\n",
            )
        ),
    )


PROGRAMS = st.lists(statements(), min_size=1, max_size=6).map(
    lambda listed: (
        HEAD + "\n".join(code for code, _ in listed) + "\n}\n",
        HEAD + "\n".join(result for _, result in listed) + "\n}\n",
    )
)
PATHS = st.sampled_from(["a.c", "a.cpp", "a.h", "a.cu"])


def squeezed(code: bytes) -> str:
    """The code without white space and without our include."""
    return "".join(code.decode().replace('#include "ggml-numa-mirror.h"', "").split())


@settings(max_examples=60, deadline=None)
@given(PROGRAMS, PATHS)
def test_plan_of_random_code(program: Pair, path: str) -> None:
    """Every access is rewritten and nothing else; planning is repeatable and can be taken back."""
    before, after = program
    content = before.encode()
    files = {"ggml.h": HEADER, path: content}
    report = find_accesses(files)
    result = apply_edits(content, report.edits)
    assert squeezed(result) == squeezed(after.encode())
    assert find_accesses(files) == report
    assert find_accesses({"ggml.h": HEADER, path: result}).edits == ()
    assert apply_edits(result, invert_edits(report.edits)) == content
    assert len(report.sites) == after.count("tensor_data(") + after.count("tensor_set_data(")
