"""Facts about machines."""

from __future__ import annotations

import os
from pathlib import Path

from numamirror_build.verify import machine


def describe_machine(root: Path, nodes: dict[int, str], *, memory: str, mems: str, cpus: str) -> None:
    """Write what sysfs and procfs would say."""
    folder = root / "sys/devices/system/node"
    folder.mkdir(parents=True)
    (folder / "online").write_text(",".join(map(str, nodes)) + "\n")
    (folder / "has_memory").write_text(memory + "\n")
    for node, cpulist in nodes.items():
        (folder / f"node{node}").mkdir()
        (folder / f"node{node}/cpulist").write_text(cpulist + "\n")
    status = root / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n")


def test_two_nodes_with_a_gap(tmp_path: Path) -> None:
    """Node ids need not be consecutive."""
    describe_machine(tmp_path, {0: "0-3", 4: "4-7"}, memory="0,4", mems="0-7", cpus="0-7")
    assert machine.usable_nodes(tmp_path) == (0, 4)


def test_nodes_that_do_not_count(tmp_path: Path) -> None:
    """A node without memory, without a CPU, without an allowed CPU or outside the cpuset is not usable."""
    nodes = {0: "0-1", 1: "2-3", 2: "", 3: "4-5", 4: "6-7"}
    describe_machine(tmp_path, nodes, memory="0,2-4", mems="0-3", cpus="0-3,6-7")
    assert machine.usable_nodes(tmp_path) == (0,)


def test_a_machine_without_numa(tmp_path: Path) -> None:
    """No sysfs means one node."""
    assert machine.usable_nodes(tmp_path) == (0,)


def test_description_names_nobody() -> None:
    """The description has what results depend on, and neither host nor user."""
    described = machine.describe()
    assert described["cpus"] == len(os.sched_getaffinity(0))
    assert described["nodes"] >= 1
    assert os.uname().nodename not in described.values()
