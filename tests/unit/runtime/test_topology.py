"""What the runtime makes of sysfs, procfs and control groups, on made-up machines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numamirror_build import data
from numamirror_build.patching.render import render_files
from tests.machines import GIB, Machine, Node

pytestmark = pytest.mark.build

DRIVER = r"""
#include "ggml-numa-topology.h"
#include <cinttypes>
#include <cstdio>
#include <string>
int main(int, char ** argv) {
    const std::string root = argv[1];
    printf("{\"nodes\": [");
    const char * comma = "";
    for (const auto & node : ggml_numa_topology_nodes(root)) {
        const auto room = ggml_numa_topology_room_node(root, node.id);
        const auto cpus = ggml_numa_topology_list_format(node.cpus);
        printf("%s{\"id\": %d, \"cpus\": \"%s\", \"skipped\": \"%s\", ",
            comma, node.id, cpus.c_str(), node.skipped.c_str());
        printf("\"free\": %" PRIu64 ", \"reclaimable\": %" PRIu64 "}", room.free, room.reclaimable);
        comma = ", ";
    }
    const auto group = ggml_numa_topology_room_cgroup(root);
    printf("], \"cgroup\": %" PRIu64 ", \"memory\": %" PRIu64 "}\n",
        group.known ? group.free + group.reclaimable : UINT64_MAX, ggml_numa_topology_memory(root));
}
"""

NO_LIMIT = 2**64 - 1

Read = Callable[[Machine], Any]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints what the runtime's topology functions read below a root."""
    folder = tmp_path_factory.mktemp("topology")
    facts = {
        "render": [
            {"template": f"ggml/ggml-numa-topology.{kind}.j2", "path": f"ggml-numa-topology.{kind}"}
            for kind in ("h", "cpp")
        ]
    }
    for path, content in render_files(data.templates(), facts).items():
        (folder / path).write_bytes(content)
    (folder / "main.cpp").write_text(DRIVER)
    program = folder / "topology"
    sources = [folder / "main.cpp", folder / "ggml-numa-topology.cpp"]
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "-o", program, *sources], check=True)
    return program


@pytest.fixture
def read(driver: Path, tmp_path: Path) -> Read:
    """What the runtime reads on a machine."""

    def run(machine: Machine) -> Any:
        root = machine.write(tmp_path / "root")
        done = subprocess.run([driver, root], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    return run


def test_two_nodes(read: Read) -> None:
    """Each node has its CPUs, its free and its reclaimable memory."""
    result = read(Machine({0: Node("0-3,8-11"), 1: Node("4-7,12-15", free=5 * GIB, cache=2 * GIB)}))
    assert [node["cpus"] for node in result["nodes"]] == ["0-3,8-11", "4-7,12-15"]
    assert [node["skipped"] for node in result["nodes"]] == ["", ""]
    assert (result["nodes"][1]["free"], result["nodes"][1]["reclaimable"]) == (5 * GIB, 2 * GIB)
    assert result["memory"] == 128 * GIB


def test_node_ids_with_gaps_and_many_nodes(read: Read) -> None:
    """Node ids may have gaps and go beyond 8, CPUs beyond 512."""
    nodes = {number: Node(f"{number * 64}-{number * 64 + 63}") for number in (0, 3, 9, 12, 100)}
    result = read(Machine(nodes))
    assert [node["id"] for node in result["nodes"]] == [0, 3, 9, 12, 100]
    assert result["nodes"][-1]["cpus"] == "6400-6463"


def test_nodes_that_cannot_be_used_say_why(read: Read) -> None:
    """A node without CPU, one without memory, and those outside of cpuset and affinity are skipped."""
    machine = Machine(
        {0: Node("0-3"), 1: Node(""), 2: Node("4-7", total=0), 3: Node("8-11"), 4: Node("12-15")},
        cpus_allowed="0-2,4-11",
        mems_allowed="0-2,4",
    )
    nodes = {node["id"]: node for node in read(machine)["nodes"]}
    assert nodes[0]["skipped"] == "" and nodes[0]["cpus"] == "0-2"
    assert nodes[1]["skipped"] == "it has no CPU"
    assert nodes[2]["skipped"] == "it has no memory"
    assert "cpuset" in nodes[3]["skipped"] and "memory" in nodes[3]["skipped"]
    assert "CPUs" in nodes[4]["skipped"]


def test_machine_without_numa_has_no_nodes(read: Read) -> None:
    """A kernel without NUMA support lists no nodes."""
    assert read(Machine({}))["nodes"] == []


def test_no_control_group_is_no_limit(read: Read) -> None:
    """Without a control group, and with one that says max, there is no limit."""
    assert read(Machine({0: Node("0")}))["cgroup"] == NO_LIMIT
    machine = Machine({0: Node("0")}, cgroup="0::/a\n", files={"sys/fs/cgroup/a/memory.max": "max\n"})
    assert read(machine)["cgroup"] == NO_LIMIT


def test_version_2_limit_counts_cache_as_room(read: Read) -> None:
    """Room is limit minus use plus the file cache, and the tightest group up to the root counts."""
    machine = Machine(
        {0: Node("0")},
        cgroup="0::/user/job\n",
        files={
            "sys/fs/cgroup/user/job/memory.max": f"{20 * GIB}\n",
            "sys/fs/cgroup/user/job/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/user/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/user/memory.current": f"{6 * GIB}\n",
            "sys/fs/cgroup/user/memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file {GIB}\n",
        },
    )
    assert read(machine)["cgroup"] == 5 * GIB


def test_version_1_limit(read: Read) -> None:
    """The memory controller of version 1 is read too; other controllers are not."""
    machine = Machine(
        {0: Node("0")},
        cgroup="5:cpuset:/x\n4:memory,hugetlb:/job\n",
        files={
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/job/memory.stat": f"total_inactive_file {GIB // 2}\n",
        },
    )
    assert read(machine)["cgroup"] == 4 * GIB - GIB // 2


def test_container_whose_group_path_is_the_hosts(read: Read) -> None:
    """When the path of the group is not there, the limit at the mounted root still counts."""
    machine = Machine(
        {0: Node("0")},
        cgroup="0::/host/only/path\n",
        files={"sys/fs/cgroup/memory.max": f"{GIB}\n", "sys/fs/cgroup/memory.current": "0\n"},
    )
    assert read(machine)["cgroup"] == GIB
