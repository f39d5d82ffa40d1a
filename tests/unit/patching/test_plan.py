from __future__ import annotations

import json

import pytest

from numamirror_build.errors import EditConflictError
from numamirror_build.patching.plan import NewFile, compare_plans, plan_from_json
from numamirror_build.rewrite import Edit, Site
from tests.unit.patching import made_up


def test_round_trip() -> None:
    """A plan that goes through JSON text is equal to itself, bytes that are no UTF-8 included."""
    odd = Edit("src/b.c", 3, 8, b"caf\xe9 ", b"\xff", "hook:odd")
    plan = made_up.make(hooks=(odd,))
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_edits_are_sorted_and_hooks_keep_their_order() -> None:
    """Insertions at one place stay in the order of the hooks; everything else goes by path and position."""
    plan = made_up.make()
    assert [edit.rule for edit in plan.edits] == ["include", "read", "hook:one", "hook:two"]
    turned = made_up.make(hooks=(made_up.HOOK_TWO, made_up.HOOK_ONE))
    assert [edit.rule for edit in turned.edits] == ["include", "read", "hook:two", "hook:one"]


def test_digest_is_that_of_edits_and_new_files() -> None:
    """The digest changes with the text of a hook and of a new file, not with the order of edits."""
    plan = made_up.make()
    other_hook = made_up.insertion("src/b.c", "}", "    other();\n", "hook:two")
    assert made_up.make(edits=(made_up.INCLUDE, made_up.READ)).digest == plan.digest
    assert made_up.make(hooks=(made_up.HOOK_ONE, other_hook)).digest != plan.digest
    assert made_up.make(new_files=(NewFile("src/mirror.h", b"// other\n"),)).digest != plan.digest


@pytest.mark.parametrize(
    "hook",
    [
        made_up.edit("src/a.c", "return t->data;", "return 0;", "hook:bad"),
        made_up.insertion("src/a.c", "->data", "x", "hook:bad"),
        made_up.edit("src/a.c", "t->data", "0", "hook:bad"),
    ],
    ids=["around", "inside", "same"],
)
def test_overlap_is_an_error(hook: Edit) -> None:
    """A hook that changes what the rewrite changes is an error that names file and both rules."""
    with pytest.raises(EditConflictError) as caught:
        made_up.make(hooks=(hook,))
    assert caught.value.exit_code == 19
    assert "src/a.c" in str(caught.value)
    assert "hook:bad" in str(caught.value) and "read" in str(caught.value)


def test_insertions_beside_an_edit_do_not_overlap() -> None:
    """Text may be inserted right before and right after what the rewrite replaces."""
    before = made_up.insertion("src/a.c", "t->data", "/* a */", "hook:before")
    after = made_up.insertion("src/a.c", "; }", "/* b */", "hook:after")
    plan = made_up.make(hooks=(before, after))
    assert [edit.rule for edit in plan.edits] == ["include", "hook:before", "read", "hook:after"]


def test_same_new_file_twice_is_an_error() -> None:
    """Two new files of the same path are an error."""
    with pytest.raises(EditConflictError, match="same path"):
        made_up.make(new_files=(made_up.NEW, made_up.NEW))


def test_counts_and_summary() -> None:
    """Sites are counted by file and kind, hooks by id; the summary shows both, and the reasons."""
    plan = made_up.make()
    assert plan.counts() == {"src/a.c": {"read": 1}}
    assert plan.hooks() == {"one": 1, "two": 1}
    summary = plan.summary()
    assert "2 hooks: one, two" in summary
    assert "1 new files: src/mirror.h" in summary
    assert "gpu/* (1 files that name tensors): not for CPU" in summary


def test_compare() -> None:
    """The difference of two plans tells which edits and how many sites only one of them has."""
    write = made_up.edit("src/b.c", "void", "auto", "write")
    site = Site("src/b.c", 2, 1, "write", "arrow", in_macro=False)
    first = made_up.make()
    second = made_up.make(sites=(site,), edits=(made_up.INCLUDE, write))
    difference = compare_plans(first, second)
    assert difference.sites == {"src/a.c": {"read": -1}, "src/b.c": {"write": 1}}
    assert difference.removed == (("src/a.c", "read", b"t->data", b"tensor_data(t)"),)
    assert difference.added == (("src/b.c", "write", b"void", b"auto"),)
    assert compare_plans(first, first).sites == {}
