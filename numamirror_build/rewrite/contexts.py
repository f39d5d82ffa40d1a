"""What the code around an access does with it: read it, store to it, or something there is no rule for.

A getter gives a value, not a place. So everything that needs a place is either a store that has a rule,
or a :class:`NoRule` that says why not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import Closure, Param, Pointer, Unresolved, bare
from numamirror_build.rewrite.macros import Macro, expand, pieces
from numamirror_build.rewrite.resolver import Resolver
from numamirror_build.rewrite.text import occurrences
from numamirror_build.rewrite.units import Unit

READ = "read"
WRITE = "write"
COMPOUND = "compound"

_KEEPS_PLACE = frozenset(b"swap iter_swap exchange ref cref tie forward forward_as_tuple addressof".split())
_ASSIGNMENTS = frozenset(b"= += -= *= /= %= &= |= ^= <<= >>=".split())


class NoRule(Exception):
    """The access is used in a way that no rule covers; the message says which."""


@dataclass(frozen=True)
class Use:
    """How an access is used.

    Attributes:
        kind: ``read``, ``write`` or ``compound``.
        node: the expression that a store's rule replaces: the assignment; for a read the access itself.
    """

    kind: str
    node: Node


def use_of(resolver: Resolver, unit: Unit, access: Node) -> Use:
    """How an access is used.

    Raises:
        NoRule: in a way that needs the field's place.
    """
    node = _whole_place(unit, access)
    parent = _parent(node)
    kind = parent.type
    if kind == "assignment_expression" and parent.child_by_field_name("left") == node:
        return _store(unit, access, node, parent)
    if kind == "update_expression":
        return Use(COMPOUND, _discarded(parent, unit))
    if kind == "pointer_expression" and unit.text(_operator(parent)) == b"&":
        raise NoRule("the address of the field is taken")
    if kind == "binary_expression" and unit.text(_operator(parent)) == b"&":
        raise NoRule("it cannot be told whether the & beside it takes the field's address")
    if (
        kind in ("field_expression", "subscript_expression")
        and parent.child_by_field_name("argument") == node
    ):
        if kind == "field_expression":
            raise NoRule("a member of the field is named, but a tensor's data has none")
    elif kind in ("ERROR", "translation_unit"):
        raise NoRule("the code around it cannot be parsed")
    elif kind == "decltype" and node != access:
        raise NoRule("decltype of the field in parentheses is a reference")
    elif kind == "gnu_asm_output_operand":
        raise NoRule("inline assembly writes to the field")
    elif kind == "lambda_capture_initializer":
        if any(child.type == "&" for child in parent.children):
            raise NoRule("a lambda captures the field by reference")
    elif kind == "return_statement":
        if _returns_reference(parent):
            raise NoRule("a reference to the field is returned")
    elif kind == "init_declarator":
        _check_reference(unit, parent)
    elif unit.cpp and kind in ("argument_list", "initializer_list"):
        _check_argument(resolver, unit, parent, node)
    if kind == "argument_list":
        _check_macro_argument(resolver, unit, parent, node)
    return Use(READ, access)


def is_whole(unit: Unit, access: Node) -> bool:
    """Whether an access is all of a statement, as in the expansion of a macro that stands for it."""
    return _parent(_whole_place(unit, access)).type == "expression_statement"


def _whole_place(unit: Unit, access: Node) -> Node:
    """The largest expression that means the same place as the access."""
    node, parent = access, _parent(access)
    while _passes_place_on(parent, node):
        if parent.type in ("cast_expression", "call_expression"):
            raise NoRule("a cast makes a reference to the field")
        node, parent = parent, _parent(parent)
    return node


def _parent(node: Node) -> Node:
    parent = node.parent
    if parent is None:
        raise NoRule("the code around it cannot be parsed")
    return parent


def _operator(node: Node) -> Node:
    operator = node.child_by_field_name("operator")
    return operator or node.children[0]


def _passes_place_on(parent: Node, node: Node) -> bool:
    """Whether a parent expression means the same place as the node in it, in C or in C++."""
    kind = parent.type
    if kind == "parenthesized_expression":
        return True
    if kind == "conditional_expression":
        return parent.child_by_field_name("condition") != node
    if kind == "comma_expression":
        return parent.child_by_field_name("right") == node
    if kind == "cast_expression":
        return _names_reference(parent.child_by_field_name("type"))
    if kind == "argument_list" and parent.parent and parent.parent.type == "call_expression":
        callee = parent.parent.child_by_field_name("function")
        return bool(callee) and _named_cast(callee)
    return kind == "call_expression" and _named_cast(parent.child_by_field_name("function"))


def _named_cast(callee: Node | None) -> bool:
    """Whether a callee is ``static_cast<T &>`` or the like."""
    if callee is None or callee.type != "template_function":
        return False
    arguments = callee.child_by_field_name("arguments")
    first = arguments.named_children[0] if arguments and arguments.named_child_count else None
    name = callee.child_by_field_name("name")
    return (
        name is not None
        and name.text in (b"static_cast", b"const_cast", b"reinterpret_cast")
        and _names_reference(first)
    )


def _names_reference(descriptor: Node | None) -> bool:
    node = descriptor.child_by_field_name("declarator") if descriptor else None
    while node is not None:
        if node.type in ("abstract_reference_declarator", "reference_declarator"):
            return True
        node = decl.inner_declarator(node)
    return False


def _store(unit: Unit, access: Node, left: Node, assignment: Node) -> Use:
    if left != access:
        raise NoRule("a store to the field through parentheses, a comma or a condition")
    operator = unit.text(_operator(assignment))
    return Use(WRITE if operator == b"=" else COMPOUND, _discarded(assignment, unit))


def _discarded(node: Node, unit: Unit) -> Node:
    """The node, if nothing uses its value.

    Raises:
        NoRule: something does.
    """
    current, parent = node, _parent(node)
    while True:
        kind = parent.type
        if kind == "parenthesized_expression" or (
            kind == "comma_expression" and parent.child_by_field_name("right") == current
        ):
            current, parent = parent, _parent(parent)
            continue
        if kind == "comma_expression":
            return node
        if kind == "for_statement" and current in (
            parent.child_by_field_name("initializer"),
            parent.child_by_field_name("update"),
        ):
            return node
        if kind == "expression_statement":
            block = parent.parent
            value = (
                block is not None
                and block.type == "compound_statement"
                and block.parent is not None
                and block.parent.type == "parenthesized_expression"
                and block.named_children[-1] == parent
            )
            if not value:
                return node
        raise NoRule("the value of a store to the field is used")


def _returns_reference(node: Node) -> bool:
    scope: Node | None = node
    while scope is not None and scope.type not in ("function_definition", "lambda_expression"):
        scope = scope.parent
    declarator = scope.child_by_field_name("declarator") if scope else None
    function = decl.function_part(declarator)
    for child in function.named_children if function else ():
        if child.type == "trailing_return_type":
            return _names_reference(child.named_children[-1])
    while declarator is not None and declarator != function:
        if declarator.type == "reference_declarator":
            return True
        declarator = decl.inner_declarator(declarator)
    return False


def _check_reference(unit: Unit, init: Node) -> None:
    """Refuse a declaration that binds a reference to the field, but for a reference to const."""
    declarator = init.child_by_field_name("declarator")
    if declarator is None or init.parent is None:
        return
    qualifiers = [unit.text(c) for c in init.parent.named_children if c.type == "type_qualifier"]
    while declarator is not None:
        if declarator.type == "pointer_declarator":
            qualifiers = [unit.text(c) for c in declarator.named_children if c.type == "type_qualifier"]
        elif declarator.type == "reference_declarator" and _is_open(qualifiers, declarator):
            raise NoRule("a reference is bound to the field")
        declarator = decl.inner_declarator(declarator)


def _check_argument(resolver: Resolver, unit: Unit, arguments: Node, node: Node) -> None:
    """Refuse an argument that may be taken by reference, to be written or kept."""
    call = arguments.parent
    if call is None or call.type != "call_expression" or arguments.type != "argument_list":
        return
    callee = call.child_by_field_name("function")
    if callee is None:
        return
    listed = [child for child in arguments.named_children if child.type != "comment"]
    index = listed.index(node)
    words = unit.text(callee).split(b"<")[0].split(b"::")
    name = words[-1].strip()
    if name in _KEEPS_PLACE and words[0].strip() in (b"std", name):
        raise NoRule(f"std::{name.decode()} needs the field itself, not its value")
    for declared in resolver.calls.callees(unit, call):
        if _takes_reference(resolver, declared, index):
            raise NoRule(f"{name.decode('utf-8', 'replace')} takes the field by reference")
    try:
        kinds = resolver.expression(unit, callee) if callee.type == "identifier" else ()
    except Unresolved:
        kinds = ()
    for kind in map(bare, kinds):
        if isinstance(kind, Closure):
            listed = decl.parameter_nodes(kind.node.child_by_field_name("declarator"))
            if index < len(listed) and _is_open_reference(kind.unit, listed[index]):
                raise NoRule(f"{name.decode('utf-8', 'replace')} takes the field by reference")


def _takes_reference(resolver: Resolver, declared: Declared, index: int) -> bool:
    """Whether a parameter is a reference that a ``void *`` can be bound to and written through."""
    listed = decl.parameter_nodes(declared.declarator)
    if not listed or (index >= len(listed) and listed[-1].type != "variadic_parameter_declaration"):
        return False
    parameter = listed[min(index, len(listed) - 1)]
    if not _is_open_reference(declared.unit, parameter):
        return False
    try:
        kinds = resolver.calls.parameter_type(declared.unit, parameter)
    except Unresolved:
        return True
    if any(isinstance(bare(kind), Param) for kind in kinds):
        return not _only_forwards(declared, parameter)
    return any(isinstance(bare(kind), Pointer) for kind in kinds)


def _only_forwards(declared: Declared, parameter: Node) -> bool:
    """Whether a function does nothing with a forwarding reference but hand it to ``std::forward``.

    What it is forwarded to is no danger: a reference that could be written through does not take a value,
    which the compiler says.
    """
    unit = declared.unit
    body = declared.node.child_by_field_name("body")
    name = decl.name_part(parameter.child_by_field_name("declarator"))
    if body is None or name is None:
        return False
    for start in occurrences(unit.source, unit.text(name), body.start_byte, body.end_byte):
        listed = unit.at(start, start + 1).parent
        call = listed.parent if listed is not None else None
        callee = call.child_by_field_name("function") if call is not None else None
        if callee is None or not unit.text(callee).startswith(b"std::forward<"):
            return False
    return True


def _is_open_reference(unit: Unit, parameter: Node) -> bool:
    """Whether a parameter is a reference, and not one to const."""
    declarator = parameter.child_by_field_name("declarator")
    qualifiers = [unit.text(c) for c in parameter.named_children if c.type == "type_qualifier"]
    while declarator is not None:
        form = declarator.type.removeprefix("abstract_")
        if form == "pointer_declarator":
            qualifiers = [unit.text(c) for c in declarator.named_children if c.type == "type_qualifier"]
        elif form == "reference_declarator":
            return _is_open(qualifiers, declarator)
        declarator = decl.inner_declarator(declarator)
    return False


def _is_open(qualifiers: list[bytes], reference: Node) -> bool:
    return b"const" not in qualifiers or reference.children[0].type == "&&"


def _check_macro_argument(resolver: Resolver, unit: Unit, arguments: Node, node: Node) -> None:
    """Refuse an argument of a macro that stores to it, takes its address or pastes it to something."""
    call = arguments.parent
    callee = call.child_by_field_name("function") if call and call.type == "call_expression" else None
    if callee is None or callee.type != "identifier":
        return
    name = unit.text(callee)
    listed = [child for child in arguments.named_children if child.type != "comment"]
    for macro in resolver.project.macros(name, unit.path):
        if macro.params is None or not macro.params:
            continue
        parameter = macro.params[min(listed.index(node), len(macro.params) - 1)]
        if _needs_place(resolver, macro, parameter):
            raise NoRule(f"the macro {name.decode()} does more than read its argument")
        if call is not None and use_of(resolver, unit, call).kind != READ:
            raise NoRule(f"what the macro {name.decode()} makes of the field is stored to")


def _needs_place(resolver: Resolver, macro: Macro, parameter: bytes) -> bool:
    """Whether a macro's body stores to a parameter, takes its address, pastes it, or hands on its place."""
    words = [token.text for token in macro.body]
    if any(b"##" in pair and parameter in pair for pair in pairwise(words)):
        return True
    sequence = expand(
        pieces(macro.body, macro.path), lambda name: resolver.macros.visible_macro(name, macro.path)
    )
    body = [piece.text for piece in sequence]
    for place, word in enumerate(body):
        if word != parameter:
            continue
        first, last = place, place
        while first > 0 and last + 1 < len(body) and body[first - 1] == b"(" and body[last + 1] == b")":
            if first > 1 and body[first - 2] in _KEEPS_PLACE:
                return True
            first, last = first - 1, last + 1
        before = body[first - 1] if first else b""
        after = body[last + 1] if last + 1 < len(body) else b""
        if before in (b"++", b"--", b"&") or after in (b"++", b"--") or after in _ASSIGNMENTS:
            return True
    return False
