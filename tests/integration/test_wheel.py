"""The wheel of the default pin, installed in a clean environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from numamirror_build.building.build import Build
from numamirror_build.building.venv import make_venv
from numamirror_build.building.wheel import Wheel
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import fetch_smollm2

pytestmark = [pytest.mark.sources, pytest.mark.build]


@pytest.fixture(scope="module")
def python(store: Store, wheel: Wheel) -> Path:
    """The Python of the environment."""
    return make_venv(store, wheel, progress=Quiet())


def run(python: Path, code: str, **env: str) -> str:
    """What a piece of Python prints."""
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_package_says_its_version(python: Path, wheel: Wheel) -> None:
    """The installed package, its metadata and the wheel's name agree on the version."""
    code = (
        "import importlib.metadata as m, llama_cpp as l; print(l.__version__, m.version('llama-cpp-python'))"
    )
    assert run(python, code).split() == [wheel.version, wheel.version]


def test_record_is_installed(python: Path, wheel: Wheel, patched_tree: PatchedTree) -> None:
    """The installed package knows what it was made from."""
    code = "import importlib.resources as r; print((r.files('llama_cpp') / 'numamirror.json').read_text())"
    record = json.loads(run(python, code))
    assert record["plan"] == patched_tree.plan.digest
    assert record["commit"] == patched_tree.checkout.pin.commit
    assert record["wheel"] == wheel.version


LIBRARY = "import ctypes, llama_cpp.llama_cpp as l; library = ctypes.CDLL({}); "
OWN = LIBRARY.format("l._lib._name")


def test_mirror_is_exported(python: Path) -> None:
    """The library gives its status record."""
    code = "f = library.ggml_numa_mirror_status; f.restype = ctypes.c_char_p; print(f().decode())"
    status = json.loads(run(python, OWN + code))
    assert status["active"] is False
    assert status["error"] is None


def test_tensors_have_upstreams_size(python: Path, pristine_build: Build) -> None:
    """A tensor takes as many bytes as in upstream's library: the layout is the same."""
    code = "f = library.ggml_tensor_overhead; f.restype = ctypes.c_size_t; print(f())"
    pristine = LIBRARY.format(repr(str(pristine_build.libraries / "libggml-base.so")))
    assert int(run(python, OWN + code)) == int(run(python, pristine + code)) > 300


def test_generates_with_the_mirror(python: Path, store: Store) -> None:
    """``Llama(model, numa=GGML_NUMA_STRATEGY_MIRROR)`` generates, and all weights are in both replicas."""
    model = str(fetch_smollm2(store, progress=Quiet()).path)
    code = f"""
import ctypes, json, llama_cpp
from llama_cpp import Llama
llama = Llama({model!r}, numa=llama_cpp.GGML_NUMA_STRATEGY_MIRROR, n_ctx=64, verbose=False)
text = llama("The capital of France is", max_tokens=8, temperature=0)["choices"][0]["text"]
status = ctypes.CDLL(llama_cpp.llama_cpp._lib._name).ggml_numa_mirror_status
status.restype = ctypes.c_char_p
print(json.dumps([text, json.loads(status())]))
"""
    text, status = json.loads(run(python, code, GGML_NUMA_MIRROR_NODES="2").splitlines()[-1])
    assert "Paris" in text
    assert status["active"] and status["replicas"] == 2
    assert status["tensors"]["replicated_bytes"] == status["tensors"]["eligible_bytes"] > 0
