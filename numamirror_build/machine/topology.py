"""NUMA nodes as the runtime counts them: those with memory and CPUs that this process may use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.machine import files

ROOT = Path("/")


@dataclass(frozen=True)
class Node:
    """A node.

    Attributes:
        id: its number.
        cpus: all its CPUs.
        usable: those that this process may run on.
        cores: how many cores the usable CPUs are; a core's threads share its units.
        total: bytes of memory.
        free: bytes that nobody uses.
        reclaimable: bytes that the kernel gives back when asked: page cache and slab.
        distances: to each node, in the order of their numbers; empty if the kernel does not say.
        packages: the processor packages of its CPUs.
        cache: bytes of the largest cache of one of its CPUs; 0 if unknown.
        skipped: why it is no node for the mirror; None if it is.
    """

    id: int
    cpus: tuple[int, ...]
    usable: tuple[int, ...]
    cores: int
    total: int
    free: int
    reclaimable: int
    distances: tuple[int, ...]
    packages: tuple[int, ...]
    cache: int
    skipped: str | None

    @property
    def room(self) -> int:
        """Bytes that can be had."""
        return self.free + self.reclaimable

    def as_json(self) -> dict[str, Any]:
        """The node for machines."""
        lists = {"cpus": files.as_list(self.cpus), "usable": files.as_list(self.usable)}
        return {**vars(self), **lists, "distances": list(self.distances), "packages": list(self.packages)}


def read_nodes(root: Path = ROOT) -> tuple[Node, ...]:
    """All nodes by ascending number; one without a number of its own where the kernel knows of none."""
    folder = root / "sys/devices/system/node"
    try:
        numbers = [
            int(name[1]) for path in folder.iterdir() if (name := re.fullmatch(r"node(\d+)", path.name))
        ]
    except OSError:
        numbers = []
    return tuple(_node(root, folder, number) for number in sorted(numbers)) or (_only_node(root),)


def mirror_nodes(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Those that get a replica."""
    return tuple(node for node in nodes if node.skipped is None)


def usable_nodes(root: Path = ROOT) -> tuple[int, ...]:
    """The numbers of those that get a replica; (0,) if none does."""
    return tuple(node.id for node in mirror_nodes(read_nodes(root))) or (0,)


def _node(root: Path, folder: Path, number: int) -> Node:
    own = folder / f"node{number}"
    memory = files.sizes(own / "meminfo")
    cpus = files.ids(files.text(own / "cpulist"))
    usable, mems = _allowed(root, cpus), files.status(root, "Mems_allowed_list")
    if not memory.get("MemTotal"):
        skipped = "it has no memory"
    elif mems is not None and number not in files.ids(mems):
        skipped = "this process may not use its memory (cpuset)"
    elif not cpus:
        skipped = "it has no CPU"
    elif not usable:
        skipped = "this process may not run on its CPUs (affinity or cpuset)"
    else:
        skipped = None
    return _made(root, number, cpus, usable, memory, files.text(own / "distance"), skipped)


def _only_node(root: Path) -> Node:
    cpus = files.ids(files.text(root / "sys/devices/system/cpu/online"))
    return _made(root, 0, cpus, _allowed(root, cpus), files.sizes(root / "proc/meminfo"), None, None)


def _made(
    root: Path,
    number: int,
    cpus: tuple[int, ...],
    usable: tuple[int, ...],
    memory: dict[str, int],
    distances: str | None,
    skipped: str | None,
) -> Node:
    folders = {cpu: root / f"sys/devices/system/cpu/cpu{cpu}" for cpu in cpus}
    packages = {files.number(folder / "topology/physical_package_id") for folder in folders.values()}
    cores = {files.text(folders[cpu] / "topology/thread_siblings_list") or str(cpu) for cpu in usable}
    reclaimable = ("Active(file)", "Inactive(file)", "SReclaimable")
    return Node(
        id=number,
        cpus=cpus,
        usable=usable,
        cores=len(cores),
        total=memory.get("MemTotal", 0),
        free=memory.get("MemFree", 0),
        reclaimable=sum(memory.get(name, 0) for name in reclaimable),
        distances=tuple(int(word) for word in (distances or "").split() if word.isdigit()),
        packages=tuple(sorted(package for package in packages if package is not None)),
        cache=_cache(folders[cpus[0]]) if cpus else 0,
        skipped=skipped,
    )


def _allowed(root: Path, cpus: tuple[int, ...]) -> tuple[int, ...]:
    allowed = files.status(root, "Cpus_allowed_list")
    return cpus if allowed is None else tuple(sorted(set(cpus) & set(files.ids(allowed))))


def _cache(cpu: Path) -> int:
    written = [files.text(path) or "" for path in cpu.glob("cache/index*/size")]
    return max((int(size[:-1]) * 1024 for size in written if re.fullmatch(r"\d+K", size)), default=0)
