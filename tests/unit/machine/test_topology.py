"""Nodes of made-up machines: the same that the runtime counts (``tests/unit/runtime/test_topology.py``)."""

from __future__ import annotations

import json
from pathlib import Path

from numamirror_build.machine.topology import mirror_nodes, read_nodes, usable_nodes
from tests.machines import GIB, Machine, Node


def test_two_nodes_with_a_gap(tmp_path: Path) -> None:
    """Node numbers need not be consecutive; distances and packages are read."""
    nodes = {0: Node("0-3", distances="10 21", package=0), 4: Node("4-7", distances="21 10", package=1)}
    first, second = read_nodes(Machine(nodes).write(tmp_path))
    assert usable_nodes(tmp_path) == (0, 4)
    assert (second.id, second.cpus, second.usable) == (4, (4, 5, 6, 7), (4, 5, 6, 7))
    assert (first.distances, second.distances) == ((10, 21), (21, 10))
    assert (first.packages, second.packages) == ((0,), (1,))
    assert (first.total, first.free, first.reclaimable, first.room) == tuple(
        n * GIB for n in (64, 32, 16, 48)
    )


def test_nodes_that_do_not_count(tmp_path: Path) -> None:
    """A node without memory, without a CPU, without an allowed CPU or outside the cpuset gets no replica."""
    nodes = {0: Node("0-1"), 1: Node("2-3", total=0), 2: Node(""), 3: Node("4-5"), 4: Node("6-7")}
    Machine(nodes, cpus_allowed="0-3,6-7", mems_allowed="0-3").write(tmp_path)
    read = read_nodes(tmp_path)
    assert [node.id for node in mirror_nodes(read)] == [0]
    assert [node.skipped for node in read] == [
        None,
        "it has no memory",
        "it has no CPU",
        "this process may not run on its CPUs (affinity or cpuset)",
        "this process may not use its memory (cpuset)",
    ]


def test_threads_of_a_core(tmp_path: Path) -> None:
    """Threads of one core are one core; the largest cache of a CPU counts."""
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    pairs = {folder.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)}
    caches = {f"sys/devices/system/cpu/cpu0/cache/index{n}/size": f"{48 * 8**n}K\n" for n in range(3)}
    (node,) = read_nodes(Machine({0: Node("0-3")}, files={**pairs, **caches}).write(tmp_path))
    assert node.cores == 2
    assert node.cache == 48 * 64 * 1024


def test_a_machine_without_numa(tmp_path: Path) -> None:
    """Without nodes in sysfs the machine is one node with all its CPUs and memory."""
    files = {"sys/devices/system/cpu/online": "0-1\n"}
    Machine({}, cpus_allowed="1", files=files).write(tmp_path)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\nMemFree: 512 kB\n")
    (node,) = read_nodes(tmp_path)
    assert (node.id, node.cpus, node.usable, node.total, node.free) == (0, (0, 1), (1,), 1 << 20, 1 << 19)
    assert usable_nodes(tmp_path) == (0,)


def test_this_machine() -> None:
    """What is read here can be written as JSON, and has a node with this process's CPUs."""
    read = read_nodes()
    assert any(node.usable for node in read)
    json.dumps([node.as_json() for node in read])
