"""Replicas that outlive the process, with ik_llama.cpp, which changes weights once it has read them.

What the store itself does with entries, and with what is in their way, is in ``test_runtime_store.py``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gguf
import pytest

from numamirror_build.pipeline import Pipeline
from numamirror_build.store import Store
from numamirror_build.verify import architectures
from numamirror_build.verify.models import Q8_0, Quantizer, Recipe, find_recipe, make_model
from tests.integration.drivers import compile_driver
from tests.integration.test_runtime_memory import stopped
from tests.integration.test_runtime_store import contents, entries, folder, own_pages, records
from tests.machines import GIB, MIB, Machine, Node

__all__ = ["folder"]  # a fixture

pytestmark = [pytest.mark.sources, pytest.mark.build]

ENV = {"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "passive"}
MIRROR = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_NODES": "2"}

# From K and V of each head by themselves, upstream computes the matrix of both.
PARTS = Recipe(
    "mla-parts-q8_0",
    dataclasses.replace(architectures.DEEPSEEK2_OLD, layer=architectures.DEEPSEEK2.layer),
    Q8_0,
)
WIDTH, EXPERTS, EXPERT = architectures.EMBEDDING, architectures.EXPERTS, architectures.EXPERT
ROUTED = {
    **architectures.GEMMA3.layer(0),
    "ffn_gate_inp.weight": (EXPERTS, WIDTH),
    "ffn_gate_inp.scale": (WIDTH,),
    "ffn_gate_up_exps.weight": (EXPERTS, 2 * EXPERT, WIDTH),
    "ffn_down_exps.weight": (EXPERTS, WIDTH, EXPERT),
    "pre_ffw_norm_2.weight": (WIDTH,),
    "post_ffw_norm_1.weight": (WIDTH,),
    "post_ffw_norm_2.weight": (WIDTH,),
}

# The router's scales are changed once they have been read.
SCALED = Recipe(
    "scaled-q8_0",
    architectures.Architecture(
        "gemma4",
        layers=2,
        layer=lambda _: ROUTED,
        keys={
            **architectures.GEMMA3.keys,
            "attention.key_length_swa": architectures.HEAD,
            "attention.value_length_swa": architectures.HEAD,
            "attention.sliding_window_pattern": [1, 0],
            "embedding_length_per_layer_input": 0,
            "expert_count": EXPERTS,
            "expert_used_count": architectures.EXPERTS_USED,
            "expert_feed_forward_length": EXPERT,
            "rope.dimension_count": architectures.HEAD,
        },
        whole={"rope_freqs.weight": (architectures.HEAD // 2,)},
        output=False,
    ),
    Q8_0,
)
NAMES = (
    *("dense-q8_0", "dense-q4_0", "dense-iq4_ks", "moe-biased-q4_0", "grouped-q8_0", "mla-old-q8_0"),
    "window-q4_0",
)

CASES: dict[str, tuple[str, ...]] = {
    "dense": ("dense-q4_0",),
    "repacked": ("dense-q4_0", "rtr"),
    "merged": ("dense-q8_0", "merge-qkv"),
    "merged-repacked": ("dense-q8_0", "merge-qkv", "rtr"),
    "experts": ("moe-biased-q4_0", "merge-experts"),
    "experts-repacked": ("grouped-q8_0", "merge-experts", "merge-qkv", "rtr"),
    "mla": ("mla-old-q8_0",),
    "mla-repacked": ("mla-old-q8_0", "mla=1", "rtr", "merge-qkv", "merge-experts"),
    "no-mla": ("mla-old-q8_0", "mla=0"),
    "mla-parts": ("mla-parts-q8_0",),
    "mla-parts-repacked": ("mla-parts-q8_0", "rtr"),
    "window": ("window-q4_0", "rtr", "no-flash"),
    "own-type": ("dense-iq4_ks", "rtr"),
    "scaled": ("scaled-q8_0", "rtr", "no-flash"),
}


@pytest.fixture(scope="module")
def loader(ik_pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that loads a model."""
    program = tmp_path_factory.mktemp("driver") / "driver"
    return compile_driver(ik_pipeline.patched_build, "ik_load_driver.cpp", program, mirror=True)


@pytest.fixture(scope="module")
def models(store: Store, ik_pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models by name."""
    pristine = ik_pipeline.pristine_build
    quantizer = Quantizer(pristine.programs["llama-quantize"], pristine.key)
    made = [make_model(store, find_recipe(name), quantizer) for name in NAMES]
    made += [make_model(Store(tmp_path_factory.mktemp("models")), recipe) for recipe in (PARTS, SCALED)]
    return {model.name: model.path for model in made}


def run(loader: Path, *arguments: str | Path, **env: str) -> Any:
    """What the program answers, and what it prints besides, as ``log``."""
    done = subprocess.run(
        [loader, *arguments], env={**ENV, **env}, capture_output=True, text=True, check=True
    )
    *printed, answer = done.stdout.splitlines()
    return {**json.loads(answer), "log": "\n".join(printed) + done.stderr}


@pytest.mark.parametrize("case", CASES)
def test_second_start_gives_the_same_answers(
    loader: Path, models: dict[str, Path], folder: Path, case: str
) -> None:
    """Logits are those without a store; the second start changes no file, and computes nothing anew."""
    name, *options = CASES[case]
    arguments: list[str | Path] = [models[name], *options]
    plain = run(loader, *arguments)
    assert plain["loaded"] and int(plain["logits"], 16)
    assert run(loader, *arguments, **MIRROR)["logits"] == plain["logits"]
    env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder)}
    first = run(loader, *arguments, **env)
    written = contents(folder)
    second = run(loader, *arguments, **env)
    assert contents(folder) == written
    assert first["logits"] == second["logits"] == plain["logits"]
    assert first["status"]["store"] == records(folder, was_there=False)
    assert second["status"]["store"] == records(folder, was_there=True)
    assert second["progress"] == 1
    assert second["status"]["tensors"] == first["status"]["tensors"]
    assert second["status"]["tensors"]["not_replicated"] == []
    # an unknown change to what is mapped would be made twice: it is a fault until the model is loaded
    assert first["pages"] == ["rw-s", "rw-p"]
    assert second["pages"] == ["r--p", "rw-p"]
    for done in ("need to compute", "repacking up/gate"):
        assert (done in first["log"]) == (done in plain["log"])
        assert done not in second["log"]


@pytest.mark.parametrize("case", ["experts-repacked", "mla-repacked"])
def test_pages_of_the_store_are_not_copied(
    loader: Path, models: dict[str, Path], folder: Path, case: str
) -> None:
    """With model and context in memory no stored page was written to, and the model's file was not read."""
    name, *options = CASES[case]
    read = []
    for _ in range(2):
        env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder)}
        with stopped(loader, models[name], *options, "mlock", "stop", **env) as process:
            assert process.stdout and process.stdout.readline()
            own = own_pages(process.pid, folder)
            io = Path(f"/proc/{process.pid}/io").read_text()
        read.append(int(io.split("rchar:")[1].split()[0]))
        assert len(own) >= 2
        assert not any(own)
    assert read[0] - read[1] > 0.9 * tensor_bytes(models[name])


def tensor_bytes(model: Path) -> int:
    """The size of a model's weights."""
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(model).tensors)


def test_what_decides_on_the_content_decides_on_the_entry(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """Packing, merging, what MLA computes, overrides, nodes and the file's times each make another entry."""
    env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder)}
    model = tmp_path / "model.gguf"
    shutil.copy(models["mla-old-q8_0"], model)
    number = 0
    for options in ((), ("rtr",), ("merge-qkv",), ("merge-experts",), ("mla=0",), ("override",)):
        for _ in range(2):
            assert run(loader, model, *options, **env)["loaded"]
        number += 1
        assert len(entries(folder)) == number, options
    # what only contexts heed, and what only looks at weights, is no part of it
    for options in (("mla=2",), ("check",), ("validate",), ("mlock",)):
        assert run(loader, model, *options, **env)["status"]["store"][0]["was_there"], options
    run(loader, model, **{**env, "GGML_NUMA_MIRROR_NODES": "3"})
    assert len(entries(folder)) == number + 1
    os.utime(model, ns=(1, 1))
    run(loader, model, **env)
    assert len(entries(folder)) == number + 2


@pytest.mark.parametrize("library", ["libllama.so", "libggml.so"])
def test_other_code_is_another_entry(
    loader: Path, models: dict[str, Path], ik_pipeline: Pipeline, folder: Path, tmp_path: Path, library: str
) -> None:
    """Libraries that are not the same to the byte never share an entry; copies of the same do."""
    libraries = ik_pipeline.patched_build.libraries
    for name in ("libllama.so", "libggml.so"):
        shutil.copy(libraries / name, tmp_path / name)
    env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder), "LD_LIBRARY_PATH": str(tmp_path)}
    run(loader, models["dense-q4_0"], "rtr", **MIRROR, GGML_NUMA_MIRROR_STORE=str(folder))
    assert run(loader, models["dense-q4_0"], "rtr", **env)["status"]["store"][0]["was_there"]
    code = (tmp_path / library).read_bytes()
    text = b"fatal error" if library == "libggml.so" else b"invalid split file"
    place = code.index(text)  # a constant that does nothing here
    (tmp_path / library).write_bytes(code[:place] + text.swapcase() + code[place + len(text) :])
    assert not run(loader, models["dense-q4_0"], "rtr", **env)["status"]["store"][0]["was_there"]


def test_second_context_is_upstreams(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """Each context of a model with merged experts interleaves them once more, as upstream's does."""
    arguments: list[str | Path] = [models["moe-biased-q4_0"], "merge-experts", "again"]
    plain = run(loader, *arguments)
    assert plain["again"] != plain["logits"], "upstream is mended: so must this be"
    for _ in range(2):
        stored = run(loader, *arguments, **MIRROR, GGML_NUMA_MIRROR_STORE=str(folder))
        assert (stored["logits"], stored["again"]) == (plain["logits"], plain["again"])


def test_dry_run_stores_nothing(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """What was not read is not stored, and a warning says so."""
    result = run(loader, models["dense-q8_0"], "dry-run", **MIRROR, GGML_NUMA_MIRROR_STORE=str(folder))
    assert result["loaded"]
    assert "numa mirror: not stored: the model has no file, was not read, or lies" in result["log"]
    assert entries(folder) == []


def test_cancelled_loads_are_cancelled(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """The callback stops a load that reads, which leaves nothing, and one that maps."""
    env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder)}
    assert not run(loader, models["dense-q8_0"], "cancel", **env)["loaded"]
    assert entries(folder) == []
    assert run(loader, models["dense-q8_0"], **env)["loaded"]
    assert not run(loader, models["dense-q8_0"], "cancel", **env)["loaded"]


@pytest.mark.parametrize(
    ("option", "name"), [("check", "dense-q8_0"), ("validate", "dense-iq4_ks")], ids=["check", "validate"]
)
def test_tensors_are_checked_when_asked_for(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path, option: str, name: str
) -> None:
    """The model's file is looked at even if the weights come from the store, where they are packed."""
    model = tmp_path / "model.gguf"
    shutil.copy(models[name], model)
    with model.open("r+b") as stream:
        stream.seek(-64 * 1024, os.SEEK_END)
        stream.write(64 * 1024 * b"\xff")  # scales that are no numbers
    env = {**MIRROR, "GGML_NUMA_MIRROR_STORE": str(folder)}
    options = ("rtr", "merge-qkv", "unused")
    for path in (model, models[name]):
        assert run(loader, path, *options, **env)["status"]["store"][0]["was_there"] is False
    assert not run(loader, model, *options, option, **env)["loaded"]
    good = run(loader, models[name], *options, option, **env)
    assert good["loaded"] and good["status"]["store"][0]["was_there"]


@pytest.mark.parametrize("case", ["dense", "experts", "mla", "no-mla", "mla-parts", "mla-repacked"])
def test_room_is_for_all_that_is_allocated(
    loader: Path, models: dict[str, Path], tmp_path: Path, case: str
) -> None:
    """What a model needs is known exactly before its first buffer, what MLA computes included."""
    name, *options = CASES[case]
    arguments: list[str | Path] = [models[name], *options]
    status = run(loader, *arguments, **MIRROR)["status"]
    taken = status["bytes_per_replica"] - status["kv"]["bytes"]
    env = {**MIRROR, "GGML_NUMA_MIRROR_ROOT": str(tmp_path)}
    Machine({0: Node("0", total=GIB, free=taken * 2 + 15 * MIB, cache=0)}).write(tmp_path)
    refused = run(loader, *arguments, **env)
    assert not refused["loaded"]
    assert refused["status"]["bytes_per_replica"] == 0
    assert refused["status"]["error"]["code"] == "no-memory"
    [need] = re.findall(r"the machine needs ([0-9.]+) MiB", refused["status"]["error"]["message"])
    assert float(need) == 2 * taken / MIB
    Machine({0: Node("0", total=GIB, free=taken * 2 + 16 * MIB, cache=0)}).write(tmp_path)
    assert run(loader, *arguments, **env)["loaded"]
