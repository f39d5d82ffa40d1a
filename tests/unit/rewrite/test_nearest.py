"""What is most like an anchor that is gone."""

from __future__ import annotations

import pytest

from numamirror_build.errors import AnchorError
from numamirror_build.rewrite.hooks import Hook, HookSet, plan_hooks, try_hooks
from numamirror_build.rewrite.nearest import nearest_lines, nearest_names, nearest_paths


def hook(name: str, function: str, *, file: str = "src/a.cpp", line: str | None = None) -> Hook:
    """A hook into a function, at its start or before a line."""
    place = "before" if line else "start"
    return Hook(name, (file,), (function,), line, False, False, place, None, "call();\n", None)


FILES = {
    "src/a.cpp": b"int graph_compute_all(int n) {\n    int total = n + 1;\n    return total;\n}\n",
    "src/b.cpp": b"int moved(void) {\n    return 0;\n}\n",
    "other/c.cpp": b"int elsewhere(void) {\n    return 0;\n}\n",
}


def nearest_of(*hooks: Hook) -> list[list[str]]:
    """What each hook's error has as nearest."""
    return [error.details["nearest"] for error in try_hooks(FILES, HookSet(hooks)).problems]


def test_a_renamed_function_is_named() -> None:
    """Of the file's functions, the one whose name is most like the anchor's."""
    assert nearest_of(hook("h", "graph_compute")) == [["graph_compute_all"]]


def test_a_function_that_moved_is_named_with_its_file() -> None:
    """The very function in another file of the folder counts most; other folders do not count."""
    assert nearest_of(hook("h", "moved")) == [["moved in src/b.cpp"]]
    assert nearest_of(hook("h", "elsewhere")) == [[]]


def test_a_changed_line_is_named() -> None:
    """The line of the function that is most like the anchor's."""
    found = nearest_of(hook("h", "graph_compute_all", line="int total = n;"))
    assert found == [[repr("int total = n + 1;")]]


def test_a_file_that_moved_is_named() -> None:
    """The same name in another folder; else the path that is most like it."""
    assert nearest_of(hook("h", "moved", file="lib/b.cpp")) == [["src/b.cpp"]]
    assert nearest_paths(["src/aa.cpp"], FILES) == ["src/a.cpp", "src/b.cpp"]


def test_nothing_like_it_is_nothing() -> None:
    """No guess is better than a wild one."""
    assert nearest_names(["graph_compute"], ["main", "usage"]) == []
    assert nearest_lines("return true;", b"x = 17;\n") == []


def test_all_that_does_not_fit_is_told_at_once() -> None:
    """One error names every hook; those that fit have their edits."""
    hooks = HookSet((hook("one", "gone"), hook("two", "graph_compute_all"), hook("three", "graph_compute")))
    with pytest.raises(AnchorError, match="2 anchors do not fit") as caught:
        plan_hooks(FILES, hooks)
    text = str(caught.value)
    assert "hook one" in text and "hook three" in text and "nearest: graph_compute_all" in text
    assert "hook two" not in text
    assert [edit.rule for edit in try_hooks(FILES, hooks).edits] == ["hook:two"]
