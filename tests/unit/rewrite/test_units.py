"""What is parsed: the file's text, as long as before, with what the grammar does not know made harmless."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.units import parse_file, view
from tests.unit.rewrite.trees import Case, cases


def viewed(source: str, path: str = "a.cu") -> str:
    """The text that is parsed for a file, runs of white space made one space."""
    return " ".join(view(Project({path: source.encode()}), path, ()).decode().split())


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("int a; // b\n#define C d\nint e;", "int a; int e;"),
        ("__global__ void __launch_bounds__(1, 2) f();", "void f();"),
        ("f<1><<<a, b>>>(c);", "f<1> (a, b, c);"),
        ("f<<<a>>>();", "f (a );"),
        ("a<b<c<d>>>(e);", "a<b<c<d>>>(e);"),
        ("#define API extern\nAPI int f();", "int f();"),
        ('#define OLD(f, hint) f __attribute__((d(hint)))\nOLD(int f(), "x");', "int f() ;"),
        ("#define LOCALS(x) int x;\nLOCALS(a)\nint b;", "LOCALS( );int b;"),
        ("#define SAME(x) x\nSAME(a);", "SAME(a);"),
        ("x = unsigned(3); delete[] (char *) p;", "x = uint32_t(3); delete (char *) p;"),
        ("unsigned x; // unsigned(", "unsigned x;"),
    ],
)
def test_view(source: str, result: str) -> None:
    """Comments, directives, attributes and kernel launches are replaced by what the grammar knows."""
    assert viewed(source) == result


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("[a b];", "(a,b);"),
        ("x = [a b:c d:e];", "x = (a,b,c,d,e);"),
        ("[[a b] c];", "((a,b),c);"),
        ("a[i] = b[(int) j];", "a[i] = b[(int) j];"),
        ("for (id x in y) {}", "for (id x : y) {}"),
        ("f(q, ^{ g(); });", "f(q,[]{ g(); });"),
        ("f(q, ^(int x) { g(x); });", "f(q,[](int x) { g(x); });"),
        ('@autoreleasepool { s = @"a"; }', '{ s = "a"; }'),
    ],
)
def test_view_of_objective_c(source: str, result: str) -> None:
    """Message sends become calls, blocks become lambdas."""
    assert viewed(source, "a.m") == result


@pytest.mark.parametrize("case", [*cases("before"), *cases("error")], ids=lambda case: case.name)
def test_view_is_as_long_as_the_file(case: Case) -> None:
    """An offset in a tree is an offset in the file."""
    content = case.before.read_bytes()
    assert len(view(Project({"a.cpp": content}), "a.cpp", ())) == len(content)


@example(source=":^(", path="a.m")
@given(
    st.text(alphabet="a[]()<>^:;@#{} \n/*'\"in", max_size=60), st.sampled_from(["a.cu", "a.m", "a.c", "a.h"])
)
def test_any_text_keeps_its_length(source: str, path: str) -> None:
    """Whatever the text, the view and the source of its tree are as long as the file."""
    project = Project({path: source.encode()})
    assert len(view(project, path, ())) == len(source)
    assert len(parse_file(project, path).source) == len(source)
