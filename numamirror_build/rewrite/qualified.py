"""Qualified names, and the classes that functions belong to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import (
    Record,
    Type,
    Types,
    Unresolved,
    unique,
)
from numamirror_build.rewrite.nodes import child, last_part, short
from numamirror_build.rewrite.units import Unit

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver


class Names:
    """Follows names with ``::``, and finds the class around a place."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def class_nodes(self, unit: Unit, name: Node) -> list[tuple[Unit, Node]]:
        """The class that a qualified function name belongs to."""
        try:
            kinds = self.scope(unit, name, _definition_around(name))[0]
        except Unresolved:
            return []
        found = [kind.definition for kind in kinds if isinstance(kind, Record) and kind.definition]
        return [(definition.unit, definition.node) for definition in found]

    def enclosing_class(self, unit: Unit, node: Node) -> Type:
        """The class whose member function a node is in.

        Raises:
            Unresolved: it is in none.
        """
        scope = node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                return self._resolver.types.record(unit, scope)
            if scope.type == "function_definition":
                name = decl.name_part(scope.child_by_field_name("declarator"))
                if name and name.type == "qualified_identifier":
                    kinds = self.scope(unit, name, scope)[0]
                    if len(kinds) == 1:
                        return kinds[0]
            scope = scope.parent
        if unit.outer:
            return self.enclosing_class(*unit.outer)
        raise Unresolved("this outside of a class")

    def qualified(self, unit: Unit, node: Node, kinds: frozenset[str]) -> list[Declared]:
        """The declarations that a qualified name means.

        Raises:
            Unresolved: there is none.
        """
        last = last_part(node)
        name = unit.text(child(last, "name") if last.type.startswith("template_") else last)
        owners, namespace = self.scope(unit, node)
        if owners:
            found = [
                declared
                for owner in owners
                if isinstance(owner, Record)
                for _, declared in self._resolver.members.find(owner, name)
                if declared.kind in kinds
            ]
        else:
            found = [d for d in self._resolver.scopes.in_namespace(unit, namespace, name) if d.kind in kinds]
            if not found and self.is_own(namespace):
                found = self._resolver.scopes.lookup_global(unit, namespace, name, kinds)
        if not found:
            raise Unresolved(f"no declaration of {short(unit, node)} found")
        return found

    def is_own(self, namespace: tuple[bytes, ...]) -> bool:
        """Whether the tree declares a namespace, so that it knows what is in it."""
        return namespace[:1] not in ((), (b"std",)) and not self._resolver.scopes.is_external(namespace[0])

    def scope_types(self, unit: Unit, node: Node) -> Types:
        """The classes that the part of a qualified name before its last ``::`` names; may be none."""
        return self.scope(unit, node)[0]

    def scope(self, unit: Unit, node: Node, place: Node | None = None) -> tuple[Types, tuple[bytes, ...]]:
        """The classes, or else the namespace, that a qualified name stands in, seen from a place."""
        parts: list[Node | None] = []
        part = node
        while part.type == "qualified_identifier":
            parts.append(part.child_by_field_name("scope"))
            part = child(part, "name")
        owners: Types = ()
        namespace: tuple[bytes, ...] = ()
        for index, scope in enumerate(parts):
            if scope is None:
                continue
            name_node = child(scope, "name") if scope.type == "template_type" else scope
            name = unit.text(name_node)
            if owners:
                found_in = [self._resolver.members.member_type(kind, name) for kind in owners]
                owners = tuple(dict.fromkeys(kind for kinds in found_in for kind in kinds))
                continue
            if index == 0 and name == b"std":
                found = []
            elif index == 0:
                found = self._resolver.scopes.lookup(unit, place or node, name, decl.TYPES | {decl.NAMESPACE})
            else:
                found = [
                    d
                    for d in self._resolver.scopes.in_namespace(unit, namespace, name)
                    if d.kind in decl.TYPES
                ]
            aliases = [d for d in found if d.kind == decl.NAMESPACE and d.type]
            if aliases and aliases[0].type:
                text = aliases[0].unit.text(aliases[0].type)
                namespace = tuple(p.strip() for p in text.split(b"::") if p.strip())
            elif found:
                if scope.type == "template_type":
                    owners = self._resolver.types.instantiated(unit, scope, found)
                else:
                    owners = unique([k for d in found for k in self._resolver.types.of_declaration(d)])
            else:
                namespace += (name,)
        return owners, namespace

    def is_type(self, unit: Unit, node: Node) -> bool:
        """Whether an identifier names a type and nothing else."""
        name = unit.text(node)
        found = self._resolver.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
        return bool(found) and all(declared.kind in decl.TYPES for declared in found)

    def values(self, found: Iterable[Declared]) -> Types:
        """The types that any of some declarations can mean."""
        return unique([kind for d in found for kind in self._resolver.types.declared(d)])


def _definition_around(name: Node) -> Node:
    scope: Node | None = name
    while scope is not None and scope.type not in ("function_definition", "declaration"):
        scope = scope.parent
    return scope or name
