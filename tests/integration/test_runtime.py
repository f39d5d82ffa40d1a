"""The mirror's runtime in the built libraries, driven through ggml's own interface."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.machines import GIB, Machine, Node

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
    "scenario", ["set", "memset", "clear", "copy", "graph", "free", "free-neighbour", "nested", "loading"]
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
    """When more than a hundredth of a load's weights lies elsewhere, it fails and names the first."""
    result = drive(driver, "unreplicated", 2, 1, GGML_NUMA_MIRROR_NODES="2")
    assert result["committed"] is False
    assert result["status"]["error"]["code"] == "not-replicated"
    assert "left.out in a buffer of type CPU" in result["stderr"]


def test_record_keeps_what_is_not_replicated(driver: Path) -> None:
    """What a load has left out, and gone on without, stays in the record when the next load ends."""
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    result = drive(driver, "unreplicated", 2, 1, **env)
    assert result["committed"] is True
    assert [tensor["name"] for tensor in result["status"]["tensors"]["not_replicated"]] == ["left.out"]
    assert result["status"]["tensors"]["eligible"] == 3


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


@pytest.mark.parametrize("variable", ["BIND", "BARRIER", "STEALING", "FALLBACK"])
def test_settings_without_meaning_are_refused(driver: Path, variable: str) -> None:
    """A setting with an unknown value is refused with what it can be, whatever the fallback."""
    env = {"GGML_NUMA_MIRROR_FALLBACK": "warn", f"GGML_NUMA_MIRROR_{variable}": "yes"}
    result = drive(driver, "set", 2, 1, GGML_NUMA_MIRROR_NODES="2", **env)
    assert result["status"]["error"]["code"] == "config"
    assert f"GGML_NUMA_MIRROR_{variable} is 'yes'; it can be " in result["stderr"]


def test_fallback_goes_on_without_mirror_and_says_so(driver: Path, tmp_path: Path) -> None:
    """With the fallback to warn, what cannot be had is done without: loudly, and in the record."""
    root = Machine({0: Node("0-3")}).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    result = drive(driver, "set", 1, 2, **env)
    assert result["after"]
    assert not result["status"]["active"]
    assert result["status"]["error"]["code"] == "one-node"
    assert "goes on WITHOUT" in result["stderr"]


def test_fallback_takes_ordinary_memory_where_replicas_do_not_fit(driver: Path, tmp_path: Path) -> None:
    """A buffer that does not fit in every replica is an ordinary one then; answers stay right."""
    root = Machine({0: Node("0-3"), 1: Node("4-7", free=1 << 20, cache=0)}).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    result = drive(driver, "set", 1, 2, **env)
    assert result["before"] and result["after"]
    assert result["status"]["tensors"]["replicated"] == 0
    assert result["status"]["error"]["code"] == "no-memory"
    assert "goes on WITHOUT" in result["stderr"]


@pytest.mark.parametrize(
    ("threads", "teams"), [(1, [1, 0]), (2, [2, 0]), (4, [3, 1]), (5, [4, 1]), (8, [6, 2])]
)
def test_teams_are_as_large_as_their_nodes(
    driver: Path, tmp_path: Path, threads: int, teams: list[int]
) -> None:
    """Threads are shared out as CPUs are: three of four to a node with three of four CPUs."""
    root = Machine({0: Node("0-2"), 1: Node("3")}).write(tmp_path)
    result = drive(driver, "places", 2, threads, GGML_NUMA_MIRROR_ROOT=str(root))
    assert [node["threads"] for node in result["status"]["nodes"]] == teams
    assert [place[0] for place in result["places"]] == [0] * teams[0] + [1] * teams[1]


@pytest.mark.parametrize(("nodes", "threads"), [(2, 3), (3, 2), (3, 5), (4, 1), (4, 4), (7, 5)])
def test_teams_of_equal_nodes_differ_by_one_thread(driver: Path, nodes: int, threads: int) -> None:
    """Every thread is in one team, teams are blocks, and their sizes differ by one at most."""
    result = drive(driver, "places", nodes, threads, GGML_NUMA_MIRROR_NODES=str(nodes))
    sizes = [node["threads"] for node in result["status"]["nodes"]]
    assert sum(sizes) == threads
    assert max(sizes) - min(sizes) <= 1
    replicas = [place[0] for place in result["places"]]
    assert replicas == [k for k, size in enumerate(sizes) for _ in range(size)]


needs_two_cpus = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1, to call them two nodes"
)


@needs_two_cpus
def test_threads_are_bound_to_the_cpus_of_their_node(driver: Path, tmp_path: Path) -> None:
    """Where one CPU is one node and the other another, each thread may run on its node's CPU alone."""
    root = Machine({0: Node("0"), 1: Node("1")}).write(tmp_path)
    result = drive(driver, "places", 2, 2, GGML_NUMA_MIRROR_ROOT=str(root))
    assert result["places"] == [[0, 0, 1], [1, 1, 1]]
    assert result["status"]["threads"]["bound"]


@needs_two_cpus
@pytest.mark.parametrize(("siblings", "n_cpus"), [("0-1", 2), (None, 1)])
def test_threads_are_bound_to_cores_on_request(
    driver: Path, tmp_path: Path, siblings: str | None, n_cpus: int
) -> None:
    """Bound to a core, a thread may run on all its CPUs; one that says nothing of siblings is a CPU."""
    topology = {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": siblings for cpu in (0, 1)}
    files = {name: f"{text}\n" for name, text in topology.items() if text}
    root = Machine({0: Node("0-1"), 1: Node("2")}, files=files).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_BIND": "core"}
    result = drive(driver, "places", 2, 3, **env)
    assert result["status"]["threads"]["to"] == "core"
    assert [place[2] for place in result["places"][:2]] == [n_cpus, n_cpus]


@needs_two_cpus
def test_mask_on_another_node_chooses_that_nodes_replica(driver: Path, tmp_path: Path) -> None:
    """A thread that the user put on a node's CPUs reads that node's replica, whatever its number."""
    root = Machine({0: Node("0"), 1: Node("1")}).write(tmp_path)
    result = drive(driver, "places-1", 2, 1, GGML_NUMA_MIRROR_ROOT=str(root))
    assert result["places"] == [[1, 1, 1]]


@pytest.mark.parametrize("barrier", ["flat", "teams"])
@pytest.mark.parametrize(("nodes", "threads"), [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 5), (4, 4)])
def test_barriers_hold_threads_together(driver: Path, nodes: int, threads: int, barrier: str) -> None:
    """Thousands of small nodes, half of them writing to a cache: a leaking barrier gives other values."""
    env = {
        "GGML_NUMA_MIRROR_NODES": str(nodes),
        "GGML_NUMA_MIRROR_BARRIER": barrier,
        "GGML_NUMA_MIRROR_CHECK": "1",
    }
    result = drive(driver, "cache-chain", nodes, threads, **env)
    assert result["after"] and result["replicas_equal"]
    assert result["status"]["threads"]["barrier"] == barrier
    assert result["status"]["nodes_replicated"] == (8000 if nodes > 1 else 0)


@needs_two_cpus
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_kernel_that_takes_no_memory_policy_is_reported(driver: Path, tmp_path: Path, error: int) -> None:
    """Where mbind is refused, as in containers, the run goes on and the record says why."""
    root = Machine({0: Node("0"), 1: Node("1")}).write(tmp_path)
    result = drive(driver, "set", 2, 2, GGML_NUMA_MIRROR_ROOT=str(root), DRIVER_REFUSES=str(error))
    assert result["after"] and result["replicas_equal"]
    assert result["status"]["memory_policy"]["error"] == os.strerror(error)
    assert [node["pages"] for node in result["status"]["nodes"]] == [None, None]


@pytest.mark.parametrize(("stealing", "env"), [("off", {}), ("on", {"GGML_NUMA_MIRROR_STEALING": "on"})])
def test_threads_keep_to_their_part_without_stealing(
    driver: Path, stealing: str, env: dict[str, str]
) -> None:
    """Work is taken over when asked for only; values are right either way, and the record says which."""
    env = {"GGML_NUMA_MIRROR_NODES": "2", **env}
    assert drive(driver, "places", 2, 3, **env)["keeps"] == [stealing == "off"] * 3
    result = drive(driver, "cache-mul-mat", 2, 3, **env)
    assert result["after"] and result["status"]["threads"]["stealing"] == stealing


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
