"""Uses of macros as expressions and as types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import (
    Pointer,
    Type,
    Types,
    Unresolved,
    each,
    unique,
)
from numamirror_build.rewrite.macros import Macro, Piece, expand, pieces
from numamirror_build.rewrite.nodes import child
from numamirror_build.rewrite.text import closing, tokens
from numamirror_build.rewrite.units import Unit, parse_pieces

if TYPE_CHECKING:
    from numamirror_build.rewrite.resolver import Resolver

_WRAP = (b"void f(void) { (", b"); }")
_STATEMENTS = (b"void f(void) { ", b"; }")


class MacroUses:
    """Expands macros where they are used."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def use(self, unit: Unit, node: Node, name: bytes) -> Types:
        """The type of a macro's use as an expression: the macro's name, or the call of it."""
        definitions = self._resolver.project.macros(name, unit.path)
        if not definitions:
            raise Unresolved(f"no declaration of {name.decode('utf-8', 'replace')} found")
        use = node
        if node.parent and node.parent.type == "call_expression":
            function_like = [m for m in definitions if m.params is not None]
            if function_like and child(node.parent, "function") == node:
                use, definitions = node.parent, function_like
        shapes = {macro.shape(): macro for macro in definitions}
        result: list[Type] = []
        for macro in shapes.values():
            expansion = self.expansion(unit, use, macro)
            inner = expansion.root.named_children[0] if expansion.root.named_child_count else None
            if inner is None or expansion.root.has_error:
                raise Unresolved(f"the expansion of {name.decode()} is no expression")
            result += self._resolver.expression(expansion, _wrapped(inner))
        return unique(result)

    def declared(self, unit: Unit, use: Node, name: bytes) -> list[Declared]:
        """The declarations of a name in the expansion of a macro that is used as a statement."""
        key = (use.id, "expansion")
        sequence = unit.tables.get(key)
        if sequence is None:
            found = expand(self.invocation(unit, use), lambda macro: self.visible_macro(macro, unit.path))
            sequence = unit.tables[key] = found
        if not any(piece.text == name for piece in sequence):
            return []
        expansion = parse_pieces(sequence, (unit, use), _STATEMENTS)
        function = expansion.root.named_children[0] if expansion.root.named_child_count else None
        block = function.child_by_field_name("body") if function else None
        return decl.table(expansion, block).get(name, []) if block else []

    def visible_macro(self, name: bytes, path: str) -> Macro | None:
        """One definition of a macro that a file can see."""
        return next(iter(self._resolver.project.macros(name, path)), None)

    def expansion(self, unit: Unit, use: Node, macro: Macro) -> Unit:
        """The tree of a macro's use, expanded, as an expression."""
        text = self._origin_pieces(unit, use)
        sequence = expand(text, lambda name: macro if name == macro.name else None)
        return parse_pieces(sequence, (unit, use), _WRAP)

    def _origin_pieces(self, unit: Unit, node: Node) -> list[Piece]:
        source = unit.source if unit.origins else self._resolver.project.text(unit.path).plain
        found = tokens(source, node.start_byte, node.end_byte)
        if not unit.origins:
            return pieces(found, unit.path)
        return [Piece(token.text, token.kind, unit.origin(token.start)) for token in found]

    def invocation(self, unit: Unit, node: Node) -> list[Piece]:
        """The tokens of a macro's use in a file: its name, and its arguments if it has any."""
        code = self._resolver.project.text(unit.path).code
        end = node.end_byte
        rest = code[end:].lstrip()[:1] if end < len(code) else b""
        if rest == b"(":
            last = closing(code, code.index(b"(", end))
            end = end if last is None else last + 1
        return pieces(tokens(self._resolver.project.text(unit.path).plain, node.start_byte, end), unit.path)

    def type_named(self, unit: Unit, node: Node, name: bytes) -> Types:
        """The type that a macro's name stands for."""
        result: list[Type] = []
        for macro in {m.shape(): m for m in self._resolver.project.macros(name, unit.path)}.values():
            sequence = expand(pieces(macro.body, macro.path), lambda _: None)
            inner = parse_pieces(sequence, (unit, node), (b"void f(void) { ", b" * x; }"))
            found = [
                d
                for part in inner.root.named_children
                if part.type == "function_definition"
                for d in decl.table(inner, child(part, "body")).get(b"x", [])
            ]
            if inner.root.has_error or not found or macro.params is not None:
                raise Unresolved(f"the macro {name.decode()} is no type")
            result += each(
                lambda kind: kind.to if isinstance(kind, Pointer) else kind,
                self._resolver.types.declared(found[0]),
            )
        return unique(result)


def _wrapped(function: Node) -> Node:
    """The expression in an expansion's wrapping."""
    body = child(function, "body")
    return body.named_children[0].named_children[0]
