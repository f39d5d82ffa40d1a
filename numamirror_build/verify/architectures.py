"""Small models of several architectures: what stands in their files beside the weights' values. Data only.

Together they have every kind of cache that graphs write to: K and V, with a sliding window, compressed (MLA),
recurrent states, states beside K and V, and compressor states. Names are those of GGUF files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

EMBEDDING = 256
HEADS = 4
KV_HEADS = 2
HEAD = EMBEDDING // HEADS
FEED_FORWARD = 768
WINDOW = 64  # positions; less than the longest prompt that is evaluated

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]  # by tensor name; as numpy has shapes, rows first
Value = bool | int | float | list[int]


@dataclass(frozen=True)
class Architecture:
    """An architecture, made small.

    Attributes:
        name: in files, and in upstream's list of what it knows.
        layers: how many.
        layer: the tensors of a layer, by its index.
        keys: metadata beside what all have, and instead of it; without the architecture's prefix.
        whole: tensors that belong to no layer, beside those that all have.
        output: whether there is an output matrix; otherwise the embeddings serve.
        attends: whether there are K and V, which all threads read; a state alone may be read by the first.
    """

    name: str
    layers: int
    layer: Callable[[int], Shapes]
    keys: Mapping[str, Value] = field(default_factory=dict)
    whole: Shapes = field(default_factory=dict)
    output: bool = True
    attends: bool = True


def _weights(**shapes: Shape) -> dict[str, Shape]:
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _attention(q: int = EMBEDDING, kv: int = KV_HEADS * HEAD) -> dict[str, Shape]:
    return _weights(
        attn_norm=(EMBEDDING,),
        attn_q=(q, EMBEDDING),
        attn_k=(kv, EMBEDDING),
        attn_v=(kv, EMBEDDING),
        attn_output=(EMBEDDING, EMBEDDING),
    )


def _feed_forward(width: int = FEED_FORWARD) -> dict[str, Shape]:
    return _weights(
        ffn_gate=(width, EMBEDDING),
        ffn_down=(EMBEDDING, width),
        ffn_up=(width, EMBEDDING),
    )


EXPERTS = 8
EXPERTS_USED = 2
EXPERT = 128  # width


def _experts() -> dict[str, Shape]:
    return _weights(
        ffn_gate_inp=(EXPERTS, EMBEDDING),
        ffn_gate_exps=(EXPERTS, EXPERT, EMBEDDING),
        ffn_down_exps=(EXPERTS, EMBEDDING, EXPERT),
        ffn_up_exps=(EXPERTS, EXPERT, EMBEDDING),
    )


def _shared_expert(width: int) -> dict[str, Shape]:
    return _weights(
        ffn_gate_shexp=(width, EMBEDDING),
        ffn_down_shexp=(EMBEDDING, width),
        ffn_up_shexp=(width, EMBEDDING),
    )


_FFN_NORM = _weights(ffn_norm=(EMBEDDING,))

LLAMA = Architecture(
    "llama",
    layers=4,
    layer=lambda _: {**_attention(), **_FFN_NORM, **_feed_forward()},
    keys={"rope.dimension_count": HEAD},
)

QWEN2MOE = Architecture(
    "qwen2moe",
    layers=3,
    layer=lambda _: {
        **_attention(),
        **_FFN_NORM,
        **_experts(),
        **_weights(ffn_gate_inp_shexp=(EMBEDDING,)),
        **_shared_expert(256),
    },
    keys={
        "rope.dimension_count": HEAD,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_feed_forward_length": EXPERT,
        "expert_shared_feed_forward_length": 256,
    },
)


def _biased_moe(index: int) -> dict[str, Shape]:
    rows = {"q": EMBEDDING, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD}
    biases: dict[str, Shape] = {f"attn_{name}.bias": (count,) for name, count in rows.items()}
    return {**QWEN2MOE.layer(index), **biases}


QWEN2MOE_BIASED = replace(QWEN2MOE, layer=_biased_moe)

# Experts are chosen within groups; Q, K and V are one matrix.
EXPERT_GROUPS = 4

BAILINGMOE2 = Architecture(
    "bailingmoe2",
    layers=3,
    layer=lambda index: {
        **_weights(
            attn_norm=(EMBEDDING,),
            attn_qkv=(EMBEDDING + 2 * KV_HEADS * HEAD, EMBEDDING),
            attn_output=(EMBEDDING, EMBEDDING),
            attn_q_norm=(HEAD,),
            attn_k_norm=(HEAD,),
        ),
        **_FFN_NORM,
        **(
            {**_experts(), **_shared_expert(EXPERT), "exp_probs_b.bias": (EXPERTS,)}
            if index
            else _feed_forward()
        ),
    },
    keys={
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD // 2,
        "leading_dense_block_count": 1,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_feed_forward_length": EXPERT,
        "expert_shared_feed_forward_length": EXPERT,
        "expert_shared_count": 1,
        "expert_group_count": EXPERT_GROUPS,
        "expert_group_used_count": 2,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    },
)

# Five layers of six see the last WINDOW positions only.
GEMMA3 = Architecture(
    "gemma3",
    layers=6,
    layer=lambda _: {
        **_attention(),
        **_weights(attn_q_norm=(HEAD,), attn_k_norm=(HEAD,), post_attention_norm=(EMBEDDING,)),
        **_FFN_NORM,
        **_feed_forward(),
        **_weights(post_ffw_norm=(EMBEDDING,)),
    },
    keys={
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.sliding_window": WINDOW,
    },
    output=False,
)

INNER = 2 * EMBEDDING
STATE = 16
RANK = 32
CONVOLUTION = 4

_SSM_KEYS: dict[str, Value] = {
    "ssm.conv_kernel": CONVOLUTION,
    "ssm.inner_size": INNER,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": RANK,
}


def _mamba() -> dict[str, Shape]:
    return {
        **_weights(
            attn_norm=(EMBEDDING,),
            ssm_in=(2 * INNER, EMBEDDING),
            ssm_conv1d=(INNER, CONVOLUTION),
            ssm_x=(RANK + 2 * STATE, INNER),
            ssm_dt=(INNER, RANK),
            ssm_out=(EMBEDDING, INNER),
        ),
        "ssm_conv1d.bias": (INNER,),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
    }


MAMBA = Architecture(
    "mamba",
    layers=3,
    layer=lambda _: _mamba(),
    attends=False,
    keys={**_SSM_KEYS, "attention.head_count": 0, "attention.head_count_kv": 0, "feed_forward_length": 0},
)

_JAMBA_KV_HEADS = [0, KV_HEADS, 0, KV_HEADS]


def _jamba(index: int) -> dict[str, Shape]:
    mamba = {
        **_mamba(),
        **_weights(ssm_dt_norm=(RANK,), ssm_b_norm=(STATE,), ssm_c_norm=(STATE,)),
    }
    first = _attention() if _JAMBA_KV_HEADS[index] else mamba
    second = _experts() if index == 1 else _feed_forward(EXPERT)
    return {**first, **_FFN_NORM, **second}


JAMBA = Architecture(
    "jamba",
    layers=4,
    layer=_jamba,
    keys={
        **_SSM_KEYS,
        "attention.head_count_kv": _JAMBA_KV_HEADS,
        "feed_forward_length": EXPERT,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
    },
)

# A gated delta net in three layers of four.
DELTA_HEADS = 4
DELTA_GROUPS = 2
DELTA_HEAD = 64
_DELTA_VALUES = DELTA_HEADS * DELTA_HEAD
_DELTA_CHANNELS = _DELTA_VALUES + 2 * DELTA_GROUPS * DELTA_HEAD


def _qwen35(index: int) -> dict[str, Shape]:
    if index % 4 == 3:
        first = {
            **_attention(q=2 * EMBEDDING),
            **_weights(attn_q_norm=(HEAD,), attn_k_norm=(HEAD,)),
        }
    else:
        first = {
            **_weights(
                attn_norm=(EMBEDDING,),
                attn_qkv=(_DELTA_CHANNELS, EMBEDDING),
                attn_gate=(_DELTA_VALUES, EMBEDDING),
                ssm_conv1d=(_DELTA_CHANNELS, CONVOLUTION),
                ssm_beta=(DELTA_HEADS, EMBEDDING),
                ssm_alpha=(DELTA_HEADS, EMBEDDING),
                ssm_norm=(DELTA_HEAD,),
                ssm_out=(EMBEDDING, _DELTA_VALUES),
            ),
            "ssm_dt.bias": (DELTA_HEADS,),
            "ssm_a": (DELTA_HEADS,),
        }
    return {**first, **_weights(post_attention_norm=(EMBEDDING,)), **_feed_forward()}


QWEN35 = Architecture(
    "qwen35",
    layers=4,
    layer=_qwen35,
    keys={
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD // 2,
        "rope.dimension_sections": [6, 5, 5, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": CONVOLUTION,
        "ssm.inner_size": _DELTA_VALUES,
        "ssm.state_size": DELTA_HEAD,
        "ssm.time_step_rank": DELTA_HEADS,
        "ssm.group_count": DELTA_GROUPS,
    },
)

# One compressed row per position stands for K and V of all heads.
Q_LORA = 64
KV_LORA = 64
MLA_HEAD = 64
MLA_ROPE = 64  # K rows in 64s: upstream cannot shift quantised ones of other sizes


def _deepseek2(index: int) -> dict[str, Shape]:
    attention = _weights(
        attn_norm=(EMBEDDING,),
        attn_q_a_norm=(Q_LORA,),
        attn_kv_a_norm=(KV_LORA,),
        attn_q_a=(Q_LORA, EMBEDDING),
        attn_q_b=(HEADS * (MLA_HEAD + MLA_ROPE), Q_LORA),
        attn_kv_a_mqa=(KV_LORA + MLA_ROPE, EMBEDDING),
        attn_k_b=(HEADS, KV_LORA, MLA_HEAD),
        attn_v_b=(HEADS, MLA_HEAD, KV_LORA),
        attn_output=(EMBEDDING, HEADS * MLA_HEAD),
    )
    experts = {**_experts(), **_shared_expert(EXPERT), "exp_probs_b.bias": (EXPERTS,)}
    return {**attention, **_FFN_NORM, **(experts if index else _feed_forward())}


DEEPSEEK2 = Architecture(
    "deepseek2",
    layers=3,
    layer=_deepseek2,
    keys={
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": Q_LORA,
        "attention.kv_lora_rank": KV_LORA,
        "attention.key_length": KV_LORA + MLA_ROPE,
        "attention.value_length": KV_LORA,
        "attention.key_length_mla": MLA_HEAD + MLA_ROPE,
        "attention.value_length_mla": MLA_HEAD,
        "rope.dimension_count": MLA_ROPE,
        "rope.scaling.yarn_log_multiplier": 0.1,
        "leading_dense_block_count": 1,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_feed_forward_length": EXPERT,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
        "expert_gating_func": 2,
    },
)


def _old_deepseek2(index: int) -> dict[str, Shape]:
    tensors = _deepseek2(index)
    del tensors["attn_k_b.weight"], tensors["attn_v_b.weight"]
    return {**tensors, **_weights(attn_kv_b=(HEADS * 2 * MLA_HEAD, KV_LORA))}


# As files were before MLA: K and V of all heads are made from the row by one matrix.
_MLA_KEYS = ("attention.key_length_mla", "attention.value_length_mla")

DEEPSEEK2_OLD = replace(
    DEEPSEEK2,
    layer=_old_deepseek2,
    keys={
        **{key: value for key, value in DEEPSEEK2.keys.items() if key not in _MLA_KEYS},
        "attention.head_count_kv": HEADS,
        "attention.key_length": MLA_HEAD + MLA_ROPE,
        "attention.value_length": MLA_HEAD,
    },
)

# K and V compressed along positions: not, by 4 with an indexer, by 128.
_COMPRESSION = [0, 4, 128]
STREAMS = 4  # hyper-connections
_MIX = (2 + STREAMS) * STREAMS
OUTPUT_GROUPS = 2
OUTPUT_LORA = 64
INDEXER_HEADS = 2
INDEXER_HEAD = 64
WIDE_HEAD = 128


def _deepseek4(index: int) -> dict[str, Shape]:
    ratio = _COMPRESSION[index]
    states = 2 if ratio == 4 else 1
    attention = _weights(
        attn_norm=(EMBEDDING,),
        attn_sinks=(HEADS,),
        attn_q_a=(Q_LORA, EMBEDDING),
        attn_q_a_norm=(Q_LORA,),
        attn_q_b=(HEADS * WIDE_HEAD, Q_LORA),
        attn_kv=(WIDE_HEAD, EMBEDDING),
        attn_kv_a_norm=(WIDE_HEAD,),
        attn_output_a=(OUTPUT_GROUPS * OUTPUT_LORA, HEADS * WIDE_HEAD // OUTPUT_GROUPS),
        attn_output_b=(EMBEDDING, OUTPUT_GROUPS * OUTPUT_LORA),
    )
    mixing = _weights(
        hc_attn_fn=(_MIX, STREAMS * EMBEDDING),
        hc_attn_base=(_MIX,),
        hc_attn_scale=(3,),
        hc_ffn_fn=(_MIX, STREAMS * EMBEDDING),
        hc_ffn_base=(_MIX,),
        hc_ffn_scale=(3,),
    )
    compressor = _weights(
        attn_compressor_kv=(states * WIDE_HEAD, EMBEDDING),
        attn_compressor_gate=(states * WIDE_HEAD, EMBEDDING),
        attn_compressor_ape=(ratio, states * WIDE_HEAD),
        attn_compressor_norm=(WIDE_HEAD,),
    )
    indexer = {
        "indexer.proj.weight": (INDEXER_HEADS, EMBEDDING),
        "indexer.attn_q_b.weight": (INDEXER_HEADS * INDEXER_HEAD, Q_LORA),
        **_weights(
            indexer_compressor_kv=(2 * INDEXER_HEAD, EMBEDDING),
            indexer_compressor_gate=(2 * INDEXER_HEAD, EMBEDDING),
            indexer_compressor_ape=(ratio, 2 * INDEXER_HEAD),
            indexer_compressor_norm=(INDEXER_HEAD,),
        ),
    }
    return {
        **attention,
        **mixing,
        **(compressor if ratio else {}),
        **(indexer if ratio == 4 else {}),
        **_FFN_NORM,
        **_experts(),
        **_shared_expert(EXPERT),
        "exp_probs_b.bias": (EXPERTS,),
    }


DEEPSEEK4 = Architecture(
    "deepseek4",
    layers=len(_COMPRESSION),
    layer=_deepseek4,
    keys={
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": Q_LORA,
        "attention.key_length": WIDE_HEAD,
        "attention.value_length": WIDE_HEAD,
        "attention.sliding_window": WINDOW,
        "attention.indexer.head_count": INDEXER_HEADS,
        "attention.indexer.key_length": INDEXER_HEAD,
        "attention.indexer.top_k": 16,
        "attention.output_group_count": OUTPUT_GROUPS,
        "attention.output_lora_rank": OUTPUT_LORA,
        "attention.compress_rope_freq_base": 40000.0,
        "attention.compress_ratios": _COMPRESSION,
        "hyper_connection.count": STREAMS,
        "hyper_connection.sinkhorn_iterations": 4,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": 0,
        "rope.dimension_count": WIDE_HEAD // 4,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_feed_forward_length": EXPERT,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "swiglu_clamp_exp": 10.0,
    },
    whole=_weights(
        output_hc_fn=(STREAMS, STREAMS * EMBEDDING),
        output_hc_base=(STREAMS,),
        output_hc_scale=(1,),
    ),
)
