"""What the mirror does on real nodes when something is in its way: each case as docs/runtime.md says."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest

from numamirror_build.lab.guest import Command
from numamirror_build.lab.layout import parse_layout
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model
from tests.integration.drivers import compile_driver

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sources,
    pytest.mark.build,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed"),
]

LAYOUT = {
    "node": [
        {"id": 0, "cpus": 1, "memory": "384M"},
        {"id": 1, "cpus": 1, "memory": "128M"},
    ]
}
# becomes the program that its arguments name, after the system calls by which its surroundings get in the way
SURROUNDED = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
if sys.argv[1] == "membind":  # set_mempolicy, MPOL_BIND to node 0, as numactl --membind 0
    nodes = ctypes.c_ulong(1)
    assert libc.syscall(238, 2, ctypes.byref(nodes), 64) == 0
if sys.argv[1] == "seccomp":  # of x86-64's system calls mbind (237) answers EPERM, as in containers
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 237), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
GUEST = r"""
run() {
    "$@" ./driver "$model" 2>/tmp/err | tail -n 1
}
groups=/sys/fs/cgroup
echo +cpuset >$groups/cgroup.subtree_control
mkdir $groups/one
echo 0 >$groups/one/cpuset.cpus
echo 0 >$groups/one/cpuset.mems

cat /proc/sys/kernel/numa_balancing
run env
(echo 0 >$groups/one/cgroup.procs; run env)
run "$python" -c "$surrounded" membind
run "$python" -c "$surrounded" seccomp
./memory_driver expect:150000000 status
"""
CASES = ("nothing", "cpuset", "membind", "seccomp", "memory")


@pytest.fixture(scope="module")
def seen(store: Store, pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The drivers' answer in each case; all of them on one machine, with automatic balancing on."""
    folder = tmp_path_factory.mktemp("failures")
    build = pipeline.portable_builds[1]
    compile_driver(build, "load_driver.cpp", folder / "driver", mirror=True)
    compile_driver(build, "memory_driver.cpp", folder / "memory_driver", mirror=True)
    [model] = [make_model(store, recipe).path for recipe in RECIPES if recipe.name == "dense-q8_0"]
    env = {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", "model": str(model)}
    env |= {"python": sys.executable, "surrounded": SURROUNDED}
    output, errors = bytearray(), bytearray()
    run_in_lab(
        parse_layout(LAYOUT, "layout"),
        Command(("sh", "-c", GUEST), env, folder),
        find_parts(store, progress=Quiet()),
        timeout=400,
        on_stdout=output.extend,
        on_stderr=errors.extend,
        progress=Quiet(),
    )
    balancing, *answers = output.decode().splitlines()
    assert balancing == "1" and len(answers) == len(CASES), (output, errors)
    return {case: json.loads(answer) for case, answer in zip(CASES, answers, strict=True)}


def places(answer: dict[str, Any]) -> dict[int, list[str]]:
    """On which nodes the pages of each node's replica are."""
    return {node["id"]: list(node["pages"]) for node in answer["status"]["nodes"]}


def test_nothing_is_in_the_way(seen: dict[str, Any]) -> None:
    """The other cases differ from this one by what gets in the way alone."""
    assert seen["nothing"]["loaded"]
    assert places(seen["nothing"]) == {0: ["0"], 1: ["1"]}


def test_a_cpuset_of_one_node(seen: dict[str, Any]) -> None:
    """Asking for the mirror is an error that names the node that may not be used."""
    answer = seen["cpuset"]
    assert not answer["loaded"]
    assert answer["status"]["error"]["code"] == "one-node"


def test_memory_bound_to_one_node_by_the_caller(seen: dict[str, Any]) -> None:
    """The mirror's own placement counts more than the policy that the process was started with."""
    assert seen["membind"]["loaded"]
    assert places(seen["membind"]) == {0: ["0"], 1: ["1"]}
    assert seen["membind"]["logits"] == seen["nothing"]["logits"]


def test_placement_that_the_kernel_refuses(seen: dict[str, Any]) -> None:
    """Without mbind the mirror works all the same, and the status record says why pages may be elsewhere."""
    answer = seen["seccomp"]
    assert answer["loaded"] and answer["status"]["active"]
    assert answer["status"]["memory_policy"]["error"] == "Operation not permitted"
    assert answer["logits"] == seen["nothing"]["logits"]


def test_pages_without_a_policy_are_touched_by_their_nodes_threads(seen: dict[str, Any]) -> None:
    """Nine of ten pages of a replica are on its node; the kernel may take some from another."""
    for node in seen["seccomp"]["status"]["nodes"]:
        seen_on = {on: count for on, count in node["pages"].items() if on != "absent"}
        assert seen_on[str(node["id"])] >= 0.9 * sum(seen_on.values()), seen_on


def test_a_node_with_too_little_memory(seen: dict[str, Any]) -> None:
    """What fits on one node alone is refused before anything is allocated, with the numbers of both."""
    error, status = seen["memory"]
    assert error.startswith("numa mirror: not enough memory on node 1; node 0 needs 144.0 MiB, has ")
    assert status["error"] == {"code": "no-memory", "message": error}
    assert status["bytes_per_replica"] == 0
