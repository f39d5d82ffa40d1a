"""The installed program on real sources: every command alone, and bad input from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.build import Build
from numamirror_build.building.wheel import Wheel
from numamirror_build.errors import (
    BuildError,
    ContentMismatchError,
    ModelError,
    NumaMirrorError,
    SourceError,
    ToolMissingError,
    UnknownPinError,
    UnknownUpstreamError,
)
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.patching.plan import Plan
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout

PROGRAM = Path(sys.executable).with_name("numamirror-build")


def run(folder: Path, *arguments: str | Path, **environ: str) -> tuple[int, dict[str, Any], str]:
    """Run the program in a folder with --json: exit code, the document on stdout, stderr."""
    done = subprocess.run(
        [PROGRAM, *arguments, "--json"],
        env={**os.environ, **environ},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def expect(kind: type[NumaMirrorError], result: tuple[int, dict[str, Any], str], *words: str) -> None:
    """The result is that failure: exit code, document, and a message with these words and no traceback."""
    status, document, error = result
    assert status == document["exit_code"] == kind.exit_code, error
    assert document["error"] == kind.kind
    assert "Traceback" not in error
    for word in words:
        assert word in error


def test_pins_lists_what_is_known(tmp_path: Path) -> None:
    """From any folder, without any sources: the listed pins and the default."""
    status, document, _ = run(tmp_path, "pins", "--cache-dir", tmp_path)
    assert status == 0
    assert document["default"] in [pin["name"] for pin in document["pins"]]
    assert all(len(pin["commit"]) == 40 and pin["binding"]["sha256"] for pin in document["pins"])


def test_an_unknown_upstream_is_named_with_the_known_ones(tmp_path: Path) -> None:
    """A misspelt upstream ends at once."""
    result = run(tmp_path, "--upstream", "lama.cpp", "--cache-dir", tmp_path)
    expect(UnknownUpstreamError, result, "lama.cpp", "llama.cpp")


@pytest.mark.parametrize("pin", ["0.0.1", "master", "0c1e5", "0" * 39])
def test_an_unknown_pin_is_named_with_the_known_ones(tmp_path: Path, pin: str) -> None:
    """Neither a name, nor a listed commit's beginning, nor a full commit id."""
    result = run(tmp_path, "--upstream", "llama.cpp", "--pin", pin, "--cache-dir", tmp_path)
    expect(UnknownPinError, result, pin, "0.3.36")


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 not a model", None])
def test_a_model_that_is_no_gguf_ends_the_job_before_it_begins(tmp_path: Path, content: bytes | None) -> None:
    """An empty, short, other or missing file is refused before anything is downloaded."""
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    result = run(tmp_path, "--upstream", "llama.cpp", "--model", model, "--cache-dir", tmp_path / "cache")
    expect(ModelError, result, str(model))
    assert not (tmp_path / "cache" / "checkouts").exists()


def test_a_source_that_is_not_there_is_a_source_error(tmp_path: Path) -> None:
    """The message has the absolute path."""
    result = run(tmp_path, "checkout", "--source", "nowhere", "--cache-dir", tmp_path / "cache")
    expect(SourceError, result, str(tmp_path / "nowhere"))


@pytest.mark.sources
def test_one_changed_byte_is_found(tmp_path: Path, store: Store, checkout: Checkout) -> None:
    """A plain folder that is not the pin's is refused; the file is named if the pin is in the cache."""
    shutil.copytree(checkout.path, tmp_path / "tree", symlinks=True)
    path = tmp_path / "tree" / "src" / "llama.cpp"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content.replace(b"a", b"b", 1))
    unknown = run(tmp_path, "checkout", "--source", "tree", "--cache-dir", tmp_path / "cache")
    expect(ContentMismatchError, unknown, str(tmp_path / "tree"))
    known = run(tmp_path, "checkout", "--source", "tree", "--cache-dir", store.root)
    expect(ContentMismatchError, known, "src/llama.cpp")


@pytest.mark.sources
def test_steps_before_the_compiler_answer_alone(
    tmp_path: Path, store: Store, checkout: Checkout, plan: Plan, patched_tree: PatchedTree
) -> None:
    """checkout, plan and apply print what the pipeline made, with the settings in force."""
    cache = ("--cache-dir", store.root)
    status, document, _ = run(tmp_path, "checkout", *cache)
    assert (status, document["checkout"]["path"]) == (0, str(checkout.path))
    assert document["checkout"]["verified"] is True
    assert document["settings"]["cache_dir"] == {"value": str(store.root), "from": "command line"}
    status, document, _ = run(tmp_path, "plan", *cache)
    assert (status, document["plan"]["digest"]) == (0, plan.digest)
    assert document["lock"] == {"name": "0.3.36", "locked": True, "differences": []}
    status, document, _ = run(tmp_path, "apply", *cache)
    assert (status, document["tree"]["path"]) == (0, str(patched_tree.path))


@pytest.mark.sources
def test_export_writes_a_series(tmp_path: Path, store: Store, plan: Plan) -> None:
    """The patches lie where --out says, in order."""
    status, document, _ = run(tmp_path, "export", "--out", "series", "--cache-dir", store.root)
    assert status == 0
    assert document["patches"] == [str(path) for path in sorted((tmp_path / "series").iterdir())]
    assert all(Path(path).read_text().startswith("From ") for path in document["patches"])


@pytest.mark.sources
def test_without_a_compiler_the_tool_is_named(
    tmp_path: Path, store: Store, patched_tree: PatchedTree
) -> None:
    """With git but no compiler on PATH, building says what is needed and how to get it."""
    (tmp_path / "bin").mkdir()
    for name in ("git", "env", "sh"):
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    result = run(tmp_path, "build", "--cache-dir", store.root, PATH=str(tmp_path / "bin"))
    expect(ToolMissingError, result, "g++")


@pytest.mark.sources
@pytest.mark.build
def test_a_compile_error_names_its_place_and_the_log(
    tmp_path: Path, store: Store, patched_tree: PatchedTree
) -> None:
    """A macro that breaks a header ends with the place in it, the compiler's words, and the log's path."""
    flag = "--cmake-arg=-DCMAKE_C_FLAGS=-Dggml_tensor=5"
    result = run(tmp_path, "build", flag, "--cache-dir", store.root)
    expect(BuildError, result, "where: ggml/include/", "why: ", str(store.root / "logs"))


@pytest.mark.sources
@pytest.mark.build
def test_steps_with_the_compiler_answer_alone(
    tmp_path: Path, store: Store, pristine_build: Build, patched_build: Build, wheel: Wheel
) -> None:
    """build, build --pristine, audit and wheel print what the pipeline made."""
    cache = ("--cache-dir", store.root)
    for arguments, made in ((("build",), patched_build), (("build", "--pristine"), pristine_build)):
        status, document, _ = run(tmp_path, *arguments, *cache)
        assert (status, document["build"]["key"]) == (0, made.key)
        assert {Path(path) for path in document["build"]["programs"].values()} == set(made.programs.values())
    status, document, _ = run(tmp_path, "audit", *cache)
    assert status == 0
    assert len(document["audit"]["compiled"]) > 10
    status, document, _ = run(tmp_path, "wheel", *cache)
    assert (status, document["wheel"]["sha256"]) == (0, wheel.sha256)
