"""What ``cache list`` and ``cache prune`` answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numamirror_build.cache import Item, Pruned, list_items, prune
from numamirror_build.cli.answers import Answer, table

_DAY = 86_400.0


def listed(root: Path) -> Answer:
    """The items by kind, with sizes and ages."""
    items = list_items(root)
    document = {**_root(root), "size": _sum(items), "items": [item.as_json() for item in items]}
    return Answer(document, "\n".join([_named(root), "", *_by_kind(items)]))


def pruned(root: Path, *, days: float, dry_run: bool) -> Answer:
    """What was taken away, or would be."""
    made: Pruned = prune(root, unused_for=days * _DAY, dry_run=dry_run)
    document = {
        **_root(root),
        "dry_run": dry_run,
        "size": _sum(made.removed),
        "removed": [item.as_json() for item in made.removed],
        "in_use": [item.as_json() for item in made.in_use],
    }
    lines = _by_kind(made.removed) if made.removed else []
    lines += [] if root.is_dir() else [_named(root)]
    verb = "would be removed" if dry_run else "removed"
    lines += [f"{len(made.removed)} folders and logs {verb}, {_megabytes(_sum(made.removed))}"]
    lines += [f"left, as a process uses it: {item.path}" for item in made.in_use]
    return Answer(document, "\n".join(lines))


def _root(root: Path) -> dict[str, Any]:
    return {"root": str(root), "exists": root.is_dir()}


def _named(root: Path) -> str:
    return str(root) if root.is_dir() else f"{root}: there is no such folder"


def _by_kind(items: Sequence[Item]) -> list[str]:
    now = time.time()
    rows = []
    for kind in sorted({item.kind for item in items}):
        of = [item for item in items if item.kind == kind]
        ages = [max(0.0, now - item.last_used) / _DAY for item in of]
        unfinished = sum(not item.finished for item in of)
        rows.append(
            [
                kind,
                str(len(of)),
                _megabytes(_sum(of)),
                f"{min(ages):.1f}",
                f"{max(ages):.1f}",
                str(unfinished),
            ]
        )
    rows.append(["all", str(len(items)), _megabytes(_sum(items)), "", "", ""])
    head = ["kind", "number", "size", "days since use: least", "most", "unfinished"]
    return table(head, rows, right=range(1, 6))


def _sum(items: Sequence[Item]) -> int:
    return sum(item.size for item in items)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
