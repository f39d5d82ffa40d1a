"""The type of an expression, from the declarations that the tree has.

Nothing is guessed: what cannot be followed to a declaration raises :class:`Unresolved` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.calls import Calls
from numamirror_build.rewrite.instances import Instances
from numamirror_build.rewrite.kinds import (
    INT,
    TEXT,
    Array,
    Builtin,
    Closure,
    External,
    Pointer,
    Record,
    Type,
    Types,
    Unresolved,
    bare,
    describe,
    each,
    is_clean,
    unique,
)
from numamirror_build.rewrite.macrouses import MacroUses
from numamirror_build.rewrite.members import Members
from numamirror_build.rewrite.nodes import child, last_name, short
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.qualified import Names
from numamirror_build.rewrite.scopes import Scopes
from numamirror_build.rewrite.typenames import TypeNames
from numamirror_build.rewrite.units import Unit, parse_text

MODEL_PATH = "<std>"

_NUMBERS = frozenset(
    {
        "number_literal",
        "char_literal",
        "true",
        "false",
        "null",
        "sizeof_expression",
        "alignof_expression",
        "offsetof_expression",
        "unary_expression",
        "user_defined_literal",
        "delete_expression",
        "gnu_asm_expression",
        "requires_expression",
        "fold_expression",
    }
)
_STRINGS = frozenset({"string_literal", "concatenated_string", "raw_string_literal"})
_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||", "<=>", "and", "or"})

_Key = tuple[int, int, int]


class Resolver:
    """Types of expressions and declarations in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        text = resources.files("numamirror_build.rewrite").joinpath("std.hpp").read_bytes()
        self.model = parse_text(MODEL_PATH, text, cpp=True)
        self.members = Members(self)
        self.calls = Calls(self)
        self.names = Names(self)
        self.types = TypeNames(self)
        self.macros = MacroUses(self)
        self.instances = Instances(self)
        self.scopes = Scopes(
            project,
            self.model,
            self.members.inherited,
            self.names.class_nodes,
            self.macros.declared,
        )
        self._cache: dict[_Key, Types | Unresolved | None] = {}
        self.viewpoint = MODEL_PATH

    def look_from(self, path: str) -> None:
        """Answer as the compiler of a file would: where names are ambiguous, what it includes decides."""
        if path != self.viewpoint:
            self.viewpoint = path
            self._cache.clear()
            self.instances.forget()

    def expression(self, unit: Unit, node: Node) -> Types:
        """The types that an expression can have; references are kept.

        Raises:
            Unresolved: a name, member or call in it cannot be followed.
        """
        return self.cached(unit, node, lambda: self._expression(unit, node))

    def cached(self, unit: Unit, node: Node, make: Callable[[], Types], salt: int = 0) -> Types:
        """What ``make`` says about a node, asked once; ``salt`` tells different questions apart."""
        key = (unit.serial, node.id, salt)
        if key not in self._cache:
            self._cache[key] = None
            try:
                self._cache[key] = make()
            except Unresolved as error:
                self._cache[key] = error
            except RecursionError:
                self._cache[key] = Unresolved("it is nested too deeply")
        result = self._cache[key]
        if result is None:
            raise Unresolved(f"the type of {short(unit, node)} depends on itself")
        if isinstance(result, Unresolved):
            raise result
        return result

    def _expression(self, unit: Unit, node: Node) -> Types:
        kind = node.type
        if kind in _NUMBERS:
            return (INT,)
        if kind in _STRINGS:
            return (TEXT,)
        method = getattr(self, f"_on_{kind}", None)
        if method is None:
            raise Unresolved(f"no rule for a {kind} ({short(unit, node)})")
        result: Types = method(unit, node)
        return result

    def _on_identifier(self, unit: Unit, node: Node) -> Types:
        name = unit.text(node)
        found = self.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
        if found:
            if not unit.origins and self._is_defined_before(unit, node, name):
                raise Unresolved(f"{name.decode()} is declared, and defined as a macro before it")
            return self.names.values(found)
        return self.macros.use(unit, node, name)

    def _is_defined_before(self, unit: Unit, node: Node, name: bytes) -> bool:
        """Whether a file makes a macro without parentheses of a name before a place in it."""
        return any(
            macro.params is None and macro.path == unit.path and macro.start < node.start_byte
            for macro in self.project.macros(name, unit.path)
        )

    def _on_field_identifier(self, unit: Unit, node: Node) -> Types:
        return self._on_identifier(unit, node)

    def _on_type_identifier(self, unit: Unit, node: Node) -> Types:
        return self.types.named_by(unit, node)

    def _on_primitive_type(self, unit: Unit, node: Node) -> Types:
        return self.types.named_by(unit, node)

    def _on_template_type(self, unit: Unit, node: Node) -> Types:
        return self.types.named_by(unit, node)

    def _on_this(self, unit: Unit, node: Node) -> Types:
        return (Pointer(self.names.enclosing_class(unit, node)),)

    def _on_parenthesized_expression(self, unit: Unit, node: Node) -> Types:
        inner = node.named_children[-1] if node.named_child_count else None
        if inner is None:
            raise Unresolved(f"no expression in {short(unit, node)}")
        if inner.type == "compound_statement":
            last = inner.named_children[-1] if inner.named_child_count else None
            if last is None or last.type != "expression_statement" or not last.named_child_count:
                raise Unresolved("a statement expression without a value")
            return self.expression(unit, last.named_children[0])
        return self.expression(unit, inner)

    def _on_comma_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, child(node, "right"))

    def _on_assignment_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, child(node, "left"))

    def _on_update_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, child(node, "argument"))

    def _on_conditional_expression(self, unit: Unit, node: Node) -> Types:
        branches = [node.child_by_field_name("consequence"), child(node, "alternative")]
        kinds = [kind for branch in branches if branch for kind in self.expression(unit, branch)]
        classes = [kind for kind in kinds if not isinstance(bare(kind), Builtin)]
        return unique(classes or kinds)

    def _on_cast_expression(self, unit: Unit, node: Node) -> Types:
        return self.types.named_by(unit, child(node, "type"))

    def _on_compound_literal_expression(self, unit: Unit, node: Node) -> Types:
        return self.types.named_by(unit, child(node, "type"))

    def _on_new_expression(self, unit: Unit, node: Node) -> Types:
        declarator = node.child_by_field_name("declarator")
        kinds = self.types.named_by(unit, child(node, "type"))
        if declarator and declarator.type != "new_declarator":
            kinds = each(lambda kind: self.types.shape(unit, declarator, kind), kinds)
        return each(Pointer, kinds)

    def _on_initializer_list(self, unit: Unit, node: Node) -> Types:
        if not node.named_child_count:
            raise Unresolved("an empty list")
        return each(lambda kind: Array(bare(kind)), self.expression(unit, node.named_children[0]))

    def _on_lambda_expression(self, unit: Unit, node: Node) -> Types:
        return (Closure((unit.path, node.start_byte), unit, node),)

    def _on_binary_expression(self, unit: Unit, node: Node) -> Types:
        operator = unit.text(child(node, "operator")).decode("ascii", "replace")
        if operator in _COMPARISONS:
            return (INT,)
        left, right = child(node, "left"), child(node, "right")
        kinds = self.expression(unit, left)
        result: list[Type] = []
        for kind in map(bare, kinds):
            if isinstance(kind, Array):
                result.append(Pointer(kind.to))
            elif isinstance(kind, (Pointer, External)) and (isinstance(kind, Pointer) or is_clean(kind)):
                result.append(kind)
            elif isinstance(kind, Record):
                result += self.members.call(kind, b"operator" + operator.encode(), [], unit)
            elif isinstance(kind, Builtin):
                result += [k for k in map(bare, self.expression(unit, right))]
            else:
                raise Unresolved(f"no rule for the operator {operator} on {describe(kind)}")
        return each(lambda kind: Pointer(kind.to) if isinstance(kind, Array) else kind, result)

    def _on_pointer_expression(self, unit: Unit, node: Node) -> Types:
        kinds = self.expression(unit, child(node, "argument"))
        if unit.text(child(node, "operator")) == b"&":
            return each(lambda kind: Pointer(bare(kind)), kinds)
        return each(self.members.dereferenced, kinds)

    def _on_subscript_expression(self, unit: Unit, node: Node) -> Types:
        return each(self.members.subscripted, self.expression(unit, child(node, "argument")))

    def _on_field_expression(self, unit: Unit, node: Node) -> Types:
        field = child(node, "field")
        if field.type in ("dependent_name", "template_method", "qualified_identifier"):
            field = last_name(field)
        name = unit.text(field)
        return each(lambda kind: self.members.types(kind, name), self.members.owners(unit, node))

    def _on_qualified_identifier(self, unit: Unit, node: Node) -> Types:
        return self.names.values(self.names.qualified(unit, node, decl.VALUES | decl.TYPES))

    def _on_template_function(self, unit: Unit, node: Node) -> Types:
        name = child(node, "name")
        found = self.scopes.lookup(unit, node, unit.text(name), decl.VALUES | decl.TYPES)
        if any(declared.kind == decl.CLASS for declared in found):
            return self.types.named_by(unit, node)
        if not found:
            raise Unresolved(f"no declaration of {short(unit, name)} found")
        return self.names.values(found)

    def _on_call_expression(self, unit: Unit, node: Node) -> Types:
        callee = child(node, "function")
        arguments = child(node, "arguments")
        given = [child for child in arguments.named_children if child.type != "comment"]
        if callee.type == "parenthesized_expression":
            inner = callee.named_children[-1] if callee.named_child_count else callee
            if inner.type == "identifier" and self.names.is_type(unit, inner):
                return self.types.named_by(unit, inner)
        if callee.type == "primitive_type":
            return self.types.named_by(unit, callee)
        return self.calls.of(unit, callee, given)
