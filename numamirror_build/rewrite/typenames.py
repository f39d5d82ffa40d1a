"""Types as they are written, and the types that declarations give their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import (
    INT,
    Array,
    Builtin,
    Definition,
    External,
    Key,
    Param,
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
    result_of,
    substitute,
    unique,
)
from numamirror_build.rewrite.nodes import child, entries, last_part, short, trailing
from numamirror_build.rewrite.units import Unit

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver


class TypeNames:
    """Reads types."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def declared(self, declared: Declared) -> Types:
        """The types that a declaration gives its name."""
        anchor = declared.declarator or declared.node
        salt = declared.binding + 2 + 1000 * (declared.kind == decl.ALIAS)
        return self._resolver.cached(declared.unit, anchor, lambda: self._declared(declared), salt)

    def _declared(self, declared: Declared) -> Types:
        unit = declared.unit
        if declared.kind in decl.TYPES:
            return self.of_declaration(declared)
        if declared.kind == decl.USING and declared.type:
            wanted = decl.VALUES | decl.TYPES
            return self._resolver.names.values(self._resolver.names.qualified(unit, declared.type, wanted))
        if declared.node.type == "enumerator":
            return (Builtin("enum"),)
        if declared.node.type == "lambda_capture_initializer" and declared.init:
            return self._resolver.expression(unit, declared.init)
        if declared.type is None:
            if declared.kind == decl.FUNCTION:
                return (Signature(self._constructed(declared)),)
            return (INT,)
        if declared.type.type == "placeholder_type_specifier" or unit.text(declared.type) == b"__auto_type":
            return self._deduced_type(declared)
        kinds = self.named_by(unit, declared.type)
        if declared.declarator is None:
            return kinds
        if declared.binding >= 0:
            raise Unresolved("a structured binding without auto")
        return each(lambda kind: self.shape(unit, declared.declarator, kind), kinds)

    def return_types(self, unit: Unit, function: Node) -> Types:
        """The types that a function definition returns.

        Raises:
            Unresolved: it is a constructor, or has no type.
        """
        declarator = function.child_by_field_name("declarator")
        kinds = self.named_by(unit, child(function, "type"))
        return each(result_of, each(lambda kind: self.shape(unit, declarator, kind), kinds))

    def _constructed(self, declared: Declared) -> Type:
        """What a function without a return type makes: its class."""
        scope = declared.node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                return self.record(declared.unit, scope)
            scope = scope.parent
        raise Unresolved(f"{declared.name.decode()} has no type")

    def _deduced_type(self, declared: Declared) -> Types:
        unit = declared.unit
        if declared.kind == decl.FUNCTION:
            result = trailing(decl.function_part(declared.declarator))
            if result:
                return each(Signature, self.named_by(unit, result))
            body = declared.node.child_by_field_name("body")
            if body is None:
                raise Unresolved(f"{declared.name.decode()} returns auto and has no body")
            return each(Signature, self._resolver.calls.returned(unit, body))
        if declared.node.type.endswith("parameter_declaration"):
            return self._resolver.calls.parameter_type(unit, declared.node)
        if declared.init is None:
            raise Unresolved(f"{declared.name.decode()} is auto without a value")
        init = declared.init
        if declared.node.type == "for_range_loop":
            kinds = each(self._element, self._resolver.expression(unit, init))
        elif init.type in ("argument_list", "initializer_list") and declared.binding < 0:
            if init.type == "argument_list" and init.named_child_count == 1:
                kinds = self._resolver.expression(unit, init.named_children[0])
            else:
                kinds = self._resolver.expression(unit, init)
        else:
            kinds = self._resolver.expression(unit, init)
        if declared.binding >= 0:
            return each(lambda kind: self.bound(kind, declared.binding), kinds)
        reference = "reference_declarator" in _declarator_types(declared.declarator)
        return each(lambda kind: Ref(bare(kind)) if reference else _decayed(bare(kind)), kinds)

    def _element(self, kind: Type) -> Types:
        """What a range-based ``for`` over a value of some type runs through."""
        kind = bare(kind)
        if isinstance(kind, Array):
            return (Ref(kind.to),)
        if isinstance(kind, Record):
            return each(
                self._resolver.members.dereferenced,
                self._resolver.members.call(kind, b"begin", [], self._resolver.model),
            )
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"element of {kind.name}"),)
        raise Unresolved(f"no rule for a loop over {describe(kind)}")

    def bound(self, kind: Type, index: int) -> Types:
        """What the name at some place of a structured binding stands for."""
        kind = bare(kind)
        if isinstance(kind, Array):
            return (Ref(kind.to),)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"part of {kind.name}"),)
        if isinstance(kind, Record) and kind.definition:
            if kind.name == "std::tuple":
                values = [value for _, value in kind.bindings]
                if index < len(values):
                    return (values[index],)
            fields = [
                entries[0]
                for entries in decl.members(kind.definition.unit, kind.definition.node).values()
                if entries[0].kind == decl.VALUE and entries[0].node.type == "field_declaration"
            ]
            if index < len(fields):
                return each(lambda item: substitute(item, dict(kind.bindings)), self.declared(fields[index]))
        raise Unresolved(f"no rule for a structured binding to {describe(kind)}")

    def named_by(self, unit: Unit, node: Node) -> Types:
        """The types that a type's node can mean.

        Raises:
            Unresolved: the name cannot be followed, and may be declared in the tree.
        """
        return self._resolver.cached(unit, node, lambda: self._type(unit, node), salt=1)

    def _type(self, unit: Unit, node: Node) -> Types:
        kind = node.type
        if kind in ("primitive_type", "sized_type_specifier", "enum_specifier"):
            return (Builtin(short(unit, node)),)
        if kind == "type_descriptor":
            declarator = node.child_by_field_name("declarator")
            kinds = self.named_by(unit, child(node, "type"))
            return each(lambda k: self.shape(unit, declarator, k), kinds) if declarator else kinds
        if kind in decl.CLASS_NODES:
            return self._class(unit, node)
        if kind in ("type_identifier", "identifier", "namespace_identifier"):
            return self._named(unit, node)
        if kind in ("template_type", "template_function"):
            name = child(node, "name")
            found = self._resolver.scopes.lookup(unit, node, unit.text(name), decl.TYPES)
            if not found:
                return self._unknown(unit, unit.text(name), node)
            return self.instantiated(unit, node, found)
        if kind == "qualified_identifier":
            return self._qualified_type(unit, node)
        if kind == "dependent_type":
            return self.named_by(unit, node.named_children[-1])
        if kind == "decltype":
            return each(bare, self._resolver.expression(unit, node.named_children[-1]))
        if kind == "macro_type_specifier" and unit.text(child(node, "name")) in (b"typeof", b"__typeof__"):
            return self._typeof(unit, node)
        raise Unresolved(f"no rule for the type {short(unit, node)}")

    def _typeof(self, unit: Unit, node: Node) -> Types:
        inner = child(node, "type")
        name = unit.text(inner).strip()
        found = (
            self._resolver.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
            if inner.named_child_count == 0 or inner.type == "type_descriptor"
            else []
        )
        return each(bare, self._resolver.names.values(found)) if found else self.named_by(unit, inner)

    def _class(self, unit: Unit, node: Node) -> Types:
        if node.child_by_field_name("body"):
            return (self.record(unit, node),)
        name = node.child_by_field_name("name")
        if name is None:
            raise Unresolved("a class without a name")
        if name.type != "type_identifier":
            return self.named_by(unit, name)
        text = unit.text(name)
        found = self._resolver.scopes.lookup(unit, node, text, frozenset({decl.CLASS}))
        complete = [d for d in _complete(found) if d.node.child_by_field_name("body")]
        if complete:
            return unique([kind for d in complete for kind in self.of_declaration(d)])
        globally = self._resolver.scopes.lookup_global(unit, (), text, frozenset({decl.CLASS}))
        everywhere = [d for d in _complete(globally) if d.node.child_by_field_name("body")]
        if everywhere and not any(d.unit is unit and d.node.parent != unit.root for d in found):
            return unique([kind for d in everywhere for kind in self.of_declaration(d)])
        return (Record(text.decode(), None),)

    def _named(self, unit: Unit, node: Node) -> Types:
        name = unit.text(node)
        found = self._resolver.scopes.lookup(unit, node, name, decl.TYPES)
        if not found:
            return self._unknown(unit, name, node)
        return unique([kind for d in _complete(found) for kind in self.of_declaration(d)])

    def _unknown(self, unit: Unit, name: bytes, node: Node) -> Types:
        """A type name without a declaration in sight."""
        if self._resolver.project.macros(name, unit.path):
            return self._resolver.macros.type_named(unit, node, name)
        if not self._resolver.scopes.is_external(name):
            raise Unresolved(f"the declaration of the type {name.decode()} is not in sight")
        arguments: list[Type] = []
        if node.type in ("template_type", "template_function"):
            arguments = self.template_arguments(unit, node)
        return (External(name.decode(), tuple(arguments)),)

    def _qualified_type(self, unit: Unit, node: Node) -> Types:
        last = last_part(node)
        name_node = child(last, "name") if last.type.startswith("template_") else last
        name = unit.text(name_node)
        owners, namespace = self._resolver.names.scope(unit, node)
        if owners:
            return each(lambda kind: self._resolver.members.member_type(kind, name), owners)
        found = [d for d in self._resolver.scopes.in_namespace(unit, namespace, name) if d.kind in decl.TYPES]
        if not found and self._resolver.names.is_own(namespace):
            found = self._resolver.scopes.lookup_global(unit, namespace, name, decl.TYPES)
        found = _complete(found)
        if found:
            if last.type.startswith("template_"):
                return self.instantiated(unit, last, found)
            return unique([kind for d in found for kind in self.of_declaration(d)])
        if namespace and (
            not self._resolver.names.is_own(namespace) or self._resolver.scopes.is_external(name)
        ):
            arguments = self.template_arguments(unit, last) if last.type.startswith("template_") else []
            return (External(b"::".join((*namespace, name)).decode(), tuple(arguments)),)
        raise Unresolved(f"the declaration of the type {short(unit, node)} is not in sight")

    def of_declaration(self, declared: Declared) -> Types:
        """The types that a type's declaration means."""
        unit = declared.unit
        if declared.kind == decl.PARAM:
            return (Param((unit.path, declared.start), declared.name.decode()),)
        if declared.kind == decl.ENUM:
            return (Builtin("enum"),)
        if declared.kind == decl.CLASS:
            if declared.node.child_by_field_name("body"):
                return (self.record(unit, declared.node),)
            return (Record("::".join(self._path(unit, declared.node)), None),)
        if declared.kind == decl.USING and declared.type:
            return self._resolver.names.values(
                self._resolver.names.qualified(unit, declared.type, decl.TYPES)
            )
        if declared.type is None:
            raise Unresolved(f"{declared.name.decode()} has no type")
        kinds = self.named_by(unit, declared.type)
        if declared.declarator is None:
            return kinds
        return each(lambda kind: self.shape(unit, declared.declarator, kind), kinds)

    def record(self, unit: Unit, node: Node) -> Record:
        """The class that a node defines; its template parameters stand for themselves."""
        bindings: list[tuple[Key, Type]] = []
        scope = node.parent
        while scope is not None:
            if scope.type == "template_declaration":
                listed = decl.template_parameters(unit, scope)
                bindings = [
                    ((unit.path, e.start), Param((unit.path, e.start), e.name.decode())) for e in listed
                ] + bindings
            scope = scope.parent
        definition = Definition((unit.path, node.start_byte), unit, node)
        return Record("::".join(self._path(unit, node)), definition, tuple(bindings))

    @staticmethod
    def _path(unit: Unit, node: Node) -> list[str]:
        """The name of a class after those of the namespaces and classes around it."""
        name = node.child_by_field_name("name")
        names = [short(unit, name) if name else "(anonymous)"]
        scope = node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                outer = scope.child_by_field_name("name")
                names.insert(0, short(unit, outer) if outer else "(anonymous)")
            elif scope.type == "namespace_definition":
                names[:0] = [part.decode() for part in decl.namespace_name(unit, scope)]
            elif scope.type == "function_definition":
                names.insert(0, "(local)")
            scope = scope.parent
        return names

    def instantiated(self, unit: Unit, node: Node, found: Sequence[Declared]) -> Types:
        """A template with the arguments that a ``template_type`` node gives it."""
        arguments = self.template_arguments(unit, node)
        result: list[Type] = []
        for declared in _complete(found):
            template = decl.template_of(declared.node)
            listed = decl.template_parameters(declared.unit, template) if template else []
            bound: dict[Key, Type] = {}
            for index, entry in enumerate(listed):
                key = (declared.unit.path, entry.start)
                if entry.node.type == "variadic_type_parameter_declaration":
                    for place, argument in enumerate(arguments[index:]):
                        bound[(key[0], key[1] + place)] = argument
                elif index < len(arguments):
                    bound[key] = arguments[index]
                elif entry.kind == decl.PARAM and entry.init:
                    bound[key] = substitute(self.named_by(entry.unit, entry.init)[0], bound)
            for kind in self.of_declaration(declared):
                if isinstance(kind, Record) and any(
                    e.node.type == "variadic_type_parameter_declaration" for e in listed
                ):
                    result.append(Record(kind.name, kind.definition, tuple(sorted(bound.items()))))
                else:
                    result.append(substitute(kind, bound))
        return unique(result)

    def template_arguments(self, unit: Unit, node: Node) -> list[Type]:
        """The template arguments in a node; a value counts as a built-in type."""
        listed = node.child_by_field_name("arguments")
        result: list[Type] = []
        for argument in entries(listed) if listed else ():
            if argument.type == "type_descriptor" and not self._is_value(unit, argument):
                kinds = self.named_by(unit, argument)
                if len(kinds) > 1:
                    raise Unresolved(f"the type {short(unit, argument)} is ambiguous")
                result.append(kinds[0])
            else:
                result.append(Builtin(short(unit, argument)))
        return result

    def _is_value(self, unit: Unit, descriptor: Node) -> bool:
        """Whether what looks like a type is the name of a value."""
        name = child(descriptor, "type")
        if name.type != "type_identifier" or descriptor.named_child_count > 1:
            return False
        found = self._resolver.scopes.lookup(unit, name, unit.text(name), decl.TYPES | decl.VALUES)
        return bool(found) and all(declared.kind in decl.VALUES for declared in found)

    def shape(self, unit: Unit, declarator: Node | None, kind: Type) -> Type:
        """The type that a declarator makes of the type before it."""
        while declarator is not None:
            form = declarator.type.removeprefix("abstract_")
            if form == "pointer_declarator":
                kind = Pointer(kind)
            elif form == "reference_declarator":
                kind = kind if isinstance(kind, Ref) else Ref(kind)
            elif form == "array_declarator":
                kind = Array(kind)
            elif form == "function_declarator":
                result = trailing(declarator)
                kind = Signature(self.named_by(unit, result)[0] if result else kind)
            declarator = decl.inner_declarator(declarator)
        return kind


def _complete(found: Sequence[Declared]) -> list[Declared]:
    """Definitions, if there are any among declarations of types; of the same text in two files, the first."""
    full = [d for d in found if d.kind != decl.CLASS or d.node.child_by_field_name("body")]
    texts = {d.unit.text(d.node): d for d in reversed(full) if d.kind == decl.CLASS}
    return [d for d in full if texts.get(d.unit.text(d.node), d) is d] or list(found)


def _decayed(kind: Type) -> Type:
    return Pointer(kind.to) if isinstance(kind, Array) else kind


def _declarator_types(declarator: Node | None) -> set[str]:
    found = set()
    while declarator is not None:
        found.add(declarator.type)
        declarator = decl.inner_declarator(declarator)
    return found
