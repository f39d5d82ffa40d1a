"""The command line of the virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numamirror_build.lab.layout import DISTANCE, LOCAL, MIB, Layout, Node

# without its checks of timers and its watchdog the kernel also starts when the host is busy
_KERNEL = "console=ttyS0 quiet no_timer_check nowatchdog panic=-1"


ANY_CPU = "max"  # with everything that QEMU can do itself


@dataclass(frozen=True)
class Files:
    """What the machine is given: files to start with, where its ports lead, and which folders it sees."""

    kernel: Path
    initramfs: Path
    ports: Mapping[str, Path]
    scratch: Path | None


def machine_arguments(layout: Layout, files: Files, cpu: str = ANY_CPU) -> list[str]:
    """The arguments for QEMU; ``cpu`` is a model that it knows.

    Ports are character devices that the guest finds by name; the console is QEMU's standard output.
    """
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", cpu),
        *_nodes(layout, cpu),
        *("-kernel", str(files.kernel), "-initrd", str(files.initramfs)),
        *("-append", _KERNEL),
        *("-serial", "stdio"),
        *_ports(files.ports),
        *_folder("host", Path("/"), "readonly=on"),
        *(_folder("scratch", files.scratch, "readonly=off") if files.scratch else ()),
    ]


def _nodes(layout: Layout, cpu: str) -> list[str]:
    """A socket for each node.

    QEMU wants all numbers up to the highest, and the kernel numbers nodes as it meets them,
    those of CPUs first.
    So each number gets a socket, which may have no CPU in it:
    that keeps nodes without CPUs in their place, and leaves a gap where there is no node.
    """
    by_id = {node.id: node for node in layout.nodes}
    sockets = [by_id.get(number, Node(number, 0, 0)) for number in range(max(by_id) + 1)]
    cores = layout.places_per_node
    size = f"1,sockets={len(sockets)},cores={cores},threads=1,maxcpus={len(sockets) * cores}"
    arguments = ["-smp", size, "-m", f"{layout.memory // MIB}M"]
    for node in sockets:
        memory = f",memdev=memory{node.id}" if node.memory else ""
        if node.memory:
            arguments += ["-object", f"memory-backend-ram,id=memory{node.id},size={node.memory // MIB}M"]
        arguments += ["-numa", f"node,nodeid={node.id}{memory}"]
        arguments += ["-numa", f"cpu,node-id={node.id},socket-id={node.id}"]
    for i, one in enumerate(sockets):
        for j, other in enumerate(sockets):
            distance = _distance(layout, one.id, other.id) if i != j else LOCAL
            arguments += ["-numa", f"dist,src={i},dst={j},val={distance}"]
    for node in sockets:
        for core in range(node.cpus):
            if (node.id, core) != (0, 0):  # that one is there from the start
                arguments += ["-device", f"{cpu}-x86_64-cpu,socket-id={node.id},core-id={core},thread-id=0"]
    return arguments


def _distance(layout: Layout, one: int, other: int) -> int:
    numbers = [node.id for node in layout.nodes]
    if one in numbers and other in numbers:
        return layout.distances[numbers.index(one)][numbers.index(other)]
    return DISTANCE


def _ports(ports: Mapping[str, Path]) -> list[str]:
    arguments = ["-device", f"virtio-serial-pci,max_ports={len(ports) + 1}"]  # the first is for consoles
    for name, path in ports.items():
        arguments += ["-chardev", f"file,id={name},path={escaped(path)}"]
        arguments += ["-device", f"virtserialport,chardev={name},name={name}"]
    return arguments


def _folder(name: str, path: Path, access: str) -> list[str]:
    options = f"local,id={name},path={escaped(path)},security_model=none,multidevs=remap,{access}"
    return ["-fsdev", options, "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


def escaped(path: Path) -> str:
    """A path as a value of QEMU's options, in which commas separate."""
    return str(path).replace(",", ",,")
