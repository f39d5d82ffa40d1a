"""What a token reads, counted from headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from numamirror_build.advise import CACHE_TYPES
from numamirror_build.advise.traffic import Traffic, traffic_of
from numamirror_build.errors import ModelError
from numamirror_build.store import Store
from numamirror_build.verify.gguf_header import Header, Tensor
from numamirror_build.verify.models import RECIPES, make_model, read_model

Shapes = dict[str, tuple[int, ...]]

DENSE: Shapes = {
    "token_embd.weight": (64, 100),
    "output.weight": (64, 100),
    "blk.0.attn_q.weight": (64, 64),
    "blk.0.attn_k.weight": (64, 32),
    "blk.1.ffn_up.weight": (64, 128),
    "blk.1.attn_norm.weight": (64,),
}
FACTS = {
    "block_count": 2,
    "embedding_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def counted(
    shapes: Shapes, arch: str = "llama", depth: int = 10, cache_type: str = "f16", **facts: Any
) -> Traffic:
    """The traffic of a model of F16 tensors; keys of facts have two underscores for a dot."""
    given = {key.replace("__", "."): value for key, value in facts.items()}
    keys = {f"{arch}.{key}": value for key, value in {**FACTS, **given}.items() if value is not None}
    tensors = {name: Tensor(shape, Type.F16.value, 2 * int(np.prod(shape))) for name, shape in shapes.items()}
    header = Header({"general.architecture": arch, **keys}, tensors)
    return traffic_of(header, context=100, depth=depth, cache_type=cache_type)


def test_dense() -> None:
    """All weights are read but for the embeddings, of which one row is; K and V of all tokens so far."""
    made = counted(DENSE)
    whole = sum(2 * int(np.prod(shape)) for shape in DENSE.values())
    assert made.weights == whole
    assert made.weights_read == whole - 2 * 64 * 99
    assert made.elements_read == made.weights_read // 2
    assert made.products == 4
    assert made.cache_read == 2 * 10 * 2 * (16 + 16) * 2
    assert made.cache == made.cache_read * 10
    assert made.cache_writes == 2
    json.dumps(made.as_json())


def test_tied_embeddings() -> None:
    """Without an output of its own a model reads its embeddings as output."""
    shapes = {name: shape for name, shape in DENSE.items() if name != "output.weight"}
    made = counted(shapes)
    assert made.weights_read == made.weights


def test_embeddings_per_layer_are_looked_up() -> None:
    """Of embeddings per layer one row is read, however large they are."""
    made = counted({**DENSE, "per_layer_token_embd.weight": (512, 100)})
    assert made.weights_read == counted(DENSE).weights_read + 2 * 512
    assert made.weights == counted(DENSE).weights + 2 * 512 * 100


def test_experts() -> None:
    """Of experts as many are read as the file says; shared ones and routers whole."""
    more: Shapes = {
        "blk.0.ffn_gate_inp.weight": (64, 8),
        "blk.0.ffn_up_exps.weight": (64, 32, 8),
        "blk.0.ffn_up_shexp.weight": (64, 32),
    }
    made = counted({**DENSE, **more}, expert_count=8, expert_used_count=2)
    assert made.experts == (2, 8)
    assert made.weights_read - counted(DENSE).weights_read == 2 * 64 * (8 + 2 * 32 + 32)
    assert counted({**DENSE, **more}).experts is None


def test_layers_that_are_not_run() -> None:
    """Layers that predict further tokens, and encoders, are held and not read; they have no cache."""
    more: Shapes = {
        "blk.2.ffn_up.weight": (64, 64),
        "blk.2.nextn.eh_proj.weight": (64, 64),
        "v.x.weight": (8, 8),
    }
    made = counted({**DENSE, **more}, block_count=3, nextn_predict_layers=1)
    assert made.weights_read == counted(DENSE).weights_read
    assert made.cache_read == counted(DENSE).cache_read
    assert made.weights > counted(DENSE).weights


@pytest.mark.parametrize(
    ("facts", "arch", "seen"),
    [
        ({"window": 4, "window_pattern": (True, False)}, "gemma4", 4 + 10),
        ({"window": 4, "window_pattern": 2}, "other", 4 + 10),
        ({"window": 4, "window_pattern": 1}, "other", 10 + 10),
        ({"window": 4, "window_pattern": 0}, "other", 4 + 4),
        ({"window": 4}, "gemma2", 4 + 10),
        ({"window": 4}, "gemma3", 4 + 4),
        ({"window": 40}, "gemma3", 10 + 10),
        ({"window": 4}, "unknown", 10 + 10),
    ],
)
def test_windows(facts: dict[str, Any], arch: str, seen: int) -> None:
    """Layers with a window read that many tokens; where nothing says which, none, and that is told."""
    made = counted(DENSE, arch, **{f"attention__sliding_{key}": value for key, value in facts.items()})
    assert made.cache_read == seen * 2 * (16 + 16) * 2
    assert bool(made.assumptions) == (arch == "unknown")


def test_widths_of_windows() -> None:
    """Heads may be narrower in layers with a window, and there may be other numbers of them per layer."""
    made = counted(
        DENSE,
        attention__head_count_kv=(3, 1),
        attention__key_length=64,
        attention__value_length=32,
        attention__key_length_swa=8,
        attention__value_length_swa=8,
        attention__sliding_window=4,
        attention__sliding_window_pattern=(True, False),
    )
    assert made.cache_read == 2 * (4 * 3 * (8 + 8) + 10 * 1 * (64 + 32))


def test_shared_caches() -> None:
    """A layer that shares another's cache reads it, holds and writes none, and reads no K and V weights."""
    own = counted(DENSE)
    made = counted({**DENSE, "blk.1.attn_k.weight": (64, 32)}, attention__shared_kv_layers=1)
    assert made.cache_read == own.cache_read
    assert made.cache == own.cache // 2
    assert made.cache_writes == 1
    assert made.weights_read == own.weights_read


def test_latent_attention() -> None:
    """With MLA one row is held for all heads, V is a part of it, and the joined matrix is not read."""
    more: Shapes = {
        f"blk.{layer}.attn_{what}_b.weight": (32, 64) for layer in (0, 1) for what in ("k", "v", "kv")
    }
    made = counted(
        {**DENSE, **more},
        "deepseek2",
        attention__head_count_kv=1,
        attention__key_length=40,
        attention__value_length=32,
    )
    assert made.cache_read == 2 * 10 * 40 * 2
    assert made.weights_read == counted(DENSE).weights_read + 4 * 2 * 32 * 64


def test_recurrent_layers() -> None:
    """A state is read and written whatever the depth."""
    shapes = {**DENSE, "blk.1.ssm_out.weight": (128, 64)}
    state: dict[str, Any] = {
        "ssm__inner_size": 128,
        "ssm__state_size": 16,
        "ssm__conv_kernel": 4,
        "ssm__group_count": 2,
    }
    size = (128 * 16 + 3 * (128 + 2 * 2 * 16)) * 4
    made, deeper = (counted(shapes, depth=depth, **state) for depth in (10, 20))
    assert made.cache_read == 10 * 2 * 32 * 2 + 2 * size
    assert deeper.cache_read - made.cache_read == 10 * 2 * 32 * 2
    assert made.cache == 100 * 2 * 32 * 2 + size


def test_types_of_the_cache() -> None:
    """A quantised cache is smaller by its blocks; every type is known."""
    assert counted(DENSE, cache_type="q8_0").cache_read == counted(DENSE).cache_read * 34 // 64
    read = [counted(DENSE, cache_type=cache_type).cache_read for cache_type in CACHE_TYPES]
    assert read == sorted(read, reverse=True) and read[-1] > 0


def test_a_file_that_says_too_little() -> None:
    """Without the number of layers nothing can be counted."""
    with pytest.raises(ModelError, match="layers") as caught:
        counted(DENSE, block_count=None)
    assert "llama.block_count" in str(caught.value.why)


def test_a_file_that_goes_with_a_model(tmp_path: Path) -> None:
    """An adapter has no layers of its own: what it says that it is is named."""
    adapter = make_model(Store(tmp_path), RECIPES[0]).adapter
    assert adapter
    with pytest.raises(ModelError, match="no model") as caught:
        traffic_of(read_model(adapter), context=1, depth=1)
    assert "adapter" in str(caught.value.why)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", "two"),
        ("block_count", -1),
        ("block_count", 1 << 31),
        ("expert_count", 1.5),
        ("embedding_length", 1 << 60),
        ("attention.head_count_kv", (1,)),
        ("attention.head_count", ("x", "y")),
        ("attention.sliding_window", float("nan")),
    ],
)
def test_a_model_that_says_what_cannot_be(key: str, value: Any) -> None:
    """Texts, fractions, numbers below nothing or beyond all models, and short lists: one clear error."""
    with pytest.raises(ModelError, match="what cannot be") as caught:
        counted(DENSE, **{key: value})
    assert key in str(caught.value.why)


@pytest.mark.parametrize("pattern", ["every second", (), 0.5])
def test_a_window_without_a_pattern(pattern: Any) -> None:
    """The same of the pattern of a sliding window."""
    with pytest.raises(ModelError, match="what cannot be"):
        counted(DENSE, attention__sliding_window=8, attention__sliding_window_pattern=pattern)


def test_real_files(tmp_path: Path) -> None:
    """Of models that the verification makes everything is counted, as the package ``gguf`` reads them."""
    for recipe in RECIPES[:4]:
        path = make_model(Store(tmp_path), recipe).path
        made = traffic_of(read_model(path), context=64, depth=8)
        assert made.weights == sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)
        assert 0 < made.weights_read <= made.weights
        assert made.cache > 0


def test_a_model_in_parts(tmp_path: Path) -> None:
    """Parts are one model: values from the first, tensors from all."""
    for part in (1, 2):
        writer = gguf.GGUFWriter(tmp_path / f"m-{part:05}-of-00002.gguf", "llama")
        if part == 1:
            writer.add_block_count(1)
            writer.add_embedding_length(8)
            writer.add_head_count(1)
        writer.add_tensor(f"blk.0.part_{part}.weight", np.zeros((4, 8), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    made = traffic_of(read_model(tmp_path / "m-00001-of-00002.gguf"), context=4, depth=2)
    assert made.weights == made.weights_read == 2 * 4 * 8 * 4
    assert made.cache_read == 2 * (8 + 8) * 2
