"""What the nodes of a syntax tree declare: names, each with where its type stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from numamirror_build.rewrite.units import Unit

VALUE = "value"
FUNCTION = "function"
CLASS = "class"
ALIAS = "alias"
PARAM = "param"
ENUM = "enum"
USING = "using"
NAMESPACE = "namespace"

TYPES = frozenset({CLASS, ALIAS, PARAM, ENUM})
VALUES = frozenset({VALUE, FUNCTION})

CLASS_NODES = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_LEAVES = frozenset({"identifier", "field_identifier", "type_identifier", "operator_name", "operator_cast"})
_TRANSPARENT = frozenset(
    {
        "linkage_specification",
        "declaration_list",
        "ERROR",
        "case_statement",
        "labeled_statement",
        "condition_clause",
        "init_statement",
        "attributed_statement",
    }
)
_DECLARING = frozenset(
    {
        "declaration",
        "field_declaration",
        "parameter_declaration",
        "optional_parameter_declaration",
        "variadic_parameter_declaration",
        "for_range_loop",
    }
)

Table = dict[bytes, list["Declared"]]


@dataclass(eq=False)
class Declared:
    """One declaration of one name.

    Attributes:
        name: the name; ``operator->`` and the like for operators.
        kind: one of the constants of this module.
        unit: the tree that it stands in.
        node: the whole declaration.
        type: the node that names the type, if any.
        declarator: the node that says what is made of the type, if any.
        init: the initialiser, or the range of a range-based ``for``.
        start: offset where the name begins to be visible.
        binding: index in a structured binding, or -1.
    """

    name: bytes
    kind: str
    unit: Unit
    node: Node
    type: Node | None
    declarator: Node | None
    init: Node | None
    start: int
    binding: int = -1


def declared_by(unit: Unit, node: Node) -> Iterator[Declared]:
    """The names that one node declares in the scope it stands in."""
    kind = node.type
    if kind in _DECLARING:
        yield from _declaration(unit, node)
    elif kind == "function_definition":
        yield from _function(unit, node)
    elif kind in CLASS_NODES:
        yield from _class(unit, node)
    elif kind == "enum_specifier":
        yield from _enum(unit, node)
    elif kind == "type_definition":
        yield from _specifier(unit, node.child_by_field_name("type"))
        for declarator in node.children_by_field_name("declarator"):
            yield from _named(unit, node, ALIAS, node.child_by_field_name("type"), declarator, None)
    elif kind == "alias_declaration":
        name = node.child_by_field_name("name")
        if name:
            target = node.child_by_field_name("type")
            yield Declared(unit.text(name), ALIAS, unit, node, target, None, None, name.start_byte)
    elif kind == "template_declaration":
        for child in node.named_children:
            yield from declared_by(unit, child)
    elif kind == "using_declaration":
        yield from _using(unit, node)
    elif kind == "namespace_alias_definition":
        name = node.child_by_field_name("name")
        if name and node.named_child_count > 1:
            target = node.named_children[-1]
            yield Declared(unit.text(name), NAMESPACE, unit, node, target, None, None, name.start_byte)
    elif kind in _TRANSPARENT:
        for child in node.named_children:
            yield from declared_by(unit, child)


def table(unit: Unit, node: Node) -> Table:
    """The names declared by a node's children."""
    found: Table | None = unit.tables.get(node.id)
    if found is None:
        found = unit.tables[node.id] = {}
        for child in node.named_children:
            for declared in declared_by(unit, child):
                found.setdefault(declared.name, []).append(declared)
    return found


def members(unit: Unit, node: Node) -> Table:
    """The names declared in the body of a class, those of anonymous members included."""
    found: Table | None = unit.tables.get(node.id)
    if found is None:
        found = unit.tables[node.id] = {}
        body = node.child_by_field_name("body")
        for child in body.named_children if body else ():
            for declared in declared_by(unit, child):
                found.setdefault(declared.name, []).append(declared)
            inner = child.child_by_field_name("type") if child.type == "field_declaration" else None
            if inner and inner.type in CLASS_NODES and not child.child_by_field_name("declarator"):
                for name, entries in members(unit, inner).items():
                    found.setdefault(name, []).extend(entries)
    return found


def namespaces(unit: Unit) -> dict[tuple[bytes, ...], Table]:
    """The names declared outside of functions and classes, by namespace."""
    found: dict[tuple[bytes, ...], Table] | None = unit.tables.get(-1)
    if found is None:
        found = unit.tables[-1] = {}
        _gather(unit, unit.root, (), found)
    return found


def _gather(unit: Unit, node: Node, path: tuple[bytes, ...], found: dict[tuple[bytes, ...], Table]) -> None:
    names = found.setdefault(path, {})
    for child in node.named_children:
        if child.type == "namespace_definition":
            body = child.child_by_field_name("body")
            if body:
                _gather(unit, body, path + namespace_name(unit, child), found)
        elif child.type in ("linkage_specification", "declaration_list", "ERROR"):
            _gather(unit, child, path, found)
        else:
            for declared in declared_by(unit, child):
                names.setdefault(declared.name, []).append(declared)


def namespace_name(unit: Unit, node: Node) -> tuple[bytes, ...]:
    """The names of a namespace definition; none for an anonymous or inline one."""
    name = node.child_by_field_name("name")
    if name is None or any(child.type == "inline" for child in node.children):
        return ()
    return tuple(part.strip() for part in unit.text(name).split(b"::"))


def parameters(unit: Unit, declarator: Node | None) -> list[Declared]:
    """The named parameters of a function's declarator."""
    function = function_part(declarator)
    listed = function.child_by_field_name("parameters") if function else None
    found = []
    for child in listed.named_children if listed else ():
        found += list(declared_by(unit, child))
    return found


def parameter_nodes(declarator: Node | None) -> list[Node]:
    """The nodes of a function's parameters, in order."""
    function = function_part(declarator)
    listed = function.child_by_field_name("parameters") if function else None
    return [child for child in listed.named_children if child.type != "comment"] if listed else []


def template_parameters(unit: Unit, node: Node) -> list[Declared]:
    """The parameters of a ``template_declaration`` or of a lambda with template parameters."""
    listed = node.child_by_field_name("parameters") or node.child_by_field_name("template_parameters")
    found = []
    for child in listed.named_children if listed else ():
        if child.type in (
            "type_parameter_declaration",
            "variadic_type_parameter_declaration",
            "optional_type_parameter_declaration",
        ):
            name = child.child_by_field_name("name")
            if name is None:
                name = next((c for c in child.named_children if c.type == "type_identifier"), None)
            default = child.child_by_field_name("default_type")
            text = unit.text(name) if name else b""
            found.append(Declared(text, PARAM, unit, child, None, None, default, child.start_byte))
        elif child.type == "template_template_parameter_declaration":
            found.append(Declared(b"", PARAM, unit, child, None, None, None, child.start_byte))
        else:
            entries = list(declared_by(unit, child))
            found += entries or [Declared(b"", VALUE, unit, child, None, None, None, child.start_byte)]
    return found


def template_of(node: Node) -> Node | None:
    """The template declaration directly around a class, alias or function."""
    parent = node.parent
    return parent if parent and parent.type == "template_declaration" else None


def inner_declarator(node: Node) -> Node | None:
    """The declarator inside of a declarator."""
    inner = node.child_by_field_name("declarator")
    if inner:
        return inner
    for child in reversed(node.named_children):
        if child.type in _LEAVES or "declarator" in child.type or child.type == "qualified_identifier":
            return child
    return None


def function_part(declarator: Node | None) -> Node | None:
    """The innermost function declarator of a declarator: the one that has the parameters."""
    found = None
    while declarator is not None and declarator.type not in _LEAVES:
        if declarator.type in ("function_declarator", "abstract_function_declarator"):
            found = declarator
        declarator = inner_declarator(declarator)
    return found


def name_part(declarator: Node | None) -> Node | None:
    """The name in a declarator."""
    while declarator is not None:
        if declarator.type in _LEAVES or declarator.type in (
            "qualified_identifier",
            "structured_binding_declarator",
            "destructor_name",
            "template_function",
        ):
            return declarator
        declarator = inner_declarator(declarator)
    return None


def _declaration(unit: Unit, node: Node) -> Iterator[Declared]:
    kind = node.child_by_field_name("type")
    if kind and kind.type in CLASS_NODES and not node.child_by_field_name("declarator"):
        yield from _class(unit, kind)
    else:
        yield from _specifier(unit, kind)
    init = node.child_by_field_name("value") or node.child_by_field_name("right")
    for declarator in node.children_by_field_name("declarator"):
        yield from _named(unit, node, VALUE, kind, declarator, init)


def _specifier(unit: Unit, node: Node | None) -> Iterator[Declared]:
    """The class or enumeration that is defined where a type is named."""
    if node and node.type in CLASS_NODES and node.child_by_field_name("body"):
        yield from _class(unit, node)
    elif node and node.type == "enum_specifier":
        yield from _enum(unit, node)


def _named(
    unit: Unit, node: Node, kind: str, type_node: Node | None, declarator: Node, init: Node | None
) -> Iterator[Declared]:
    if declarator.type == "init_declarator":
        init = declarator.child_by_field_name("value")
    name = name_part(declarator)
    if name is None or name.type in ("qualified_identifier", "template_function", "destructor_name"):
        return
    if name.type == "structured_binding_declarator":
        for index, child in enumerate(c for c in name.named_children if c.type == "identifier"):
            text = unit.text(child)
            yield Declared(text, VALUE, unit, node, type_node, declarator, init, child.start_byte, index)
        return
    if kind == VALUE and is_function(declarator):
        kind = FUNCTION
    yield Declared(operator(unit, name), kind, unit, node, type_node, declarator, init, name.start_byte)


def operator(unit: Unit, name: Node) -> bytes:
    """The text of a name without white space."""
    return b"".join(unit.text(name).split()) if name.type == "operator_name" else unit.text(name)


def is_function(declarator: Node | None) -> bool:
    """Whether a declarator declares a function, not a variable."""
    while declarator is not None:
        inner = inner_declarator(declarator)
        if declarator.type == "function_declarator":
            return inner is None or inner.type not in ("parenthesized_declarator",)
        declarator = inner
    return False


def _function(unit: Unit, node: Node) -> Iterator[Declared]:
    declarator = node.child_by_field_name("declarator")
    name = name_part(declarator)
    if name is None or name.type in ("qualified_identifier", "destructor_name"):
        return
    kind = node.child_by_field_name("type")
    yield from _specifier(unit, kind)
    text = operator(unit, name)
    yield Declared(text, FUNCTION, unit, node, kind, declarator, None, name.start_byte)


def _class(unit: Unit, node: Node) -> Iterator[Declared]:
    name = node.child_by_field_name("name")
    if name is None:
        return
    if name.type == "template_type":
        name = name.child_by_field_name("name") or name
    if name.type in ("type_identifier", "qualified_identifier"):
        text = b"".join(unit.text(name).split())
        yield Declared(text, CLASS, unit, node, node, None, None, name.start_byte)


def _enum(unit: Unit, node: Node) -> Iterator[Declared]:
    name = node.child_by_field_name("name")
    if name:
        yield Declared(unit.text(name), ENUM, unit, node, node, None, None, name.start_byte)
    body = node.child_by_field_name("body")
    if body and not any(child.type in ("class", "struct") for child in node.children):
        for child in body.named_children:
            entry = child.child_by_field_name("name")
            if entry:
                text = unit.text(entry)
                yield Declared(text, VALUE, unit, child, None, None, None, entry.start_byte)


def _using(unit: Unit, node: Node) -> Iterator[Declared]:
    target = node.named_children[-1] if node.named_child_count else None
    if target is None:
        return
    if any(child.type == "namespace" for child in node.children):
        yield Declared(b"using namespace", NAMESPACE, unit, node, target, None, None, node.start_byte)
    elif target.type == "qualified_identifier":
        name = unit.text(target).rsplit(b"::", 1)[-1].strip()
        yield Declared(name, USING, unit, node, target, None, None, node.start_byte)
