"""The mirror through ggml's own interface, used in ways that break runtimes.

What each scenario does is said in ``stress_driver.cpp``, which checks what it reads and what replicas hold.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.building.build import Build
from tests.integration.drivers import compile_driver, run_driver

pytestmark = [pytest.mark.sources, pytest.mark.build]

SCENARIOS = ("user-threads", "writers", "churn", "abort", "thread-counts", "fork", "nested", "custom", "late")


@pytest.fixture(scope="module")
def driver(patched_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver, linked with the patched build."""
    program = tmp_path_factory.mktemp("stress") / "driver"
    return compile_driver(patched_build, "stress_driver.cpp", program, mirror=True)


@pytest.mark.parametrize(("nodes", "threads"), [(2, 1), (2, 2), (3, 2), (3, 4)])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_stale(driver: Path, scenario: str, nodes: int, threads: int) -> None:
    """All teams read what was written, whoever wrote it and whatever else goes on."""
    done = run_driver(driver, scenario, nodes, threads, env={"GGML_NUMA_MIRROR_NODES": str(nodes)})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["active"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_stale_with_the_other_barrier(driver: Path, scenario: str) -> None:
    """The same with the barrier of two levels, with work stealing."""
    env = {
        "GGML_NUMA_MIRROR_NODES": "3",
        "GGML_NUMA_MIRROR_BARRIER": "teams",
        "GGML_NUMA_MIRROR_STEALING": "on",
    }
    done = run_driver(driver, scenario, 3, 4, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["threads"]["barrier"] == "teams"


def test_a_child_does_not_write_the_record(driver: Path, tmp_path: Path) -> None:
    """The status record is the process's own, not that of a copy of it which ended later."""
    record = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(record)}
    done = run_driver(driver, "fork-late", 2, 1, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(record.read_text())["graphs"]["mirrored"] == 1
