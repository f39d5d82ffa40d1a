"""AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer on the patched tree.

Nothing is suppressed: what these scenarios run of upstream's code has no finding either.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from numamirror_build.building.build import Build, BuildOptions, Tree, make_build
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model
from tests.integration.drivers import compile_driver, run_driver
from tests.integration.test_runtime_llama import SCENARIOS as LLAMA
from tests.integration.test_runtime_stress import SCENARIOS as STRESS

pytestmark = [pytest.mark.sources, pytest.mark.build, pytest.mark.slow]

HERE = Path(__file__).parent
RUNTIME = tuple(re.findall(r'scenario == "([a-z-]+)"', (HERE / "runtime_driver.cpp").read_text()))
FLAGS = ("-DCMAKE_C_FLAGS_RELEASE=-O1 -g1 -DNDEBUG", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1 -DNDEBUG")
MATRIX = [(1, 2), (2, 1), (2, 3), (3, 2)]  # nodes, threads
FOUND = 77  # exit status of a program in which a sanitizer found something


@dataclass(frozen=True)
class Sanitizer:
    """How to build and run with a sanitizer.

    Attributes:
        arguments: for CMake.
        options: for the compiler of a driver.
        env: how the run time behaves.
        report: what a report begins with.
    """

    arguments: tuple[str, ...]
    options: tuple[str, ...]
    env: dict[str, str]
    report: re.Pattern[str]


SANITIZERS = {
    "address": Sanitizer(
        arguments=(
            *("-DGGML_SANITIZE_ADDRESS=ON", "-DLLAMA_SANITIZE_ADDRESS=ON", "-DGGML_SANITIZE_UNDEFINED=ON"),
            *FLAGS,
        ),
        options=("-fsanitize=address,undefined", "-fno-omit-frame-pointer"),
        env={
            "ASAN_OPTIONS": f"exitcode={FOUND}:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        report=re.compile(r"ERROR: (Address|Leak)Sanitizer|runtime error: "),
    ),
    # without OpenMP, whose library is not instrumented
    "thread": Sanitizer(
        arguments=("-DGGML_SANITIZE_THREAD=ON", "-DLLAMA_SANITIZE_THREAD=ON", "-DGGML_OPENMP=OFF", *FLAGS),
        options=("-fsanitize=thread",),
        env={"TSAN_OPTIONS": f"exitcode={FOUND}:die_after_fork=0:history_size=4"},
        report=re.compile(r"WARNING: ThreadSanitizer"),
    ),
}


@pytest.fixture(scope="module", params=list(SANITIZERS))
def sanitizer(request: pytest.FixtureRequest) -> Sanitizer:
    """Each of the sanitizers."""
    return SANITIZERS[request.param]


def sanitized(store: Store, tree: Tree, sanitizer: Sanitizer) -> Build:
    """The libraries of a tree, built with a sanitizer."""
    options = BuildOptions(jobs=os.cpu_count() or 1, cmake_args=sanitizer.arguments, programs=())
    return make_build(store, tree, options, progress=Quiet())


@pytest.fixture(scope="module")
def build(store: Store, patched_tree: PatchedTree, sanitizer: Sanitizer) -> Build:
    """The patched tree, built with the sanitizer."""
    return sanitized(store, patched_tree, sanitizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where drivers lie."""
    return tmp_path_factory.mktemp("sanitizers")


@pytest.fixture(scope="module")
def drivers(build: Build, sanitizer: Sanitizer, folder: Path) -> dict[str, Path]:
    """The drivers of the other tests, built with the sanitizer."""
    return {
        name: compile_driver(
            build, f"{name}_driver.cpp", folder / name, *sanitizer.options, mirror=name != "llama"
        )
        for name in ("runtime", "stress", "llama")
    }


def test_it_finds_what_is_wrong(drivers: dict[str, Path], sanitizer: Sanitizer) -> None:
    """A scenario with a data race, and a read beyond the end of a vector, is found out."""
    done = run_driver(drivers["stress"], "broken", 2, 2, env={**sanitizer.env, "GGML_NUMA_MIRROR_NODES": "2"})
    assert sanitizer.report.search(done.stderr)
    assert done.returncode == FOUND


def check(program: Path, sanitizer: Sanitizer, *arguments: object, **env: str) -> None:
    """Run a program; nothing is found, and it ends well."""
    done = run_driver(program, *arguments, env={**sanitizer.env, **env}, timeout=600)
    found = sanitizer.report.search(done.stderr)
    assert not found, done.stderr[max(0, found.start() - 200) :][:6000]
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("scenario", RUNTIME)
def test_runtime_scenarios(
    drivers: dict[str, Path], sanitizer: Sanitizer, scenario: str, threads: int
) -> None:
    """Nothing is found in the scenarios of ``test_runtime.py``, whose driver frees little."""
    if scenario == "cache-chain" and threads > (os.cpu_count() or 1):
        pytest.skip("thousands of barriers that spin, with more threads than CPUs")
    env = {"GGML_NUMA_MIRROR_NODES": "3", "LSAN_OPTIONS": "detect_leaks=0"}
    check(drivers["runtime"], sanitizer, scenario, 3, threads, **env)


@pytest.mark.parametrize(("nodes", "threads"), MATRIX)
@pytest.mark.parametrize("scenario", STRESS)
def test_stress_scenarios(
    drivers: dict[str, Path], sanitizer: Sanitizer, scenario: str, nodes: int, threads: int
) -> None:
    """Nothing is found in the scenarios of ``test_runtime_stress.py``."""
    check(drivers["stress"], sanitizer, scenario, nodes, threads, GGML_NUMA_MIRROR_NODES=str(nodes))


@pytest.mark.parametrize("scenario", STRESS)
def test_stress_scenarios_with_the_other_barrier(
    drivers: dict[str, Path], sanitizer: Sanitizer, scenario: str
) -> None:
    """The same with the barrier of two levels and work stealing."""
    env = {
        "GGML_NUMA_MIRROR_NODES": "3",
        "GGML_NUMA_MIRROR_BARRIER": "teams",
        "GGML_NUMA_MIRROR_STEALING": "on",
    }
    check(drivers["stress"], sanitizer, scenario, 3, 3, **env)


@pytest.mark.parametrize(("nodes", "threads"), MATRIX)
@pytest.mark.parametrize("scenario", LLAMA)
def test_llama_scenarios(
    drivers: dict[str, Path], sanitizer: Sanitizer, store: Store, scenario: str, nodes: int, threads: int
) -> None:
    """Nothing is found in the scenarios of ``test_runtime_llama.py``, which load real model files."""
    model = make_model(store, next(recipe for recipe in RECIPES if recipe.name == "moe-q4_0")).path
    env = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_NODES": str(nodes), "GGML_NUMA_MIRROR_CHECK": "1"}
    check(drivers["llama"], sanitizer, scenario, model, threads, **env)
