"""Accesses that stand in the body of a macro, or are made by a macro from its arguments.

The body is parsed where it stands, so that offsets are those of the file.
What the names in it mean is asked at every use of the macro, in its expansion; all uses must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tree_sitter import Node

from numamirror_build.rewrite.accesses import Finder
from numamirror_build.rewrite.contexts import READ, NoRule, is_whole, use_of
from numamirror_build.rewrite.kinds import Unresolved
from numamirror_build.rewrite.macros import Macro, Piece, expand
from numamirror_build.rewrite.preprocessor import Define
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.rules import Access
from numamirror_build.rewrite.text import FIELD, code_after, occurrences
from numamirror_build.rewrite.units import Unit, parse_in_place, parse_pieces

_WRAPS = (
    (b"void f(){ ", b" ; }"),
    (b"void f(){(", b"); }"),
    (b"int a[]=", b";"),
    (b"", b""),
)


class Bodies:
    """Finds out about accesses in the bodies of macros."""

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.project: Project = finder.project

    def access(self, path: str, define: Define, offset: int) -> Access | None:
        """The access in a macro's body whose field name begins at an offset, or None if it is none.

        Raises:
            Unresolved: it cannot be told, or differs between the macro's uses.
            NoRule: one of the uses needs the field's place.
        """
        macro = self._macro(path, define)
        resolver = self.finder.resolver
        verdicts: set[bool | None] = set()
        for unit, node in self.uses(macro):
            expansion, place = self._expanded(unit, node, macro, offset)
            if place is None:
                continue
            resolver.look_from(unit.path)
            found = self.finder.access(expansion, place)
            verdicts.add(found.raw if found else None)
            if found:
                _check_operand(expansion, found.node, macro)
                if is_whole(expansion, found.node) and use_of(resolver, unit, _call_of(node)).kind != READ:
                    raise NoRule(f"the macro {macro.name.decode()} is used as the field itself")
        if not verdicts:
            verdicts.add(self._alone(path, define, offset))
        if None in verdicts:
            if len(verdicts) > 1:
                raise Unresolved(f"the macro {macro.name.decode()} is used with tensors and with others")
            return None
        unit, node = self._in_place(path, define, offset)
        operator = node.child_by_field_name("operator")
        arrow = operator is not None and unit.text(operator) == b"->"
        return Access(unit, node, arrow, verdicts == {True})

    def _alone(self, path: str, define: Define, offset: int) -> bool | None:
        """The verdict for a macro that nothing uses: what its body tells by itself."""
        unit, node = self._in_place(path, define, offset)
        try:
            found = self.finder.access(unit, node.end_byte - len(FIELD))
        except Unresolved as error:
            raise Unresolved(f"no file uses the macro {define.name.decode()}, and {error}") from None
        return found.raw if found else None

    def _macro(self, path: str, define: Define) -> Macro:
        return next(m for m in self.project.macros_in(path, define.name) if m.start == define.start)

    def uses(self, macro: Macro) -> Iterator[tuple[Unit, Node]]:
        """The places outside of macro bodies where a macro, or one that uses it, is used."""
        names = [macro.name]
        done: set[tuple[str, int]] = set()
        for name in names:
            for path in self.project.holders(name):
                if not self._sees(path, macro):
                    continue
                text, directives = self.project.text(path), self.project.directives(path)
                for offset in occurrences(text.code, name):
                    define = directives.define_at(offset)
                    if define:
                        if define.name not in names and offset >= define.body:
                            names.append(define.name)
                        continue
                    inside = any(start <= offset < end for start, end in directives.ranges)
                    if inside or (name == macro.name and self._replaced(path, macro, offset)):
                        continue
                    start, end = _outermost(self.project, path, text.code, offset, offset + len(name))
                    for unit in self.finder.resolver.scopes.units(path):
                        if unit.source[start:end] == text.code[start:end] and (path, start) not in done:
                            done.add((path, start))
                            yield unit, unit.at(start, end)

    def _sees(self, path: str, macro: Macro) -> bool:
        """Whether a macro is among those that a file means with its name."""
        found = self.project.macros(macro.name, path)
        return any((other.path, other.start) == (macro.path, macro.start) for other in found)

    def _replaced(self, path: str, macro: Macro, offset: int) -> bool:
        """Whether a place is before a macro's definition in its file, or behind another one of the name."""
        if path != macro.path:
            return False
        directives = self.project.directives(path)
        return offset < macro.start or any(
            define.name == macro.name
            and macro.start < define.start < offset
            and directives.compatible(macro.start, define.start)
            for define in directives.defines
        )

    def _expanded(self, unit: Unit, node: Node, macro: Macro, offset: int) -> tuple[Unit, int | None]:
        """The tree of a use, and where in it the field's name from the macro's body is."""
        sequence = self.finder.resolver.macros.invocation(unit, node)
        resolver = self.finder.resolver

        def find(name: bytes) -> Macro | None:
            return macro if name == macro.name else resolver.macros.visible_macro(name, unit.path)

        found = expand(sequence, find)
        return _best(found, (unit, node), (macro.path, offset))

    def _in_place(self, path: str, define: Define, offset: int) -> tuple[Unit, Node]:
        """The field expression in the tree of a macro's body."""
        for wrap in _WRAPS:
            unit = parse_in_place(self.project, path, define, wrap)
            node = _field_expression(unit, offset)
            if node is not None:
                return unit, node
        raise Unresolved(f"the body of the macro {define.name.decode()} cannot be parsed")


class Invocations:
    """Finds fields that a macro names with one of its arguments."""

    def __init__(self, finder: Finder) -> None:
        self.finder = finder

    def check(self, unit: Unit, offset: int) -> None:
        """Refuse the field's name as an argument of a macro that makes an access of it.

        Raises:
            Unresolved: it does, or it cannot be told.
        """
        project = self.finder.project
        code = project.text(unit.path).code
        opening = _opening(code, offset)
        while opening is not None:
            name = _name_before(code, opening)
            definitions = project.macros(name, unit.path) if name else []
            if any(macro.params for macro in definitions):
                self._check_macro(unit, opening - len(name), name, offset)
            opening = _opening(code, opening)

    def _check_macro(self, unit: Unit, start: int, name: bytes, offset: int) -> None:
        node = unit.at(start, start + len(name))
        resolver = self.finder.resolver
        found = expand(
            self.finder.resolver.macros.invocation(unit, node),
            lambda n: resolver.macros.visible_macro(n, unit.path),
        )
        for before, piece in pairwise(found):
            if piece.origin == (unit.path, offset) and before.text in (b".", b"->"):
                expansion, place = _best(found, (unit, node), (unit.path, offset))
                if place is None:
                    raise Unresolved(f"the expansion of {name.decode()} cannot be parsed")
                if self.finder.access(expansion, place):
                    raise Unresolved(f"the macro {name.decode()} gets the field's name as an argument")
            elif piece.origin == (unit.path, offset) and _in_offsetof(found, piece):
                raise Unresolved(f"the macro {name.decode()} takes the offset of the field")


def _in_offsetof(found: list[Piece], piece: Piece) -> bool:
    depth = 0
    for earlier in reversed(found[: found.index(piece)]):
        depth += (earlier.text == b")") - (earlier.text == b"(")
        if depth < 0 and earlier.text == b"(":
            depth = 0
        if earlier.text in (b"offsetof", b"__builtin_offsetof"):
            return True
    return False


def _best(found: list[Piece], place: tuple[Unit, Node], origin: tuple[str, int]) -> tuple[Unit, int | None]:
    """The tree of an expansion in the wrapping that suits it, and the offset of a token in it."""
    chosen: tuple[Unit, int | None] | None = None
    for wrap in _WRAPS if _is_in_block(place[1]) else reversed(_WRAPS):
        unit = parse_pieces(found, place, wrap)
        offset = next((start for start, source in unit.origins if source == origin), None)
        if offset is None:
            return unit, None
        if chosen is None or not unit.root.has_error:
            chosen = unit, offset
        if not unit.root.has_error or _field_expression(unit, offset) is not None:
            return unit, offset
    assert chosen is not None
    return chosen


def _is_in_block(node: Node) -> bool:
    """Whether a node is in the body of a function."""
    scope: Node | None = node
    while scope is not None and scope.type != "compound_statement":
        scope = scope.parent
    return scope is not None


def _field_expression(unit: Unit, offset: int) -> Node | None:
    """The field expression around a field's name, unless the parse failed around it."""
    node: Node | None = unit.at(offset, offset + len(FIELD)).parent
    if node is None or node.type != "field_expression" or node.has_error:
        return None
    scope: Node | None = node
    while scope is not None and not scope.type.endswith(("_statement", "declaration", "_definition")):
        if scope.is_error:
            return None
        scope = scope.parent
    return node


def _check_operand(unit: Unit, node: Node, macro: Macro) -> None:
    """Refuse an argument that is only partly the base of the access: ``#define F(x) x->data`` of ``*p``."""
    start = node.start_byte
    before = [source for offset, source in unit.origins if offset < start]
    if before and before[-1] is not None:
        path, offset = before[-1]
        inside = path == macro.path and macro.start <= offset <= macro.end
        first = unit.origin(start)
        from_body = first is not None and first[0] == macro.path and macro.start <= first[1] <= macro.end
        if not inside and not from_body:
            raise Unresolved(f"the macro {macro.name.decode()} takes only a part of its argument as the base")


def _call_of(name: Node) -> Node:
    """The use of a macro that a name in a file's tree belongs to."""
    parent = name.parent
    if parent is not None and parent.type == "call_expression" and parent.start_byte == name.start_byte:
        return parent
    return name


def _outermost(project: Project, path: str, code: bytes, start: int, end: int) -> tuple[int, int]:
    """The name of the outermost macro use that a name without arguments of its own is an argument of."""
    if code[code_after(code, end) : code_after(code, end) + 1] == b"(":
        return start, end
    opening = _opening(code, start)
    while opening is not None:
        name = _name_before(code, opening)
        if name and any(macro.params for macro in project.macros(name, path)):
            start, end = opening - len(name), opening
        opening = _opening(code, opening)
    return start, end


def _opening(code: bytes, offset: int) -> int | None:
    """Offset of the parenthesis around a place, in the same statement."""
    depth = 0
    for index in range(offset - 1, max(-1, offset - 4000), -1):
        byte = code[index : index + 1]
        if byte == b")":
            depth += 1
        elif byte == b"(":
            if depth == 0:
                return index
            depth -= 1
        elif byte in (b";", b"{", b"}") and depth == 0:
            return None
    return None


def _name_before(code: bytes, opening: int) -> bytes:
    end = opening
    start = end
    while start > 0 and (code[start - 1 : start].isalnum() or code[start - 1 : start] == b"_"):
        start -= 1
    return code[start:end]
