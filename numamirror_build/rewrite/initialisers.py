"""Braced initialisers of a tensor.

The struct keeps its layout, so a list that says nothing about the field, or says NULL, stays as it is;
only a named ``.data = NULL`` goes away, which means the same and leaves nobody else to name the field.
Any other value may be the address of a replica.
In a declaration or an assignment that is a statement of a block,
the statement is followed by one that stores the value again through the setter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.accesses import Finder, words
from numamirror_build.rewrite.contexts import NoRule
from numamirror_build.rewrite.kinds import Array, Record, Type, Types, Unresolved, bare, each, substitute
from numamirror_build.rewrite.nodes import child
from numamirror_build.rewrite.sites import GETTER, SETTER, Edit
from numamirror_build.rewrite.text import FIELD, Text
from numamirror_build.rewrite.units import Unit

INIT = "init"

_NULL = re.compile(rb"\(*(?:\(void\*\))?(?:NULL|nullptr|0|\{\})\)*")


@dataclass(frozen=True)
class Initialiser:
    """An initialiser of a tensor that gives the field a value.

    Attributes:
        unit: the tree.
        list: the braced list.
        entry: the list's element for the field: a value, or a pair with a designator.
        value: the value.
    """

    unit: Unit
    list: Node
    entry: Node
    value: Node

    @property
    def named(self) -> bool:
        """Whether a designator names the field."""
        return self.entry.type == "initializer_pair"


def designated(finder: Finder, unit: Unit, designator: Node) -> Initialiser | None:
    """The initialiser that a designator ``.data`` belongs to, or None if it is not that of a tensor.

    Raises:
        Unresolved: the type of the list is not known.
    """
    entry = designator.parent
    listed = entry.parent if entry else None
    if entry is None or listed is None or entry.type != "initializer_pair":
        raise Unresolved("the code around it cannot be parsed")
    kinds = list_type(finder, unit, listed)
    chain = entry.children_by_field_name("designator")
    for earlier in chain[: chain.index(designator)]:
        kinds = _designated(finder, unit, earlier, kinds)
    answers = {finder.holds_field(bare(kind)) for kind in kinds}
    if answers == {False}:
        return None
    value = entry.child_by_field_name("value")
    if len(answers) > 1 or len(chain) > 1 or value is None:
        raise Unresolved("it is ambiguous what is initialised")
    return Initialiser(unit, listed, entry, value)


def positional(finder: Finder, unit: Unit) -> Iterator[Initialiser]:
    """The initialisers of tensors that reach the field by its position.

    Raises:
        NoRule: one leaves out inner braces, so that positions cannot be told.
    """
    fields = [field.name for field in _data_members(finder.struct)]
    for node in unit.nodes("initializer_list"):
        entries = [child for child in node.named_children if child.type != "comment"]
        if any(entry.type == "initializer_pair" for entry in entries):
            continue
        if len(entries) <= fields.index(FIELD):
            continue
        try:
            kinds = [bare(kind) for kind in list_type(finder, unit, node)]
        except Unresolved:
            continue
        if any(isinstance(kind, Record) and finder.is_tensor(kind) for kind in kinds):
            if len(entries) > len(fields):
                raise NoRule("an initialiser of a tensor leaves out inner braces")
            entry = entries[fields.index(FIELD)]
            yield Initialiser(unit, node, entry, entry)


def edits_for(path: str, text: Text, found: Initialiser, prefix: bytes) -> list[Edit]:
    """The edits for one initialiser; none if nothing is to be done.

    Raises:
        NoRule: it stands where no statement can follow it, or names what a second mention may change.
    """
    unit = found.unit
    null = bool(_NULL.fullmatch(b"".join(unit.text(found.value).split())))
    edits: list[Edit] = []
    value = b""
    if found.named:
        start, end = _with_comma(text, found.entry)
        if text.has_comment(start, end):
            raise NoRule("a comment stands inside of the initialiser of the field")
        if any(
            found.entry.start_byte < w.offset < found.entry.end_byte
            for w in words(text)
            if w.offset not in range(found.entry.start_byte, found.value.start_byte)
        ):
            raise NoRule("the field is initialised with an expression that reads a field of that name")
        edits.append(Edit(path, start, end, text.content[start:end], b"", INIT))
        value = text.content[found.value.start_byte : found.value.end_byte]
    if null:
        return edits
    statement, target = _statement(unit, found.list)
    pointer = prefix + GETTER.encode() + b"(" + target + b")"
    new = b" " + prefix + SETTER.encode() + b"(" + target + b", " + (value or pointer) + b");"
    end = statement.end_byte
    if text.content.startswith(new, end):
        return []
    return [*edits, Edit(path, end, end, b"", new, INIT)]


def list_type(finder: Finder, unit: Unit, node: Node) -> Types:
    """The type that a braced list initialises.

    Raises:
        Unresolved: it cannot be told.
    """
    resolver = finder.resolver
    parent = node.parent
    if parent is None:
        raise Unresolved("a list without anything around it")
    kind = parent.type
    if kind == "compound_literal_expression":
        return resolver.types.named_by(unit, child(parent, "type"))
    if kind in ("init_declarator", "field_declaration", "declaration", "optional_parameter_declaration"):
        return _declared(finder, unit, parent)
    if kind == "assignment_expression":
        return resolver.expression(unit, child(parent, "left"))
    if kind == "initializer_list":
        outer = list_type(finder, unit, parent)
        entries = [child for child in parent.named_children if child.type != "comment"]
        return each(lambda item: _part(finder, item, entries.index(node)), outer)
    if kind == "initializer_pair":
        kinds = list_type(finder, unit, parent.parent or parent)
        for designator in parent.children_by_field_name("designator"):
            kinds = _designated(finder, unit, designator, kinds)
        return kinds
    if kind == "return_statement":
        return _returned(finder, unit, parent)
    if kind == "new_expression":
        return resolver.types.named_by(unit, child(parent, "type"))
    raise Unresolved("it cannot be told what the braces initialise")


def _designated(finder: Finder, unit: Unit, designator: Node, kinds: Types) -> Types:
    """The types of what a designator means in lists of some types."""
    if designator.type == "field_designator":
        name = unit.text(designator.named_children[-1])
        return each(lambda kind: finder.resolver.members.types(kind, name), kinds)
    return each(lambda kind: _part(finder, kind, 0), kinds)


def _declared(finder: Finder, unit: Unit, node: Node) -> Types:
    declaration = node.parent if node.type == "init_declarator" else node
    name = decl.name_part(node.child_by_field_name("declarator"))
    if declaration is not None and name is not None:
        for declared in decl.declared_by(unit, declaration):
            if declared.start == name.start_byte:
                return finder.resolver.types.declared(declared)
    raise Unresolved("it cannot be told what the braces initialise")


def _part(finder: Finder, kind: Type, index: int) -> Types:
    """The type of one element of a list that initialises some type."""
    kind = bare(kind)
    if isinstance(kind, Array):
        return (kind.to,)
    if isinstance(kind, Record):
        kind = finder.resolver.members.complete(kind)
        if kind.definition and not kind.name.startswith("std::"):
            fields = _data_members(kind)
            if index < len(fields):
                kinds = finder.resolver.types.declared(fields[index])
                return each(lambda item: substitute(item, dict(kind.bindings)), kinds)
        if kind.name in ("std::vector", "std::array", "std::list", "std::deque", "std::initializer_list"):
            return (kind.bindings[0][1],)
    raise Unresolved("it cannot be told what the braces initialise")


def _data_members(record: Record) -> list[decl.Declared]:
    definition = record.definition
    if definition is None:
        return []
    entries = [e for found in decl.members(definition.unit, definition.node).values() for e in found]
    fields = [e for e in entries if e.kind == decl.VALUE and e.node.type == "field_declaration"]
    return sorted(
        (f for f in fields if not any(c.type == "storage_class_specifier" for c in f.node.children)),
        key=lambda f: f.start,
    )


def _returned(finder: Finder, unit: Unit, node: Node) -> Types:
    scope: Node | None = node
    while scope is not None and scope.type not in ("function_definition", "lambda_expression"):
        scope = scope.parent
    if scope is not None and scope.type == "function_definition":
        return finder.resolver.types.return_types(unit, scope)
    raise Unresolved("it cannot be told what the braces initialise")


def _statement(unit: Unit, listed: Node) -> tuple[Node, bytes]:
    """The statement that an initialiser is all of, and a pointer to what it initialises."""
    parent = listed.parent
    target = b""
    if parent is not None and parent.type == "compound_literal_expression":
        parent = parent.parent
    if parent is not None and parent.type == "assignment_expression":
        left = parent.child_by_field_name("left")
        if left is not None:
            argument = left.child_by_field_name("argument") if left.type == "pointer_expression" else None
            target = unit.text(argument) if argument else b"&" + unit.text(left)
        parent = parent.parent
    elif parent is not None and parent.type == "init_declarator":
        name = parent.child_by_field_name("declarator")
        if name is not None and name.type == "identifier":
            target = b"&" + unit.text(name)
        parent = parent.parent
        if parent is not None and len(parent.children_by_field_name("declarator")) > 1:
            target = b""
        if parent is not None and any(c.type == "storage_class_specifier" for c in parent.children):
            target = b""
    block = parent.parent if parent is not None else None
    if (
        parent is None
        or block is None
        or not re.fullmatch(rb"&?[A-Za-z_][\w.>\-]*", target)
        or parent.type not in ("expression_statement", "declaration")
        or block.type not in ("compound_statement", "case_statement")
    ):
        raise NoRule("an initialiser gives the field a value where no statement can follow")
    return parent, target


def _with_comma(text: Text, entry: Node) -> tuple[int, int]:
    """The range of a list's element with the comma that goes with it."""
    after = re.compile(rb"\s*,[ \t]*").match(text.code, entry.end_byte)
    if after:
        return entry.start_byte, after.end()
    before = re.search(rb",\s*$", text.code[: entry.start_byte])
    if before:
        return before.start(), entry.end_byte
    blank = len(text.code) - len(text.code[entry.end_byte :].lstrip(b" \t"))
    return entry.start_byte, blank
