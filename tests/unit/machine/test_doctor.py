"""Findings on made-up machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.machine.bandwidth import Bandwidth, Flow
from numamirror_build.machine.doctor import Diagnosis, diagnose
from numamirror_build.machine.policy import refused_policy
from numamirror_build.machine.state import read_state
from tests.machines import GIB, Machine, Node

GOOD = {0: Node("0-1", package=0), 1: Node("2-3", package=1)}
CPU = "sys/devices/system/cpu/cpu{}"
POOL = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"


def rates(local: float, other: float, remote: float, on_node: float | None = 1.0) -> Bandwidth:
    """Bandwidths of two nodes."""
    figures = {(0, 0): local, (0, 1): remote, (1, 0): remote, (1, 1): other}
    return Bandwidth(
        tuple(Flow(cpus, memory, 2, rate, True, on_node) for (cpus, memory), rate in figures.items()), ()
    )


def found(
    root: Path,
    machine: Machine,
    measured: Bandwidth | None = None,
    refused: str | None = None,
    missing: tuple[str, ...] = (),
) -> Diagnosis:
    """The diagnosis of a machine."""
    return diagnose(read_state(machine.write(root)), measured, refused=refused, missing=missing)


def severities(diagnosis: Diagnosis) -> dict[str, str]:
    """Severity by finding, without the two that every good machine has."""
    return {
        finding.id: finding.severity for finding in diagnosis.findings if finding.id not in ("room", "link")
    }


def test_a_good_machine(tmp_path: Path) -> None:
    """Two packages, two nodes, a slow link: notes only, and the smallest room is named."""
    nodes = {**GOOD, 1: Node("2-3", package=1, free=20 * GIB)}
    made = found(tmp_path, Machine(nodes), rates(100e9, 100e9, 42e9))
    assert made.healthy
    assert severities(made) == {}
    texts = {finding.id: finding.what for finding in made.findings}
    assert texts == {
        "room": "A replica may take 36.0 GiB: what can be had on node 1",
        "link": "Remote memory gives 42% of what local memory gives",
    }
    json.dumps(made.as_json())


def with_files(name: str, content: str) -> Machine:
    """The good machine with one more file."""
    return Machine(GOOD, files={name: content})


MACHINES: dict[str, tuple[Machine, dict[str, str]]] = {
    "one node": (Machine({0: Node("0-3")}), {"one-node": "prevents"}),
    "a cpuset of one node": (
        Machine(GOOD, cpus_allowed="0-1"),
        {"one-node": "prevents", "affinity": "note"},
    ),
    "a node outside the cpuset": (
        Machine({**GOOD, 2: Node("4-5", package=2)}, mems_allowed="0-1"),
        {"node-left-out": "spoils"},
    ),
    "memory without CPUs": (Machine({**GOOD, 2: Node("")}), {"node-left-out": "note"}),
    "parts of one processor": (
        Machine({0: Node("0-1", package=0), 1: Node("2-3", package=0)}),
        {"one-package": "spoils"},
    ),
    "a gap": (Machine({0: Node("0", package=0), 2: Node("1", package=1)}), {"gap": "note"}),
    "nine nodes": (Machine({n: Node(str(n), package=n) for n in range(9)}), {"many": "note"}),
    "uneven memory": (
        Machine({**GOOD, 1: Node("2-3", package=1, total=32 * GIB, free=GIB)}),
        {"uneven-memory": "spoils"},
    ),
    "uneven CPUs": (Machine({**GOOD, 1: Node("2-4", package=1)}), {"uneven-cpus": "note"}),
    "a limit": (
        Machine(GOOD, cgroup="0::/a\n", files={"sys/fs/cgroup/a/memory.max": str(8 * GIB)}),
        {"memory-limit": "spoils"},
    ),
    "a pool": (with_files(POOL, "512"), {"huge-page-pool": "note"}),
    "balancing": (with_files("proc/sys/kernel/numa_balancing", "1"), {"numa-balancing": "spoils"}),
    "balancing off": (with_files("proc/sys/kernel/numa_balancing", "0"), {}),
    "interleave": (with_files("proc/self/numa_maps", "5 interleave:0-1 heap"), {"policy": "spoils"}),
    "default policy": (with_files("proc/self/numa_maps", "5 default heap"), {}),
    "no huge pages": (
        with_files("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        {"no-huge-pages": "spoils"},
    ),
    "powersave": (
        with_files(f"{CPU.format(0)}/cpufreq/scaling_governor", "powersave"),
        {"governor": "spoils"},
    ),
    "performance": (with_files(f"{CPU.format(0)}/cpufreq/scaling_governor", "performance"), {}),
    "threads of a core": (
        Machine(
            GOOD,
            files={
                f"{CPU.format(cpu)}/topology/thread_siblings_list": "0-1" if cpu < 2 else "2-3"
                for cpu in range(4)
            },
        ),
        {"threads-of-a-core": "note"},
    ),
    "an affinity mask": (Machine(GOOD, cpus_allowed="0,2"), {"affinity": "note"}),
    "a hypervisor": (
        with_files("proc/cpuinfo", "model name : X\nflags : hypervisor\n"),
        {"virtual": "note"},
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_machines(tmp_path: Path, name: str) -> None:
    """Each of these machines has exactly the findings that it was made for, with advice."""
    machine, expected = MACHINES[name]
    made = found(tmp_path, machine)
    assert severities(made) == expected
    assert made.healthy == all(value == "note" for value in expected.values())
    assert all(finding.what and finding.advice for finding in made.findings)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (rates(100e9, 100e9, 95e9), {"remote-as-local": "spoils"}),
        (rates(100e9, 60e9, 30e9), {"slow-node": "spoils"}),
        (rates(100e9, 100e9, 40e9, on_node=0.5), {"stray-pages": "note"}),
        (rates(100e9, 100e9, 40e9, on_node=None), {}),
    ],
)
def test_bandwidths(tmp_path: Path, measured: Bandwidth, expected: dict[str, str]) -> None:
    """A link that is no slower, a slow node and stray pages are found in the figures."""
    assert severities(found(tmp_path, Machine(GOOD), measured)) == expected


def test_what_is_told(tmp_path: Path) -> None:
    """A refused policy spoils the mirror of several nodes; missing packages prevent the build."""
    assert severities(found(tmp_path, Machine(GOOD), refused="EPERM")) == {"policy-refused": "spoils"}
    made = found(tmp_path, Machine(GOOD), missing=("g++", "git"))
    assert severities(made) == {"packages": "prevents"}
    assert made.findings[0].advice.endswith("apt-get install g++ git")


def test_the_worst_comes_first(tmp_path: Path) -> None:
    """Findings are ordered by severity."""
    machine = with_files("proc/sys/kernel/numa_balancing", "1")
    made = found(tmp_path, machine, rates(1, 1, 0.4), missing=("git",))
    assert [finding.severity for finding in made.findings] == ["prevents", "spoils", "note", "note"]


def test_the_kernel_is_asked_for_a_policy() -> None:
    """A node that does not exist is refused with the kernel's own error, where policies are allowed."""
    here = refused_policy(0)
    assert refused_policy(900) == (here or "EINVAL")
