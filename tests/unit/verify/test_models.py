"""The models that verification makes, and what it says to files that are none."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from numamirror_build.errors import ModelError, VerificationError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.gguf_header import read_header
from numamirror_build.verify.models import (
    FURTHER,
    RECIPES,
    Quantizer,
    Recipe,
    find_model,
    known_architectures,
    make_model,
    read_contents,
)

DIGESTS = {
    "dense-f16": "76ea786e2b1c22e82d98ffa3fb76208945afa74ba5bc13d23f3f9cf683d29a60",
    "dense-q8_0": "99f3438d6ee6ded666bb937b19fafcb28d11456f5929c2cc4d8f8d4cfc017dcc",
    "dense-q4_0": "900bd4e765132c44c6c5f23b321d8540303e2689e38d33c2f0617c0347326254",
    "moe-q8_0": "25b51d86d549bb8ecc2a793b579b670494ec2acf9f262dd42609ca46a32540d5",
    "moe-q4_0": "353012f7295974c74bbd7be477e49404716e0717f4d10c772b0e57c56bc8004b",
    "window-q4_0": "f28e71d57dd0c0959ef6b3ffc78959b5e4da75ae4649fe41f0da764630c15d24",
    "mla-q8_0": "36557c62d7298f7b247cdc83c86aa032ad0990920f5d9764afeba69bdb60bdd4",
    "compressor-q8_0": "dcccb423ca39e07ae8609ff8698f5dfe911954b31a9b5db0599d8cc0127cf0d0",
    "mamba-q8_0": "2bf401e00656883f67f5e25e362f333ccc8c62ffe1814ab30be205ccda83f248",
    "hybrid-q4_0": "8bb21a28995e6c0b1a7b8846efe5f0d0338c35c5cd23d37f6af138fc5ec5f791",
    "delta-q8_0": "a817ff40ce74ca7353f6b3deeea3d83a7886e72dbb4ab20c89fbdeb364a23773",
    "moe-biased-q8_0": "032b14b038532ba274ea00244ea7d57985b0afdcebb4aac9b05f4a4fd8cebe6a",
    "moe-biased-q4_0": "56b94dff2b32fdcba436b6cd9404448076563a5af985dcbbc2f70bb4103b52d6",
    "grouped-q8_0": "f60d410b27555dd8647b7a93d810fe25c981956a29a5b412391d602e9b02bdf8",
    "mla-old-q8_0": "247ccaf7f98426fb4bba794f34a34e5d9f01ae6ee7624af0669dcfa820384933",
}

MADE = (*RECIPES, *(recipe for recipe in FURTHER if not recipe.quantised))


@pytest.mark.parametrize("recipe", MADE, ids=lambda recipe: recipe.name)
def test_same_bytes_everywhere(tmp_path: Path, recipe: Recipe) -> None:
    """A recipe gives the same file on every machine and in every run."""
    made = [make_model(Store(tmp_path / name), recipe) for name in ("one", "two")]
    assert made[0].identity == made[1].identity == DIGESTS[recipe.name]


@pytest.mark.parametrize("recipe", MADE, ids=lambda recipe: recipe.name)
def test_only_types_that_kernels_know(tmp_path: Path, recipe: Recipe) -> None:
    """Matrices that are multiplied have the recipe's type, all else is F32; no kernel multiplies F64."""
    reader = gguf.GGUFReader(make_model(Store(tmp_path), recipe).path)
    f32 = gguf.GGMLQuantizationType.F32
    kinds = {tensor.tensor_type for tensor in reader.tensors}
    assert kinds == {recipe.weights, f32}
    assert all(tensor.tensor_type == f32 for tensor in reader.tensors if len(tensor.shape) == 1)
    others = "(ffn_gate_inp|ssm_a|ssm_conv1d|hc_.*|output_hc_.*|.*_ape)"
    kept = [each.name for each in reader.tensors if len(each.shape) > 1 and each.tensor_type == f32]
    assert all(re.search(rf"(^|\.){others}(\.weight)?$", name) for name in kept)


@pytest.mark.parametrize("recipe", MADE, ids=lambda recipe: recipe.name)
def test_models_are_small(tmp_path: Path, recipe: Recipe) -> None:
    """One to five million parameters in a few layers."""
    reader = gguf.GGUFReader(make_model(Store(tmp_path), recipe).path)
    assert 1e6 < sum(int(tensor.n_elements) for tensor in reader.tensors) < 5e6
    assert recipe.arch.layers <= 6


@pytest.mark.parametrize("recipe", MADE, ids=lambda recipe: recipe.name)
def test_the_adapter_fits_the_model(tmp_path: Path, recipe: Recipe) -> None:
    """Its pairs of matrices make one of the shape of a model's matrix, in every layer."""
    model = make_model(Store(tmp_path), recipe)
    assert model.adapter is not None
    shapes = {tensor.name: tensor.shape.tolist() for tensor in gguf.GGUFReader(model.path).tensors}
    halves = {tensor.name: tensor.shape.tolist() for tensor in gguf.GGUFReader(model.adapter).tensors}
    whole = {name.removesuffix(".lora_a") for name in halves if name.endswith(".lora_a")}
    assert {name.split(".")[1] for name in whole} == {str(layer) for layer in range(recipe.arch.layers)}
    for name in whole:
        first, second = halves[f"{name}.lora_a"], halves[f"{name}.lora_b"]
        assert first[1] == second[0]
        assert [first[0], second[1], *first[2:]] == shapes[name]


def test_all_kinds_of_caches_are_among_them() -> None:
    """K and V, with a window, compressed, recurrent states, both, and compressor states."""
    names = {recipe.arch.name for recipe in RECIPES}
    assert names == {"llama", "qwen2moe", "gemma3", "deepseek2", "deepseek4", "mamba", "jamba", "qwen35"}


def test_known_architectures(tmp_path: Path) -> None:
    """They are read where upstream lists them; another file is not taken for a list."""
    source = tmp_path / "src/llama-arch.cpp"
    source.parent.mkdir()
    source.write_text('    { LLM_ARCH_LLAMA,  "llama"  },\n    { LLM_KV_X, "%s.no" },\n')
    assert known_architectures(tmp_path) == {"llama"}
    source.write_text("")
    with pytest.raises(VerificationError, match="list of architectures"):
        known_architectures(tmp_path)


def test_dimensions_allow_repacking(tmp_path: Path) -> None:
    """All matrices of a model that should be repacked have rows in eights, in whole blocks."""
    for recipe in (each for each in RECIPES if each.repacked):
        reader = gguf.GGUFReader(make_model(Store(tmp_path), recipe).path)
        shapes = [tensor.shape for tensor in reader.tensors if tensor.tensor_type == recipe.weights]
        assert shapes
        assert all(shape[0] % 32 == 0 and shape[1] % 8 == 0 for shape in shapes)


def test_room_for_long_prompts(tmp_path: Path) -> None:
    """The models were "trained" for contexts of more than a thousand tokens."""
    field = gguf.GGUFReader(make_model(Store(tmp_path), RECIPES[0]).path).get_field("llama.context_length")
    assert field is not None
    assert field.contents() >= 1024


def test_contents_are_all_tensors(tmp_path: Path) -> None:
    """The bytes that must be replicated are those of all tensors in the file."""
    model = make_model(Store(tmp_path), RECIPES[1])
    contents = read_contents(model.path)
    assert contents.arch == "llama"
    assert contents.tensors == 3 + 9 * 4
    assert 0.98 * model.path.stat().st_size < contents.tensor_bytes < model.path.stat().st_size


def test_contents_of_a_model_in_parts(tmp_path: Path) -> None:
    """A model in several files counts as a whole; all parts must be there, and none of them twice."""
    model = make_model(Store(tmp_path / "store"), RECIPES[1])
    first, second = (tmp_path / f"m-0000{part}-of-00002.gguf" for part in (1, 2))
    shutil.copy(model.path, first)
    for read in (read_contents, lambda path: find_model(Store(tmp_path), path, progress=Quiet())):
        with pytest.raises(ModelError, match="part of the model is missing"):
            read(first)
    writer = gguf.GGUFWriter(second, "llama")
    writer.add_tensor("more.weight", np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_contents(first).tensors == read_contents(model.path).tensors + 1
    shutil.copy(first, second)
    with pytest.raises(ModelError, match="have the same tensor"):
        read_contents(first)


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    """The error says what the file begins with."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ModelError, match="not a GGUF file") as caught:
        find_model(Store(tmp_path), path, progress=Quiet())
    assert caught.value.exit_code == 30
    assert "PK" in str(caught.value)


@pytest.mark.parametrize("what", ["missing.gguf", "."])
def test_no_file(tmp_path: Path, what: str) -> None:
    """A missing file and a folder are told apart from a damaged file."""
    with pytest.raises(ModelError, match=r"does not exist|not a file"):
        find_model(Store(tmp_path / "store"), tmp_path / what, progress=Quiet())


@pytest.mark.parametrize("keep", [4, 100, 20_000, 1_000_000])
def test_a_file_cut_short(tmp_path: Path, keep: int) -> None:
    """A truncated file is an error, wherever it ends: in the header, or in the weights."""
    whole = make_model(Store(tmp_path), RECIPES[1]).path.read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[:keep])
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_contents(path)


def test_identity_of_a_users_file(tmp_path: Path) -> None:
    """Another file in the same place is another model."""
    path = tmp_path / "model.gguf"
    store = Store(tmp_path / "store")
    shutil.copy(make_model(store, RECIPES[1]).path, path)
    before = find_model(store, path, progress=Quiet())
    assert before == find_model(store, path, progress=Quiet())
    shutil.copy(make_model(store, RECIPES[2]).path, path)
    assert find_model(store, path, progress=Quiet()).identity != before.identity


def test_a_recipe_is_part_of_the_key(tmp_path: Path) -> None:
    """Models of different recipes do not share a cache folder."""
    other = dataclasses.replace(RECIPES[0], arch=dataclasses.replace(RECIPES[0].arch, layers=1))
    assert (
        make_model(Store(tmp_path), other).path.parent != make_model(Store(tmp_path), RECIPES[0]).path.parent
    )


QUANTISED = next(recipe for recipe in FURTHER if recipe.quantised)


def test_upstreams_program_quantises(tmp_path: Path) -> None:
    """It gets the model with 16 bits, and the type; its build is part of the key."""
    program = tmp_path / "quantize"
    program.write_text('#!/bin/sh\necho "$3" > "$(dirname "$2")/kind"\ncp "$1" "$2"\n')
    program.chmod(0o755)
    store = Store(tmp_path / "store")
    model = make_model(store, QUANTISED, Quantizer(program, "one"))
    assert (model.path.parent / "kind").read_text() == f"{QUANTISED.quantised}\n"
    assert read_header(model.path).tensors == read_header(make_model(store, RECIPES[0]).path).tensors
    plain = make_model(store, RECIPES[0]).path.parent
    others = {path.name for path in plain.iterdir()} - {f"{RECIPES[0].name}.gguf"}
    assert {path.name for path in model.path.parent.iterdir()} == {model.path.name, "kind", *others}
    assert make_model(store, QUANTISED, Quantizer(program, "two")).path != model.path


def test_a_program_that_does_not_quantise(tmp_path: Path) -> None:
    """No program, one that fails, and one that writes nothing are errors with its last words."""
    with pytest.raises(VerificationError, match="No program"):
        make_model(Store(tmp_path / "store"), QUANTISED)
    program = tmp_path / "quantize"
    for body in ("echo invalid type; exit 1", "echo invalid type"):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        with pytest.raises(VerificationError, match="invalid type"):
            make_model(Store(tmp_path / "store"), QUANTISED, Quantizer(program, body))
