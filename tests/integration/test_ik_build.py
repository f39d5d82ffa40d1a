"""Builds of the default pin of ik_llama.cpp, and what they have in common."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.build import Build
from numamirror_build.building.toolchain import find_toolchain
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import fetch_smollm2

pytestmark = [pytest.mark.sources, pytest.mark.build]

PROGRAMS = {"llama-cli", "llama-server", "llama-bench", "llama-sweep-bench", "llama-quantize"}


@pytest.fixture(scope="module")
def pristine(ik_pipeline: Pipeline) -> Build:
    """The build of the tree as upstream has it."""
    return ik_pipeline.pristine_build


@pytest.fixture(scope="module")
def patched(ik_pipeline: Pipeline) -> Build:
    """The build of the patched tree."""
    return ik_pipeline.patched_build


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of ik_llama.cpp write a log to the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def model(store: Store) -> Path:
    """A real model."""
    return fetch_smollm2(store, progress=Quiet()).path


def run(program: Path, *arguments: str | Path, **env: str) -> str:
    """What a program prints on its standard output."""
    done = subprocess.run(
        [program, *arguments],
        env={"PATH": os.environ["PATH"], **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def complete(build: Build, model: Path, *arguments: str, **env: str) -> str:
    """The text that a model completes a prompt with."""
    prompt = ("-p", "The capital of France is", "-n", "12", "-t", "2", "--temp", "0", "--no-warmup")
    return run(build.programs["llama-cli"], "-m", model, *prompt, *arguments, **env)


def test_all_programs_are_there(pristine: Build, patched: Build, ik_pipeline: Pipeline) -> None:
    """Both builds have every program that people want, and say which commit they are of."""
    for build in (pristine, patched):
        assert set(build.programs) == PROGRAMS
        assert build.missing == ()
        said = subprocess.run([build.programs["llama-cli"], "--version"], capture_output=True, text=True)
        assert f"({ik_pipeline.pin.commit[:7]})" in said.stdout + said.stderr


def test_nothing_of_the_place_inside(pristine: Build, patched: Build, store: Store) -> None:
    """No program and no library has the path of the folder it was built in."""
    for build in (pristine, patched):
        assert not [path for path in build.files if str(store.root).encode() in path.read_bytes()]


def test_mirror_is_in_the_patched_build_alone(pristine: Build, patched: Build) -> None:
    """The two builds have the same programs and libraries; only one has the mirror."""
    assert [path.name for path in pristine.files] == [path.name for path in patched.files]
    assert b"ggml_numa_mirror_status" in (patched.libraries / "libggml.so").read_bytes()
    assert b"numa_mirror" not in (pristine.libraries / "libggml.so").read_bytes()


def test_same_settings(pristine: Build, patched: Build) -> None:
    """The two builds differ in the mirror's switch and in nothing else."""
    differing = set(pristine.settings.items()) ^ set(patched.settings.items())
    assert {name for name, _ in differing} == {"GGML_NUMA_MIRROR"}


def objects(build: Build) -> Iterator[tuple[str, tuple[bytes, frozenset[str]]]]:
    """Each object that was compiled, by name: its bytes, and the files of the tree that went into it."""
    folder = build.path / "build"
    done = subprocess.run(
        [find_toolchain().ninja.path, "-C", folder, "-t", "deps"], capture_output=True, text=True, check=True
    )
    tree = f"{build.path.resolve() / 'source'}/"
    for entry in done.stdout.split("\n\n"):
        head, *lines = entry.strip().splitlines() or [""]
        if head.endswith("(VALID)"):
            name = head.partition(":")[0]
            paths = (os.path.normpath(folder.resolve() / line.strip()) for line in lines)
            inside = frozenset(path.removeprefix(tree) for path in paths if path.startswith(tree))
            yield name, ((folder / name).read_bytes(), inside)


def test_objects_are_shared_as_far_as_sources_allow(
    pristine: Build, patched: Build, ik_pipeline: Pipeline
) -> None:
    """An object differs only where a file that the plan changes went into it; not attention's kernels."""
    plan = ik_pipeline.plan
    changed = {
        f"vendor/ik_llama.cpp/{path}"
        for path in {*(edit.path for edit in plan.edits), *(file.path for file in plan.new_files)}
    }
    before, after = dict(objects(pristine)), dict(objects(patched))
    same = [name for name, (content, _) in before.items() if after[name][0] == content]
    assert {name for name, (_, files) in after.items() if not files & changed} == set(same) & set(after)
    assert len([name for name in same if "/iqk/fa/" in name]) == 9
    assert len(same) > len(before) / 2


def test_patched_program_answers_as_the_pristine_one(
    pristine: Build, patched: Build, model: Path, tmp_path: Path
) -> None:
    """llama-cli gives the same text, with the mirror and without."""
    reference = complete(pristine, model)
    assert "Paris" in reference
    assert complete(patched, model) == reference
    status = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(status)}
    assert complete(patched, model, "--numa", "mirror", **env) == reference
    assert replicated(status)["replicas"] == 2


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("llama-bench", ["-p", "16", "-n", "4", "-r", "1"]),
        ("llama-sweep-bench", ["-c", "64", "-ub", "32", "-b", "32"]),
    ],
)
def test_benchmarks_know_the_mirror(
    patched: Build, model: Path, tmp_path: Path, name: str, arguments: list[str]
) -> None:
    """The two benchmarks run with --numa mirror on replicas of everything."""
    status = tmp_path / "status.json"
    env = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_STATUS": str(status)}
    run(patched.programs[name], "-m", model, "-t", "2", *arguments, "--numa", "mirror", **env)
    assert replicated(status)["replicas"] == 2


def replicated(status: Path) -> dict[str, Any]:
    """A status record, once it is seen that all weights and a cache are replicated."""
    record: dict[str, Any] = json.loads(status.read_text())
    assert record["active"]
    assert record["tensors"]["replicated_bytes"] == record["tensors"]["eligible_bytes"] > 0
    assert record["kv"]["bytes"] > 0
    return record


@pytest.mark.parametrize("option", ["--numa-mirror", "--numa-mirror-fallback"])
@pytest.mark.parametrize("name", ["llama-cli", "llama-bench"])
def test_options_without_meaning_are_refused(patched: Build, model: Path, name: str, option: str) -> None:
    """A value that is none ends the program before it loads anything."""
    done = subprocess.run(
        [patched.programs[name], "-m", model, option, "wieghts"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "invalid" in done.stdout + done.stderr
