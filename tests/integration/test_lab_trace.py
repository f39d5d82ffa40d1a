"""Where the bytes come from: loads of weights and caches, counted in the lab."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.lab.guest import Command
from numamirror_build.lab.layout import Layout, even_layout, parse_layout
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.lab.trace import HEADER, Trace, make_plugin
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

MODEL = "dense-q8_0"
TOKENS = 4
LIMIT = 0.001
UNEQUAL = parse_layout(
    {
        "node": [
            {"id": 0, "cpus": 1, "memory": "384M"},
            {"id": 1, "memory": "256M"},
            {"id": 3, "cpus": 1, "memory": "256M"},
        ]
    },
    "layout",
)
# becomes the program that its arguments name, with all memory from node 1 (set_mempolicy, MPOL_BIND)
BIND = """
import ctypes, os, sys
nodes = ctypes.c_ulong(1 << 1)
assert ctypes.CDLL(None).syscall(238, 2, ctypes.byref(nodes), 64) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def driver(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that generates and marks what it does; without AVX-512, which the lab's machine lacks."""
    program = tmp_path_factory.mktemp("trace") / "driver"
    _, patched = pipeline.portable_builds
    return compile_driver(patched, "trace_driver.cpp", program, f"-I{HEADER.parent}", mirror=True)


def traced(store: Store, driver: Path, layout: Layout, threads: int, *before: str, **env: str) -> Trace:
    """The counts of a run; words ``before`` the program's name start it."""
    [model] = [make_model(store, recipe).path for recipe in RECIPES if recipe.name == MODEL]
    output, errors = bytearray(), bytearray()
    outcome = run_in_lab(
        layout,
        Command(
            (*before, str(driver), str(model), str(threads), str(TOKENS)),
            {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", **env},
            driver.parent,
        ),
        find_parts(store, progress=Quiet()),
        timeout=400,
        on_stdout=output.extend,
        on_stderr=errors.extend,
        progress=Quiet(),
        plugin=make_plugin(store),
    )
    assert outcome.exit_status == 0, (output, errors)
    assert outcome.trace
    return outcome.trace


@pytest.mark.parametrize(
    ("layout", "threads"),
    [
        pytest.param(UNEQUAL, 2, id="2-nodes"),
        pytest.param(even_layout(4, 1, "192M", 21), 4, id="4-nodes", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_read_remotely(store: Store, driver: Path, layout: Layout, threads: int) -> None:
    """While tokens are generated, weights and caches come from the own node, all weights for each token."""
    trace = traced(store, driver, layout, threads)
    shares: dict[str, Any] = trace.as_json()["loads"]["generation"]
    [size] = [make_model(store, recipe).path.stat().st_size for recipe in RECIPES if recipe.name == MODEL]
    assert shares["weights"]["loaded"] > 0.9 * TOKENS * size
    assert shares["kv"]["loaded"] > 0
    assert shares["weights"]["remote_share"] <= LIMIT, shares
    assert shares["kv"]["remote_share"] <= LIMIT, shares
    readers = {
        count.cpu_node for count in trace.counts if (count.phase, count.what) == ("generation", "weights")
    }
    assert readers == {node.id for node in layout.nodes if node.cpus}


def test_misplaced_pages_are_seen(store: Store, driver: Path) -> None:
    """Pretended replicas whose pages are all on a node without CPUs are read remotely."""
    before = (sys.executable, "-c", BIND)
    trace = traced(store, driver, UNEQUAL, 2, *before, GGML_NUMA_MIRROR_NODES="2")
    shares = trace.as_json()["loads"]["generation"]
    assert shares["weights"]["remote_share"] == shares["kv"]["remote_share"] == 1
    assert {c.memory_node for c in trace.counts if c.what in ("weights", "kv")} == {1}
