"""The few one-off edits: calls into our own files, anchored by structure.

A hook names a file, where wanted a function in it, and one line or one token inside that.
It carries only our own text.
Whatever is anchored must be there exactly once: a missing or repeated anchor is an error, never a skip.

A census is the other half: it names a call that needs a hook around it wherever it stands,
so that a call in a place that nobody knows yet is an error too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_cpp

from numamirror_build.errors import AnchorError, ConfigError
from numamirror_build.rewrite.nearest import nearest_lines, nearest_names, nearest_paths
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.sites import Edit
from numamirror_build.rewrite.units import view

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CPP = tree_sitter.Language(tree_sitter_cpp.language())
_PLACES = ("start", "before", "after", "replace")
_KEYS = {"id", "file", "function", "line", "line_prefix", "last", "place", "token", "text", "only_if"}


@dataclass(frozen=True)
class Condition:
    """A hook is wanted only where ``file`` contains ``text``."""

    file: str
    text: str


@dataclass(frozen=True)
class Hook:
    """One edit.

    Attributes:
        id: unique name.
        files: paths below the tree's root; exactly one of them must be there.
        functions: names of the function that the anchor lies in, as defined (``a::b``);
            exactly one of them must be defined in the file, exactly once.
            Empty: the anchor may lie anywhere in the file.
        line: the anchor line without its indentation; None for places ``start`` and ``replace``.
        prefix: whether ``line`` is only how the line begins.
        last: whether the last such line is meant, where there may be several.
        place: ``start`` (of the function's body), ``before`` or ``after`` the line, or ``replace`` a token.
        token: what ``replace`` replaces; exactly once in the function.
        text: our text; whole lines, but for ``replace``.
        only_if: where given, condition without which the hook is not wanted in a tree.
    """

    id: str
    files: tuple[str, ...]
    functions: tuple[str, ...]
    line: str | None
    prefix: bool
    last: bool
    place: str
    token: str | None
    text: str
    only_if: Condition | None


@dataclass(frozen=True)
class Census:
    """Every function that makes a call must be one that a hook is in, or a named exception.

    Attributes:
        id: unique name.
        call: name of the function that is called.
        within: beginning of the paths of the files that are searched.
        hooks: ids of the hooks that take care of the call in the function they are in.
        exceptions: functions that need no hook, with the reason.
    """

    id: str
    call: str
    within: str
    hooks: frozenset[str]
    exceptions: Mapping[str, str]


@dataclass(frozen=True)
class HookSet:
    """All hooks of an upstream, in the order of their files' names and of their places in them."""

    hooks: tuple[Hook, ...]
    censuses: tuple[Census, ...] = ()


def load_hooks(folder: Path) -> HookSet:
    """Read all ``*.toml`` files of a folder.

    Raises:
        ConfigError: a file is not valid.
    """
    hooks: list[Hook] = []
    censuses: list[Census] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            document = tomllib.loads(path.read_text())
            hooks += [_read_hook(entry) for entry in document["hook"]]
            censuses += [_read_census(entry) for entry in document.get("census", ())]
        except (tomllib.TOMLDecodeError, KeyError, ValueError) as error:
            raise ConfigError("A hook file is not valid", where=path.name, why=str(error)) from error
    ids = [hook.id for hook in hooks]
    if repeated := sorted({name for name in ids if ids.count(name) > 1}):
        raise ConfigError("Hooks must have names of their own", where=folder.name, why=", ".join(repeated))
    return HookSet(tuple(hooks), tuple(censuses))


@dataclass(frozen=True)
class HookReport:
    """How hooks fit a tree.

    Attributes:
        edits: of the hooks that fit, in the order of the hooks.
        problems: one error for each hook and each call of a census that does not.
    """

    edits: tuple[Edit, ...]
    problems: tuple[AnchorError, ...]


def plan_hooks(files: Mapping[str, bytes], hooks: HookSet) -> list[Edit]:
    """The edits of all hooks that a tree wants, in the order of the hooks.

    Args:
        files: content of the tree's files by path.
        hooks: what to insert.

    Raises:
        AnchorError: an anchor is missing or there more than once; names hook, file, anchor,
            and what in the tree is like it.
    """
    report = try_hooks(files, hooks)
    if len(report.problems) > 1:
        raise _together(report.problems)
    if report.problems:
        raise report.problems[0]
    return list(report.edits)


def try_hooks(files: Mapping[str, bytes], hooks: HookSet) -> HookReport:
    """The edits of the hooks that fit a tree, and an error for each thing that does not."""
    functions = _Functions(files)
    edits: list[Edit] = []
    problems: list[AnchorError] = []
    hooked: dict[str, set[tuple[str, str]]] = {}
    for hook in hooks.hooks:
        if hook.only_if and hook.only_if.text.encode() not in files.get(hook.only_if.file, b""):
            continue
        try:
            file, span, name = _place(hook, files, functions)
            edits.append(_edit(hook, file, files[file], span))
        except AnchorError as error:
            problems.append(error)
        else:
            if name:
                hooked.setdefault(hook.id, set()).add((file, name))
    for census in hooks.censuses:
        problems += _take_census(census, files, functions, hooked)
    return HookReport(tuple(edits), tuple(problems))


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    body: int
    """Offset of the opening brace."""


class _Functions:
    """The functions that files define, each file parsed once."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._project = Project(files)
        self._found: dict[str, dict[str, list[_Span]]] = {}

    def of(self, file: str) -> dict[str, list[_Span]]:
        """Spans by name as it is written at the definition."""
        if file not in self._found:
            # every branch of the preprocessor at once, and without macros that the grammar does not know
            self._found[file] = _find_functions(view(self._project, file, ()))
        return self._found[file]


def _place(hook: Hook, files: Mapping[str, bytes], functions: _Functions) -> tuple[str, _Span, str | None]:
    """The file that a hook is for, the part of it that the anchor lies in, and the function's name."""
    present = [file for file in hook.files if file in files]
    if len(present) != 1:
        why = f"{len(present)} of the files that it may be in are in the tree, not one"
        raise _anchor_error(hook, why, [] if present else nearest_paths(hook.files, files))
    if not hook.functions:
        return present[0], _Span(0, len(files[present[0]]), 0), None
    defined = functions.of(present[0])
    found = [(name, span) for name in hook.functions for span in defined.get(name, [])]
    if len(found) != 1:
        names = " or ".join(hook.functions)
        near = [] if found else _near_functions(hook, present[0], files, functions)
        raise _anchor_error(hook, f"the function {names} is defined {len(found)} times, not once", near)
    name, span = found[0]
    return present[0], span, name


def _near_functions(hook: Hook, file: str, files: Mapping[str, bytes], functions: _Functions) -> list[str]:
    """The same function in another file; else those of this file whose names are most like it."""
    folder = file.rpartition("/")[0]
    moved = [
        f"{name} in {other}"
        for name in hook.functions
        for other in sorted(files)
        if other != file and other.startswith(folder) and other.endswith((".c", ".cpp"))
        if name.encode() in files[other] and name in functions.of(other)
    ]
    return moved or nearest_names(hook.functions, functions.of(file))


def _take_census(
    census: Census,
    files: Mapping[str, bytes],
    functions: _Functions,
    hooked: Mapping[str, set[tuple[str, str]]],
) -> Iterator[AnchorError]:
    covered = set().union(*(hooked.get(hook, set()) for hook in census.hooks))
    call = re.compile(rb"(?<!\w)" + re.escape(census.call.encode()) + rb"\s*\(")
    for file in sorted(files):
        if not file.startswith(census.within) or not file.endswith((".c", ".cpp")):
            continue
        source = files[file]
        for match in call.finditer(source):
            spans = ((name, span) for name, found in functions.of(file).items() for span in found)
            around = [name for name, span in spans if span.start <= match.start() < span.end]
            if any((file, name) in covered or name in census.exceptions for name in around):
                continue
            line = source.count(b"\n", 0, match.start()) + 1
            yield AnchorError(
                f"{census.call} is called where no hook takes care of it",
                where=f"{file}:{line}: {' '.join(around) or 'outside of functions'}",
                why=f"the census {census.id} knows neither a hook in this function nor a reason for none",
                hint="add a hook or an exception: see docs/new-commit.md",
                details={"census": census.id, "file": file},
            )


def _read_census(entry: Mapping[str, Any]) -> Census:
    return Census(
        id=entry["id"],
        call=entry["call"],
        within=entry["within"],
        hooks=frozenset(entry["hooks"]),
        exceptions={exception["function"]: exception["reason"] for exception in entry["exceptions"]},
    )


def _read_hook(entry: Mapping[str, Any]) -> Hook:
    if unknown := sorted(set(entry) - _KEYS):
        raise ValueError(f"unknown keys: {', '.join(unknown)}")
    file, function = entry["file"], entry.get("function", [])
    condition = entry.get("only_if")
    hook = Hook(
        id=entry["id"],
        files=(file,) if isinstance(file, str) else tuple(file),
        functions=(function,) if isinstance(function, str) else tuple(function),
        line=entry.get("line", entry.get("line_prefix")),
        prefix="line_prefix" in entry,
        last=entry.get("last", False),
        place=entry["place"],
        token=entry.get("token"),
        text=entry["text"],
        only_if=Condition(condition["file"], condition["text"]) if condition else None,
    )
    if hook.place not in _PLACES:
        raise ValueError(f"{hook.id}: place is one of {', '.join(_PLACES)}")
    wants_line, wants_token = hook.place in ("before", "after"), hook.place == "replace"
    if wants_line != (hook.line is not None) or wants_token != (hook.token is not None):
        raise ValueError(f"{hook.id}: before and after want a line, replace a token, start neither")
    if hook.place == "start" and not hook.functions:
        raise ValueError(f"{hook.id}: start wants a function")
    if not wants_token and not hook.text.endswith("\n"):
        raise ValueError(f"{hook.id}: text must end with a newline")
    return hook


def _edit(hook: Hook, file: str, source: bytes, span: _Span) -> Edit:
    if hook.place == "replace":
        assert hook.token is not None
        pattern = rb"(?<!\w)" + re.escape(hook.token.encode()) + rb"(?!\w)"
        found = [match.start() for match in re.finditer(pattern, source[span.start : span.end])]
        if len(found) != 1:
            near = [] if found else nearest_lines(hook.token, source[span.start : span.end])
            raise _anchor_error(hook, f"the token {hook.token!r} is there {len(found)} times, not once", near)
        start = span.start + found[0]
        return Edit(
            path=file,
            start=start,
            end=start + len(hook.token.encode()),
            old=hook.token.encode(),
            new=hook.text.encode(),
            rule=f"hook:{hook.id}",
        )
    if hook.place == "start":
        at = _next_line(source, span.body)
        if source[span.body + 1 : at].strip():
            raise _anchor_error(hook, "something follows the opening brace on its line")
    else:
        line_start = _pick_line(hook, source, span)
        at = line_start if hook.place == "before" else _next_line(source, line_start)
    return Edit(path=file, start=at, end=at, old=b"", new=hook.text.encode(), rule=f"hook:{hook.id}")


def _pick_line(hook: Hook, source: bytes, span: _Span) -> int:
    assert hook.line is not None
    wanted = hook.line.encode()
    found = []
    at = span.start
    while at < span.end:
        end = _next_line(source, at)
        line = source[at:end].strip()
        if line == wanted or (hook.prefix and line.startswith(wanted)):
            found.append(at)
        at = end
    if not found or (len(found) > 1 and not hook.last):
        near = [] if found else nearest_lines(hook.line, source[span.start : span.end])
        raise _anchor_error(hook, f"the line {hook.line!r} is there {len(found)} times, not once", near)
    return found[-1]


def _next_line(source: bytes, at: int) -> int:
    end = source.find(b"\n", at)
    return len(source) if end < 0 else end + 1


def _find_functions(source: bytes) -> dict[str, list[_Span]]:
    tree = tree_sitter.Parser(_CPP).parse(source)
    functions: dict[str, list[_Span]] = {}
    for node in _definitions(tree.root_node):
        name, body = _declared_name(node), node.child_by_field_name("body")
        if name and body:
            span = _Span(node.start_byte, node.end_byte, body.start_byte)
            functions.setdefault(name, []).append(span)
    return functions


def _definitions(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """Function definitions outside of other functions' bodies."""
    for child in node.children:
        if child.type == "function_definition":
            yield child
        elif child.type != "compound_statement":
            yield from _definitions(child)


def _declared_name(node: tree_sitter.Node) -> str | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator else None
    return name.text.decode() if name and name.text else None


def _anchor_error(hook: Hook, why: str, near: Iterable[str] = ()) -> AnchorError:
    anchor = " ".join(filter(None, [" or ".join(hook.functions), repr(hook.line) if hook.line else None]))
    files = " or ".join(hook.files)
    near = list(near)
    return AnchorError(
        f"The anchor of hook {hook.id} does not fit this tree",
        where=f"{files}: {anchor}" if anchor else files,
        why="\n".join([why, *(f"nearest: {one}" for one in near)]),
        hint="this commit needs another anchor: see docs/new-commit.md",
        details={"hook": hook.id, "files": list(hook.files), "nearest": near},
    )


def _together(problems: Sequence[AnchorError]) -> AnchorError:
    return AnchorError(
        f"{len(problems)} anchors do not fit this tree",
        where=problems[0].where,
        why="\n".join("\n".join(error.lines()[:-1]) for error in problems),
        hint=problems[0].hint,
        details={"anchors": [error.as_json() for error in problems]},
    )
