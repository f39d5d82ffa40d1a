"""What the mirror costs in memory and in time of loading, on a model of 560 MB made for the purpose.

    ./ci/test -m "" -s tests/integration/test_runtime_large.py

prints the figures. They mean something on an idle machine only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.large_model import make_large_model
from tests.integration.test_runtime_memory import ENV, HERE, link, run, stopped

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.patching.apply import PatchedTree
    from numamirror_build.store import Store

pytestmark = [pytest.mark.sources, pytest.mark.build]

ROUNDS = 9
MAX_RATIO = 1.25


@pytest.fixture(scope="module")
def model(store: Store) -> Path:
    """The model, with its pages in memory."""
    path = make_large_model(store)
    path.read_bytes()
    return path


@pytest.fixture(scope="module")
def pristine(
    patched_tree: PatchedTree, pristine_build: Build, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The program that loads a model, with upstream's own libraries."""
    program = tmp_path_factory.mktemp("large") / "pristine"
    libraries = pristine_build.libraries
    includes = [f"-I{patched_tree.path / folder}" for folder in ("include", "ggml/include")]
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-DGGML_SHARED", "-DLLAMA_SHARED", *includes),
            *(HERE / "load_driver.cpp", "-o", program, f"-L{libraries}"),
            *("-lllama", "-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{libraries}"),
        ],
        check=True,
    )
    return program


@pytest.fixture(scope="module")
def mirrored(
    patched_tree: PatchedTree, patched_build: Build, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The program that loads a model, with the patched libraries."""
    return link("load_driver.cpp", patched_tree, patched_build, tmp_path_factory.mktemp("large"))


def memory(program: Path, *arguments: str | Path, **env: str) -> int:
    """What a process has in memory, with the model and a context: bytes of its own pages."""
    with stopped(program, *arguments, "stop", **env) as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
    [size] = re.findall(r"RssAnon:\s+(\d+) kB", status)
    return int(size) * 1024


@pytest.mark.parametrize("pages", ["thp", pytest.param("small", marks=pytest.mark.slow)])
@pytest.mark.parametrize("replicas", [2, 3])
def test_memory_is_that_of_the_replicas(
    pristine: Path, mirrored: Path, model: Path, replicas: int, pages: str
) -> None:
    """N replicas take N times weights and cache, plus at most 2 %, over what the process takes anyway."""
    env = {"GGML_NUMA_MIRROR_NODES": str(replicas), "GGML_NUMA_MIRROR_PAGES": pages}
    status = run(mirrored, model, **env)["status"]
    once = status["tensors"]["replicated_bytes"] + status["kv"]["bytes"]
    assert once > 500_000_000
    rest = memory(pristine, model, "plain", "no-mmap") - once
    taken = memory(mirrored, model, **env) - rest
    print(f"\n{replicas} replicas, {pages}: {taken / once:.4f} times weights and cache of {once} bytes")
    assert replicas * 0.99 < taken / once < replicas * 1.02


@pytest.mark.parametrize("replicas", [2, 3])
def test_what_is_copied_while_the_model_is_read_is_whole(
    pristine: Path, mirrored: Path, model: Path, replicas: int
) -> None:
    """Batches that are copied beside the reading, and what is left at the end, make equal replicas."""
    expected = run(pristine, model, "plain", "no-mmap")["logits"]
    assert run(mirrored, model, GGML_NUMA_MIRROR_NODES=str(replicas))["logits"] == expected
    assert run(mirrored, model, "check", GGML_NUMA_MIRROR_NODES=str(replicas))["logits"] == expected
    skipped = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_TEST_SKIP": "1"}
    assert run(mirrored, model, **skipped)["logits"] != expected, "each replica is read"


def undisturbed() -> None:
    """Run before what others run, if that is allowed."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def seconds(program: Path, *arguments: str | Path, **env: str) -> float:
    """How long a load takes in a fresh process."""
    done = subprocess.run(
        [program, *arguments],
        env={**ENV, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=undisturbed,
        check=True,
    )
    return float(json.loads(done.stdout)["seconds"])


@pytest.mark.slow
@pytest.mark.parametrize("pages", ["thp", "small"])
def test_load_takes_little_longer(pristine: Path, mirrored: Path, model: Path, pages: str) -> None:
    """A load onto two nodes takes at most a quarter longer than upstream's without mmap, side by side."""
    ratios = []
    for number in range(ROUNDS):
        plain = seconds(pristine, model, "plain", "no-mmap")
        both = seconds(mirrored, model, GGML_NUMA_MIRROR_PAGES=pages)
        ratios.append(both / plain)
        print(
            f"\n{number}: pristine {plain:.3f} s, two replicas {both:.3f} s, ratio {ratios[-1]:.2f}", end=""
        )
    print(f"\n{pages}: median ratio {statistics.median(ratios):.3f}")
    assert statistics.median(ratios) <= MAX_RATIO
