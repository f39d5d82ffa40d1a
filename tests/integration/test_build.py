"""Builds of the default pin: programs, libraries, and the ways to build them otherwise."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.build import Build, BuildOptions, configured, make_build
from numamirror_build.building.recipe import load_recipe
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.pins import Pin
from numamirror_build.verify.models import fetch_smollm2
from tests.machines import Machine, Node

pytestmark = [pytest.mark.sources, pytest.mark.build]

PROGRAMS = {"llama-cli", "llama-completion", "llama-server", "llama-bench", "llama-quantize"}
VARIANTS = {
    "openmp-off": ["-DGGML_OPENMP=OFF"],
    "static": ["-DBUILD_SHARED_LIBS=OFF"],
    "backend-dl": ["-DGGML_BACKEND_DL=ON", "-DGGML_NATIVE=OFF"],
}


@pytest.fixture(params=["pristine_build", "patched_build"])
def build(request: pytest.FixtureRequest) -> Build:
    """Each of the two builds."""
    made: Build = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="module")
def model(store: Store) -> Path:
    """A real model."""
    return fetch_smollm2(store, progress=Quiet()).path


def complete(program: Path, model: Path, *arguments: str, **env: str) -> str:
    """The text that a model completes a prompt with."""
    done = subprocess.run(
        [
            *(program, "-m", model, "-p", "The capital of France is", "-n", "12", "-t", "2"),
            *("--temp", "0", "-no-cnv", "--no-warmup", *arguments),
        ],
        env={"PATH": os.environ["PATH"], **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_all_programs_are_there(build: Build, default_pin: Pin) -> None:
    """The default pin has every program that people want, and each says which commit it is."""
    assert set(build.programs) == PROGRAMS
    assert build.missing == ()
    for name in PROGRAMS - {"llama-quantize"}:
        said = subprocess.run([build.programs[name], "--version"], capture_output=True, text=True, check=True)
        assert default_pin.commit[:9] in said.stdout + said.stderr


def test_nothing_of_the_place_inside(build: Build, store: Store) -> None:
    """No program and no library has the path of the folder it was built in."""
    assert not [path for path in build.files if str(store.root).encode() in path.read_bytes()]


def test_mirror_is_in_the_patched_build_alone(pristine_build: Build, patched_build: Build) -> None:
    """The two builds have the same programs and libraries; only one has the mirror."""
    names = [[path.name for path in build.files] for build in (pristine_build, patched_build)]
    assert names[0] == names[1]
    assert b"ggml_numa_mirror_status" in (patched_build.libraries / "libggml-base.so").read_bytes()
    assert b"numa_mirror" not in (pristine_build.libraries / "libggml-base.so").read_bytes()


def test_same_settings(pristine_build: Build, patched_build: Build) -> None:
    """The two builds differ in the mirror's switch and in nothing else."""
    differing = set(pristine_build.settings.items()) ^ set(patched_build.settings.items())
    assert {name for name, _ in differing} == {"GGML_NUMA_MIRROR"}
    assert pristine_build.tools == patched_build.tools


def mirrored(program: Path, model: Path, status: Path) -> dict[str, Any]:
    """Complete with two pretend nodes; the text, and the status record."""
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(status)}
    text = complete(program, model, "--numa", "mirror", **env)
    return {"text": text, **json.loads(status.read_text())}


def test_patched_program_answers_as_the_pristine_one(
    pristine_build: Build, patched_build: Build, model: Path, tmp_path: Path
) -> None:
    """llama-completion gives the same text, with the mirror and without."""
    reference = complete(pristine_build.programs["llama-completion"], model)
    program = patched_build.programs["llama-completion"]
    assert "Paris" in reference
    assert complete(program, model) == reference
    result = mirrored(program, model, tmp_path / "status.json")
    assert result["text"] == reference
    assert result["active"] and result["replicas"] == 2


@pytest.mark.parametrize(
    ("use", "policy", "weights", "kv"),
    [("weights", "weights", True, False), ("kv", "kv", False, True), ("all", "weights,kv", True, True)],
)
def test_option_says_what_to_replicate(
    patched_build: Build, model: Path, tmp_path: Path, use: str, policy: str, weights: bool, kv: bool
) -> None:
    """--numa-mirror asks for the mirror of what it names, without --numa."""
    status = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(status)}
    complete(patched_build.programs["llama-completion"], model, "--numa-mirror", use, **env)
    record = json.loads(status.read_text())
    assert record["active"] and record["policy"] == policy
    assert (record["tensors"]["replicated"] > 0, record["kv"]["bytes"] > 0) == (weights, kv)


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ({0: Node("0-3")}, "one-node"),
        ({0: Node("0-3"), 1: Node("4-7", free=1 << 20, cache=0)}, "no-memory"),
    ],
)
def test_option_goes_on_without_the_mirror(
    pristine_build: Build,
    patched_build: Build,
    model: Path,
    tmp_path: Path,
    nodes: dict[int, Node],
    code: str,
) -> None:
    """Where the mirror cannot be had, the fallback warn answers as pristine does, with a warning."""
    root = Machine(nodes).write(tmp_path)
    status = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_STATUS": str(status)}
    program = patched_build.programs["llama-completion"]
    text = complete(program, model, "--numa", "mirror", "--numa-mirror-fallback", "warn", **env)
    assert text == complete(pristine_build.programs["llama-completion"], model)
    record = json.loads(status.read_text())
    assert record["error"]["code"] == code
    assert record["tensors"]["replicated"] == 0 and record["kv"]["bytes"] == 0


@pytest.mark.parametrize("option", ["--numa-mirror", "--numa-mirror-fallback"])
@pytest.mark.parametrize("name", ["llama-completion", "llama-bench"])
def test_options_without_meaning_are_refused(
    patched_build: Build, model: Path, name: str, option: str
) -> None:
    """A value that is none ends the program before it loads anything."""
    program = patched_build.programs[name]
    done = subprocess.run([program, "-m", model, option, "wieghts"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "invalid" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "variant",
    [
        "openmp-off",
        pytest.param("static", marks=pytest.mark.slow),
        pytest.param("backend-dl", marks=pytest.mark.slow),
    ],
)
def test_variant(store: Store, patched_tree: PatchedTree, model: Path, tmp_path: Path, variant: str) -> None:
    """The mirror works with ggml's own threads, with static libraries, with backends loaded at run time."""
    options = BuildOptions(
        jobs=os.cpu_count() or 1,
        programs=("llama-completion",),
        cmake_args=tuple(VARIANTS[variant]),
    )
    build = make_build(store, patched_tree, options, progress=Quiet())
    program = build.programs["llama-completion"]
    result = mirrored(program, model, tmp_path / "status.json")
    assert result["text"] == complete(program, model)
    assert "Paris" in result["text"]
    assert result["active"] and result["replicas"] == 2
    assert result["tensors"]["replicated_bytes"] == result["tensors"]["eligible_bytes"] > 0


EVERY = "x86-64-all"


def test_every_kind_of_cpu_is_listed(patched_tree: PatchedTree, tmp_path: Path) -> None:
    """What a build for all levels makes for one kind of CPU each is listed, but what any x86-64 runs."""
    options = BuildOptions(portable=EVERY)
    with configured(patched_tree, options, tmp_path, tmp_path / "log", Quiet()) as ready:
        made = {
            target.name for target in ready.project.closure(ready.targets) if target.kind == "MODULE_LIBRARY"
        }
    listed = {part.library.removeprefix("lib") for part in load_recipe("llama.cpp").asked}
    assert made - listed == {"ggml-cpu-x64"}
    assert {name for name in listed if name.startswith("ggml-cpu-")} <= made


@pytest.mark.slow
def test_programs_for_every_kind_of_cpu(
    store: Store, patched_tree: PatchedTree, model: Path, tmp_path: Path
) -> None:
    """Each library keeps to its kind of CPU, and the one that is loaded here has the mirror."""
    options = BuildOptions(jobs=os.cpu_count() or 1, programs=("llama-completion",), portable=EVERY)
    build = make_build(store, patched_tree, options, progress=Quiet())
    result = mirrored(build.programs["llama-completion"], model, tmp_path / "status.json")
    assert "Paris" in result["text"]
    assert result["active"] and result["replicas"] == 2


@pytest.mark.slow
def test_patched_tree_without_the_mirror(
    store: Store, pristine_build: Build, patched_tree: PatchedTree, model: Path
) -> None:
    """Built with the switch off, the patched tree has no mirror, and answers as upstream's."""
    options = BuildOptions(
        jobs=os.cpu_count() or 1,
        programs=("llama-completion",),
        cmake_args=("-DGGML_NUMA_MIRROR=OFF",),
    )
    build = make_build(store, patched_tree, options, progress=Quiet())
    program = build.programs["llama-completion"]
    assert complete(program, model) == complete(pristine_build.programs["llama-completion"], model)
    assert b"ggml_numa_mirror_status" not in (build.libraries / "libggml-base.so").read_bytes()
