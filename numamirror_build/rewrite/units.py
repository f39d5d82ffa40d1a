"""Syntax trees: of a file in one of its variants, or of the expansion of a macro.

The text that is parsed is as long as the file's.
In it, what the grammar does not know is replaced by white space or by something that it knows.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import tree_sitter_c
import tree_sitter_cpp
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from numamirror_build.rewrite import objc
from numamirror_build.rewrite.macros import DECORATION_CALLS, DECORATIONS, Origin, Piece
from numamirror_build.rewrite.preprocessor import Define
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.text import FIELD_WORD, closing, occurrences

_LAUNCH = re.compile(rb"<<<")
_SPELLING = re.compile(
    rb"(?P<cast>\bunsigned(?=\s*\())|(?P<delete>\bdelete\s*\[\s*\])|(?P<offset>\b__builtin_offsetof\b)"
)
_SPELLINGS = {"cast": b"uint32_t", "delete": b"delete", "offset": b"offsetof"}
_FOLLOW = re.compile(rb"\s*(.)", re.DOTALL)


@dataclass(eq=False, repr=False)
class Unit:
    """One syntax tree.

    Attributes:
        path: the file that the text, or the macro's use, is in.
        source: the text that was parsed.
        root: the tree's root.
        cpp: whether the language is C++; Objective-C is C, but parsed with the grammar of C++.
        inactive: ranges of the file that this variant leaves out.
        outer: for an expansion, the place in another tree where names are looked up next.
        origins: for an expansion, offsets in ``source`` and where the tokens there come from.
        tables: names declared by a node's children, by the node's id.
        serial: a number that no other tree of this process has.
    """

    path: str
    source: bytes
    root: Node
    cpp: bool
    inactive: tuple[tuple[int, int], ...] = ()
    outer: tuple[Unit, Node] | None = None
    origins: tuple[tuple[int, Origin | None], ...] = ()
    tables: dict[Any, Any] = field(default_factory=dict)
    serial: int = field(default_factory=itertools.count().__next__)

    def text(self, node: Node) -> bytes:
        """The source of a node."""
        return self.source[node.start_byte : node.end_byte]

    def at(self, start: int, end: int) -> Node:
        """The smallest node around a range."""
        node = self.root.descendant_for_byte_range(start, end)
        assert node is not None
        return node

    def nodes(self, kind: str) -> list[Node]:
        """All nodes of one kind."""
        query = _query(self.cpp or is_objc(self.path), kind)
        return QueryCursor(query).captures(self.root).get("node", [])

    def origin(self, offset: int) -> Origin | None:
        """Where the token that begins at an offset comes from."""
        if not self.outer and not self.origins:
            return self.path, offset
        index = bisect_right(self.origins, offset, key=lambda entry: entry[0]) - 1
        return self.origins[index][1] if index >= 0 and self.origins[index][0] == offset else None


@lru_cache(maxsize=2)
def _language(cpp: bool) -> Language:
    return Language(tree_sitter_cpp.language() if cpp else tree_sitter_c.language())


@lru_cache(maxsize=2)
def _parser(cpp: bool) -> Parser:
    return Parser(_language(cpp))


@lru_cache
def _query(cpp: bool, kind: str) -> Query:
    query: Query = Query(_language(cpp), f"({kind}) @node")
    return query


def is_cpp(path: str) -> bool:
    """Whether a file is C++ as far as its name tells; headers count as C++."""
    return not path.endswith((".c", ".m"))


def is_objc(path: str) -> bool:
    """Whether a file is Objective-C, which is parsed with the grammar of C++."""
    return path.endswith((".m", ".mm"))


def parse_file(project: Project, path: str, inactive: tuple[tuple[int, int], ...] = ()) -> Unit:
    """The tree of a file without some ranges."""
    source = view(project, path, inactive)
    cpp = is_cpp(path)
    root = _parser(cpp or is_objc(path)).parse(source).root_node
    if root.has_error and path.endswith(".h"):
        as_c = _parser(False).parse(source).root_node
        if not as_c.has_error:
            cpp, root = False, as_c
    return Unit(path, source, root, cpp, inactive)


def parse_text(path: str, source: bytes, cpp: bool) -> Unit:
    """The tree of a text that is no file of the project."""
    return Unit(path, source, _parser(cpp).parse(source).root_node, cpp)


def parse_in_place(project: Project, path: str, define: Define, wrap: tuple[bytes, bytes]) -> Unit:
    """The tree of a macro's body where it stands in its file, between the two texts of ``wrap``."""
    plain = project.text(path).plain
    body = re.sub(rb"\\(\r?\n)", rb" \1", plain[define.body : define.end])
    body = re.sub(rb"\s*##\s*", lambda match: b"_" * len(match[0]), body)
    body = re.sub(rb"#\s*\w+", lambda match: b'""'.ljust(len(match[0])), body)
    prefix = wrap[0].rjust(define.body)[-define.body :]
    source = prefix + body + wrap[1]
    cpp = is_cpp(path)
    return Unit(path, source, _parser(cpp or is_objc(path)).parse(source).root_node, cpp)


def parse_pieces(sequence: list[Piece], outer: tuple[Unit, Node], wrap: tuple[bytes, bytes]) -> Unit:
    """The tree of an expansion, between the two texts of ``wrap``."""
    parts = [wrap[0]]
    origins = []
    length = len(wrap[0])
    for piece in sequence:
        origins.append((length, piece.origin))
        parts += [piece.text, b" "]
        length += len(piece.text) + 1
    source = b"".join([*parts, wrap[1]])
    unit, _ = outer
    root = _parser(unit.cpp or is_objc(unit.path)).parse(source).root_node
    return Unit(unit.path, source, root, unit.cpp, outer=outer, origins=tuple(origins))


def view(project: Project, path: str, inactive: Iterable[tuple[int, int]]) -> bytes:
    """A file's text as the grammar can take it, of the same length."""
    text = project.text(path)
    result = bytearray(text.plain)
    for start, end in [*project.directives(path).ranges, *inactive]:
        _blank(result, start, end)
    if path.endswith((".m", ".mm")):
        objc.tame(result, text.code)
    code = text.code
    here = project.names(path)
    for match in _SPELLING.finditer(result):
        new = _SPELLINGS[match.lastgroup or ""]
        result[match.start() : match.end()] = new.ljust(match.end() - match.start())
    for name in sorted(here & DECORATIONS):
        for start in occurrences(code, name):
            _blank(result, start, start + len(name))
    for name in sorted(here & DECORATION_CALLS):
        for start in occurrences(code, name):
            _blank_call(result, code, start, start + len(name))
    for name in project.macro_names(path):
        kind = project.macro_kind(name, path)
        if kind != "":
            _tame_macro(project, path, name, kind, result, code)
    _tame_launches(result, code)
    return bytes(result)


def _blank(result: bytearray, start: int, end: int) -> None:
    result[start:end] = re.sub(rb"[^\n]", b" ", bytes(result[start:end]))


def _call_end(code: bytes, end: int) -> int | None:
    """Offset after the argument list that follows a name, or None."""
    follow = _FOLLOW.match(code, end)
    if not follow or follow[1] != b"(":
        return None
    last = closing(code, follow.start(1))
    return None if last is None else last + 1


def _blank_call(result: bytearray, code: bytes, start: int, end: int) -> None:
    last = _call_end(code, end)
    if last is not None and not FIELD_WORD.search(code, start, last):
        _blank(result, start, last)


def _tame_macro(
    project: Project, path: str, name: bytes, kind: str | int, result: bytearray, code: bytes
) -> None:
    function_like = any(macro.params is not None for macro in project.macros(name, path))
    for start in occurrences(code, name):
        after = start + len(name)
        end = _call_end(code, after) if function_like else after
        if end is None or result[start] == 0x20:
            continue
        if kind == "blank":
            if not FIELD_WORD.search(code, start, end):
                _blank(result, start, end)
        elif kind == "statement":
            if function_like and not FIELD_WORD.search(code, after, end):
                _blank(result, code.index(b"(", after) + 1, end - 1)
            _end_statement(result, code, end)
        else:
            _unwrap(result, code, start, end, int(kind))


def _end_statement(result: bytearray, code: bytes, end: int) -> None:
    """Put a semicolon behind the use of a macro that ends a statement, unless there is one."""
    follow = _FOLLOW.match(code, end)
    if not follow or follow.start(1) == end or code.startswith((b"else", b"while"), follow.start(1)):
        return
    if follow[1].isalnum() or follow[1] in b"_}{*(:~":
        result[end : end + 1] = b";"


def _unwrap(result: bytearray, code: bytes, start: int, end: int, kept: int) -> None:
    """Blank a macro's name and all its arguments but one."""
    opening = code.index(b"(", start)
    depth = 0
    bounds = [opening]
    for offset in range(opening, end):
        byte = code[offset : offset + 1]
        depth += (byte in b"([{") - (byte in b")]}")
        if byte == b"," and depth == 1:
            bounds.append(offset)
    bounds.append(end - 1)
    dropped = code[start : bounds[kept]] + code[bounds[kept + 1] : end] if kept + 1 < len(bounds) else b""
    if dropped and not FIELD_WORD.search(dropped):
        _blank(result, start, bounds[kept] + 1)
        _blank(result, bounds[kept + 1], end)


def _tame_launches(result: bytearray, code: bytes) -> None:
    """Turn ``f<<<a, b>>>(c)`` into the call ``f(a, b, c)``."""
    for match in _LAUNCH.finditer(code):
        if result[match.start()] == 0x20:
            continue
        last = code.find(b">>>", match.end())
        follow = _FOLLOW.match(code, last + 3) if last >= 0 else None
        if not follow or follow[1] != b"(":
            continue
        result[match.start() : match.end()] = b"  ("
        empty = code[follow.end() :].lstrip()[:1] == b")"
        result[last : follow.end()] = (b" " if empty else b",").ljust(follow.end() - last)
