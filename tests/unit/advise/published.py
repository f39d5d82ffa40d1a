"""Shapes of published models, and what others measured with them: what the prediction is held against.

The models are not at hand. Their shapes are those that model cards, ``config.json`` files and logs of
llama.cpp show; which type each tensor has follows the rules by which ``llama-quantize`` chooses.
``uncertain`` says what of a model is less sure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

from numamirror_build.verify.gguf_header import Header, Tensor

Shape = tuple[int, ...]
Named = Iterator[tuple[str, Shape]]
Model = tuple[Mapping[str, Any], Mapping[str, Shape]]

VOCABULARY = {"gemma": 262144, "qwen35": 248320, "qwen2": 152064, "deepseek": 129280}


@dataclass(frozen=True)
class Published:
    """A model, and how much faster the mirror was than what it was compared with.

    Attributes:
        name: the model and its quantisation.
        machine: name of the machine's description.
        ratio: tokens per second with the mirror, by those without.
        shape: values of the header, and the tensors' dimensions.
        types: the type of a tensor, by its name and the layer's number.
        size: gigabytes of the tensors as a log of somebody shows them; None where none was found.
        uncertain: what is less sure.
    """

    name: str
    machine: str
    ratio: float
    shape: Model
    types: Callable[[str, int], Type]
    size: float | None = None
    uncertain: str = ""

    def header(self) -> Header:
        """What the header of the file says."""
        values, shapes = self.shape
        arch = str(values["general.architecture"])
        facts = {
            key if key.startswith("general.") else f"{arch}.{key}": value for key, value in values.items()
        }
        tensors = {}
        for name, shape in shapes.items():
            layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
            kind = Type.F32 if len(shape) == 1 or "inp.weight" in name else self.types(name, layer)
            kind = _fitting(kind, shape[0])
            block, size = GGML_QUANT_SIZES[kind]
            tensors[name] = Tensor(shape, kind.value, prod(shape) // block * size)
        return Header(facts, tensors)

    @staticmethod
    def block(tensor: Tensor) -> tuple[int, int]:
        """Elements and bytes of a block of a tensor."""
        return GGML_QUANT_SIZES[Type(tensor.kind)]


def _fitting(kind: Type, row: int) -> Type:
    """What ``llama-quantize`` takes for a type whose blocks a row is no multiple of."""
    if row % GGML_QUANT_SIZES[kind][0] == 0:
        return kind
    other = {Type.Q3_K: Type.IQ4_NL, Type.Q4_K: Type.Q5_0, Type.Q5_K: Type.Q5_1, Type.Q6_K: Type.Q8_0}[kind]
    return other if row % GGML_QUANT_SIZES[other][0] == 0 else Type.F16


def k_m(base: Type, layers: int) -> Callable[[str, int], Type]:
    """Types of a ``_K_M`` quantisation: Q6_K for the output and for half of V and of the second product."""

    def choose(name: str, layer: int) -> Type:
        if name in ("output.weight", "token_embd.weight"):
            return Type.Q6_K if name == "output.weight" or base is Type.Q5_K else base
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        if ("attn_v." in name or "ffn_down" in name) and more:
            return Type.Q6_K
        return Type.Q5_K if base is Type.Q4_K and "attn_qkv" in name else base

    return choose


def tied(choose: Callable[[str, int], Type]) -> Callable[[str, int], Type]:
    """The same for a model whose embeddings are its output, too."""
    return lambda name, layer: Type.Q6_K if name == "token_embd.weight" else choose(name, layer)


def k_xl(name: str, layer: int) -> Type:
    """A dynamic three-bit quantisation: experts of three and four bits, everything else of five and more."""
    if "_exps" in name:
        return Type.Q4_K if "down" in name else Type.Q3_K
    return Type.Q6_K if name in ("output.weight", "token_embd.weight") else Type.Q5_K


def swiglu(layer: int, width: int, hidden: int, suffix: str = "", experts: int = 0) -> Named:
    """Gate, up and down of a layer."""
    more = (experts,) if experts else ()
    for what in ("gate", "up"):
        yield f"blk.{layer}.ffn_{what}{suffix}.weight", (width, hidden, *more)
    yield f"blk.{layer}.ffn_down{suffix}.weight", (hidden, width, *more)


def attention(layer: int, width: int, queries: int, keys: int, values: int, output: int) -> Named:
    """Q, K, V and the output of a layer; without K and V where their widths are 0."""
    for name, rows in (("q", queries), ("k", keys), ("v", values)):
        if rows:
            yield f"blk.{layer}.attn_{name}.weight", (width, rows)
    yield f"blk.{layer}.attn_output.weight", (output, width)


def embeddings(width: int, vocabulary: int, *, output: bool) -> Named:
    """Embeddings, and an output of their own."""
    yield "token_embd.weight", (width, vocabulary)
    if output:
        yield "output.weight", (width, vocabulary)


def gemma_small(
    layers: int, width: int, period: int, kv_heads: int, shared: int, hidden: int, wide: int
) -> Model:
    """gemma-4-E2B or E4B: window layers but each last of a period, embeddings per layer, shared caches."""
    local = [(number + 1) % period != 0 for number in range(layers)]

    def tensors() -> Named:
        yield from embeddings(width, VOCABULARY["gemma"], output=False)
        yield "per_layer_token_embd.weight", (256 * layers, VOCABULARY["gemma"])
        yield "per_layer_model_proj.weight", (width, 256 * layers)
        for layer, windowed in enumerate(local):
            head = 256 if windowed else 512
            own = layer < layers - shared
            keys = kv_heads * head if own else 0
            yield from attention(layer, width, 8 * head, keys, keys, 8 * head)
            yield from swiglu(layer, width, hidden if own else wide)
            yield f"blk.{layer}.inp_gate.weight", (width, 256)
            yield f"blk.{layer}.proj.weight", (256, width)

    facts = {
        "general.architecture": "gemma4",
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": 8,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": tuple(local),
        "attention.shared_kv_layers": shared,
    }
    return facts, dict(tensors())


def gemma_experts() -> Model:
    """gemma-4-26B-A4B: a dense part and 8 of 128 experts in each of 30 layers."""
    layers, width = 30, 2816
    local = [(number + 1) % 6 != 0 for number in range(layers)]

    def tensors() -> Named:
        yield from embeddings(width, VOCABULARY["gemma"], output=False)
        for layer, windowed in enumerate(local):
            keys, values = (8 * 256, 8 * 256) if windowed else (2 * 512, 0)
            queries = 16 * (256 if windowed else 512)
            yield from attention(layer, width, queries, keys, values, queries)
            yield from swiglu(layer, width, 2112)
            yield f"blk.{layer}.ffn_gate_inp.weight", (width, 128)
            yield f"blk.{layer}.ffn_gate_up_exps.weight", (width, 2 * 704, 128)
            yield f"blk.{layer}.ffn_down_exps.weight", (704, width, 128)

    facts = {
        "general.architecture": "gemma4",
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": 16,
        "attention.head_count_kv": tuple(8 if windowed else 2 for windowed in local),
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": tuple(local),
        "expert_count": 128,
        "expert_used_count": 8,
    }
    return facts, dict(tensors())


def qwen(layers: int, width: int, heads: int, kv_heads: int, inner: int, hidden: int, experts: int) -> Model:
    """Qwen3.5 and 3.6: three gated delta nets, then one attention; dense, or with a shared expert."""

    def tensors() -> Named:
        yield from embeddings(width, VOCABULARY["qwen35"], output=True)
        for layer in range(layers):
            if (layer + 1) % 4 == 0:
                yield from attention(
                    layer, width, 2 * heads * 256, kv_heads * 256, kv_heads * 256, heads * 256
                )
            else:
                yield f"blk.{layer}.attn_qkv.weight", (width, 2 * 16 * 128 + inner)
                yield f"blk.{layer}.attn_gate.weight", (width, inner)
                yield f"blk.{layer}.ssm_alpha.weight", (width, inner // 128)
                yield f"blk.{layer}.ssm_beta.weight", (width, inner // 128)
                yield f"blk.{layer}.ssm_out.weight", (inner, width)
            if experts:
                yield f"blk.{layer}.ffn_gate_inp.weight", (width, experts)
                yield from swiglu(layer, width, hidden, "_exps", experts)
                yield from swiglu(layer, width, hidden, "_shexp")
            else:
                yield from swiglu(layer, width, hidden)

    facts = {
        "general.architecture": "qwen35moe" if experts else "qwen35",
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.inner_size": inner,
        **({"expert_count": experts, "expert_used_count": 8} if experts else {}),
    }
    return facts, dict(tensors())


def qwq() -> Model:
    """QwQ-32B: dense, 64 layers."""
    layers, width = 64, 5120

    def tensors() -> Named:
        yield from embeddings(width, VOCABULARY["qwen2"], output=True)
        for layer in range(layers):
            yield from attention(layer, width, 40 * 128, 8 * 128, 8 * 128, 40 * 128)
            yield from swiglu(layer, width, 27648)

    facts = {
        "general.architecture": "qwen2",
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": 40,
        "attention.head_count_kv": 8,
    }
    return facts, dict(tensors())


def deepseek() -> Model:
    """DeepSeek-R1: 61 layers, three of them dense, 8 of 256 experts and a shared one in the others."""
    layers, width = 61, 7168

    def tensors() -> Named:
        yield from embeddings(width, VOCABULARY["deepseek"], output=True)
        for layer in range(layers):
            yield f"blk.{layer}.attn_q_a.weight", (width, 1536)
            yield f"blk.{layer}.attn_q_b.weight", (1536, 128 * 192)
            yield f"blk.{layer}.attn_kv_a_mqa.weight", (width, 576)
            yield f"blk.{layer}.attn_kv_b.weight", (512, 128 * 256)
            yield f"blk.{layer}.attn_output.weight", (128 * 128, width)
            if layer < 3:
                yield from swiglu(layer, width, 18432)
            else:
                yield f"blk.{layer}.ffn_gate_inp.weight", (width, 256)
                yield from swiglu(layer, width, 2048, "_exps", 256)
                yield from swiglu(layer, width, 2048, "_shexp")

    facts = {
        "general.architecture": "deepseek2",
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": 128,
        "attention.head_count_kv": 128,
        "attention.key_length": 192,
        "attention.value_length": 128,
        "expert_count": 256,
        "expert_used_count": 8,
    }
    return facts, dict(tensors())


XEON, EPYC = "2x-xeon-6248r", "2x-epyc-9275f"

PUBLISHED = (
    Published(
        "gemma-4-E2B Q5_K_M",
        XEON,
        1.31,
        gemma_small(35, 1536, 5, 1, 20, 6144, 12288),
        tied(k_m(Type.Q5_K, 35)),
    ),
    Published(
        "gemma-4-E4B Q5_K_M",
        XEON,
        1.41,
        gemma_small(42, 2560, 6, 2, 18, 10240, 10240),
        tied(k_m(Type.Q5_K, 42)),
    ),
    Published("gemma-4-26B-A4B Q4_K_M", XEON, 1.47, gemma_experts(), tied(k_m(Type.Q4_K, 30))),
    Published(
        "Qwen3.6-27B Q4_K_M", XEON, 1.58, qwen(64, 5120, 24, 4, 6144, 17408, 0), k_m(Type.Q4_K, 64), 16.54
    ),
    Published(
        "Qwen3.6-35B-A3B Q5_K_M", XEON, 1.28, qwen(40, 2048, 16, 2, 4096, 512, 256), k_m(Type.Q5_K, 40)
    ),
    Published(
        "Qwen3.5-122B-A10B Q3_K_XL",
        XEON,
        1.45,
        qwen(48, 3072, 32, 2, 8192, 1024, 256),
        k_xl,
        uncertain="the types of a dynamic quantisation are its maker's choice; these are a guess",
    ),
    Published("QwQ-32B FP16", EPYC, 10.80 / 6.66, qwq(), lambda name, layer: Type.F16),
    Published("DeepSeek-R1 671B Q8_0", EPYC, 9.67 / 7.19, deepseek(), lambda name, layer: Type.Q8_0),
)
