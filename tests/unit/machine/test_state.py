"""The state of made-up machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from numamirror_build.machine.state import describe, read_state
from tests.machines import GIB, MIB, Machine, Node

FILES = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu hypervisor avx\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/self/numa_maps": "55d0 interleave:0-1 file=/bin/x\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
}


def test_settings(tmp_path: Path) -> None:
    """Everything that has an influence on a measurement is read below the root."""
    state = read_state(Machine({0: Node("0"), 1: Node("1")}, files=FILES).write(tmp_path))
    assert (state.processor, state.virtual) == ("Some Processor", True)
    assert (state.numa_balancing, state.huge_pages) == (1, "never")
    assert state.governors == ("performance", "powersave")
    assert state.policy == "interleave:0-1"
    assert state.pools == (0, 6 * MIB + GIB)
    assert state.memory_limit is None
    json.dumps(state.as_json())


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    """What cannot be read is unknown, not zero."""
    state = read_state(Machine({0: Node("0")}).write(tmp_path))
    assert (state.numa_balancing, state.huge_pages, state.policy, state.governors) == (None, None, None, ())
    assert not state.virtual


@pytest.mark.parametrize(
    ("line", "files", "left"),
    [
        (
            "0::/a/b",
            {"a/b/memory.max": "max", "a/memory.max": str(8 * GIB), "a/memory.current": "0"},
            8 * GIB,
        ),
        (
            "0::/a",
            {
                "a/memory.max": str(8 * GIB),
                "a/memory.current": str(6 * GIB),
                "a/memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file {2 * GIB}\n",
            },
            5 * GIB,
        ),
        (
            "4:cpu,memory:/a",
            {
                "memory/a/memory.limit_in_bytes": str(8 * GIB),
                "memory/a/memory.usage_in_bytes": str(9 * GIB),
                "memory/a/memory.stat": f"total_inactive_file {GIB}\ninactive_file 5\n",
            },
            GIB,
        ),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, None),
        ("4:cpu:/a", {"memory/a/memory.limit_in_bytes": str(GIB)}, None),
        ("0::/in/a/container", {"memory.max": str(GIB)}, GIB),
    ],
)
def test_limits(tmp_path: Path, line: str, files: dict[str, str], left: int | None) -> None:
    """The tightest control group counts, either interface; what is cache can be had; no limit is none."""
    written = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    Machine({0: Node("0"), 1: Node("1")}, cgroup=line + "\n", files=written).write(tmp_path)
    assert read_state(tmp_path).memory_limit == left


def test_description_names_nobody() -> None:
    """The description has what results depend on, and neither host nor user."""
    described = describe()
    assert described["cpus"] == len(os.sched_getaffinity(0))
    assert described["nodes"] >= 1
    assert os.uname().nodename not in described.values()
