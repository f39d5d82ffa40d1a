"""llama.cpp's own interface under conditions that a runtime breaks under: the answers are pristine's.

Contexts and models at once from several threads, aborted graphs, changing numbers of threads, threadpools,
cancelled loads, libraries that are unloaded; what each scenario does is said in ``llama_driver.cpp``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.building.build import Build
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, Recipe, make_model
from tests.integration.drivers import compile_driver, run_driver

pytestmark = [pytest.mark.sources, pytest.mark.build]

SCENARIOS = (
    *("alone", "contexts", "models", "churn", "states", "shift"),
    *("abort", "threads", "pools", "again", "cancel"),
)
CASES = [(2, 1), (2, 2), (3, 3), (3, 2)]  # nodes, threads
USUAL = next(recipe for recipe in RECIPES if recipe.name == "moe-q4_0")
OTHERS = [recipe for recipe in RECIPES if recipe is not USUAL]


@pytest.fixture(scope="module")
def drivers(
    pristine_build: Build, patched_build: Build, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The driver, linked with the pristine build and with the patched one."""
    folder = tmp_path_factory.mktemp("drivers")
    pristine = compile_driver(pristine_build, "llama_driver.cpp", folder / "pristine")
    return pristine, compile_driver(patched_build, "llama_driver.cpp", folder / "patched")


def digest(driver: Path, scenario: str, model: Path, threads: int, **env: str) -> str:
    """The digest of all logits of a scenario."""
    done = run_driver(driver, scenario, model, threads, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.strip()) == 16
    return done.stdout


def compare(
    drivers: tuple[Path, Path], scenario: str, model: Path, nodes: int, threads: int, record: Path
) -> None:
    """The mirrored answers are pristine's; a replica that differs after a write ends the program."""
    env = {
        "GGML_NUMA_MIRROR": "all",
        "GGML_NUMA_MIRROR_NODES": str(nodes),
        "GGML_NUMA_MIRROR_CHECK": "1",
        "GGML_NUMA_MIRROR_STATUS": str(record),
    }
    pristine, patched = drivers
    assert digest(patched, scenario, model, threads, **env) == digest(pristine, scenario, model, threads)
    status = json.loads(record.read_text())
    assert status["active"] and status["replicas"] == nodes
    assert status["checks"] > 0 and status["graphs"]["home"] == 0


@pytest.mark.parametrize(("nodes", "threads"), CASES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_are_those_of_pristine(
    drivers: tuple[Path, Path], store: Store, tmp_path: Path, scenario: str, nodes: int, threads: int
) -> None:
    """All logits of each scenario are pristine's, with fewer threads than nodes, too."""
    compare(drivers, scenario, make_model(store, USUAL).path, nodes, threads, tmp_path / "status.json")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", OTHERS, ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_of_other_models(
    drivers: tuple[Path, Path], store: Store, tmp_path: Path, scenario: str, recipe: Recipe
) -> None:
    """The same for the other small models."""
    compare(drivers, scenario, make_model(store, recipe).path, 3, 3, tmp_path / "status.json")


def test_an_empty_replica_changes_the_answers(drivers: tuple[Path, Path], store: Store) -> None:
    """The digests can differ: they do when a replica stays empty."""
    model = make_model(store, USUAL).path
    env = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_TEST_SKIP": "1"}
    pristine, patched = drivers
    assert digest(patched, "alone", model, 2, **env) != digest(pristine, "alone", model, 2)


def test_libraries_can_be_unloaded(
    drivers: tuple[Path, Path], patched_build: Build, store: Store, tmp_path: Path
) -> None:
    """A program loads the libraries, uses the mirror, unloads them, and does it again."""
    plugin = compile_driver(
        patched_build, "llama_driver.cpp", tmp_path / "driver.so", "-fPIC", "-shared", "-DDRIVER_IS_PLUGIN"
    )
    host = compile_driver(patched_build, "plugin_host.cpp", tmp_path / "host", "-Wl,--as-needed")
    model = make_model(store, USUAL).path
    env = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_NODES": "2"}
    done = run_driver(host, plugin, "alone", model, 2, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == 3 * digest(drivers[0], "alone", model, 2)
