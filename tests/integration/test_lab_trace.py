"""Where the bytes come from: loads of weights and caches, counted in the lab."""

from __future__ import annotations

import shutil
import subprocess
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


# the memory of node 1 begins behind the hole that a machine with so much memory has
ABOVE = parse_layout({"node": [{"id": 0, "cpus": 1, "memory": "3G"}, {"id": 1, "memory": "768M"}]}, "layout")
# loads some pages of each of the nodes that its arguments name, on CPU 0: one page more from each
PAGES = r"""
#include "mark.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char ** argv) {
    char * pages[16];
    for (int i = 1; i < argc; i++) {
        const unsigned long node = 1ul << atoi(argv[i]);
        pages[i] = mmap(NULL, i * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (syscall(SYS_mbind, pages[i], i * 4096, 2 /* MPOL_BIND */, &node, 64, 0) != 0) {
            return 1;
        }
        memset(pages[i], 1, i * 4096);
        lab_mark_range((uintptr_t) pages[i], i * 4096, LAB_WEIGHTS);
    }
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof(first), &first);
    lab_mark_phase(LAB_GENERATION);
    for (int i = 1; i < argc; i++) {
        for (int at = 0; at < i * 4096; at += 8) {
            (void) *(volatile long *) (pages[i] + at);
        }
    }
    lab_mark_phase(LAB_NONE);
    return 0;
}
"""


@pytest.fixture(scope="module")
def driver(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that generates and marks what it does; without AVX-512, which the lab's machine lacks."""
    program = tmp_path_factory.mktemp("trace") / "driver"
    _, patched = pipeline.portable_builds
    return compile_driver(patched, "trace_driver.cpp", program, f"-I{HEADER.parent}", mirror=True)


def traced(layout: Layout, store: Store, *words: str, **env: str) -> Trace:
    """The counts of a command's run."""
    output, errors = bytearray(), bytearray()
    outcome = run_in_lab(
        layout,
        Command(words, {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", **env}, Path("/")),
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


def generating(store: Store, driver: Path, threads: int) -> tuple[str, ...]:
    """The words that generate."""
    [model] = [make_model(store, recipe).path for recipe in RECIPES if recipe.name == MODEL]
    return str(driver), str(model), str(threads), str(TOKENS)


@pytest.mark.parametrize(
    "layout",
    [pytest.param(UNEQUAL, id="3-nodes"), pytest.param(ABOVE, id="behind-the-hole")],
)
def test_nodes_are_told_apart(store: Store, tmp_path: Path, layout: Layout) -> None:
    """Of each node exactly those bytes are counted that lie there, wherever QEMU has its memory."""
    (tmp_path / "pages.c").write_text(PAGES)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror", f"-I{HEADER.parent}"]
    program = tmp_path / "pages"
    subprocess.run(["cc", *flags, tmp_path / "pages.c", "-o", program], check=True)
    nodes = [node.id for node in layout.nodes]
    trace = traced(layout, store, str(program), *map(str, nodes))
    assert [
        (count.phase, count.cpu_node, count.memory_node, count.loaded, count.stored)
        for count in trace.counts
        if count.what == "weights"
    ] == [("generation", 0, node, 4096 * pages, 0) for pages, node in enumerate(nodes, 1)]


@pytest.mark.sources
@pytest.mark.build
@pytest.mark.parametrize(
    ("layout", "threads"),
    [
        pytest.param(UNEQUAL, 2, id="2-nodes"),
        pytest.param(even_layout(4, 1, "192M", 21), 4, id="4-nodes", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_read_remotely(store: Store, driver: Path, layout: Layout, threads: int) -> None:
    """While tokens are generated, weights and caches come from the own node, all weights for each token."""
    trace = traced(layout, store, *generating(store, driver, threads))
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


@pytest.mark.sources
@pytest.mark.build
def test_misplaced_pages_are_seen(store: Store, driver: Path) -> None:
    """Pretended replicas whose pages are all on a node without CPUs are read remotely."""
    before = (sys.executable, "-c", BIND)
    trace = traced(UNEQUAL, store, *before, *generating(store, driver, 2), GGML_NUMA_MIRROR_NODES="2")
    shares = trace.as_json()["loads"]["generation"]
    assert shares["weights"]["remote_share"] == shares["kv"]["remote_share"] == 1
    assert {c.memory_node for c in trace.counts if c.what in ("weights", "kv")} == {1}
