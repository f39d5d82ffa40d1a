"""Members of classes, and the operators that lead from one object to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import (
    Array,
    Definition,
    External,
    Key,
    Pointer,
    Record,
    Ref,
    Signature,
    Type,
    Types,
    Unresolved,
    bare,
    describe,
    each,
    is_clean,
    substitute,
    unique,
)
from numamirror_build.rewrite.nodes import child
from numamirror_build.rewrite.units import Unit

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver


class Members:
    """Finds members, base classes and definitions of classes."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._classes: dict[str, dict[Key, Declared]] = {}

    def call(
        self, kind: Type, name: bytes, given: Sequence[Node], unit: Unit, explicit: Sequence[Type] = ()
    ) -> Types:
        """What calling a member function of a value of some type gives.

        Raises:
            Unresolved: it has no such member, or the member cannot be called.
        """
        kind = bare(kind)
        if not isinstance(kind, Record):
            if isinstance(kind, External) and is_clean(kind):
                return (External(f"{kind.name}::{name.decode()}()"),)
            raise Unresolved(f"{describe(kind)} has no member {name.decode()}")
        found = self.find(kind, name)
        if not found:
            raise Unresolved(f"{describe(kind)} has no member {name.decode()}")
        result: list[Type] = []
        owners: dict[int, tuple[Record, list[Declared]]] = {}
        for owner, declared in found:
            owners.setdefault(id(owner), (owner, []))[1].append(declared)
        for owner, listed in owners.values():
            result += self._resolver.calls.call_declared(
                listed, given, unit, explicit, None, dict(owner.bindings)
            )
        return unique(result)

    def owners(self, unit: Unit, node: Node) -> Types:
        """The classes whose member a field expression names."""
        kinds = self._resolver.expression(unit, child(node, "argument"))
        if unit.text(child(node, "operator")) == b".":
            return each(bare, kinds)
        return each(lambda kind: bare(self.pointee(kind)), kinds)

    def pointee(self, kind: Type) -> Type:
        """What ``->`` on a value of some type leads to."""
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return kind.to
        if isinstance(kind, Record):
            kinds = self.call(kind, b"operator->", [], self._resolver.model)
            if len(kinds) == 1 and bare(kinds[0]) != kind:
                return self.pointee(kinds[0])
        if isinstance(kind, External) and is_clean(kind):
            return External(f"{kind.name}->")
        raise Unresolved(f"no rule for -> on {describe(kind)}")

    def dereferenced(self, kind: Type) -> Types:
        """What ``*`` on a value of some type gives."""
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return (Ref(bare(kind.to)),)
        if isinstance(kind, Signature):
            return (kind,)
        if isinstance(kind, Record):
            return self.call(kind, b"operator*", [], self._resolver.model)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"*{kind.name}"),)
        raise Unresolved(f"no rule for * on {describe(kind)}")

    def subscripted(self, kind: Type) -> Types:
        """What ``[]`` on a value of some type gives."""
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return (Ref(bare(kind.to)),)
        if isinstance(kind, Record):
            return self.call(kind, b"operator[]", [], self._resolver.model)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}[]"),)
        raise Unresolved(f"no rule for [] on {describe(kind)}")

    def find(self, record: Record, name: bytes) -> list[tuple[Record, Declared]]:
        """The declarations of a member, with the class that has it: the record or one of its bases.

        Raises:
            Unresolved: the member may come from a base class that is not known.
        """
        record = self.complete(record)
        definition = record.definition
        if definition is None:
            return []
        table = decl.members(definition.unit, definition.node)
        found = [(record, declared) for declared in table.get(name, [])]
        found = found or self._behind_macros(record, table, name)
        if found:
            return found
        for base in self.bases(record):
            if isinstance(base, Record):
                found += self.find(base, name)
            elif not is_clean(base):
                raise Unresolved(f"{describe(record)} has a base class that is not known")
        return found

    def complete(self, record: Record) -> Record:
        """The record with its definition, if the tree has exactly one that can be meant.

        Raises:
            Unresolved: it has several.
        """
        found = self.definitions(record)
        if len({d.unit.text(d.node) for d in found}) > 1:
            paths = sorted({definition.key[0] for definition in found})
            raise Unresolved(f"{record.name} is defined in {' and '.join(paths)}")
        if record.definition is not None or not found:
            return record
        return self._resolver.types.record(found[0].unit, found[0].node)

    def definitions(self, record: Record) -> list[Definition]:
        """The definitions that a record can have; what the file looked from includes goes first."""
        if record.definition is not None:
            return [record.definition]
        if record.name not in self._classes:
            self._classes[record.name] = {
                (declared.unit.path, declared.start): declared
                for path in self._resolver.project.definers(record.name.rsplit("::", 1)[-1].encode())
                for unit in self._resolver.scopes.units(path)
                for declared in _classes_called(unit, record.name.encode())
            }
        found = self._classes[record.name]
        if len(found) > 1:
            near = self._resolver.project.closure(self._resolver.viewpoint)
            found = {key: declared for key, declared in found.items() if key[0] in near} or found
        return [Definition((d.unit.path, d.node.start_byte), d.unit, d.node) for d in found.values()]

    def has_address(self, unit: Unit, node: Node) -> bool:
        """Whether an expression is a place, so that its address can be taken.

        Raises:
            Unresolved: the type of a call in it is not known.
        """
        kind = node.type
        if kind in ("identifier", "field_expression", "this", "qualified_identifier"):
            return True
        if kind == "parenthesized_expression":
            return node.named_child_count == 1 and self.has_address(unit, node.named_children[0])
        if kind == "compound_literal_expression":
            return not unit.cpp
        if kind == "conditional_expression":
            branches = (node.child_by_field_name("consequence"), node.child_by_field_name("alternative"))
            return unit.cpp and all(
                branch is not None and self.has_address(unit, branch) for branch in branches
            )
        if kind in ("subscript_expression", "pointer_expression", "call_expression"):
            return all(isinstance(item, Ref) for item in self._resolver.expression(unit, node))
        return kind in ("assignment_expression", "comma_expression") and unit.cpp

    def _behind_macros(self, record: Record, table: decl.Table, name: bytes) -> list[tuple[Record, Declared]]:
        """Members whose name a macro makes up, in at least one of its definitions."""
        found: list[tuple[Record, Declared]] = []
        for key, entries in table.items():
            definitions = (
                self._resolver.project.macros(key, entries[0].unit.path)
                if self._resolver.project.is_macro(key)
                else []
            )
            for macro in definitions:
                words = [token.text for token in macro.body]
                if words == [name]:
                    found += [(record, declared) for declared in entries]
                elif not words:
                    for kind in self._resolver.names.values(entries):
                        if isinstance(kind, Record):
                            found += self.find(kind, name)
        return found

    def bases(self, record: Record) -> Types:
        """The direct base classes of a record, its template arguments put in."""
        definition = record.definition
        if definition is None:
            return ()
        result: list[Type] = []
        for part in definition.node.named_children:
            if part.type == "base_class_clause":
                for base in part.named_children:
                    if base.type not in ("access_specifier", "comment", "virtual"):
                        kinds = self._resolver.types.named_by(definition.unit, base)
                        result += each(lambda kind: substitute(kind, dict(record.bindings)), kinds)
        return tuple(result)

    def types(self, kind: Type, name: bytes) -> Types:
        """The types that a member of a class can have."""
        kind = bare(kind)
        if isinstance(kind, Record):
            found = self.find(kind, name)
            if found:
                return unique(
                    [
                        substitute(value, dict(owner.bindings))
                        for owner, declared in found
                        for value in self._resolver.names.values([declared])
                    ],
                )
        elif isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}.{name.decode()}"),)
        elif isinstance(kind, Signature):
            return self.types(kind.result, name)
        raise Unresolved(f"{describe(kind)} has no member {name.decode()}")

    def inherited(self, unit: Unit, node: Node, name: bytes) -> list[Declared]:
        """The declarations of a member of the class that a node defines, inherited ones included."""
        own = decl.members(unit, node).get(name, [])
        if own:
            return own
        record = Record("", Definition((unit.path, node.start_byte), unit, node))
        try:
            return [declared for _, declared in self.find(record, name)]
        except Unresolved:
            return []

    def member_type(self, kind: Type, name: bytes) -> Types:
        """The types that a class has under some name."""
        kind = bare(kind)
        if isinstance(kind, Record):
            found = [(o, d) for o, d in self.find(kind, name) if d.kind in decl.TYPES]
            if found:
                return unique(
                    [
                        substitute(k, dict(o.bindings))
                        for o, d in found
                        for k in self._resolver.types.of_declaration(d)
                    ],
                )
        elif isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}::{name.decode()}"),)
        raise Unresolved(f"{describe(kind)} has no type {name.decode()}")


def _classes_called(unit: Unit, name: bytes) -> list[Declared]:
    """The definitions of classes outside of functions and classes that have a qualified name."""
    return [
        declared
        for namespace, names in decl.namespaces(unit).items()
        if name.startswith(b"".join(part + b"::" for part in namespace))
        for declared in names.get(name[sum(len(part) + 2 for part in namespace) :], [])
        if declared.kind == decl.CLASS and declared.node.child_by_field_name("body")
    ]
