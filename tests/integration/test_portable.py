"""Portable wheels: on machines whose CPUs have the level that they are for, and on one that has not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from numamirror_build.building.portable import check_wheel
from numamirror_build.building.recipe import load_recipe
from numamirror_build.building.venv import make_venv
from numamirror_build.building.wheel import Wheel
from numamirror_build.data import upstream_names
from numamirror_build.errors import PortabilityError
from numamirror_build.lab.guest import Command
from numamirror_build.lab.layout import even_layout
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sources,
    pytest.mark.build,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed"),
]

V2, V3 = "x86-64-v2", "x86-64-v3"
CPU_OF = {V2: "Nehalem", V3: "Haswell"}  # the first ones that have the level
ANSWER = """
import itertools, json, sys
from llama_cpp import GGML_NUMA_STRATEGY_MIRROR, Llama
llama = Llama(sys.argv[1], numa=GGML_NUMA_STRATEGY_MIRROR, n_ctx=64, n_threads=2, verbose=False)
print(json.dumps(list(itertools.islice(llama.generate([1, 2, 3], temp=0.0), 8))))
"""


@pytest.fixture(scope="module")
def wheels(store: Store) -> Mapping[str, Wheel]:
    """A wheel of llama-cpp-python for each level."""
    return {level: made_in(store, "llama.cpp", level) for level in CPU_OF}


def made_in(store: Store, upstream: str, level: str) -> Wheel:
    """The wheel of a default pin."""
    jobs = len(os.sched_getaffinity(0))
    return Pipeline(store, Request(upstream, jobs=jobs, portable=level), Quiet()).wheel


def words(store: Store, wheel: Wheel) -> tuple[str, ...]:
    """A command that answers with tokens."""
    python = make_venv(store, wheel, requirements=("numpy",), progress=Quiet())
    recipe = next(recipe for recipe in RECIPES if recipe.name == "dense-q8_0")
    return str(python), "-c", ANSWER, str(make_model(store, recipe).path)


def in_lab(store: Store, command: tuple[str, ...], cpu: str, folder: Path) -> tuple[int, str]:
    """Exit status and output of a command on a machine of two nodes with such CPUs."""
    output = bytearray()
    outcome = run_in_lab(
        even_layout(2, 1, "768M", 21),
        Command(command, {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive"}, folder),
        find_parts(store, progress=Quiet()),
        timeout=300,
        on_stdout=output.extend,
        on_stderr=output.extend,
        progress=Quiet(),
        cpu=cpu,
    )
    return outcome.exit_status, output.decode()


@pytest.mark.parametrize("level", CPU_OF)
def test_it_generates_on_the_oldest_cpu_of_its_level(
    store: Store, wheels: Mapping[str, Wheel], level: str, tmp_path: Path
) -> None:
    """In a clean environment it loads a model with the mirror on two nodes, and answers as it does here."""
    command = words(store, wheels[level])
    status, output = in_lab(store, command, CPU_OF[level], tmp_path)
    assert status == 0, output
    here = subprocess.run(
        command,
        env={**os.environ, "GGML_NUMA_MIRROR_NODES": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    tokens = json.loads(here.stdout)
    assert len(tokens) == 8
    assert json.loads(output) == tokens


def test_an_older_cpu_cannot_run_it(store: Store, wheels: Mapping[str, Wheel], tmp_path: Path) -> None:
    """The wheel for CPUs with AVX2 dies on one without, so the lab's CPUs are what they are called."""
    status, output = in_lab(store, words(store, wheels[V3]), CPU_OF[V2], tmp_path)
    assert status == 128 + signal.SIGILL, output


def test_what_the_wheels_are(wheels: Mapping[str, Wheel]) -> None:
    """Each has instructions that the level below has not."""
    with pytest.raises(PortabilityError):
        check_wheel(wheels[V3].path, V2)
    with pytest.raises(PortabilityError):
        check_wheel(wheels[V2].path, "x86-64")


@pytest.mark.parametrize(("upstream", "level"), [("llama.cpp", V2), ("ik_llama.cpp", V3)])
def test_the_same_inputs_give_the_same_bytes(store: Store, tmp_path: Path, upstream: str, level: str) -> None:
    """Made once more, in another cache, from the same release, the wheel is the same file."""
    made, again = (made_in(place, upstream, level) for place in (store, Store(tmp_path / "cache")))
    assert again.path != made.path
    assert (again.path.name, again.sha256) == (made.path.name, made.sha256)


@pytest.mark.parametrize(
    ("upstream", "level"),
    [
        (upstream, level)
        for upstream in upstream_names()
        for level in load_recipe(upstream).portable
        if level not in load_recipe(upstream).no_wheel
    ],
)
def test_there_is_a_wheel_for_each_level(store: Store, upstream: str, level: str) -> None:
    """What upstream is told to make compiles, and keeps to the level, which is checked on the way."""
    assert "-manylinux_2_" in made_in(store, upstream, level).path.name
