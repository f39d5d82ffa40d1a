"""What the mirror does on real nodes when something is in its way: each case as docs/runtime.md says."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest

from numamirror_build.lab.guest import Command
from numamirror_build.lab.layout import parse_layout
from numamirror_build.lab.packages import PackageSource
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
CASES = (
    *("nothing", "cpuset", "cpuset-warn", "membind", "interleave", "cpunodebind", "refused"),
    *("memory", "balancing", "unmirrored"),
)
# becomes the program that its arguments name; of x86-64's system calls mbind (237) answers EPERM,
# as in many containers
REFUSED = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 237), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
# a line for each case: what the driver answered, what the mirror said, and how many pages the kernel moved
GUEST = r"""
moved() {
    sed -n 's/^numa_pages_migrated //p' /proc/vmstat
}
run() {
    name=$1 before=$(moved)
    shift
    answer=$("$@" 2>/tmp/err | tail -n 1)
    said=$(grep '^numa mirror: ' /tmp/err | head -n 1 | tr -d '"\\')
    printf '{"case": "%s", "said": "%s", "moved": %d, "answer": %s}\n' \
        "$name" "$said" $(($(moved) - before)) "${answer:-null}"
}
warn="env GGML_NUMA_MIRROR_FALLBACK=warn"
with="env LD_LIBRARY_PATH=$libraries $numactl"
load="./driver $model"

grep -qx 1 /proc/sys/kernel/numa_balancing || exit 1
run nothing $load

groups=/sys/fs/cgroup
echo +cpuset >$groups/cgroup.subtree_control
mkdir $groups/one
echo 0 >$groups/one/cpuset.cpus
echo 0 >$groups/one/cpuset.mems
(echo 0 >$groups/one/cgroup.procs; run cpuset $load; run cpuset-warn $warn $load)

run membind $with --membind=0 $load
run interleave $with --interleave=all $load
run cpunodebind $with --cpunodebind=0 $load
echo 0 >/proc/sys/kernel/numa_balancing
run refused "$python" -c "$refused" $load
echo 1 >/proc/sys/kernel/numa_balancing

run memory ./memory_driver expect:150000000 status

# the kernel looks for pages to move at once, and not after seconds, which mean nothing here
mount -t debugfs debug /sys/kernel/debug
cd /sys/kernel/debug/sched/numa_balancing
echo 1 >scan_delay_ms
echo 10 >scan_period_min_ms
echo 20 >scan_period_max_ms
cd - >/dev/null
run balancing $load
run unmirrored $load plain no-mmap
"""


@pytest.fixture(scope="module")
def seen(store: Store, pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each case; all of them on one machine, with automatic balancing on."""
    folder = tmp_path_factory.mktemp("failures")
    build = pipeline.portable_builds[1]
    compile_driver(build, "load_driver.cpp", folder / "driver", mirror=True)
    compile_driver(build, "memory_driver.cpp", folder / "memory_driver", mirror=True)
    [model] = [make_model(store, recipe).path for recipe in RECIPES if recipe.name == "dense-q8_0"]
    numactl = PackageSource(store, Quiet()).with_dependencies("numactl")
    env = {
        "PATH": "/usr/bin:/bin",
        "OMP_WAIT_POLICY": "passive",
        "model": str(model),
        "numactl": str(numactl / "usr/bin/numactl"),
        "libraries": str(numactl / "usr/lib/x86_64-linux-gnu"),
        "python": sys.executable,
        "refused": REFUSED,
    }
    output, errors = bytearray(), bytearray()
    run_in_lab(
        parse_layout(LAYOUT, "layout"),
        Command(("sh", "-c", GUEST), env, folder),
        find_parts(store, progress=Quiet()),
        timeout=1200,
        on_stdout=output.extend,
        on_stderr=errors.extend,
        progress=Quiet(),
    )
    lines = [json.loads(line) for line in output.decode().splitlines()]
    assert tuple(line["case"] for line in lines) == CASES, (output, errors)
    return {line["case"]: line for line in lines}


def answer(seen: dict[str, Any], case: str) -> Any:
    """What the driver answered."""
    return seen[case]["answer"]


def is_mirrored(seen: dict[str, Any], case: str) -> bool:
    """Whether there are two replicas, each wholly on its node, and the answers are the same as ever."""
    nodes = answer(seen, case)["status"]["nodes"]
    places = {node["id"]: list(node["pages"]) for node in nodes}
    return places == {0: ["0"], 1: ["1"]} and answers_are_right(seen, case)


def answers_are_right(seen: dict[str, Any], case: str) -> bool:
    """Whether a model was loaded, and answered as on a machine where nothing is in the way."""
    found = answer(seen, case)
    return bool(found["loaded"] and found["logits"] == answer(seen, "nothing")["logits"] != "0" * 16)


def refusal(seen: dict[str, Any], case: str) -> str:
    """The code of the error for which a model was not loaded; its words were said on the standard error."""
    found = answer(seen, case)
    error = found["status"]["error"]
    assert not found["loaded"] and not found["status"]["bytes_per_replica"]
    assert error["message"] == seen[case]["said"]
    return str(error["code"])


def is_warned(seen: dict[str, Any], case: str, refused: str) -> bool:
    """Whether with the fallback to warn the same was said, and a model loaded without the mirror."""
    status = answer(seen, case)["status"]
    same = status["error"]["code"] == answer(seen, refused)["status"]["error"]["code"]
    said = seen[case]["said"].endswith("; goes on WITHOUT, as the fallback says")
    return bool(same and said and status["bytes_per_replica"] == 0 and answers_are_right(seen, case))


def test_nothing_is_in_the_way(seen: dict[str, Any]) -> None:
    """The other cases differ from this one by what gets in the way alone."""
    assert is_mirrored(seen, "nothing")


def test_a_cpuset_of_one_node(seen: dict[str, Any]) -> None:
    """Asking for the mirror is an error that names the node that may not be used, or a warning."""
    assert refusal(seen, "cpuset") == "one-node"
    assert "node 1 does not count: this process may not use its memory (cpuset)" in seen["cpuset"]["said"]
    assert is_warned(seen, "cpuset-warn", "cpuset")


def test_the_cpus_of_one_node(seen: dict[str, Any]) -> None:
    """numactl --cpunodebind leaves one node to run on, which is an error."""
    assert refusal(seen, "cpunodebind") == "one-node"
    assert "node 1 does not count: this process may not run on its CPUs" in seen["cpunodebind"]["said"]


@pytest.mark.parametrize("case", ["membind", "interleave"])
def test_a_policy_of_the_callers(seen: dict[str, Any], case: str) -> None:
    """The mirror's own placement counts more than what numactl --membind or --interleave asked for."""
    assert is_mirrored(seen, case)


def test_placement_that_the_kernel_refuses(seen: dict[str, Any]) -> None:
    """Without mbind a node's own threads touch its pages first, and the status record says why."""
    assert is_mirrored(seen, "refused")
    assert answer(seen, "refused")["status"]["memory_policy"]["error"] == "Operation not permitted"
    assert answer(seen, "nothing")["status"]["memory_policy"]["error"] is None


def test_a_node_with_too_little_memory(seen: dict[str, Any]) -> None:
    """What fits on one node alone is refused before anything is allocated, with the numbers of both."""
    error, status = answer(seen, "memory")
    assert error.startswith("numa mirror: not enough memory on node 1; node 0 needs 144.0 MiB, has ")
    assert status["error"] == {"code": "no-memory", "message": error}
    assert status["bytes_per_replica"] == 0


def test_automatic_balancing(seen: dict[str, Any]) -> None:
    """The kernel moves pages of a program without the mirror, and none of a replica."""
    assert seen["unmirrored"]["moved"] > 100
    assert answers_are_right(seen, "unmirrored")
    assert is_mirrored(seen, "balancing")
