"""What a call gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import (
    VOID,
    Builtin,
    Closure,
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
    mentions,
    result_of,
    substitute,
    unify,
    unique,
)
from numamirror_build.rewrite.nodes import child, entries, last_name, last_part, short, trailing
from numamirror_build.rewrite.units import Unit

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver

_CASTS = frozenset({b"static_cast", b"const_cast", b"reinterpret_cast", b"dynamic_cast"})


class Calls:
    """Finds the functions that a call can mean, and what they return."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def of(self, unit: Unit, callee: Node, given: Sequence[Node]) -> Types:
        """The types of a call's value.

        Args:
            unit: the tree.
            callee: the call's function.
            given: its arguments.
        """
        explicit: list[Type] = []
        target = callee
        if callee.type == "qualified_identifier":
            target = last_part(callee)
        elif callee.type == "field_expression":
            target = child(callee, "field")
            if target.type == "dependent_name":
                target = target.named_children[-1]
            elif target.type == "qualified_identifier":
                target = last_part(target)
        if target.type in ("template_function", "template_method", "template_type"):
            explicit = self._resolver.types.template_arguments(unit, target)
            target = child(target, "name")
        name = unit.text(target)
        if callee.type == "template_function" and name in _CASTS:
            return tuple(explicit[:1])
        if callee.type == "field_expression":
            result: list[Type] = []
            for kind in self._resolver.members.owners(unit, callee):
                result += self._resolver.members.call(kind, name, given, unit, explicit)
            return unique(result)
        if callee.type == "identifier":
            found = self._resolver.scopes.lookup(unit, callee, name, decl.VALUES | decl.TYPES)
            if not found:
                return self._resolver.macros.use(unit, callee, name)
        elif callee.type == "qualified_identifier":
            if unit.text(callee).startswith(b"std::get<") and given:
                return self._part_of_tuple(unit, given[0], explicit[0])
            found = self._resolver.names.qualified(unit, callee, decl.VALUES | decl.TYPES)
        elif callee.type == "template_function":
            found = self._resolver.scopes.lookup(unit, callee, name, decl.VALUES | decl.TYPES)
            if not found or any(declared.kind == decl.VALUE for declared in found):
                raise Unresolved(f"no template called {short(unit, target)} found")
        else:
            return each(lambda kind: self._called(kind, given, unit), self._resolver.expression(unit, callee))
        return self.call_declared(found, given, unit, explicit, callee, {})

    def _part_of_tuple(self, unit: Unit, argument: Node, which: Type) -> Types:
        """What ``std::get`` gives: the part with a number, or the one of a type."""
        if not isinstance(which, Builtin) or not which.name.isdigit():
            return (Ref(which),)
        kinds = self._resolver.expression(unit, argument)
        return each(lambda kind: Ref(bare(self._resolver.types.bound(kind, int(which.name))[0])), kinds)

    def callees(self, unit: Unit, call: Node) -> list[Declared]:
        """The functions that a call can mean, those that take another number of arguments left out."""
        callee = child(call, "function")
        count = sum(child.type != "comment" for child in child(call, "arguments").named_children)
        kinds = frozenset({decl.FUNCTION})
        try:
            if callee.type == "field_expression":
                name = unit.text(last_name(child(callee, "field")))
                found = [
                    declared
                    for kind in self._resolver.members.owners(unit, callee)
                    if isinstance(kind, Record)
                    for _, declared in self._resolver.members.find(kind, name)
                    if declared.kind == decl.FUNCTION
                ]
            elif callee.type == "qualified_identifier":
                found = self._resolver.names.qualified(unit, callee, kinds)
            elif callee.type in ("identifier", "template_function"):
                name_node = callee if callee.type == "identifier" else child(callee, "name")
                found = self._resolver.scopes.lookup(unit, callee, unit.text(name_node), kinds)
            else:
                found = []
        except Unresolved:
            return []
        return [d for d in found if d.kind == decl.FUNCTION and self._takes(d, count)]

    def call_declared(
        self,
        found: Sequence[Declared],
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        callee: Node | None,
        bindings: dict[Key, Type],
    ) -> Types:
        """The types of the value of a call of something declared: a function, an object or a class.

        Args:
            found: the declarations that may be meant.
            given: the arguments.
            unit: the tree of the call.
            explicit: template arguments that the call names.
            callee: the call's function, for a class that is named with template arguments.
            bindings: what the template parameters of the class around stand for.
        """
        functions = [d for d in found if d.kind == decl.FUNCTION]
        if functions:
            fitting = [d for d in functions if self._takes(d, len(given))] or functions
            return unique(
                [kind for d in fitting for kind in self._result(d, given, unit, explicit, bindings)],
            )
        result: list[Type] = []
        for declared in found:
            if declared.kind in decl.TYPES:
                kinds = (
                    self._resolver.types.named_by(unit, callee)
                    if callee and explicit
                    else self._resolver.types.of_declaration(declared)
                )
                result += each(lambda kind: substitute(kind, bindings), kinds)
            else:
                for kind in self._resolver.names.values([declared]):
                    result += self._called(substitute(kind, bindings), given, unit)
        return unique(result)

    def _called(self, kind: Type, given: Sequence[Node], unit: Unit) -> Types:
        """What calling a value of some type gives."""
        kind = bare(kind)
        if isinstance(kind, Pointer):
            kind = bare(kind.to)
        if isinstance(kind, Signature):
            return (kind.result,)
        if isinstance(kind, Closure):
            return self._lambda_result(kind, given, unit)
        if isinstance(kind, Record):
            if kind.name == "std::function":
                return each(result_of, [kind.bindings[0][1]])
            return self._resolver.members.call(kind, b"operator()", given, unit)
        if isinstance(kind, External) and is_clean(kind):
            return (kind,)
        raise Unresolved(f"calling {describe(kind)}")

    def _takes(self, declared: Declared, count: int) -> bool:
        function = decl.function_part(declared.declarator)
        listed = function.child_by_field_name("parameters") if function else None
        if listed is None:
            return True
        least = most = 0
        for parameter in listed.named_children:
            if parameter.type == "parameter_declaration":
                if declared.unit.text(parameter).strip() == b"void":
                    continue
                least, most = least + 1, most + 1
            elif parameter.type == "optional_parameter_declaration":
                most += 1
            elif parameter.type in ("variadic_parameter_declaration", "variadic_parameter"):
                most += 1000
        if any(child.type == "..." for child in listed.children):
            most += 1000
        return least <= count <= most

    def _result(
        self,
        declared: Declared,
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        bindings: dict[Key, Type],
    ) -> Types:
        """What a call of one function gives."""
        kinds = each(result_of, self._resolver.types.declared(declared))
        bound = {**bindings, **self._deduced(declared, given, unit, explicit, bindings)}
        return each(lambda kind: substitute(kind, bound), kinds)

    def deduced_at(self, declared: Declared, unit: Unit, call: Node) -> dict[Key, Type]:
        """What the template parameters of a function stand for in a call of it."""
        callee = child(call, "function")
        target = last_part(callee)
        if callee.type == "field_expression":
            target = last_part(child(callee, "field"))
        explicit = self._resolver.types.template_arguments(unit, target)
        return self._deduced(declared, entries(child(call, "arguments")), unit, explicit, {})

    def _deduced(
        self,
        declared: Declared,
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        bindings: dict[Key, Type],
    ) -> dict[Key, Type]:
        template = decl.template_of(declared.node)
        listed = decl.template_parameters(declared.unit, template) if template else []
        keys = [(declared.unit.path, entry.start) for entry in listed]
        bound = dict(zip(keys, explicit, strict=False))
        parameters = decl.parameter_nodes(declared.declarator)
        autos = [(declared.unit.path, p.start_byte) for p in parameters if _is_auto(p)]
        if not keys and not autos:
            return {}
        wanted = frozenset([*keys, *autos]) - bound.keys()
        for parameter, argument in zip(parameters, given, strict=False):
            patterns = self.parameter_type(declared.unit, parameter)
            if not any(mentions(pattern, wanted) for pattern in patterns):
                continue
            try:
                actual = self._resolver.expression(unit, argument)
            except Unresolved:
                continue
            if len(actual) == 1:
                unify(substitute(patterns[0], bindings), actual[0], bound, wanted)
        for entry, key in zip(listed, keys, strict=True):
            if key not in bound and entry.kind == decl.PARAM and entry.init:
                kinds = self._resolver.types.named_by(entry.unit, entry.init)
                bound[key] = substitute(kinds[0], bound)
        return bound

    def parameter_type(self, unit: Unit, parameter: Node) -> Types:
        """The types that a parameter can have; ``auto`` makes it a template parameter."""
        type_node = parameter.child_by_field_name("type")
        if type_node is None:
            raise Unresolved(f"no type in the parameter {short(unit, parameter)}")
        if _is_auto(parameter):
            kinds: Types = (Param((unit.path, parameter.start_byte), "auto"),)
        else:
            kinds = self._resolver.types.named_by(unit, type_node)
        declarator = parameter.child_by_field_name("declarator")
        if declarator is None:
            return kinds
        if _is_auto(parameter):
            while declarator and declarator.type in ("pointer_declarator", "abstract_pointer_declarator"):
                declarator = decl.inner_declarator(declarator)
            if declarator is None:
                return kinds
        return each(lambda kind: self._resolver.types.shape(unit, declarator, kind), kinds)

    def _lambda_result(self, closure: Closure, given: Sequence[Node], unit: Unit) -> Types:
        declarator = closure.node.child_by_field_name("declarator")
        bound: dict[Key, Type] = {}
        listed = declarator.child_by_field_name("parameters") if declarator else None
        for parameter, argument in zip(listed.named_children if listed else (), given, strict=False):
            for pattern in map(bare, self.parameter_type(closure.unit, parameter)):
                if isinstance(pattern, Param):
                    actual = self._resolver.expression(unit, argument)[0]
                    unify(pattern, actual, bound, frozenset({pattern.key}))
        result = trailing(declarator)
        if result:
            kinds = self._resolver.types.named_by(closure.unit, result)
        else:
            kinds = self.returned(closure.unit, child(closure.node, "body"))
        return each(lambda kind: substitute(kind, bound), kinds)

    def returned(self, unit: Unit, body: Node) -> Types:
        """The types of the values that a body returns."""
        result: list[Type] = []
        stack = [body]
        while stack:
            node = stack.pop()
            if node.type == "return_statement" and node.named_child_count:
                result += map(bare, self._resolver.expression(unit, node.named_children[0]))
            elif node.type not in ("lambda_expression", *decl.CLASS_NODES):
                stack += node.named_children
        return unique(result) or (VOID,)


def _is_auto(parameter: Node) -> bool:
    kind = parameter.child_by_field_name("type")
    return kind is not None and kind.type == "placeholder_type_specifier"
