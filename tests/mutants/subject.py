"""A source that is to be changed: its text, and the places in it where a change may hurt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import tree_sitter_c
import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

PARSERS = {
    False: Parser(Language(tree_sitter_c.language())),
    True: Parser(Language(tree_sitter_cpp.language())),
}

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)
_NAME = re.compile(rb"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Subject:
    """A file, with the files that it includes.

    Attributes:
        path: its path in the tree.
        content: its text.
        others: the other files of the tree that it needs.
        flags: what the compiler needs.
        needs: texts that are put in front of the first function, in that order.
    """

    path: str
    content: bytes
    others: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    flags: tuple[str, ...] = ()
    needs: tuple[bytes, ...] = ()

    @property
    def cpp(self) -> bool:
        """Whether it is C++."""
        return not self.path.endswith(".c")

    @cached_property
    def root(self) -> Node:
        """Its tree."""
        return PARSERS[self.cpp].parse(self.content).root_node

    @cached_property
    def accesses(self) -> tuple[Node, ...]:
        """All expressions that name a member ``data``, whosever, but calls of functions of that name."""
        return tuple(
            node
            for node in walk(self.root)
            if node.type == "field_expression"
            and self.text(node.child_by_field_name("field")) == b"data"
            and not (
                node.parent and node.parent.type == "call_expression" and node.parent.children[0] == node
            )
            and not any(part.type == "preproc_def" for part in around(node))
        )

    @cached_property
    def functions(self) -> tuple[Node, ...]:
        """Its functions."""
        return tuple(node for node in walk(self.root) if node.type == "function_definition")

    def text(self, node: Node | None) -> bytes:
        """The text of a node."""
        return self.content[node.start_byte : node.end_byte] if node else b""

    def replaced(self, start: int, end: int, new: bytes, *needs: bytes) -> Subject:
        """The file with a range replaced, and what the new text needs."""
        return self.changed(self.content[:start] + new + self.content[end:], *needs)

    def changed(self, content: bytes, *needs: bytes) -> Subject:
        """The file with another text."""
        wanted = tuple(dict.fromkeys((*self.needs, *needs)))
        return Subject(self.path, content, self.others, self.flags, wanted)

    def whole(self) -> bytes:
        """The text with what it needs."""
        if not self.needs:
            return self.content
        last = [match.end() for match in _INCLUDE.finditer(self.content)][-1:]
        place = next((end for end in last), 0)
        return self.content[:place] + b"".join(self.needs) + self.content[place:]


def walk(node: Node) -> Iterator[Node]:
    """A node and all that is in it."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        stack += reversed(found.named_children)


def around(node: Node) -> Iterator[Node]:
    """What a node is in, from the inside out."""
    at = node.parent
    while at is not None:
        yield at
        at = at.parent


def statement_of(node: Node) -> Node | None:
    """The statement of a block that a node is in."""
    for part in (node, *around(node)):
        if part.parent is not None and part.parent.type == "compound_statement":
            return part
    return None


def function_of(node: Node) -> Node | None:
    """The function that a node is in."""
    return next((part for part in around(node) if part.type == "function_definition"), None)


def root_name(base: bytes) -> bytes | None:
    """The variable that an expression begins with."""
    found = _NAME.search(base)
    return found[0] if found else None
