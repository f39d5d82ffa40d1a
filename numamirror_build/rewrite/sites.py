"""The values that the rewrite engine makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numamirror_build.errors import ConfigError

ACCESSOR_HEADER = "ggml-numa-mirror.h"
"""The header that declares the accessors, and the one file that may name the field."""

GETTER = "tensor_data"
LOOP_GETTER = "tensor_data_in_loop"
SETTER = "tensor_set_data"


@dataclass(frozen=True, order=True)
class Edit:
    """One replacement in one file.

    Attributes:
        path: the file, relative to the tree's root, with ``/``.
        start: offset in bytes of the first byte that is replaced.
        end: offset in bytes after the last one; equal to ``start`` for an insertion.
        old: the bytes there, a check when the edit is applied.
        new: the bytes that take their place.
        rule: which rule made the edit, for example ``read``, ``write`` or ``include``.

    A file's edits never overlap. Edits with the same ``start`` apply in the order they are listed in.
    """

    path: str
    start: int
    end: int
    old: bytes
    new: bytes
    rule: str


@dataclass(frozen=True, order=True)
class Site:
    """One access to a tensor's data.

    Attributes:
        path: the file.
        line: line of the operator or, in a designated initialiser, of the dot; from 1.
        column: its column in bytes, from 1.
        kind: ``read``, ``write``, ``compound`` or ``init``.
        form: ``arrow``, ``dot`` or ``brace``.
        in_macro: whether it stands in the body of a macro.
    """

    path: str
    line: int
    column: int
    kind: str
    form: str
    in_macro: bool


@dataclass(frozen=True)
class AccessReport:
    """All accesses in the files that were searched, and the edits that route them through the accessors."""

    sites: tuple[Site, ...]
    edits: tuple[Edit, ...]

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of sites by file and kind, both sorted: what a lock file holds."""
        counter = Counter((site.path, site.kind) for site in self.sites)
        result: dict[str, dict[str, int]] = {}
        for (path, kind), number in sorted(counter.items()):
            result.setdefault(path, {})[kind] = number
        return result

    def edits_by_file(self) -> dict[str, tuple[Edit, ...]]:
        """The edits of each file, in the order they apply in."""
        result: dict[str, list[Edit]] = {}
        for edit in self.edits:
            result.setdefault(edit.path, []).append(edit)
        return {path: tuple(edits) for path, edits in result.items()}


@dataclass(frozen=True)
class TypeException:
    """What a person says about accesses whose type the engine cannot establish.

    Attributes:
        path: the file.
        function: name of the function (or macro) around the access; empty outside of functions.
        base: text of the expression before ``.data`` or ``->data``, white space removed.
        tensor: whether it is a tensor.
        reason: why that is so.
    """

    path: str
    function: str
    base: str
    tensor: bool
    reason: str


def load_exceptions(document: Mapping[str, Any]) -> tuple[TypeException, ...]:
    """The exceptions of a parsed ``exceptions.toml``: a list of tables ``[[exception]]``.

    Raises:
        ConfigError: a table lacks a key, has one too many, or a value of the wrong type.
    """
    wanted = {"path": str, "function": str, "base": str, "tensor": bool, "reason": str}
    tables = document.get("exception", [])
    result = []
    for number, table in enumerate(tables, 1):
        good = table.keys() == wanted.keys() and all(
            isinstance(table[key], kind) for key, kind in wanted.items()
        )
        if not good:
            raise ConfigError(
                "An exception of the rewrite engine is not valid",
                where=f"exceptions.toml, [[exception]] number {number}",
                why=f"it must have exactly the keys {', '.join(wanted)}",
            )
        result.append(TypeException(**{**table, "base": "".join(table["base"].split())}))
    return tuple(result)


def in_order(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits sorted by file and offset; those at the same place keep their order."""
    return tuple(sorted(edits, key=lambda edit: (edit.path, edit.start, edit.end)))
