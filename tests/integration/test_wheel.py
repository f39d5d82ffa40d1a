"""The wheels of the default pins, each installed in a clean environment."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from numamirror_build.building.binding import prepare_sources
from numamirror_build.building.recipe import load_recipe
from numamirror_build.building.venv import make_venv
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.pins import Pin, find_pin, load_pins
from numamirror_build.upstreams.sdist import fetch_sdist
from numamirror_build.verify.models import fetch_smollm2

pytestmark = [pytest.mark.sources, pytest.mark.build]

DEFAULT = find_pin("ik_llama.cpp", None)
LOAD = "import ctypes; library = ctypes.CDLL({}); "


@dataclass(frozen=True)
class Binding:
    """A binding as its users see it.

    Attributes:
        package: what is imported.
        distribution: what is installed.
        own: Python that loads the library that the package has loaded, as ``library``.
        base: the library that knows tensors.
        mirrored: Python that loads ``model`` with the mirror, as ``llama``.
        answer: Python for the text that ``llama`` answers ``prompt`` with.
    """

    package: str
    distribution: str
    own: str
    base: str
    mirrored: str
    answer: str


BINDINGS = {
    "llama.cpp": Binding(
        "llama_cpp",
        "llama-cpp-python",
        "import llama_cpp.llama_cpp as l; " + LOAD.format("l._lib._name"),
        "libggml-base.so",
        "from llama_cpp import GGML_NUMA_STRATEGY_MIRROR, Llama\n"
        "llama = Llama(model, numa=GGML_NUMA_STRATEGY_MIRROR, n_ctx=64, verbose=False)",
        'llama(prompt, max_tokens=8, temperature=0)["choices"][0]["text"]',
    ),
    "ik_llama.cpp": Binding(
        "ik_llama_cpp",
        "ik-llama-cpp-python",
        "import ik_llama_cpp._ctypes_api as l; " + LOAD.format("l._lib._name"),
        "libggml.so",
        "from ik_llama_cpp import GGML_NUMA_STRATEGY_MIRROR, IkLlama\n"
        "llama = IkLlama(model, numa=GGML_NUMA_STRATEGY_MIRROR, n_ctx=64)",
        "llama.detokenize(llama.generate(llama.tokenize(prompt), max_tokens=8))",
    ),
}


@dataclass(frozen=True)
class Installed:
    """A wheel in an environment of its own."""

    binding: Binding
    made: Pipeline
    python: Path


@pytest.fixture(scope="module", params=BINDINGS)
def installed(
    request: pytest.FixtureRequest, store: Store, pipeline: Pipeline, ik_pipeline: Pipeline
) -> Installed:
    """Each of the two wheels."""
    made = {"llama.cpp": pipeline, "ik_llama.cpp": ik_pipeline}[request.param]
    return Installed(BINDINGS[request.param], made, make_venv(store, made.wheel, progress=Quiet()))


@pytest.fixture(scope="module")
def model(store: Store) -> str:
    """A real model."""
    return str(fetch_smollm2(store, progress=Quiet()).path)


def run(installed: Installed, code: str, **env: str) -> str:
    """What a piece of Python prints."""
    done = subprocess.run(
        [installed.python, "-I", "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_package_says_its_version(installed: Installed) -> None:
    """The installed package, its metadata and the wheel's name agree on the version."""
    binding, version = installed.binding, installed.made.wheel.version
    code = (
        f"import importlib.metadata as m, {binding.package} as p;"
        f"print(p.__version__, m.version({binding.distribution!r}))"
    )
    assert run(installed, code).split() == [version, version]
    assert version.startswith(f"{installed.made.wheel.binding.version}+numamirror.")


def test_record_is_installed(installed: Installed) -> None:
    """The installed package knows what it was made from."""
    place = f"r.files({installed.binding.package!r}) / 'numamirror.json'"
    record = json.loads(run(installed, f"import importlib.resources as r; print(({place}).read_text())"))
    assert record["plan"] == installed.made.plan.digest
    assert record["commit"] == installed.made.pin.commit
    assert record["wheel"] == installed.made.wheel.version


def test_mirror_is_exported(installed: Installed) -> None:
    """The library gives its status record."""
    code = "f = library.ggml_numa_mirror_status; f.restype = ctypes.c_char_p; print(f().decode())"
    status = json.loads(run(installed, installed.binding.own + code))
    assert status["active"] is False
    assert status["error"] is None


def test_tensors_have_upstreams_size(installed: Installed) -> None:
    """A tensor takes as many bytes as in upstream's library: the layout is the same."""
    code = "f = library.ggml_tensor_overhead; f.restype = ctypes.c_size_t; print(f())"
    pristine = installed.made.pristine_build.libraries / installed.binding.base
    sizes = [
        int(run(installed, load + code)) for load in (installed.binding.own, LOAD.format(repr(str(pristine))))
    ]
    assert sizes[0] == sizes[1] > 300


def mirrored(installed: Installed, model: str, load: str, **env: str) -> None:
    """Load a model with a piece of Python, and see that it generates from two replicas of all weights."""
    code = f"""
import json
prompt, model = "The capital of France is", {model!r}
{load}
text = {installed.binding.answer}
{installed.binding.own}
status = library.ggml_numa_mirror_status
status.restype = ctypes.c_char_p
print(json.dumps([text, json.loads(status())]))
"""
    text, status = json.loads(run(installed, code, GGML_NUMA_MIRROR_NODES="2", **env).splitlines()[-1])
    assert "Paris" in text
    assert status["active"] and status["replicas"] == 2
    assert status["tensors"]["replicated_bytes"] == status["tensors"]["eligible_bytes"] > 0
    assert status["kv"]["bytes"] > 0


def test_generates_with_the_mirror(installed: Installed, model: str) -> None:
    """``numa=GGML_NUMA_STRATEGY_MIRROR`` is all that a user has to write."""
    mirrored(installed, model, installed.binding.mirrored)


def test_generates_with_the_mirror_by_a_variable(installed: Installed, model: str) -> None:
    """A program that knows nothing of the mirror gets it by GGML_NUMA_MIRROR."""
    load = installed.binding.mirrored.replace("numa=GGML_NUMA_STRATEGY_MIRROR, ", "")
    assert "numa=" not in load
    mirrored(installed, model, load, GGML_NUMA_MIRROR="all")


IK_NUMA = "from ik_llama_cpp import IkLlama, llama_numa_init\n"


@pytest.mark.parametrize("installed", ["ik_llama.cpp"], indirect=True)
def test_ik_llama_has_the_function(installed: Installed, model: str) -> None:
    """``llama_numa_init`` does the same for code that makes its models otherwise."""
    mirrored(installed, model, f"{IK_NUMA}llama_numa_init(4)\nllama = IkLlama(model, n_ctx=64)")


@pytest.mark.parametrize("installed", ["ik_llama.cpp"], indirect=True)
def test_ik_llama_refuses_what_is_no_strategy(installed: Installed, model: str) -> None:
    """A number that names no strategy is an error, before a model is loaded."""
    code = f"{IK_NUMA}try:\n    IkLlama('absent.gguf', numa=5)\nexcept ValueError as error:\n    print(error)"
    assert run(installed, code) == "there is no NUMA strategy 5\n"


@pytest.mark.parametrize("installed", ["ik_llama.cpp"], indirect=True)
def test_ik_llama_quantizes(installed: Installed, model: str, tmp_path: Path) -> None:
    """The program that the package brings along finds its libraries, and makes a type of its own."""
    out = tmp_path / "out.gguf"
    words = ["--allow-requantize", model, str(out), "IQ4_KS"]
    code = (
        f"import subprocess, ik_llama_cpp as p; subprocess.run([p.find_quantize_bin(), *{words}], check=True)"
    )
    run(installed, code)
    assert out.stat().st_size > 1 << 20


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(pin, id=pin.name, marks=() if pin.name == DEFAULT.name else pytest.mark.slow)
        for pin in load_pins("ik_llama.cpp")
    ],
)
def test_every_release_of_ik_llama_gets_the_strategy(
    store: Store, ik_pipeline: Pipeline, tmp_path: Path, pin: Pin
) -> None:
    """The hooks fit each release: IkLlama has ``numa``, the package the function and our version, twice."""
    archive = fetch_sdist(store, pin, progress=Quiet())
    tree, recipe = ik_pipeline.patched_tree, load_recipe(pin.upstream)
    top = prepare_sources(archive, tmp_path / "s", tree, recipe, upstream=pin.upstream, version="1+ours")
    package = top / "ik_llama_cpp"
    (made,) = (
        node
        for node in ast.walk(ast.parse((package / "llama.py").read_text()))
        if isinstance(node, ast.ClassDef) and node.name == "IkLlama"
    )
    init = next(node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert "numa" in [argument.arg for argument in init.args.kwonlyargs]
    calls = {ast.unparse(node.func): node.lineno for node in ast.walk(init) if isinstance(node, ast.Call)}
    assert calls["llama_numa_init"] < calls["IkModel"]
    names = ast.parse((package / "__init__.py").read_text())
    assert '__version__ = "1+ours"' in (package / "__init__.py").read_text()
    assert 'version = "1+ours"' in (top / "pyproject.toml").read_text()
    assert "llama_numa_init" in ast.unparse(names)
    assert (package / "numa.py").is_file()
    assert (top / recipe.vendored / "common/cmake/build-info-gen-cpp.cmake").is_file()
