"""The models that verification makes, and what it says to files that are none."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import gguf
import pytest

from numamirror_build.errors import ModelError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, Recipe, find_model, make_model, read_contents

DIGESTS = {
    "dense-f16": "91c4db8cee59551f914b753726284f5a265ca062c495365fc56f4188f423fdbe",
    "dense-q8_0": "367748f8a696e26a6c623c677331ccf1e3efff9988ee46b5340a953882463122",
    "dense-q4_0": "b559f5fc36ceb4333ff8fe67d1915310317d7f1cca8d4a0a3bb37b0fdd7ebcce",
    "moe-q8_0": "49037778645e32f5f6efd4b0ac2367310e3edc86dd13e2cce1832330eea8ef78",
    "moe-q4_0": "16b7156c2b24ffec1e5e572c2174ddca1fd2c8db6f2143ba7ce975465d5dac5b",
}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_same_bytes_everywhere(tmp_path: Path, recipe: Recipe) -> None:
    """A recipe gives the same file on every machine and in every run."""
    made = [make_model(Store(tmp_path / name), recipe) for name in ("one", "two")]
    assert made[0].identity == made[1].identity == DIGESTS[recipe.name]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_only_types_that_kernels_know(tmp_path: Path, recipe: Recipe) -> None:
    """Matrices have the recipe's type, all else is F32; no kernel multiplies F64."""
    reader = gguf.GGUFReader(make_model(Store(tmp_path), recipe).path)
    kinds = {tensor.tensor_type for tensor in reader.tensors if len(tensor.shape) > 1}
    router = [tensor.name for tensor in reader.tensors if "ffn_gate_inp." in tensor.name]
    assert kinds == {recipe.weights} | ({gguf.GGMLQuantizationType.F32} if router else set())
    others = {tensor.tensor_type for tensor in reader.tensors if len(tensor.shape) == 1}
    assert others == {gguf.GGMLQuantizationType.F32}


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
    """A model in several files counts as a whole, and all parts must be there."""
    model = make_model(Store(tmp_path / "store"), RECIPES[1])
    first, second = (tmp_path / f"m-0000{part}-of-00002.gguf" for part in (1, 2))
    shutil.copy(model.path, first)
    with pytest.raises(ModelError, match="part of the model is missing"):
        read_contents(first)
    shutil.copy(make_model(Store(tmp_path / "store"), RECIPES[3]).path, second)
    assert read_contents(first).tensors > read_contents(model.path).tensors


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
    other = dataclasses.replace(RECIPES[0], layers=1)
    assert (
        make_model(Store(tmp_path), other).path.parent != make_model(Store(tmp_path), RECIPES[0]).path.parent
    )
