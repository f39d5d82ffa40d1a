"""The engine on trees of several files: what is looked up where, and what a plan is made of."""

from __future__ import annotations

import pytest

from numamirror_build.errors import AccessError
from numamirror_build.rewrite import Site, TypeException, apply_edits, find_accesses
from tests.unit.rewrite.trees import HEADER, INCLUDE, OURS, body, plan, reasons, rewritten, tree


def test_site_says_where_and_what() -> None:
    """A site has the line and column of the operator, the kind, the form and whether it is in a macro."""
    source = (
        INCLUDE
        + b"#define D(t) (t)->data\nvoid * f(struct ggml_tensor t) {\n    t.data = 0;\n    return D(&t);\n}\n"
    )
    assert plan(a_cpp=source).sites == (
        Site("a.cpp", 2, 17, "read", "arrow", True),
        Site("a.cpp", 4, 6, "write", "dot", False),
    )


def test_counts_are_by_file_and_kind() -> None:
    """The counts that go into a lock are sorted by file, then by kind."""
    one = INCLUDE + b"void f(struct ggml_tensor * t) { t->data = t->src[0]->data; }\n"
    assert plan(b_c=one, a_c=one).counts() == {
        "a.c": {"read": 1, "write": 1},
        "b.c": {"read": 1, "write": 1},
    }


def test_only_targets_are_rewritten() -> None:
    """Other files serve to look up types."""
    header = (
        INCLUDE
        + b"struct holder { struct ggml_tensor * t; };\n"
        + b"static void * g(struct holder * h) { return h->t->data; }\n"
    )
    source = b'#include "h.h"\nvoid * f(struct holder * h) { return h->t->data; }\n'
    report = plan("a.cpp", a_cpp=source, h_h=header)
    assert {edit.path for edit in report.edits} == {"a.cpp"}


def test_the_accessors_header_is_left_alone() -> None:
    """The one file that may name the field is not rewritten, and not taken for a clash of names."""
    ours = INCLUDE + b"static inline void * tensor_data(const struct ggml_tensor * t) { return t->data; }\n"
    files = tree(a_c=INCLUDE + OURS + b"void * f(struct ggml_tensor * t) { return t->data; }\n")
    files["ggml-numa-mirror.h"] = ours
    result = rewritten(files)
    assert result["ggml-numa-mirror.h"] == ours
    assert b"return tensor_data(t);" in result["a.c"]


def test_plan_is_the_same_for_any_number_of_processes() -> None:
    """Neither the number of processes nor the order of the files changes a plan."""
    source = INCLUDE + b"void f(struct ggml_tensor * t) { t->data = t->src[0]->data; }\n"
    files = {"ggml.h": HEADER, **{f"f{n}.c": source for n in range(20)}}
    backwards = dict(reversed(files.items()))
    assert find_accesses(files) == find_accesses(files, jobs=2) == find_accesses(backwards)


def test_all_errors_are_reported_at_once() -> None:
    """The error lists every access that is refused, with file, line, column, reason and source."""
    source = INCLUDE + b"void f(void) {\n    a->data;\n    b->data;\n}\n"
    with pytest.raises(AccessError) as caught:
        plan(a_c=source, b_c=source)
    details = caught.value.details["accesses"]
    assert [(d["path"], d["line"], d["column"]) for d in details] == [
        ("a.c", 3, 8),
        ("a.c", 4, 8),
        ("b.c", 3, 8),
        ("b.c", 4, 8),
    ]
    assert details[0]["reason"] == "no declaration of a found"
    assert details[0]["source"] == "a->data;"
    assert caught.value.where == "a.c:3:8"
    assert "b.c:4:8: no declaration of b found: b->data;" in str(caught.value)


def test_exception_decides_what_the_engine_cannot() -> None:
    """An exception for file, function and base says whether the access is a tensor's."""
    source = (
        INCLUDE + b"void * f(void) { return made . up -> data; }\nvoid * g(void) { return made.up->data; }\n"
    )
    files = tree(a_c=source)
    tensor = TypeException("a.c", "f", "made.up", True, "made up")
    other = TypeException("a.c", "g", "made.up", False, "made up")
    edits = find_accesses(files, exceptions=[tensor, other]).edits
    assert b"tensor_data(made . up); }\nvoid * g(void) { return made.up->data; }" in apply_edits(
        source, edits
    )
    assert [reason[1] for reason in reasons(files)] == [2, 3]
    with pytest.raises(AccessError):
        find_accesses(files, exceptions=[tensor])


def test_tree_without_the_struct_is_refused() -> None:
    """Without a ggml.h that defines the struct nothing can be said."""
    with pytest.raises(AccessError, match="definition of struct ggml_tensor"):
        find_accesses({"a.c": b"int x;\n"})


def test_names_of_unrelated_files_do_not_count() -> None:
    """A global of a file that is not included says nothing about a name."""
    other = INCLUDE + b"struct ggml_tensor * thing;\n"
    assert reasons(tree(a_c=INCLUDE + b"void * f(void) { return thing->data; }\n", b_h=other, c_c=other)) == [
        ("a.c", 2, "no declaration of thing found")
    ]


def test_structs_of_the_same_name_are_told_apart_by_includes() -> None:
    """Of two structs with one name, a file means the one that it includes."""
    mine = INCLUDE + b"struct part { struct ggml_tensor * data; };\n"
    theirs = INCLUDE + b"struct owner { void * data; };\nstruct part { struct owner * data; };\n"
    use = '#include "sub%d/part.h"\nvoid * f(struct part * p) { return p->data->data; }\n'
    files = tree(sub1__part_h=mine, sub2__part_h=theirs, a_c=use % 1, b_c=use % 2)
    result = rewritten(files)
    assert b"return tensor_data(p->data);" in result["a.c"]
    assert result["b.c"] == files["b.c"]


def test_another_struct_of_that_name_is_no_tensor() -> None:
    """A file that defines a struct ggml_tensor of its own and cannot see ours is not touched."""
    files = tree(
        a_c="struct ggml_tensor { int * data; };\nint * f(struct ggml_tensor * t) { return t->data; }\n"
    )
    assert find_accesses(files).edits == ()


def test_struct_that_only_its_own_file_defines() -> None:
    """A struct that a header only declares is known where it is defined."""
    header = INCLUDE + b"typedef struct set * set_t;\nvoid * f(set_t s);\n"
    source = (
        b'#include "h.h"\nstruct set { struct ggml_tensor * t; };\nvoid * f(set_t s) { return s->t->data; }\n'
    )
    assert b"tensor_data(s->t)" in rewritten(tree(a_cpp=source, h_h=header))["a.cpp"]


def test_member_functions_know_their_class_from_elsewhere() -> None:
    """A function outside of its class sees the members that a header declares, inherited ones too."""
    header = INCLUDE + (
        b"namespace ns {\nstruct base { ggml_tensor * inherited; };\n"
        b"class thing : public base {\n    struct impl;\n    impl * p;\n"
        b"    ggml_tensor * own;\n    void * f();\n};\n}\n"
    )
    source = (
        b'#include "h.hpp"\nstruct ns::thing::impl { ggml_tensor * hidden; };\n'
        b"void * ns::thing::f() { return own->data ? inherited->data : p->hidden->data; }\n"
    )
    assert (
        b"return tensor_data(own) ? tensor_data(inherited) : tensor_data(p->hidden);"
        in (rewritten(tree(a_cpp=source, h_hpp=header))["a.cpp"])
    )


def test_headers_of_c_and_cpp_together() -> None:
    """Export macros, deprecations and extern "C" guards of a header do not hide its functions."""
    header = (
        b"#pragma once\n" + INCLUDE + b"#ifdef _WIN32\n#    define API __declspec(dllexport)\n#else\n"
        b'#    define API __attribute__((visibility("default")))\n#endif\n'
        b"#define DEPRECATED(func, hint) func __attribute__((deprecated(hint)))\n"
        b'#ifdef __cplusplus\nextern "C" {\n#endif\n'
        b"    API struct ggml_tensor * first(int i);\n"
        b'    DEPRECATED(API struct ggml_tensor * second(int i), "use first");\n'
        b"#ifdef __cplusplus\n}\n#endif\n"
    )
    source = b'#include "h.h"\nvoid * f(int i) { return first(i)->data ? second(i)->data : 0; }\n'
    for path in ("a_c", "a_cpp"):
        result = rewritten(tree(h_h=header, **{path: source}))
        assert b"tensor_data(first(i)) ? tensor_data(second(i))" in result[path.replace("_", ".")]


def test_macro_of_a_header_is_judged_by_its_uses_everywhere() -> None:
    """One use with another type, in whatever file, makes a macro's body ambiguous."""
    header = INCLUDE + b"struct other { void * data; };\n#define D(t) ((t)->data)\n"
    good = '#include "h.h"\nvoid * f(struct ggml_tensor * t) { return D(t); }\n'
    bad = '#include "h.h"\nvoid * g(struct other * t) { return D(t); }\n'
    assert b"#define D(t) (tensor_data(t))" in rewritten(tree(h_h=header, a_c=good))["h.h"]
    assert reasons(tree(h_h=header, a_c=good, b_c=bad)) == [
        ("h.h", 3, "the macro D is used with tensors and with others")
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    ggml_use(t->data);", "    ggml_use(tensor_data(t));"),
        ("    (void)t->data;", "    (void)tensor_data(t);"),
        ("    return(t)->data;", "    return tensor_data(t);"),
        ("    if (n)(t)->data = p;", "    if (n)tensor_set_data(t, p);"),
        ("    n ? t->data:u->data;", "    n ? tensor_data(t):tensor_data(u);"),
        ("    (n, t)->data;", "    tensor_data((n, t));"),
        ("    (*&t)->data;", "    tensor_data(*&t);"),
        ("    (&*t)->data;", "    tensor_data(&*t);"),
        (
            "    *(float *)t->data = *(float*)u->data;",
            "    *(float *)tensor_data(t) = *(float*)tensor_data(u);",
        ),
        ("    t->data = u->data = p;", None),
        (
            "    ((ggml_tensor *)(t->data))->data = o->data;",
            "    tensor_set_data((ggml_tensor *)(tensor_data(t)), o->data);",
        ),
        (
            "    t->data = t->data ? u->data : o->data;",
            "    tensor_set_data(t, tensor_data(t) ? tensor_data(u) : o->data);",
        ),
        (
            "    t->data = n ? p : 0, u->data = p;",
            "    tensor_set_data(t, n ? p : 0), tensor_set_data(u, p);",
        ),
        ("    auto x = t->data;", "    auto x = tensor_data(t);"),
        ("    delete[] (char *) t->data;", "    delete[] (char *) tensor_data(t);"),
        ("    do t->data = p; while (n);", "    do tensor_set_data(t, p); while (n);"),
        (
            "    switch (n) { case 1: t->data = p; default: u->data = p; }",
            "    switch (n) { case 1: tensor_set_data(t, p); default: tensor_set_data(u, p); }",
        ),
        ("label: t->data = p;", "label: tensor_set_data(t, p);"),
        ("    t\n        ->src[0]\n        ->data = p;", "    tensor_set_data(t\n        ->src[0], p);"),
        ("    t->data = (void *) {\n    };", "    tensor_set_data(t, (void *) {\n    });"),
        ("    t->data = {};", "    tensor_set_data(t, {});"),
    ],
)
def test_statement(before: str, after: str | None) -> None:
    """Statements with accesses, and what becomes of them; None for those that are refused."""
    if after is None:
        with pytest.raises(AccessError):
            body(before)
    else:
        assert body(before) == after


def test_carriage_returns_stay() -> None:
    """A file with DOS line ends keeps them, and the new line gets one too."""
    source = b'#include "ggml.h"\r\nvoid * f(struct ggml_tensor * t) {\r\n    return t->data;\r\n}\r\n'
    result = rewritten(tree(a_c=source))["a.c"]
    assert result == (
        b'#include "ggml.h"\r\n#include "ggml-numa-mirror.h"\r\n'
        b"void * f(struct ggml_tensor * t) {\r\n    return tensor_data(t);\r\n}\r\n"
    )


def test_bytes_that_are_no_text_stay() -> None:
    """Bytes that are not UTF-8 do not disturb."""
    source = (
        INCLUDE
        + b'const char * s = "\xff\xfe";\nvoid * f(struct ggml_tensor * t) { return t->data; } // \xff\n'
    )
    assert rewritten(tree(a_c=source))["a.c"] == source.replace(INCLUDE, INCLUDE + OURS).replace(
        b"t->data", b"tensor_data(t)"
    )


def test_byte_order_mark_stays_first() -> None:
    """A file that begins with a byte order mark still does, and its first directive counts."""
    mark = b"\xef\xbb\xbf"
    use = b"void * f(struct ggml_tensor * t) { return t->data; }\n"
    assert rewritten(tree(a_c=mark + INCLUDE + use))["a.c"].startswith(mark + INCLUDE + OURS)
    files = tree(b_h=mark + use, a_c=INCLUDE + b'#include "b.h"\n')
    assert rewritten(files)["b.h"].startswith(mark + OURS)


def test_accessors_cannot_be_used_where_the_struct_is_defined() -> None:
    """An access in the header that defines the struct is refused: the accessors need the struct."""
    header = HEADER + b"static inline void * get(struct ggml_tensor * t) { return t->data; }\n"
    assert [(path, reason[:10]) for path, _, reason in reasons({"ggml.h": header})] == [
        ("ggml.h", "the header")
    ]


def test_hidden_accessor_in_a_header_for_both_languages() -> None:
    """Where C includes a header too, an accessor that is hidden there cannot be reached."""
    header = INCLUDE + (
        b"static void * g(struct ggml_tensor * t, int tensor_data) { return tensor_data ? t->data : 0; }\n"
    )
    use = b'#include "h.h"\n'
    assert b"::tensor_data(t)" in rewritten(tree(h_h=header, a_cpp=use))["h.h"]
    assert [r[:2] for r in reasons(tree(h_h=header, a_cpp=use, b_c=use))] == [("h.h", 2)]


def test_copies_of_one_header_mean_one_struct() -> None:
    """A second ggml.h with the same text does not make types ambiguous."""
    source = (
        b"#include <ggml.h>\n#include <vector>\n"
        b"void * f(std::vector<struct ggml_tensor *> & v) { return v[0]->data; }\n"
    )
    files = {"copy/ggml.h": HEADER, "include/ggml.h": HEADER, "src/a.cpp": source}
    assert b"return tensor_data(v[0]);" in rewritten(files)["src/a.cpp"]


def test_positional_initialiser_in_a_file_that_never_names_the_field() -> None:
    """The field is found by its place in the braces, also where the word for it does not occur."""
    members = HEADER.split(b"struct ggml_tensor {")[1].split(b"};")[0].split(b";")[:-1]
    values = b", ".join(b"get()" if member.endswith(b"data") else b"{0}" for member in members)
    source = INCLUDE + b"void * get(void);\nvoid f(void) { struct ggml_tensor t = { " + values + b" }; }\n"
    assert [site.kind for site in plan(a_c=source).sites] == ["init"]


@pytest.mark.parametrize(
    "source",
    [
        b"template <class T> struct V { V(T, T); T * at; };\n"
        b"void * f(ggml_tensor * t) { std::vector v{t, t}; return v[0]->data; }\n",
        b"void * f(ggml_tensor * t) { auto k = []<class T>(T * q) { return q->data; }; return k(t); }\n",
    ],
)
def test_what_the_engine_does_not_know_is_an_error_with_a_line(source: bytes) -> None:
    """Deduced class templates and lambdas with template parameters are refused where they stand."""
    with pytest.raises(AccessError) as error:
        plan(a_cpp=INCLUDE + source)
    assert "a.cpp:" in str(error.value.where)
