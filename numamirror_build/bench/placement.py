"""Where the memory of a process is: bytes on each node, as the kernel lists them in ``numa_maps``."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE = re.compile(r" file=(\S+)")
_ON_NODE = re.compile(r" N(\d+)=(\d+)")
_PAGE = re.compile(r" kernelpagesize_kB=(\d+)")


@dataclass(frozen=True)
class Placement:
    """Bytes by the number of the node.

    Attributes:
        whole: of everything that the process has.
        model: of the model's files as far as they are mapped.
    """

    whole: dict[str, int] = field(default_factory=dict)
    model: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        return {"whole": self.whole, "model": self.model}


def placement_of(numa_maps: str, files: Collection[str]) -> Placement | None:
    """Add up a process's mappings.

    Args:
        numa_maps: what the kernel wrote.
        files: names of the model's files.

    Returns:
        None where it says nothing: the process has ended, or the kernel knows no nodes.
    """
    made = Placement()
    for line in numa_maps.splitlines():
        size = _PAGE.search(line)
        path = _FILE.search(line)
        name = path[1].rpartition("/")[2].replace("\\040", " ") if path else None
        for node, pages in _ON_NODE.findall(line):
            count = int(pages) * (int(size[1]) if size else 4) << 10
            made.whole[node] = made.whole.get(node, 0) + count
            if name in files:
                made.model[node] = made.model.get(node, 0) + count
    return made if made.whole else None


def look(process: int, files: Collection[str]) -> Placement | None:
    """Where the memory of a running process is; None where the kernel does not say."""
    try:
        written = Path(f"/proc/{process}/numa_maps").read_text(errors="replace")
    except OSError:
        return None
    return placement_of(written, files)


def moved(before: dict[str, int], after: dict[str, int]) -> float:
    """Which share of what is there now is on another node than before, or was not there."""
    total = sum(after.values())
    new = sum(max(0, size - before.get(node, 0)) for node, size in after.items())
    return new / total if total else 0.0
