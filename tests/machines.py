"""Made-up machines: sysfs, procfs and cgroupfs as files below a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from numamirror_build.machine.files import ids

MIB = 1 << 20
GIB = 1 << 30


@dataclass
class Node:
    """One NUMA node; sizes in bytes. ``package`` is the processor that its CPUs belong to."""

    cpus: str
    total: int = 64 * GIB
    free: int = 32 * GIB
    cache: int = 16 * GIB
    distances: str | None = None
    package: int | None = None


@dataclass
class Machine:
    """A machine with nodes by id; allowed sets and memory limits are those of the process."""

    nodes: dict[int, Node]
    cpus_allowed: str | None = None
    mems_allowed: str | None = None
    cgroup: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        """Write the machine's files below root and return it."""
        for number, node in self.nodes.items():
            folder = f"sys/devices/system/node/node{number}"
            values = {
                "MemTotal": node.total,
                "MemFree": node.free,
                "Active(file)": node.cache // 2,
                "Inactive(file)": node.cache // 2,
                "SReclaimable": 0,
            }
            lines = [f"Node {number} {name}: {value // 1024:>12} kB\n" for name, value in values.items()]
            self._file(root, f"{folder}/cpulist", node.cpus + "\n")
            self._file(root, f"{folder}/meminfo", "".join(lines))
            if node.distances is not None:
                self._file(root, f"{folder}/distance", node.distances + "\n")
            if node.package is not None:
                for cpu in ids(node.cpus):
                    name = f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
                    self._file(root, name, f"{node.package}\n")
        # other entries of that folder must not be taken for nodes
        self._file(root, "sys/devices/system/node/online", "0\n")
        total, free, cache = (
            sum(getattr(node, name) for node in self.nodes.values()) for name in ("total", "free", "cache")
        )
        values = {"MemTotal": total, "MemFree": free, "Active(file)": 0, "Inactive(file)": cache}
        lines = [f"{name}: {value // 1024} kB\n" for name, value in values.items()]
        self._file(root, "proc/meminfo", "".join(lines))
        status = "Name:\ttest\n"
        if self.cpus_allowed is not None:
            status += f"Cpus_allowed_list:\t{self.cpus_allowed}\n"
        if self.mems_allowed is not None:
            status += f"Mems_allowed_list:\t{self.mems_allowed}\n"
        self._file(root, "proc/self/status", status)
        if self.cgroup is not None:
            self._file(root, "proc/self/cgroup", self.cgroup)
        for name, content in self.files.items():
            self._file(root, name, content)
        return root

    @staticmethod
    def _file(root: Path, name: str, content: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
