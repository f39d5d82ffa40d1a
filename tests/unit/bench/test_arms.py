"""Arms: which there are, their environments and threads; and the names of tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from numamirror_build.bench.arms import Arm, Task, arms_for, threads_of, usual_threads
from numamirror_build.machine.policy import refused_policy
from numamirror_build.machine.topology import read_nodes
from tests.machines import Machine, Node


def arms(root: Path, nodes: dict[int, Node], pretend: int = 0) -> dict[str, Arm]:
    """The arms of a machine."""
    return {arm.name: arm for arm in arms_for(read_nodes(Machine(nodes).write(root)), pretend)}


def test_two_nodes(tmp_path: Path) -> None:
    """Every alternative that a user has, and the mirror; isolated runs are put in their place."""
    made = arms(tmp_path, {0: Node("0-1"), 2: Node("4-5")})
    assert list(made) == [
        "none",
        "off",
        "isolate-0",
        "isolate-2",
        "interleave",
        "distribute",
        "mirror-weights",
        "mirror",
    ]
    launch = (sys.executable, "-m", "numamirror_build.bench.launch")
    assert made["isolate-2"].prefix == (*launch, "4-5", "bind:2")
    assert made["interleave"].prefix == (*launch, "0-1,4-5", "interleave:0,2")
    assert {name for name, arm in made.items() if arm.tree == "patched"} == {
        "off",
        "mirror-weights",
        "mirror",
    }
    assert {name for name, arm in made.items() if arm.mapped or arm.settles} == {"distribute"}


def test_one_node(tmp_path: Path) -> None:
    """With one node there is the mirror only when nodes are pretended."""
    assert list(arms(tmp_path, {0: Node("0-1")})) == ["none", "off"]
    made = arms(tmp_path, {0: Node("0-1")}, pretend=3)
    assert list(made) == ["none", "off", "mirror-weights", "mirror"]
    assert made["mirror"].environment(Path("/s"))["GGML_NUMA_MIRROR_NODES"] == "3"


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arm has the mirror's settings that are its own, whatever the caller has."""
    monkeypatch.setenv("GGML_NUMA_MIRROR", "all")
    monkeypatch.setenv("GGML_NUMA_MIRROR_STEALING", "on")
    off = Arm("off", "patched").environment(Path("/s"))
    assert not any(name.startswith("GGML_NUMA_MIRROR") for name in off)
    on = Arm("m", "patched", mirror="weights").environment(Path("/s"))
    assert {name: on[name] for name in on if name.startswith("GGML_NUMA")} == {
        "GGML_NUMA_MIRROR": "weights",
        "GGML_NUMA_MIRROR_STATUS": "/s",
    }


def test_names_of_tests() -> None:
    """As llama-bench names them; several requests at once are a factor."""
    tasks = [Task("tg", 64), Task("pp", 32, 100), Task("tok", 8), Task("tok", 8, 100, 4)]
    assert [task.name for task in tasks] == ["tg64", "pp32@d100", "tok8", "tok8x4@d100"]


def test_threads(tmp_path: Path) -> None:
    """An isolated arm has no more threads than its node has CPUs."""
    nodes = {node.id: node for node in read_nodes(Machine({0: Node("0-3"), 1: Node("4-5")}).write(tmp_path))}
    made = {arm.name: arm for arm in arms_for(tuple(nodes.values()), 0)}
    assert threads_of(made["isolate-0"], nodes, [2, 6, 8]) == [2, 4]
    assert threads_of(made["interleave"], nodes, [2, 6, 8]) == [2, 6, 8]
    assert usual_threads(tuple(nodes.values())) == (3, 6)
    assert usual_threads(()) == (1,)


@pytest.mark.skipif(refused_policy(0) is not None, reason="the kernel refuses memory policies here")
def test_the_launcher() -> None:
    """The program runs on the CPUs and with the memory policy that it was launched with."""
    policy = "open('/proc/self/numa_maps').readline().split()[1]"
    look = f"import os; print(sorted(os.sched_getaffinity(0)), {policy})"
    node = read_nodes()[0]
    cpu = node.usable[0]
    command = ["-m", "numamirror_build.bench.launch", str(cpu), f"bind:{node.id}", sys.executable, "-c", look]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"[{cpu}]", f"bind:{node.id}"]
