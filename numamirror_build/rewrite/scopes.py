"""Which declarations a name can mean at a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.kinds import Unresolved
from numamirror_build.rewrite.preprocessor import variants
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.text import FIELD_WORD
from numamirror_build.rewrite.units import Unit, is_cpp, parse_file

Lookup = Callable[[Unit, Node, bytes], list[Declared]]
"""Finds a name in what a node stands for."""

_BLOCKS = frozenset({"compound_statement", "declaration_list"})
_CONDITIONS = frozenset({"if_statement", "while_statement", "switch_statement"})


class Scopes:
    """Name lookup in a project.

    Args:
        project: the tree's files.
        model: the declarations of the standard library.
        in_class: finds a member of the class that a node defines; it needs types, which are not known here.
        class_of: the classes that a qualified function name belongs to: tree and node.
        by_macro: finds a declaration in the expansion of the macro use that a node is the name of.
    """

    def __init__(
        self,
        project: Project,
        model: Unit,
        in_class: Lookup,
        class_of: Callable[[Unit, Node], list[tuple[Unit, Node]]],
        by_macro: Lookup,
    ) -> None:
        self.project = project
        self.model = model
        self._in_class = in_class
        self._class_of = class_of
        self._by_macro = by_macro
        self._units: dict[str, tuple[Unit, ...]] = {}
        self._globals: dict[tuple[str, tuple[bytes, ...], bytes], list[Declared]] = {}
        self._external: dict[bytes, bool] = {}

    def units(self, path: str) -> tuple[Unit, ...]:
        """All variants of a file; every place that may be an access is in at least one."""
        if path not in self._units:
            directives, code = self.project.directives(path), self.project.text(path).code
            offsets = [match.start() for match in FIELD_WORD.finditer(code)]
            ranges = variants(directives, offsets, {b"__cplusplus": is_cpp(path)})
            self._units[path] = tuple(parse_file(self.project, path, inactive) for inactive in ranges)
        return self._units[path]

    def lookup(self, unit: Unit, node: Node, name: bytes, kinds: frozenset[str]) -> list[Declared]:
        """The declarations that a name can mean at a node: those of the innermost scope that has any.

        Raises:
            Unresolved: the tree around the node is not that of correct code.
        """
        wanted = kinds | {decl.USING}
        place: tuple[Unit, Node] | None = (unit, node)
        while place:
            unit, node = place
            found, namespace = self._lookup_local(unit, node, name, wanted)
            if found:
                return found
            place = unit.outer
        return self.lookup_global(unit, namespace, name, kinds)

    def lookup_global(
        self, unit: Unit, namespace: tuple[bytes, ...], name: bytes, kinds: frozenset[str]
    ) -> list[Declared]:
        """The declarations of a name outside of functions and classes, seen from inside a namespace."""
        wanted = kinds | {decl.USING}
        for depth in range(len(namespace), -1, -1):
            found = [d for d in self.in_namespace(unit, namespace[:depth], name) if d.kind in wanted]
            if found:
                return found
        for used in self._used_namespaces(unit):
            found = [d for d in self.in_namespace(unit, used, name) if d.kind in wanted]
            if found:
                return found
        return []

    def in_namespace(self, unit: Unit, namespace: tuple[bytes, ...], name: bytes) -> list[Declared]:
        """The declarations of a name in exactly one namespace, as a file sees them."""
        if namespace[:1] == (b"std",):
            return decl.namespaces(self.model).get(namespace, {}).get(name, [])
        key = (unit.path, namespace, name)
        if key not in self._globals:
            self._globals[key] = self._find_global(unit.path, namespace, name)
        own = [d for d in self._globals[key] if d.unit.path != unit.path or d.unit is unit]
        return own or self._globals[key]

    def is_external(self, name: bytes) -> bool:
        """Whether no file of the tree can declare a type of that name."""
        if name not in self._external:
            word = re.escape(name)
            declaring = re.compile(
                rb"\b(?:struct|class|union|enum|typename|using|namespace|define)\s+(?:\w+\s+)*?"
                + word
                + rb"\b"
                rb"|\btypedef\b[^;{}]*\b" + word + rb"\b[^;{}]*;|[}*]\s*" + word + rb"\s*[;,]"
            )
            holders = [
                path for path in self.project.holders(name) if declaring.search(self.project.files[path])
            ]
            self._external[name] = not any(declaring.search(self.project.text(path).code) for path in holders)
        return self._external[name]

    def _find_global(self, path: str, namespace: tuple[bytes, ...], name: bytes) -> list[Declared]:
        word = name.removeprefix(b"operator")
        for visible in (self.project.closure(path), self.project.context(path)):
            holders = (
                self.project.holders(word, visible) if word[:1].isalpha() or word[:1] == b"_" else visible
            )
            found = [
                declared
                for holder in holders
                for unit in self.units(holder)
                for declared in decl.namespaces(unit).get(namespace, {}).get(name, [])
            ]
            if found:
                return found
        return []

    def _used_namespaces(self, unit: Unit) -> list[tuple[bytes, ...]]:
        used: dict[tuple[bytes, ...], None] = {}
        for path in self.project.closure(unit.path):
            if b"using namespace" in self.project.files.get(path, b""):
                for one in self.units(path):
                    for names in decl.namespaces(one).values():
                        for declared in names.get(b"using namespace", []):
                            target = declared.unit.text(declared.type) if declared.type else b""
                            used[tuple(part.strip() for part in target.split(b"::"))] = None
        return list(used)

    def _lookup_local(
        self, unit: Unit, node: Node, name: bytes, wanted: frozenset[str]
    ) -> tuple[list[Declared], tuple[bytes, ...]]:
        """The declarations in the scopes inside one tree, and the namespace around them."""
        start = node.start_byte
        namespace: tuple[bytes, ...] = ()
        child, scope = node, node.parent
        in_function = True
        while scope is not None:
            kind = scope.type
            if kind == "compound_statement" and not in_function:
                raise Unresolved("the braces around it do not match")
            if kind == "namespace_definition":
                namespace = decl.namespace_name(unit, scope) + namespace
            elif kind == "function_definition":
                owner = self._owner(unit, scope)
                found = self._visible(
                    decl.parameters(unit, scope.child_by_field_name("declarator")), name, wanted
                )
                found = found or self._visible(
                    [
                        d
                        for c in scope.named_children
                        if c.type == "declaration"
                        for d in decl.declared_by(unit, c)
                    ],
                    name,
                    wanted,
                )
                if found:
                    return found, namespace
                for class_unit, class_node in owner:
                    found = self._pick(self._in_class(class_unit, class_node, name), wanted)
                    if found:
                        return found, namespace
                in_function = False
            else:
                found = self._in_scope(unit, scope, child, name, start, wanted)
                if found:
                    return found, namespace
                if kind in decl.CLASS_NODES or kind == "lambda_expression":
                    in_function = True
            child, scope = scope, scope.parent
        return [], namespace + self._owner_namespace(unit, node)

    def _in_scope(
        self, unit: Unit, scope: Node, child: Node, name: bytes, start: int, wanted: frozenset[str]
    ) -> list[Declared]:
        kind = scope.type
        if kind == "compound_statement":
            found = self._pick(decl.table(unit, scope).get(name, []), wanted)
            found = self._compatible([d for d in found if d.start < start], start)
            return found + self._pick(self._from_macros(unit, scope, name, start), wanted)
        if kind in ("for_statement", "for_range_loop"):
            if kind == "for_range_loop" and child == scope.child_by_field_name("right"):
                return []
            nodes = [scope] if kind == "for_range_loop" else []
            first = scope.child_by_field_name("initializer")
            nodes += [first] if first else []
            found = [d for n in nodes for d in decl.declared_by(unit, n)]
            return self._visible([d for d in found if d.start < start], name, wanted)
        if kind in _CONDITIONS:
            condition = scope.child_by_field_name("condition")
            if condition and condition.type == "condition_clause":
                found = [d for d in decl.declared_by(unit, condition) if d.start < start]
                return self._visible(found, name, wanted)
        elif kind == "catch_clause":
            listed = scope.child_by_field_name("parameters")
            entries = [
                d for n in (listed.named_children if listed else ()) for d in decl.declared_by(unit, n)
            ]
            return self._visible(entries, name, wanted)
        elif kind == "lambda_expression":
            return self._in_lambda(unit, scope, child, name, wanted)
        elif kind == "template_declaration":
            return self._visible(decl.template_parameters(unit, scope), name, wanted)
        elif kind in decl.CLASS_NODES and scope.child_by_field_name("body"):
            return self._pick(self._in_class(unit, scope, name), wanted)
        return []

    def _from_macros(self, unit: Unit, block: Node, name: bytes, start: int) -> list[Declared]:
        """The declarations of a name in the macros that are used as statements of a block before a place."""
        uses = unit.tables.get((block.id, "macros"))
        if uses is None:
            uses = unit.tables[block.id, "macros"] = list(self._statements_of_macros(unit, block))
        return [
            declared for use in uses if use.start_byte < start for declared in self._by_macro(unit, use, name)
        ]

    def _statements_of_macros(self, unit: Unit, block: Node) -> Iterator[Node]:
        for statement in block.named_children:
            if statement.type != "expression_statement" or not statement.named_child_count or unit.origins:
                continue
            first: Node | None = statement.named_children[0]
            if first is not None and first.type == "call_expression":
                first = first.child_by_field_name("function")
            if first is None or first.type != "identifier":
                continue
            if self.project.macro_kind(unit.text(first), unit.path) == "statement":
                yield first

    def _in_lambda(
        self, unit: Unit, scope: Node, child: Node, name: bytes, wanted: frozenset[str]
    ) -> list[Declared]:
        captures = scope.child_by_field_name("captures")
        if child == captures:
            return []
        found = self._visible(decl.parameters(unit, scope.child_by_field_name("declarator")), name, wanted)
        if found:
            return found
        for capture in captures.named_children if captures else ():
            left = capture.child_by_field_name("left")
            if capture.type == "lambda_capture_initializer" and left and unit.text(left) == name:
                right = capture.child_by_field_name("right")
                entry = Declared(name, decl.VALUE, unit, capture, None, None, right, left.start_byte)
                return self._pick([entry], wanted)
        return self._visible(decl.template_parameters(unit, scope), name, wanted)

    def _owner(self, unit: Unit, function: Node) -> list[tuple[Unit, Node]]:
        """The class that a function defined outside of it belongs to."""
        name = decl.name_part(function.child_by_field_name("declarator"))
        scope = name.child_by_field_name("scope") if name and name.type == "qualified_identifier" else None
        return self._class_of(unit, name) if scope and name else []

    def _owner_namespace(self, unit: Unit, node: Node) -> tuple[bytes, ...]:
        """The namespace in the qualified name of the function around a node."""
        scope: Node | None = node
        while scope is not None and scope.type != "function_definition":
            scope = scope.parent
        name = decl.name_part(scope.child_by_field_name("declarator")) if scope else None
        if name is None or name.type != "qualified_identifier":
            return ()
        return tuple(re.findall(rb"(\w+)(?:<[^>]*>)?\s*::", unit.text(name)))

    @staticmethod
    def _pick(found: Iterable[Declared], wanted: frozenset[str]) -> list[Declared]:
        return [declared for declared in found if declared.kind in wanted]

    def _visible(self, found: Iterable[Declared], name: bytes, wanted: frozenset[str]) -> list[Declared]:
        return [d for d in found if d.name == name and d.kind in wanted]

    def _compatible(self, found: list[Declared], start: int) -> list[Declared]:
        """Those that can be compiled together with a place, if there are several."""
        if len(found) < 2 or found[0].unit.origins or found[0].unit is self.model:
            return found
        directives = self.project.directives(found[0].unit.path)
        return [d for d in found if directives.compatible(d.start, start)] or found
