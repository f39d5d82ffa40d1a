"""The edits for one access."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from numamirror_build.rewrite.contexts import COMPOUND, READ, NoRule, Use
from numamirror_build.rewrite.nodes import child
from numamirror_build.rewrite.sites import GETTER, LOOP_GETTER, SETTER, Edit
from numamirror_build.rewrite.text import FIELD, Text, is_name_byte
from numamirror_build.rewrite.units import Unit

_SIMPLE = frozenset({"identifier", "field_identifier", "this", "number_literal", "char_literal"})
_PURE = frozenset(
    {
        "field_expression",
        "subscript_expression",
        "subscript_argument_list",
        "parenthesized_expression",
        "pointer_expression",
    }
)
_POSTFIX = _SIMPLE | {
    "field_expression",
    "subscript_expression",
    "call_expression",
    "parenthesized_expression",
    "string_literal",
    "null",
}


@dataclass(frozen=True)
class Access:
    """An access to the data of a tensor.

    Attributes:
        unit: the tree it was found in; offsets in it are those of the file.
        node: the field expression.
        arrow: whether it is ``->`` and not ``.``.
        raw: for ``->``, whether the base is a plain pointer; for ``.``, whether a ``*`` before it is on one.
    """

    unit: Unit
    node: Node
    arrow: bool
    raw: bool


@dataclass(frozen=True)
class Base:
    """How the base of an access turns into a pointer to the tensor.

    Attributes:
        start: where the base begins.
        first: end of what is replaced at its start.
        head: what replaces it, after the accessor's name.
        last: where the kept part of the base ends.
    """

    start: int
    first: int
    head: bytes
    last: int


def accessor_for(access: Access, use: Use) -> str:
    """The name of the accessor that stands first in what replaces an access."""
    if use.kind != READ:
        return SETTER
    return LOOP_GETTER if _in_plain_loop(access.unit, access.node) else GETTER


def edits_for(path: str, text: Text, access: Access, use: Use, prefix: bytes) -> list[Edit]:
    """The edits that route one access through an accessor.

    Args:
        path: the file.
        text: its text.
        access: the access.
        use: how it is used.
        prefix: ``::`` where the accessor's plain name means something else, else empty.

    Raises:
        NoRule: the access has a form without a rule.
    """
    base = _base(access)
    field = child(access.node, "field")
    make = _Maker(path, text, access.unit)
    name = _named(text, base.start, prefix + accessor_for(access, use).encode())
    make.replace(base.start, base.first, name + base.head, use.kind)
    if use.kind == READ:
        make.close(base.last, field.end_byte, b")", READ)
        return make.edits
    if use.kind == COMPOUND:
        _compound(make, access, use, base, prefix)
        return make.edits
    left, right = child(use.node, "left"), child(use.node, "right")
    equals = text.code.index(b"=", left.end_byte)
    make.close(base.last, equals + 1, b",", use.kind)
    make.replace(right.end_byte, right.end_byte, b")", use.kind)
    return make.edits


class _Maker:
    """Collects the edits of one access."""

    def __init__(self, path: str, text: Text, unit: Unit) -> None:
        self.path = path
        self.text = text
        self.unit = unit
        self.edits: list[Edit] = []

    def replace(self, start: int, end: int, new: bytes, rule: str) -> None:
        """Replace a range that holds no comment."""
        if self.text.has_comment(start, end):
            raise NoRule("a comment stands inside of the access")
        self.edits.append(Edit(self.path, start, end, self.text.content[start:end], new, rule))

    def close(self, start: int, end: int, new: bytes, rule: str) -> None:
        """Replace the operator and the field; comments between them stay."""
        parsed, there = (text[start:end] for text in (self.unit.source, self.text.plain))
        if parsed.replace(b"\\", b" ").split() != there.replace(b"\\", b" ").split():
            raise NoRule("a macro stands around a part of the access")
        old = self.text.content[start:end]
        if self.text.has_comment(start, end):
            if b"\\" in there:
                raise NoRule("a comment and a continued line stand inside of the access")
            kept = b"".join(
                self.text.content[i : i + 1]
                for i in range(start, end)
                if self.text.plain[i : i + 1].isspace()
            )
            new = kept.rstrip(b" \t") + (b"" if kept.rstrip(b" \t").endswith(b"\n") else b" ") + new
        self.edits.append(Edit(self.path, start, end, old, new, rule))


_LOOPS = frozenset({"for_statement", "for_range_loop", "while_statement", "do_statement"})
_FUNCTIONS = frozenset({"function_definition", "lambda_expression"})

# What becomes an instruction or two: macros, and the functions that compilers know.
_NO_CALL = re.compile(
    rb"([A-Z][A-Z0-9_]*|(std::)?(f?abs|ceil|cos|exp|floor|fma|f?max|f?min|isnan|log|pow|round|sin|sqrt|tanh)f?)$"
)


def _in_plain_loop(unit: Unit, node: Node) -> bool:
    """Whether an access is in a loop that calls nothing.

    Compilers move what such a loop does not change out of it, and make two loops of one that branches on it.
    """
    at = node.parent
    while at is not None and at.type not in _FUNCTIONS:
        if at.type in _LOOPS:
            return all(_NO_CALL.match(unit.text(call)) for call in _called(at))
        at = at.parent
    return False


def _called(node: Node) -> Iterator[Node]:
    if node.type == "call_expression":
        yield child(node, "function")
    for part in node.named_children:
        yield from _called(part)


def _named(text: Text, offset: int, name: bytes) -> bytes:
    """The accessor's name, apart from what stands before it."""
    glued = is_name_byte(text.content, offset - 1) or (
        name.startswith(b":") and text.content[offset - 1 : offset] == b":"
    )
    return b" " + name if glued else name


def _base(access: Access) -> Base:
    node = child(access.node, "argument")
    inner = _inside(node)
    start, end = node.start_byte, node.end_byte
    if access.arrow:
        if not access.raw:
            return Base(start, start, b"(&*", end)
        if inner is not None and inner.type not in ("comma_expression", "compound_statement"):
            return Base(start, start, b"", end - 1)
        return Base(start, start, b"(", end)
    if inner is not None and inner.type == "pointer_expression" and inner.children[0].type == "*":
        target = child(inner, "argument")
        if access.raw:
            return Base(start, target.start_byte, b"(", target.end_byte)
        return Base(start, inner.start_byte, b"(&", inner.end_byte)
    return Base(start, start, b"(&", end)


def _inside(node: Node) -> Node | None:
    """The expression in a pair of parentheses."""
    if node.type != "parenthesized_expression" or node.named_child_count != 1:
        return None
    return node.named_children[0]


def _compound(make: _Maker, access: Access, use: Use, base: Base, prefix: bytes) -> None:
    """``p->data += n`` becomes a store of the sum."""
    text, node = make.text, child(access.node, "argument")
    if not _is_pure(access.unit, node):
        raise NoRule("a compound store to the field of something that has effects when it is read twice")
    copy = text.content[base.first : base.last].strip()
    if base.head == b"":
        copy = copy[1:].strip()
    pointer = base.head.lstrip(b"(") + copy
    value = b", (char *) " + prefix + GETTER.encode() + b"(" + pointer + b")"
    if use.node.type == "update_expression":
        operator = b" + 1" if b"++" in access.unit.text(use.node) else b" - 1"
        if use.node.start_byte < base.start:
            raise NoRule("a prefix increment of the field")
        make.close(base.last, use.node.end_byte, value + operator + b")", COMPOUND)
        return
    right = child(use.node, "right")
    operator = access.unit.text(child(use.node, "operator"))
    if operator not in (b"+=", b"-="):
        raise NoRule(f"a store to the field with {operator.decode()}")
    simple = right.type in _POSTFIX
    make.close(
        base.last, right.start_byte, value + b" " + operator[:1] + b" " + (b"" if simple else b"("), COMPOUND
    )
    make.replace(right.end_byte, right.end_byte, b")" if simple else b"))", COMPOUND)


def _is_pure(unit: Unit, node: Node) -> bool:
    """Whether reading an expression twice is the same as reading it once, and nothing in it is an access."""
    if node.type in _SIMPLE:
        return True
    if node.type == "field_expression" and unit.text(child(node, "field")) == FIELD:
        return False
    parts = [part for part in node.named_children if part.type != "field_identifier"]
    return node.type in _PURE and all(_is_pure(unit, part) for part in parts)
