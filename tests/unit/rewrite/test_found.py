"""What changing sources at random has found (``python -m tests.mutants``), each shrunk to its core."""

from __future__ import annotations

import pytest

from tests.unit.rewrite.trees import body, reasons, tree

HEAD = '#include "ggml.h"\nvoid f(struct ggml_tensor * t, void * p, int n) {\n'


def refused(code: str, path: str = "a_c") -> str:
    """The reasons for which statements in a function are refused."""
    return "; ".join(reason for _, _, reason in reasons(tree(**{path: f"{HEAD}{code}\n}}\n"})))


@pytest.mark.parametrize("path", ["a_c", "a_cpp"])
@pytest.mark.parametrize(
    "code",
    [
        "ggml_use(t->\n#ifndef X\ndata\n#else\nview_src->name\n#endif\n);",
        "ggml_use(t->\n#ifndef X\nname\n#else\nview_src->data\n#endif\n);",
        "ggml_use(t\n#ifdef X\n->view_src\n#endif\n->src[0]\n#ifdef X\n->data\n#else\n->name\n#endif\n);",
        "t->data = (char *) p\n#ifdef X\n;\n#else\n+ n;\n#endif\n",
        "struct ggml_tensor s = { .name = { 0 },\n#ifdef X\n.data = p,\n#endif\n};",
    ],
)
def test_a_directive_inside_of_an_access(code: str, path: str) -> None:
    """A branch would have been left with a part of what the access becomes, or the field was not seen."""
    assert refused(code, path)


def test_a_directive_beside_an_access() -> None:
    """One that all of the access is on the same side of does not matter."""
    for code in (
        "ggml_use(\n#ifdef X\nt->data\n#else\n(char *) t->data\n#endif\n);",
        "ggml_use(ggml_get(\n#ifdef X\n1\n#else\n2\n#endif\n)->data);",
    ):
        assert refused(code) == ""
        assert body(code).count("tensor_data(") == code.count("->data")


@pytest.mark.parametrize("code", ["t->\\\ndata", "t\\\n->data", "t->\\\n\\\n  data", "(*t).\\\ndata"])
def test_a_line_that_is_continued_inside_of_an_access(code: str) -> None:
    """The access was not seen, in macros neither."""
    assert body(f"ggml_use({code});") == "ggml_use(tensor_data(t));"
    macro = f"#define F(t) ggml_use({code})\n"
    assert body(f"\n{macro}F(t);").splitlines()[1] == "#define F(t) ggml_use(tensor_data(t))"


@pytest.mark.parametrize("code", ["t->da\\\nta", "t-\\\n>data", "t-\\\r\n> \\\n data", "(*t).d\\\nata"])
def test_a_line_that_is_continued_inside_of_a_word(code: str) -> None:
    """The access was not seen; nobody writes that, so it is refused."""
    assert "continued line" in refused(f"ggml_use({code});")
    assert "continued line" in refused(f"\n#define F(t) ggml_use({code})\nF(t);")


def test_a_line_that_is_continued_behind_a_comment() -> None:
    """Both cannot be kept: without its backslash the macro would end."""
    assert "continued" in refused("\n#define F(t) ggml_use(t->/* c */\\\ndata)\nF(t);")


@pytest.mark.parametrize("name", ["tensor_data", "tensor_set_data"])
def test_a_local_of_an_accessors_name_and_a_compound_store(name: str) -> None:
    """Both accessors are needed for it, and the name of either may be taken."""
    assert f"local {name} hides" in refused(f"int {name} = n; t->data += n;")
    assert body(f"int {name} = n; t->data += n;").strip() == (
        f"int {name} = n; ::tensor_set_data(t, (char *) ::tensor_data(t) + n);"
    )


@pytest.mark.parametrize("name", ["tensor_data", "tensor_set_data"])
def test_a_local_of_an_accessors_name_and_an_initialiser(name: str) -> None:
    """The store behind the declaration needs the setter's name, and maybe the getter's."""
    assert f"local {name} hides" in refused(f"int {name} = n; struct ggml_tensor s = {{ .data = p }};")
    assert refused(f"int {name} = n; struct ggml_tensor s = {{ .data = NULL }};") == ""


def test_a_macro_of_a_variables_name() -> None:
    """The preprocessor comes first: the access is of what the macro stands for."""
    other = "struct other { void * data; };\nstatic struct other * o;\n"
    text = f"{other}{HEAD}\n#define t o\nggml_use(t->data);\n#undef t\n}}\n"
    assert "defined as a macro" in reasons(tree(a_c=text))[0][2]
    assert refused("ggml_use(t->data);\n#define t o\n#undef t\n") == ""
