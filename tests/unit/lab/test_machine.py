from __future__ import annotations

import itertools
from pathlib import Path

from numamirror_build.lab.layout import Layout, even_layout, parse_layout
from numamirror_build.lab.machine import Files, machine_arguments

FILES = Files(Path("/k/vmlinuz"), Path("/proc/self/fd/7"), {"control": Path("/proc/self/fd/8")}, None)


def options(layout: Layout, name: str, files: Files = FILES) -> list[str]:
    """The values of an option of QEMU's command line."""
    arguments = machine_arguments(layout, files)
    return [value for option, value in itertools.pairwise(arguments) if option == name]


def test_each_node_is_a_socket_with_its_memory() -> None:
    """Two nodes of two CPUs: their memory, their distances, and all CPUs but the first one plugged in."""
    layout = even_layout(2, 2, "512M", 21)
    assert options(layout, "-smp") == ["1,sockets=2,cores=5,threads=1,maxcpus=10"]
    assert options(layout, "-m") == ["1024M"]
    assert options(layout, "-object") == [
        "memory-backend-ram,id=memory0,size=512M",
        "memory-backend-ram,id=memory1,size=512M",
    ]
    assert options(layout, "-numa") == [
        "node,nodeid=0,memdev=memory0",
        "cpu,node-id=0,socket-id=0",
        "node,nodeid=1,memdev=memory1",
        "cpu,node-id=1,socket-id=1",
        "dist,src=0,dst=0,val=10",
        "dist,src=0,dst=1,val=21",
        "dist,src=1,dst=0,val=21",
        "dist,src=1,dst=1,val=10",
    ]
    assert [value for value in options(layout, "-device") if "cpu" in value] == [
        "max-x86_64-cpu,socket-id=0,core-id=1,thread-id=0",
        "max-x86_64-cpu,socket-id=1,core-id=0,thread-id=0",
        "max-x86_64-cpu,socket-id=1,core-id=1,thread-id=0",
    ]


def test_gaps_are_empty_sockets() -> None:
    """A number without a node gets a socket without CPUs and memory; so others keep their numbers."""
    table = {
        "node": [
            {"id": 0, "cpus": 1, "memory": "384M"},
            {"id": 2, "memory": "64M"},
            {"id": 3, "cpus": 2},
        ],
        "distances": [{"from": 0, "to": 3, "distance": 33}],
    }
    layout = parse_layout(table, "file")
    assert options(layout, "-smp") == ["1,sockets=4,cores=3,threads=1,maxcpus=12"]
    numa = options(layout, "-numa")
    assert [value for value in numa if value.startswith("node")] == [
        "node,nodeid=0,memdev=memory0",
        "node,nodeid=1",
        "node,nodeid=2,memdev=memory2",
        "node,nodeid=3",
    ]
    assert {"dist,src=0,dst=3,val=33", "dist,src=3,dst=0,val=33", "dist,src=0,dst=1,val=21"} < set(numa)
    assert len([value for value in numa if value.startswith("dist")]) == 16
    assert [value for value in options(layout, "-device") if "cpu" in value] == [
        "max-x86_64-cpu,socket-id=3,core-id=0,thread-id=0",
        "max-x86_64-cpu,socket-id=3,core-id=1,thread-id=0",
    ]


def test_there_are_more_than_eight_places_for_cpus() -> None:
    """With fewer, the kernel addresses CPUs in a way in which QEMU loses those behind an empty place."""
    for nodes in (1, 2, 3, 8, 9, 16):
        for cpus in (1, 2, 4):
            [size] = options(even_layout(nodes, cpus, "512M", 21), "-smp")
            places = int(size.rpartition("=")[2])
            assert places > 8 and places >= nodes * cpus


def test_the_host_is_read_only_and_the_scratch_folder_is_not() -> None:
    """Commas in a path do not end it."""
    layout = even_layout(2, 1, "512M", 21)
    assert options(layout, "-fsdev") == [
        "local,id=host,path=/,security_model=none,multidevs=remap,readonly=on"
    ]
    scratch = Files(FILES.kernel, FILES.initramfs, FILES.ports, Path("/a,b"))
    assert options(layout, "-fsdev", scratch)[1] == (
        "local,id=scratch,path=/a,,b,security_model=none,multidevs=remap,readonly=off"
    )


def test_ports_lead_where_they_should() -> None:
    """Each port is a character device that the guest finds by its name."""
    layout = even_layout(2, 1, "512M", 21)
    assert options(layout, "-chardev") == ["file,id=control,path=/proc/self/fd/8"]
    assert "virtserialport,chardev=control,name=control" in options(layout, "-device")
    assert options(layout, "-kernel") == ["/k/vmlinuz"]
    assert options(layout, "-initrd") == ["/proc/self/fd/7"]
