"""What of a machine can change between two measurements, and has an influence on them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.machine import files
from numamirror_build.machine.topology import ROOT, Node, mirror_nodes, read_nodes


@dataclass(frozen=True)
class State:
    """A machine with its settings; nothing that names it or its user.

    Attributes:
        processor: its name.
        kernel: system and release.
        virtual: whether a hypervisor says that it is there.
        nodes: all nodes.
        numa_balancing: whether the kernel moves pages to who reads them; None if it does not say.
        huge_pages: the choice of ``transparent_hugepage/enabled``.
        governors: those of the CPUs that this process may run on.
        policy: the memory policy that this process has inherited, as the kernel writes it.
        memory_limit: bytes that are left under the control groups' limits; None without a limit.
        pools: bytes that are set aside on each node in pools of huge pages.
    """

    processor: str
    kernel: str
    virtual: bool
    nodes: tuple[Node, ...]
    numa_balancing: int | None
    huge_pages: str | None
    governors: tuple[str, ...]
    policy: str | None
    memory_limit: int | None
    pools: tuple[int, ...]

    @property
    def mirrored(self) -> tuple[Node, ...]:
        """The nodes that get a replica."""
        return mirror_nodes(self.nodes)

    def as_json(self) -> dict[str, Any]:
        """The state for machines."""
        lists = {"governors": list(self.governors), "pools": list(self.pools)}
        return {**vars(self), **lists, "nodes": [node.as_json() for node in self.nodes]}


def read_state(root: Path = ROOT) -> State:
    """The state of the machine whose file systems begin at a root."""
    nodes = read_nodes(root)
    usable = [cpu for node in nodes for cpu in node.usable]
    governors = {
        files.text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in usable
    }
    cpuinfo = files.text(root / "proc/cpuinfo") or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)
    maps = (files.text(root / "proc/self/numa_maps") or "").split()
    return State(
        processor=name[1] if name else platform.processor() or platform.machine(),
        kernel=f"{platform.system()} {platform.release()}",
        virtual=bool(flags),
        nodes=nodes,
        numa_balancing=files.number(root / "proc/sys/kernel/numa_balancing"),
        huge_pages=files.chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        governors=tuple(sorted(filter(None, governors))),
        policy=maps[1] if len(maps) > 1 else None,
        memory_limit=min(_limits(root, sum(node.total for node in nodes)), default=None),
        pools=tuple(_pool(root, node.id) for node in nodes),
    )


def describe() -> dict[str, Any]:
    """This machine for a report, in a few words."""
    state = read_state()
    return {
        "processor": state.processor,
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "nodes": max(1, len(state.mirrored)),
        "kernel": state.kernel,
        "python": platform.python_version(),
    }


def _pool(root: Path, node: int) -> int:
    folder = root / f"sys/devices/system/node/node{node}/hugepages"
    return sum(
        (files.number(pool / "nr_hugepages") or 0) * int(size[1]) * 1024
        for pool in folder.glob("hugepages-*kB")
        if (size := re.fullmatch(r"hugepages-(\d+)kB", pool.name))
    )


def _limits(root: Path, memory: int) -> Iterator[int]:
    """What is left under each limit, from this process's control group up to the root.

    A limit beyond the machine's memory is none: that is how the older interface writes it.
    """
    for line in (files.text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = controllers == ""
        if not unified and "memory" not in controllers.split(","):
            continue
        mount = root / ("sys/fs/cgroup" if unified else "sys/fs/cgroup/memory")
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            limit = files.number(folder / ("memory.max" if unified else "memory.limit_in_bytes"))
            if limit is not None and limit < memory:
                yield _left(folder, limit, unified)
            if folder == mount:
                break


def _left(group: Path, limit: int, unified: bool) -> int:
    used = files.number(group / ("memory.current" if unified else "memory.usage_in_bytes")) or 0
    prefix = "" if unified else "total_"
    rows = (line.split() for line in (files.text(group / "memory.stat") or "").splitlines())
    stat = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    cache = sum(stat.get(f"{prefix}{name}_file", 0) for name in ("active", "inactive"))
    return max(0, limit - used) + min(used, cache)
