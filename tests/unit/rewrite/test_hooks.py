"""Hooks: anchored by structure, exactly once, or an error that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import AnchorError, ConfigError
from numamirror_build.rewrite.hooks import HookSet, load_hooks, plan_hooks

SOURCE = b"""\
static int first(int x) {
    int y = 1;
    return y;
}

namespace shop {
int second(
        int x) {
    int y = make(2);
    return y;
    return y;
}
}

int keeper::third() { return 1; }
"""


def hooks_of(folder: Path, text: str) -> HookSet:
    """The hooks that a file with this content declares."""
    (folder / "10-hooks.toml").write_text(text)
    return load_hooks(folder)


def hooked(folder: Path, text: str) -> str:
    """The source with the declared hooks in it."""
    result = SOURCE
    for edit in sorted(
        plan_hooks({"a.cpp": SOURCE}, hooks_of(folder, text)), key=lambda e: e.start, reverse=True
    ):
        assert result[edit.start : edit.end] == edit.old
        result = result[: edit.start] + edit.new + result[edit.end :]
    return result.decode()


def hook(place: str, *, function: str = "first", extra: str = "") -> str:
    """The declaration of a hook with a one-line text."""
    text = '"call"' if place == "replace" else "'''\n    call();\n'''"
    return (
        f'[[hook]]\nid = "h"\nfile = "a.cpp"\nfunction = "{function}"\n'
        f'place = "{place}"\n{extra}\ntext = {text}\n'
    )


def test_start_inserts_after_the_opening_brace(tmp_path: Path) -> None:
    """A hook at the start of a function becomes its first lines, also when its head has several lines."""
    assert "int x) {\n    call();\n    int y = make(2);" in hooked(tmp_path, hook("start", function="second"))


def test_before_and_after_insert_whole_lines(tmp_path: Path) -> None:
    """The anchor line is compared without its indentation, and the text stands before or after it."""
    assert "    call();\n    return y;\n}" in hooked(tmp_path, hook("before", extra='line = "return y;"'))
    assert "    int y = 1;\n    call();\n" in hooked(tmp_path, hook("after", extra='line_prefix = "int y"'))


def test_replace_changes_one_token(tmp_path: Path) -> None:
    """A token is replaced where it stands as a word of its own."""
    result = hooked(tmp_path, hook("replace", function="second", extra='token = "make"'))
    assert "int y = call(2);" in result


def test_line_that_is_there_twice_is_an_error_unless_the_last_is_meant(tmp_path: Path) -> None:
    """Two equal lines make an anchor ambiguous; `last` says which one is meant."""
    twice = hook("before", function="second", extra='line = "return y;"')
    with pytest.raises(AnchorError, match="does not fit") as error:
        hooked(tmp_path, twice)
    assert error.value.exit_code == 14
    assert error.value.why == "the line 'return y;' is there 2 times, not once"
    assert "a.cpp" in str(error.value.where) and "second" in str(error.value.where)
    last = hook("before", function="second", extra='line = "return y;"\nlast = true')
    assert "    return y;\n    call();\n    return y;\n" in hooked(tmp_path, last)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (hook("start", function="fourth"), "the function fourth is defined 0 times"),
        (hook("start", function="keeper::third"), "something follows the opening brace"),
        (hook("after", extra='line = "int z = 1;"'), "is there 0 times"),
        (hook("replace", extra='token = "mak"'), "the token 'mak' is there 0 times"),
        (hook("start").replace("a.cpp", "b.cpp"), "0 of the files that it may be in are in the tree"),
    ],
)
def test_missing_anchor_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    """An anchor that is not there stops the plan and says what was looked for."""
    with pytest.raises(AnchorError) as error:
        hooked(tmp_path, text)
    assert why in str(error.value.why)


def test_macros_in_front_of_a_function_do_not_hide_it(tmp_path: Path) -> None:
    """A function whose head begins with a macro that stands for nothing is found."""
    source = b"#define API\nAPI static thing_t make_thing(other_t * other, size_t size) {\n    return 0;\n}\n"
    hooks = hooks_of(tmp_path, hook("start", function="make_thing"))
    (edit,) = plan_hooks({"a.cpp": source}, hooks)
    assert source[edit.start :].startswith(b"    return 0;")


def test_function_may_have_one_of_several_names(tmp_path: Path) -> None:
    """Commits that renamed a function need no hook of their own."""
    text = hook("start").replace('"first"', '["first", "earlier_name"]')
    assert "int x) {\n    call();\n    int y = 1;" in hooked(tmp_path, text)


def test_file_may_have_one_of_several_names(tmp_path: Path) -> None:
    """Commits that renamed a file need no hook of their own; two files of these names are ambiguous."""
    hooks = hooks_of(tmp_path, hook("start").replace('"a.cpp"', '["a.cpp", "old.cpp"]'))
    assert [edit.path for edit in plan_hooks({"old.cpp": SOURCE}, hooks)] == ["old.cpp"]
    with pytest.raises(AnchorError) as error:
        plan_hooks({"a.cpp": SOURCE, "old.cpp": SOURCE}, hooks)
    assert "2 of the files" in str(error.value.why)


CENSUS = """
[[census]]
id = "makers"
call = "make"
within = "a"
hooks = ["h"]
exceptions = [{ function = "helper", reason = "it only looks" }]
"""


def test_census_accepts_calls_that_hooks_or_reasons_cover(tmp_path: Path) -> None:
    """A call inside a hooked function or a named exception is known; other files are not searched."""
    hooks = hooks_of(tmp_path, hook("start", function="second") + CENSUS)
    helper = b"void helper() {\n    make(1);\n}\n"
    stranger = b"void stranger() {\n    make(1);\n}\n"
    assert len(plan_hooks({"a.cpp": SOURCE + helper, "b.cpp": stranger}, hooks)) == 1


def test_census_reports_a_call_that_nobody_knows(tmp_path: Path) -> None:
    """A new call elsewhere stops the plan with its file, line and function."""
    hooks = hooks_of(tmp_path, hook("start", function="second") + CENSUS)
    stranger = b"void stranger() {\n    int remake(1);\n    make (1);\n}\n"
    with pytest.raises(AnchorError) as error:
        plan_hooks({"a.cpp": SOURCE, "a/new.cpp": stranger}, hooks)
    assert error.value.where == "a/new.cpp:3: stranger"
    assert error.value.exit_code == 14


def test_condition_leaves_out_hooks_that_a_tree_does_not_want(tmp_path: Path) -> None:
    """A hook with a condition is planned only where the named file has the text."""
    wanted = hook("start") + 'only_if = { file = "a.cpp", text = "namespace shop" }\n'
    unwanted = hook("start") + 'only_if = { file = "a.cpp", text = "namespace farm" }\n'
    assert "call();" in hooked(tmp_path, wanted)
    assert hooked(tmp_path, unwanted) == SOURCE.decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (hook("beside"), "place is one of"),
        (hook("before"), "want a line"),
        (hook("replace"), "a token"),
        (hook("start") + "colour = 1\n", "unknown keys: colour"),
        (hook("start").replace('function = "first"\n', ""), "wants a function"),
        ("[[hook]\n", "Expected"),
        (hook("start") + hook("start"), "h"),
    ],
)
def test_invalid_declaration_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    """A mistake in a hook file is told with the file's name."""
    with pytest.raises(ConfigError) as error:
        hooks_of(tmp_path, text)
    assert why in str(error.value.why)


def test_shipped_hooks_are_valid() -> None:
    """All hooks that the package carries can be read, and each carries text of its own."""
    hooks = load_hooks(data.patches("llama.cpp") / "hooks").hooks
    assert len(hooks) >= 25
    assert all(hook.text.strip() for hook in hooks)
