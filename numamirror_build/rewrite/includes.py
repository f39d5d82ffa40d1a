"""Where a file can include the accessors' header."""

from __future__ import annotations

import re

from numamirror_build.rewrite.preprocessor import Include
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.sites import ACCESSOR_HEADER, Edit
from numamirror_build.rewrite.text import BOM

INCLUDE = "include"


def include_edit(project: Project, path: str, first_use: int | None = None) -> Edit | None:
    """The edit that includes the header after the file's first block of includes; None if it is included.

    A file without an include that is outside of conditionals and braces gets it before its first code.

    Args:
        project: the tree.
        path: the file.
        first_use: offset of the first use of an accessor in it, if it has any.
    """
    text, directives = project.text(path), project.directives(path)
    if any(include.name == ACCESSOR_HEADER for include in directives.includes):
        return None
    free = [
        include
        for include in directives.includes
        if (first_use is None or include.start < first_use)
        and directives.depth(include.start) == 0
        and _depth(project, path, include) == 0
    ]
    content = text.content
    eol = b"\r\n" if b"\r\n" in content[:4096] else b"\n"
    line = b'#include "' + ACCESSOR_HEADER.encode() + b'"' + eol
    if free:
        last = free[0]
        for include in free[1:]:
            if content[last.end : include.start].strip(b" \t\r") != b"\n":
                break
            last = include
        end = content.find(b"\n", last.end)
        if end < 0:
            return Edit(path, len(content), len(content), b"", eol + line, INCLUDE)
        return Edit(path, end + 1, end + 1, b"", line, INCLUDE)
    place = _first_code(project, path)
    return Edit(path, place, place, b"", line, INCLUDE)


def hosts(project: Project, path: str) -> list[str]:
    """The files that include this one in the middle of a function or class; they must include the header."""
    return [
        user
        for user in project.users(path)
        if any(_depth(project, user, include) > 0 for include in project.exact_includes(user, path))
    ]


def _depth(project: Project, path: str, include: Include) -> int:
    """How many braces are open where an include stands."""
    code = bytearray(project.text(path).code[: include.start])
    for start, end in project.directives(path).ranges:
        if start < include.start:
            code[start:end] = b" " * (end - start)
    return code.count(b"{") - code.count(b"}")


def _first_code(project: Project, path: str) -> int:
    """Offset of the line with the first code or the first conditional, behind guards and definitions."""
    text, directives = project.text(path), project.directives(path)
    code = bytearray(text.code)
    for start, end in directives.ranges:
        code[start:end] = b" " * (end - start)
    match = re.search(rb"\S", bytes(code))
    places = [match.start()] if match else [len(code)]
    places += [
        group.start for group in directives.groups if not group.guard and directives.depth(group.start) == 1
    ]
    place = min(places)
    line = text.content.rfind(b"\n", 0, place) + 1
    if text.code[line:place].strip():
        return place
    return line or len(BOM) * text.content.startswith(BOM)
