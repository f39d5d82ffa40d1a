"""What a template parameter, or an ``auto`` parameter, stands for: asked at every use of the template.

A parameter is known only if all uses can be found and each says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import Key, Param, Type, Types, Unresolved, bare, unique
from numamirror_build.rewrite.nodes import entries, short
from numamirror_build.rewrite.text import occurrences
from numamirror_build.rewrite.units import Unit

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver

_OVER_ELEMENTS = frozenset(
    b"for_each sort stable_sort partial_sort find_if find_if_not any_of all_of none_of count_if remove_if "
    b"partition stable_partition min_element max_element copy_if transform accumulate is_sorted".split()
)


class Instances:
    """Finds what parameters stand for."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._known: dict[Key, Types | Unresolved | None] = {}

    def of(self, param: Param) -> Types:
        """The types that a parameter stands for.

        Raises:
            Unresolved: a use cannot be followed, or there is none.
        """
        if param.key not in self._known:
            self._known[param.key] = None
            try:
                found = [self.of(kind) if isinstance(kind, Param) else (kind,) for kind in self._find(param)]
                self._known[param.key] = unique(kind for kinds in found for kind in kinds)
            except Unresolved as error:
                self._known[param.key] = error
        known = self._known[param.key]
        if isinstance(known, Unresolved):
            raise Unresolved(f"what the template parameter {param.name} stands for is not known: {known}")
        if not known:
            raise Unresolved(f"nothing says what the template parameter {param.name} stands for")
        return known

    def forget(self) -> None:
        """Ask again, since what names mean may have changed."""
        self._known.clear()

    def _find(self, param: Param) -> list[Type]:
        path, start = param.key
        if path not in self._resolver.project.files:
            raise Unresolved(f"{param.name} is a parameter of a template that the tree does not define")
        unit = self._resolver.scopes.units(path)[0]
        owner: Node | None = unit.at(start, start + 1)
        while owner is not None and owner.type not in (
            "template_declaration",
            "lambda_expression",
            "function_definition",
        ):
            owner = owner.parent
        if owner is None:
            raise Unresolved("it is not in a template")
        if owner.type == "lambda_expression":
            return self._of_lambda(unit, owner, param.key)
        for declared in decl.declared_by(unit, owner):
            if declared.kind == decl.CLASS:
                return self._of_class(declared, owner, param.key)
            if declared.kind == decl.FUNCTION:
                return self._of_function(declared, param.key)
        raise Unresolved("it is not one of a function, class or lambda")

    def _of_function(self, declared: Declared, key: Key) -> list[Type]:
        found: list[Type] = []
        for unit, node in self._places(declared.unit.path, declared.name):
            call = _call_of(node)
            if call is None:
                if _is_declaration(node):
                    continue
                raise Unresolved(f"{declared.name.decode()} is used in another way than by a call")
            callees = self._resolver.calls.callees(unit, call)
            if not callees:
                raise Unresolved(f"the call {short(unit, call)} cannot be followed")
            for callee in callees:
                if (callee.unit.path, callee.start) == (declared.unit.path, declared.start):
                    bound = self._resolver.calls.deduced_at(callee, unit, call)
                    if key not in bound:
                        raise Unresolved(f"the call {short(unit, call)} does not tell")
                    found.append(bare(bound[key]))
        return found

    def _of_class(self, declared: Declared, template: Node, key: Key) -> list[Type]:
        listed = decl.template_parameters(declared.unit, template)
        index = [entry.start for entry in listed].index(key[1])
        found: list[Type] = []
        for unit, node in self._places(declared.unit.path, declared.name):
            use = node.parent
            if use is None or not use.type.startswith("template_") or use.child_by_field_name("name") != node:
                continue
            arguments = self._resolver.types.template_arguments(unit, use)
            if index < len(arguments):
                if arguments[index] != Param(key, ""):
                    found.append(arguments[index])
            elif listed[index].init is None:
                raise Unresolved(f"{short(unit, use)} does not tell")
        return found

    def _of_lambda(self, unit: Unit, closure: Node, key: Key) -> list[Type]:
        parameters = decl.parameter_nodes(closure.child_by_field_name("declarator"))
        starts = [parameter.start_byte for parameter in parameters]
        if key[1] not in starts:
            raise Unresolved("the lambda's template parameters are not known")
        index = starts.index(key[1])
        parent = closure.parent
        if parent is not None and parent.type == "argument_list":
            return self._of_algorithm(unit, parent)
        if parent is not None and parent.type == "call_expression":
            return self._argument(unit, parent, index)
        name = parent.child_by_field_name("declarator") if parent is not None else None
        if parent is None or parent.type != "init_declarator" or name is None or name.type != "identifier":
            raise Unresolved("the lambda is handed on")
        block = parent.parent.parent if parent.parent else None
        if block is None or block.type == "translation_unit":
            raise Unresolved("the lambda is not local")
        found: list[Type] = []
        for start in occurrences(unit.source, unit.text(name), name.end_byte, block.end_byte):
            node = unit.at(start, start + 1)
            if node.type == "identifier":
                call = _call_of(node)
                if call is None:
                    raise Unresolved(f"the lambda {short(unit, name)} is used in another way than by a call")
                found += self._argument(unit, call, index)
        return found

    def _argument(self, unit: Unit, call: Node, index: int) -> list[Type]:
        listed = call.child_by_field_name("arguments")
        given = entries(listed) if listed else []
        if index >= len(given):
            raise Unresolved(f"the call {short(unit, call)} does not tell")
        return [bare(kind) for kind in self._resolver.expression(unit, given[index])]

    def _of_algorithm(self, unit: Unit, arguments: Node) -> list[Type]:
        """The elements that an algorithm of the standard library calls a lambda with."""
        call = arguments.parent
        callee = call.child_by_field_name("function") if call else None
        name = unit.text(callee) if callee else b""
        if not name.startswith(b"std::") or name[5:] not in _OVER_ELEMENTS:
            raise Unresolved("the lambda is handed on")
        first = entries(arguments)[0]
        kinds = self._resolver.expression(unit, first)
        return [bare(kind) for k in kinds for kind in self._resolver.members.dereferenced(k)]

    def _places(self, path: str, name: bytes) -> Iterator[tuple[Unit, Node]]:
        """Where a name stands in the code of the files that can see a file."""
        project = self._resolver.project
        for holder in project.holders(name):
            if holder != path and path not in project.context(holder):
                continue
            done: set[int] = set()
            for unit in self._resolver.scopes.units(holder):
                for start in occurrences(unit.source, name):
                    node = unit.at(start, start + len(name))
                    if start not in done and node.type.endswith("identifier"):
                        done.add(start)
                        yield unit, node


def _call_of(node: Node) -> Node | None:
    """The call whose function a name is, or the end of."""
    current = node
    while current.parent is not None and current.parent.type in (
        "template_function",
        "template_method",
        "qualified_identifier",
        "field_expression",
        "dependent_name",
    ):
        if (
            current.parent.type == "field_expression"
            and current.parent.child_by_field_name("field") != current
        ):
            return None
        current = current.parent
    call = current.parent
    if (
        call is not None
        and call.type == "call_expression"
        and call.child_by_field_name("function") == current
    ):
        return call
    return None


def _is_declaration(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type in ("qualified_identifier", "template_function"):
        parent = parent.parent
    return parent is not None and "declarator" in parent.type and parent.type != "init_declarator"
