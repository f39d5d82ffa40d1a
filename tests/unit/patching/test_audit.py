"""The audit on a made-up upstream: what passes, and what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.building.build import BuildOptions
from numamirror_build.errors import AnchorError, AuditError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.patching.audit import Audit, Facts, audit, hide_field
from numamirror_build.patching.scope import OutOfScope
from numamirror_build.progress import Quiet
from numamirror_build.rewrite import Site
from numamirror_build.store import Store
from tests.unit.building import made_up

FACTS = Facts("tensor.h", "tensor", "data", "hidden", "TINY_AUDIT")


@pytest.fixture(autouse=True)
def tiny_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made-up upstream as the package's only one."""
    root = made_up.data_root(tmp_path / "data")
    monkeypatch.setattr(data, "_root", lambda: root)
    return root


def audited(tmp_path: Path, tree: PatchedTree) -> Audit:
    """Audit a tree."""
    return audit(Store(tmp_path / "cache"), tree, BuildOptions(), progress=Quiet())


@pytest.mark.build
def test_tree_without_an_escape_passes(tmp_path: Path) -> None:
    """All units compile with the field hidden; other structs' fields of the same name do not matter."""
    made = audited(tmp_path, made_up.patched(tmp_path / "tree"))
    assert made.compiled == ("lib.c", "main.c", "main.c", "more.cpp")
    assert (made.excluded, made.uncompiled) == ((), ())
    assert "all 4 translation units" in made.summary()
    again = audited(tmp_path, made_up.patched(tmp_path / "tree"))
    assert (made.fresh, again.fresh) == (True, False)
    assert not list((tmp_path / "cache").glob("audits/*/*"))


@pytest.mark.build
@pytest.mark.parametrize(
    ("name", "line", "where"),
    [
        ("lib.c", "void * left_out(struct tensor * t) { return t->data; }", "lib.c:13:46"),
        ("more.cpp", "void * left_out(tensor & t) { return t.data; }", "more.cpp:3:40"),
        ("more.cpp", "void * (tensor::* left_out) = 0; auto p = &tensor::data;", "more.cpp:3:52"),
        ("accessor.h", "#define OUT(t) ((t)->data)\nstatic void * f(struct tensor * t) { return OUT(t); }",
         "accessor.h:9:20"),
        ("lib.c", "struct tensor left_out = { .data = 0 };", "lib.c:13:29"),
    ],
)  # fmt: skip
def test_access_that_was_left_out(tmp_path: Path, name: str, line: str, where: str) -> None:
    """One access that bypasses the accessors fails the audit, with its file, line and column."""
    text = made_up.TREE[name] + line + "\n"
    tree = made_up.patched(tmp_path / "tree", changed={name: text})
    with pytest.raises(AuditError) as caught:
        audited(tmp_path, tree)
    assert caught.value.exit_code == 18
    assert caught.value.where == where
    accesses = caught.value.details["accesses"]
    assert [f"{access['path']}:{access['line']}:{access['column']}" for access in accesses] == [where]


@pytest.mark.build
def test_failed_audit_is_not_kept(tmp_path: Path) -> None:
    """A failed audit fails again."""
    text = made_up.TREE["more.cpp"] + "void * left_out(tensor & t) { return t.data; }\n"
    for _ in range(2):
        with pytest.raises(AuditError):
            audited(tmp_path, made_up.patched(tmp_path / "tree", changed={"more.cpp": text}))


@pytest.mark.build
def test_out_of_scope_units_are_listed(tmp_path: Path) -> None:
    """A unit that the plan leaves out is not compiled, and is listed with the plan's reason."""
    text = made_up.TREE["more.cpp"] + "void * left_out(tensor & t) { return t.data; }\n"
    rules = (OutOfScope("*.cpp", "a reason", ("more.cpp",)),)
    made = audited(
        tmp_path, made_up.patched(tmp_path / "tree", changed={"more.cpp": text}, out_of_scope=rules)
    )
    assert [(unit.path, unit.reason) for unit in made.excluded] == [("more.cpp", "a reason")]
    assert "more.cpp: a reason" in made.summary()


@pytest.mark.build
def test_sites_that_are_not_compiled_are_listed(tmp_path: Path) -> None:
    """Rewritten accesses in files that nothing includes are counted, with what proves them instead."""
    sites = tuple(
        Site(path, line, 1, "read", "arrow", in_macro=False)
        for path, line in (("lib.c", 1), ("arch/arm.c", 1), ("arch/arm.c", 2))
    )
    made = audited(tmp_path, made_up.patched(tmp_path / "tree", sites=sites))
    assert [(entry.path, entry.sites) for entry in made.uncompiled] == [("arch/arm.c", 2)]
    assert "2 rewritten accesses in 1 files" in made.summary()
    assert made.as_json()["uncompiled"][0]["proof"]


@pytest.mark.build
def test_audit_that_sees_nothing(tmp_path: Path, tiny_data: Path) -> None:
    """When no unit includes the header with the field, nothing would be proven: an error."""
    tree = made_up.patched(tmp_path / "tree", changed={"unused.h": made_up.TREE["tensor.h"]})
    text = made_up.FACTS.replace('"tensor.h"', '"unused.h"')
    (tiny_data / "patches/tiny/upstream.toml").write_text(text)
    with pytest.raises(AuditError, match="saw nothing"):
        audited(tmp_path, tree)


def test_field_is_hidden_where_the_struct_declares_it(tmp_path: Path) -> None:
    """Only the struct's own field is renamed; nested and other structs, comments and lengths stay."""
    header = tmp_path / "tensor.h"
    text = "// struct tensor { void * data; };\n" + made_up.TREE["tensor.h"]
    header.write_text(text)
    hide_field(header, FACTS)
    assert header.read_text() == text.replace("void * data; // the field", "void * hidden; // the field")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("struct tensor;\n", 0),
        ("struct tensor { int n; };\n", 0),
        ("struct tensor { void * data; void * data; };\n", 2),
        ("struct tensor { void * data; };\n#if X\nstruct tensor { char * data; };\n#endif\n", 2),
    ],
)
def test_field_that_is_not_there_once(tmp_path: Path, text: str, count: int) -> None:
    """A header without the field, or with two, is an error and stays as it is."""
    header = tmp_path / "tensor.h"
    header.write_text(text)
    with pytest.raises(AnchorError, match=f"declared {count} times"):
        hide_field(header, FACTS)
    assert header.read_text() == text
