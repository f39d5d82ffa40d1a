"""Small questions to nodes of a syntax tree."""

from __future__ import annotations

from tree_sitter import Node

from numamirror_build.rewrite.kinds import Unresolved
from numamirror_build.rewrite.units import Unit


def child(node: Node, name: str) -> Node:
    """The child in a field of a node.

    Raises:
        Unresolved: there is none; the parse has an error there.
    """
    found = node.child_by_field_name(name)
    if found is None:
        raise Unresolved(f"a {node.type} without its {name}")
    return found


def entries(node: Node) -> list[Node]:
    """The named children of a list, comments left out."""
    return [entry for entry in node.named_children if entry.type != "comment"]


def short(unit: Unit, node: Node) -> str:
    """The text of a node on one line, cut if it is long."""
    text = b" ".join(unit.text(node).split()).decode("utf-8", "replace")
    return text if len(text) <= 60 else text[:57] + "..."


def last_part(node: Node) -> Node:
    """The part of a qualified name after its last ``::``."""
    while node.type == "qualified_identifier":
        node = child(node, "name")
    if node.type == "dependent_name" and node.named_child_count:
        node = node.named_children[-1]
    return node


def last_name(node: Node) -> Node:
    """The name at the end of a qualified name, without template arguments."""
    node = last_part(node)
    return child(node, "name") if node.type.startswith("template_") else node


def trailing(declarator: Node | None) -> Node | None:
    """The type after ``->`` in a function's declarator."""
    for part in declarator.named_children if declarator else ():
        if part.type == "trailing_return_type":
            return part.named_children[-1]
    return None
