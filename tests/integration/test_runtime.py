"""The mirror's runtime in the built libraries, driven through ggml's own interface."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.machines import GIB, Machine, Node

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.patching.apply import PatchedTree

pytestmark = [pytest.mark.sources, pytest.mark.build]

SOURCE = Path(__file__).with_name("runtime_driver.cpp")


@pytest.fixture(scope="module")
def driver(patched_tree: PatchedTree, patched_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver program, linked with the patched build's libraries."""
    program = tmp_path_factory.mktemp("runtime") / "driver"
    libraries = patched_build.libraries
    subprocess.run(
        [
            *("g++", "-std=c++17", "-Wall", "-Werror", "-DGGML_NUMA_MIRROR", "-DGGML_SHARED"),
            *(f"-I{patched_tree.path / 'ggml/include'}", SOURCE, "-o", program),
            *(f"-L{libraries}", "-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{libraries}"),
        ],
        check=True,
    )
    return program


def drive(driver: Path, scenario: str, replicas: int, threads: int, **env: str) -> Any:
    """Run one scenario; variables in ``env`` come on top of a clean environment."""
    done = subprocess.run(
        [driver, scenario, str(replicas), str(threads)],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return {**json.loads(done.stdout), "stderr": done.stderr}


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "scenario", ["set", "memset", "clear", "copy", "graph", "free", "free-neighbour", "nested"]
)
def test_writes_reach_every_replica(driver: Path, scenario: str, threads: int) -> None:
    """What is written to weights, from outside a graph or inside one, is what each team then reads."""
    result = drive(driver, scenario, 3, threads, GGML_NUMA_MIRROR_NODES="3")
    assert result["before"], "all teams read what was loaded"
    assert result["after"], "all teams read what was written"
    assert result["replicas_equal"]
    assert result["offset"] == 0, "outside of graphs the thread reads home"


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "scenario",
    ["cache-inplace", "cache-cpy", "cache-add", "cache-mul-mat", "cache-clear", "cache-set"],
)
def test_writes_to_caches_reach_every_replica(driver: Path, scenario: str, threads: int) -> None:
    """What graphs write to caches is the same in every replica, with fewer or more threads than nodes."""
    env = {"GGML_NUMA_MIRROR_NODES": "3", "GGML_NUMA_MIRROR_CHECK": "1"}
    result = drive(driver, scenario, 3, threads, **env)
    assert result["before"]
    assert result["after"], "all teams read what was written"
    assert result["replicas_equal"]
    assert result["status"]["graphs"]["home"] == 0
    written_by_graph = scenario not in ("cache-clear", "cache-set")
    assert (result["status"]["checks"] > 0) == written_by_graph


@pytest.mark.parametrize(
    ("policy", "weights", "kv"), [("weights", True, False), ("kv", False, True), ("kv,weights", True, True)]
)
def test_policy_says_what_lies_in_the_arena(driver: Path, policy: str, weights: bool, kv: bool) -> None:
    """GGML_NUMA_MIRROR narrows the mirror to weights or to caches; what is left out is ordinary memory."""
    env = {"GGML_NUMA_MIRROR": policy, "GGML_NUMA_MIRROR_NODES": "2"}
    status = drive(driver, "cache-cpy", 2, 2, **env)["status"]
    assert (status["tensors"]["replicated"] == 1) == weights
    assert (status["kv"]["buffers"] == 1) == kv


def test_unknown_policy_is_refused(driver: Path) -> None:
    """A policy that is none is refused with what it can be."""
    result = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR="wieghts", GGML_NUMA_MIRROR_NODES="2")
    assert result["status"]["error"]["code"] == "config"
    assert "GGML_NUMA_MIRROR is 'wieghts'" in result["stderr"]


def test_each_team_reads_its_own_replica(driver: Path) -> None:
    """A write to home that nobody is told of is seen by the first team alone: the check above can fail."""
    result = drive(driver, "direct", 3, 3, GGML_NUMA_MIRROR_NODES="3")
    assert result["before"]
    assert (result["first_row"], result["last_row"]) == (2, 1)
    assert not result["replicas_equal"]


def test_graph_that_writes_weights_runs_at_home(driver: Path) -> None:
    """Such a graph is counted as one that ran on the home replica; the others are mirrored."""
    graphs = drive(driver, "graph", 2, 2, GGML_NUMA_MIRROR_NODES="2")["status"]["graphs"]
    assert graphs == {"mirrored": 2, "home": 1}


def test_weights_that_are_not_replicated_are_an_error(driver: Path) -> None:
    """When more than a hundredth of the weights lies elsewhere, the load fails and names the first."""
    result = drive(driver, "unreplicated", 2, 1, GGML_NUMA_MIRROR_NODES="2")
    assert result["committed"] is False
    assert result["status"]["error"]["code"] == "not-replicated"
    assert "left.out in a buffer of type CPU" in result["stderr"]


@pytest.mark.parametrize("nodes", [2, 4])
def test_buffers_larger_than_a_chunk_are_copied_whole(driver: Path, nodes: int) -> None:
    """A buffer of 52 MiB, copied by several threads in chunks, is equal in every replica."""
    assert drive(driver, "large", nodes, 1, GGML_NUMA_MIRROR_NODES=str(nodes))["large"]


@pytest.mark.parametrize("nodes", ["0", "65", "two", "2x"])
def test_number_of_pretend_nodes_is_checked(driver: Path, nodes: str) -> None:
    """A number of pretend nodes that makes no sense is refused with what it can be."""
    result = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR_NODES=nodes)
    assert result["status"]["error"]["code"] == "config"
    assert f"GGML_NUMA_MIRROR_NODES is '{nodes}'; it can be 1 to 64" in result["stderr"]


def test_one_node_is_refused_with_the_reason(driver: Path, tmp_path: Path) -> None:
    """With one usable node there is nothing to mirror to; nodes that do not count are named."""
    root = Machine({0: Node("0-3"), 1: Node("")}).write(tmp_path)
    result = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR_ROOT=str(root))
    assert result["allocated"] is False
    error = result["status"]["error"]
    assert error["code"] == "one-node"
    assert (
        "only one NUMA node" in error["message"]
        and "node 1 does not count: it has no CPU" in error["message"]
    )
    assert error["message"] in result["stderr"]


def test_node_without_room_is_refused_with_the_numbers(driver: Path, tmp_path: Path) -> None:
    """Room on a node is free memory and reclaimable cache; the message gives both and the need."""
    poor = Node("4-7", free=1 << 20, cache=0)
    root = Machine({0: Node("0-3"), 1: poor}).write(tmp_path)
    error = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR_ROOT=str(root))["status"]["error"]
    assert error["code"] == "no-memory"
    assert "node 1 needs 2.0 MiB, has 1.0 MiB (1.0 MiB free, 0.0 MiB reclaimable)" in error["message"]


def test_reclaimable_cache_is_room(driver: Path, tmp_path: Path) -> None:
    """A node whose memory is full of page cache has room: the check does not refuse it."""
    full = Node("0-3", free=0, cache=GIB)
    root = Machine({0: full}).write(tmp_path)
    result = drive(driver, "set", 1, 1, GGML_NUMA_MIRROR_ROOT=str(root), GGML_NUMA_MIRROR_NODES="1")
    assert result["after"]


def test_control_group_limit_is_refused_with_the_numbers(driver: Path, tmp_path: Path) -> None:
    """All replicas together must fit under the control group's limit."""
    files = {"sys/fs/cgroup/memory.max": f"{3 << 20}\n", "sys/fs/cgroup/memory.current": "0\n"}
    root = Machine({0: Node("0-3")}, cgroup="0::/\n", files=files).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_NODES": "2"}
    error = drive(driver, "set", 2, 1, **env)["status"]["error"]
    assert error["code"] == "no-memory"
    assert "the control group needs 4.0 MiB, has 3.0 MiB" in error["message"]


def test_address_space_limit_is_refused_with_the_reason(driver: Path) -> None:
    """Where the process may not reserve address space, the message says which limit to look at."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIB, hard))
    try:
        error = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR_NODES="64")["status"]["error"]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert error["code"] == "reserve"
    assert "ulimit -v" in error["message"]


def test_status_record_is_written_to_a_file(driver: Path, tmp_path: Path) -> None:
    """GGML_NUMA_MIRROR_STATUS names a file that holds the record of the ended process."""
    record = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(record)}
    drive(driver, "set", 2, 2, **env)
    status = json.loads(record.read_text())
    assert status["active"] and status["replicas"] == 2
    assert status["tensors"]["replicated"] == status["tensors"]["eligible"] == 1
    assert status["graphs"]["mirrored"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
