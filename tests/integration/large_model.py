"""A model of more than 500 MB with random weights, made for the purpose and kept in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from numamirror_build.store import Store, digest, file_sha256

LAYERS = 11
EMBEDDING = 2048
FEED_FORWARD = 6144
HEADS = 16
KV_HEADS = 4
VOCABULARY = 320

# Q8_0: a scale and 32 numbers of one byte
_SCALE = np.frombuffer(np.float16(1 / 4096).tobytes(), dtype=np.uint8)


def make_large_model(store: Store) -> Path:
    """The file, of 560 MB. Its weights are such that nothing overflows; what it says has no sense."""
    inputs = {"code": file_sha256(Path(__file__))}

    def make(folder: Path) -> dict[str, Any]:
        _write(folder / "large.gguf")
        return {}

    return store.make("models", digest(inputs)[:20], make).path / "large.gguf"


def _write(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_feed_forward_length(FEED_FORWARD)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"t{index}" for index in range(VOCABULARY - len(tokens))]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    types += [kinds.NORMAL] * (VOCABULARY - len(types))
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([int(kind) for kind in types])
    random = np.random.default_rng(1)
    kv = EMBEDDING // HEADS * KV_HEADS
    matrices = {"token_embd": (VOCABULARY, EMBEDDING), "output": (VOCABULARY, EMBEDDING)}
    vectors = ["output_norm"]
    for layer in range(LAYERS):
        vectors += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
        matrices |= {
            f"blk.{layer}.attn_q": (EMBEDDING, EMBEDDING),
            f"blk.{layer}.attn_k": (kv, EMBEDDING),
            f"blk.{layer}.attn_v": (kv, EMBEDDING),
            f"blk.{layer}.attn_output": (EMBEDDING, EMBEDDING),
            f"blk.{layer}.ffn_gate": (FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_up": (FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_down": (EMBEDDING, FEED_FORWARD),
        }
    for name in vectors:
        writer.add_tensor(f"{name}.weight", np.ones(EMBEDDING, dtype=np.float32))
    for name, (rows, columns) in matrices.items():
        blocks = random.integers(0, 256, size=(rows, columns // 32, 34), dtype=np.uint8)
        blocks[:, :, :2] = _SCALE
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
