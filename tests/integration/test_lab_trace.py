"""Where the bytes come from: loads of weights and caches, counted in the lab."""

from __future__ import annotations

import shutil
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
            {"id": 1, "memory": "128M"},
            {"id": 3, "cpus": 1, "memory": "256M"},
        ]
    },
    "layout",
)


@pytest.fixture(scope="module")
def driver(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that generates and marks what it does; without AVX-512, which the lab's machine lacks."""
    program = tmp_path_factory.mktemp("trace") / "driver"
    _, patched = pipeline.portable_builds
    return compile_driver(patched, "trace_driver.cpp", program, f"-I{HEADER.parent}", mirror=True)


def traced(store: Store, driver: Path, layout: Layout, threads: int, **env: str) -> Trace:
    """The counts of a run."""
    [model] = [make_model(store, recipe).path for recipe in RECIPES if recipe.name == MODEL]
    output, errors = bytearray(), bytearray()
    outcome = run_in_lab(
        layout,
        Command(
            (str(driver), str(model), str(threads), str(TOKENS)),
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


def test_what_is_not_placed_is_read_remotely(store: Store, driver: Path) -> None:
    """With pretended nodes pages lie where they may, and the same count shows it: it can fail."""
    trace = traced(store, driver, UNEQUAL, 2, GGML_NUMA_MIRROR_NODES="2")
    assert trace.as_json()["loads"]["generation"]["weights"]["remote_share"] > 10 * LIMIT
