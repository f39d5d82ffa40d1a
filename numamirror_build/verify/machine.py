"""Facts about this machine that a verification depends on or should mention."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def usable_nodes(root: Path = Path("/")) -> tuple[int, ...]:
    """Ids of the NUMA nodes that have memory and a CPU that this process may run on; (0,) without NUMA.

    Args:
        root: where the file system with ``sys`` begins; another one for tests.
    """
    folder = root / "sys/devices/system/node"
    with_memory = _ids(folder / "has_memory") or _ids(folder / "has_normal_memory")
    cpus, memory = _allowed(root, "Cpus"), _allowed(root, "Mems")
    nodes = [
        node
        for node in sorted(_ids(folder / "online"))
        if (not with_memory or node in with_memory)
        and (not memory or node in memory)
        and _ids(folder / f"node{node}/cpulist") & cpus
    ]
    return tuple(nodes) or (0,)


def describe() -> dict[str, Any]:
    """This machine for a report: processor, CPUs, nodes, kernel; nothing that names it or its user."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return {
        "processor": match[1] if match else platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "nodes": len(usable_nodes()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _allowed(root: Path, what: str) -> set[int]:
    try:
        text = (root / "proc/self/status").read_text()
    except OSError:
        return set()
    match = re.search(rf"^{what}_allowed_list:\s*(\S+)$", text, re.MULTILINE)
    return _list(match[1]) if match else set()


def _ids(path: Path) -> set[int]:
    try:
        return _list(path.read_text().strip())
    except OSError:
        return set()


def _list(text: str) -> set[int]:
    ids: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ids |= set(range(int(first), int(last or first) + 1))
    return ids
