"""Which places in a file name the field of a tensor.

The search starts from the words of the text, not from the parse: every word that is the field's name
is looked at, and one that the parse cannot explain is an error, not a miss.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.kinds import (
    Array,
    External,
    NoMember,
    Param,
    Pointer,
    Record,
    Signature,
    Type,
    Unresolved,
    bare,
    describe,
    is_clean,
)
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.resolver import Resolver
from numamirror_build.rewrite.rules import Access
from numamirror_build.rewrite.sites import TypeException
from numamirror_build.rewrite.text import FIELD, FIELD_WORD, Text, code_after, code_before
from numamirror_build.rewrite.units import Unit, is_objc

STRUCT = "ggml_tensor"
HEADER = "ggml.h"

_COMPUTED = re.compile(rb"#[ \t]*include[ \t]+[A-Za-z_]")
_ALIAS = re.compile(
    rb"\btypedef\s+(?:struct\s+)?ggml_tensor\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*(?:struct\s+)?ggml_tensor\s*;"
)


@dataclass(frozen=True, order=True)
class Problem:
    """An access that cannot be rewritten: where, and why."""

    path: str
    line: int
    column: int
    reason: str
    source: str


@dataclass(frozen=True)
class Word:
    """A place where the field's name stands in code: its offset, and the operator before it if any."""

    offset: int
    operator: bytes


def words(text: Text) -> Iterator[Word]:
    """The places where the field's name stands in a file's code, calls of functions of that name left out."""
    for match in FIELD_WORD.finditer(text.code):
        operator = operator_before(text.code, match.start())
        after = code_after(text.code, match.end())
        if not (operator and text.code[after : after + 1] == b"("):
            yield Word(match.start(), operator)


def operator_before(code: bytes, offset: int) -> bytes:
    """The operator in front of a name, if it is one that leads to a member; else empty."""
    end = code_before(code, offset)
    return next((o for o in (b"->", b"::", b".") if code.endswith(o, 0, end)), b"")


class Finder:
    """Decides for one place in a tree whether it is an access."""

    def __init__(self, project: Project, resolver: Resolver, exceptions: Iterable[TypeException]) -> None:
        self.project = project
        self.resolver = resolver
        self._exceptions = {(e.path, e.function, e.base): e for e in exceptions}
        self.headers = frozenset(
            path
            for path in project.holders(STRUCT.encode())
            if posixpath.basename(path) == HEADER and self._definitions(path)
        )
        self.has_heirs = self._has_heirs()

    def _definitions(self, path: str) -> list[Record]:
        """The struct as a file defines it, once for every variant of the file."""
        return [
            self.resolver.types.record(declared.unit, declared.node)
            for unit in self.resolver.scopes.units(path)
            for names in decl.namespaces(unit).values()
            for declared in names.get(STRUCT.encode(), [])
            if declared.kind == decl.CLASS and declared.node.child_by_field_name("body")
        ]

    @property
    def struct(self) -> Record:
        """The struct."""
        return self._definitions(min(self.headers))[0]

    def _has_heirs(self) -> bool:
        """Whether some class may inherit from the struct, under whatever name."""
        contents = [self.project.files[path] for path in self.project.holders(STRUCT.encode())]
        names = {
            STRUCT.encode(),
            *(name for content in contents for pair in _ALIAS.findall(content) for name in pair),
        }
        listed = b"|".join(sorted(re.escape(name) for name in names if name))
        heir = re.compile(
            rb"\b(?:struct|class)\s+\w+(?:\s+final)?\s*:[^:;{}()][^;{}()]*\b(?:" + listed + rb")\b"
        )
        return any(heir.search(content) for content in self.project.files.values())

    def can_reach(self, path: str) -> bool:
        """Whether a file, or one that includes it, can see the definition of the struct.

        One that names the struct, or an include by a macro, counts as such.
        """
        context = self.project.context(path)
        return (
            not self.headers.isdisjoint(context)
            or STRUCT.encode() in self.project.names(path)
            or any(_COMPUTED.search(self.project.files[other]) for other in context)
        )

    def access(self, unit: Unit, offset: int, name: bytes = FIELD) -> Access | None:
        """The access whose field name begins at an offset, or None if the name there is something else.

        Args:
            unit: the tree.
            offset: where the name begins.
            name: the field's name, or that of a macro that stands for it.

        Raises:
            Unresolved: it cannot be told.
        """
        node = unit.at(offset, offset + len(name))
        parent = node.parent
        while parent is not None and parent.type in (
            "qualified_identifier",
            "dependent_name",
            "template_method",
        ):
            node, parent = parent, parent.parent
        if parent is None or parent.type != "field_expression":
            raise Unresolved("the code around it cannot be parsed")
        outer = parent.parent
        called = outer is not None and outer.type == "call_expression" and outer.children[0] == parent
        if called and node.type != "template_method":
            return None
        arrow = unit.text(parent.child_by_field_name("operator") or parent) == b"->"
        verdict = self._verdict(unit, parent, arrow)
        if verdict is None:
            return None
        if called:
            raise Unresolved("the < behind it looks like that of a template")
        _check_parse(parent)
        return Access(unit, parent, arrow, verdict)

    def _verdict(self, unit: Unit, node: Node, arrow: bool) -> bool | None:
        """For a tensor, whether the base is a plain pointer; None for any other struct."""
        argument = node.child_by_field_name("argument")
        if argument is None or argument.type == "sizeof_expression":
            raise Unresolved("the base cannot be told from what is before it")
        if argument.type == "call_expression" and self._is_cast(unit, argument):
            raise Unresolved(
                "a cast without a pointer in front of parentheses; write it with more parentheses"
            )
        try:
            kinds = self.resolver.expression(unit, argument)
            answers = self._answers(unit, kinds, arrow)
        except Unresolved:
            said = self._exception(unit, node, argument)
            if said is None:
                raise
            answers = {said.tensor}
            kinds = ()
        if len(answers) > 1:
            names = " or ".join(sorted(describe(bare(kind)) for kind in kinds))
            raise Unresolved(f"it is ambiguous: {names}")
        if answers == {False}:
            return None
        return self._is_raw(unit, argument, kinds, arrow)

    def _answers(self, unit: Unit, kinds: Iterable[Type], arrow: bool) -> set[bool]:
        """Whether it is a tensor, by alternative; one without that member cannot be meant."""
        answers: set[bool] = set()
        missing: NoMember | None = None
        for kind in kinds:
            try:
                answers.add(self._is_tensor(unit, kind, arrow))
            except NoMember as error:
                missing = error
        if missing and not answers:
            raise missing
        return answers

    def _is_cast(self, unit: Unit, call: Node) -> bool:
        callee = call.child_by_field_name("function")
        inner = callee.named_children[0] if callee and callee.named_child_count == 1 else None
        return (
            callee is not None
            and callee.type == "parenthesized_expression"
            and inner is not None
            and inner.type == "identifier"
            and self.resolver.names.is_type(unit, inner)
        )

    def _is_raw(self, unit: Unit, argument: Node, kinds: Iterable[Type], arrow: bool) -> bool:
        if not arrow:
            inner = argument.named_children[0] if argument.type == "parenthesized_expression" else None
            if inner is None or inner.type != "pointer_expression" or inner.children[0].type != "*":
                if not self.resolver.members.has_address(unit, argument):
                    raise Unresolved("the tensor is a temporary value without an address")
                return False
            target = inner.child_by_field_name("argument")
            kinds = self.resolver.expression(unit, target) if target else ()
        found = [bare(kind) for item in kinds for kind in self._meant(bare(item))]
        wrapped = [kind for kind in found if not isinstance(kind, (Pointer, Array))]
        for kind in wrapped:
            if not all(self.holds_field(bare(item)) for item in self.resolver.members.dereferenced(kind)):
                raise Unresolved(f"* and -> on {describe(kind)} lead to different things")
        return not wrapped

    def _meant(self, kind: Type) -> Iterable[Type]:
        return self.resolver.instances.of(kind) if isinstance(kind, Param) else (kind,)

    def _is_tensor(self, unit: Unit, kind: Type, arrow: bool) -> bool:
        kind = bare(kind)
        if arrow:
            answers = {self.holds_field(bare(self.resolver.members.pointee(k))) for k in self._meant(kind)}
            if len(answers) > 1:
                raise Unresolved(f"{describe(kind)} stands for tensors and for others")
            return answers == {True}
        if is_objc(unit.path) and isinstance(kind, Pointer) and not self.holds_field(bare(kind.to)):
            return False  # a property of an Objective-C object
        return self.holds_field(kind)

    def holds_field(self, owner: Type) -> bool:
        """Whether the member ``data`` of a class is the field of a tensor.

        Raises:
            Unresolved: the type is not one that has members, or is not known.
        """
        if isinstance(owner, Signature):
            return self.holds_field(bare(owner.result))
        if isinstance(owner, Param):
            answers = {self.holds_field(bare(kind)) for kind in self.resolver.instances.of(owner)}
            if len(answers) > 1:
                raise Unresolved(f"{describe(owner)} stands for tensors and for others")
            return answers == {True}
        if isinstance(owner, External) and is_clean(owner):
            return False
        if isinstance(owner, Record):
            if self.is_tensor(owner):
                return True
            found = self.resolver.members.find(owner, FIELD)
            if not found and self.resolver.members.definitions(owner):
                raise NoMember(f"{describe(owner)} has no member {FIELD.decode()}")
            return any(self.is_tensor(holder) for holder, _ in found)
        raise Unresolved(f"{describe(owner)} is not a class")

    def is_tensor(self, record: Record) -> bool:
        """Whether a class is the struct itself, and not another one of that name."""
        if record.name != STRUCT:
            return False
        found = self.resolver.members.definitions(record)
        return not found or any(definition.key[0] in self.headers for definition in found)

    def _exception(self, unit: Unit, node: Node, argument: Node) -> TypeException | None:
        base = b"".join(unit.text(argument).split()).decode("utf-8", "replace")
        return self._exceptions.get((unit.path, function_around(unit, node), base))


def function_around(unit: Unit, node: Node) -> str:
    """The name of the function that a node is in; empty outside of functions."""
    scope: Node | None = node
    found = ""
    while scope is not None:
        if scope.type == "function_definition":
            name = decl.name_part(scope.child_by_field_name("declarator"))
            found = unit.text(name).decode("utf-8", "replace") if name else found
        scope = scope.parent
    return found


def _check_parse(node: Node) -> None:
    """Refuse a node whose surroundings, up to the statement it is in, hold errors of the parse."""
    scope: Node | None = node
    while scope is not None and not scope.type.endswith(("_statement", "declaration", "_definition")):
        beside = (scope, scope.prev_sibling, scope.next_sibling)
        if any(sibling is not None and sibling.is_error for sibling in beside):
            raise Unresolved("the code around it cannot be parsed")
        scope = scope.parent
    if node.has_error:
        raise Unresolved("the code before it cannot be parsed")
