"""What a model takes in memory, and what generating one token reads of it, from the GGUF file's header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import gguf

from numamirror_build.errors import ModelError
from numamirror_build.verify.gguf_header import Header, Tensor

Use = Literal["whole", "experts", "row", "unused"]

# read by rows: those of the tokens that are looked up
_GATHERED = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")
_EXPERTS = re.compile(r"^blk\.\d+\.ffn_.*_exps\.")
_BLOCK = re.compile(r"^blk\.(\d{1,9})\.")
_OUTSIDE = re.compile(r"^(?:enc|v|a|mm)\.")  # encoders: not a part of generating
_OF_THE_CACHE = re.compile(r"^blk\.\d+\.attn_(?:k|v|k_norm|v_norm)\.")
_STATE_BYTES = 4  # recurrent states are F32

# of so many layers the last sees everything: upstream has these numbers in its code, not in the file
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4}
_MOST_LAYERS = 1 << 16
_LARGEST = 1 << 32  # of any number of something that a model says
_WINDOW_BATCH = 512  # a cache with a window also holds the batch that is being computed


@dataclass(frozen=True)
class Traffic:
    """A model in bytes.

    Attributes:
        arch: the architecture's name.
        weights: bytes of all tensors.
        weights_read: bytes of them that one token reads.
        elements_read: how many elements these bytes are: each is multiplied and added once.
        products: matrix products of one token, each of which all threads do together.
        cache: bytes of the caches at the full context.
        cache_read: bytes of caches that one token reads at the depth; states are read and written.
        cache_writes: layers that write to a cache for each token.
        context: tokens that the cache has room for.
        depth: tokens that are in it.
        cache_type: the type of K and V.
        experts: experts of a layer that one token uses, and how many there are; None without any.
        assumptions: what could not be read from the file.
    """

    arch: str
    weights: int
    weights_read: int
    elements_read: int
    products: int
    cache: int
    cache_read: int
    cache_writes: int
    context: int
    depth: int
    cache_type: str
    experts: tuple[int, int] | None
    assumptions: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        return {**vars(self), "assumptions": list(self.assumptions)}


def traffic_of(header: Header, *, context: int, depth: int, cache_type: str = "f16") -> Traffic:
    """Count what a model is and what a token reads.

    Args:
        header: that of the model, all parts together.
        context: tokens that the cache has room for.
        depth: tokens that are in it when the token is generated.
        cache_type: type of K and V, one of :data:`numamirror_build.advise.CACHE_TYPES`.

    Raises:
        ModelError: the file lacks what is needed to tell.
    """
    model = _Model(header)
    read, elements, products = 0.0, 0.0, 0
    for name, tensor in header.tensors.items():
        use = model.use(name)
        share = model.share(use, tensor)
        read += share * tensor.size
        elements += share * prod(tensor.shape)
        products += use in ("whole", "experts") and len(tensor.shape) > 1
    layers = list(model.layers(cache_type))
    return Traffic(
        arch=header.arch,
        weights=sum(tensor.size for tensor in header.tensors.values()),
        weights_read=round(read),
        elements_read=round(elements),
        products=products,
        cache=round(sum(layer.held(context) for layer in layers if layer.writes)),
        cache_read=round(sum(layer.read(depth) for layer in layers)),
        cache_writes=sum(layer.writes for layer in layers),
        context=context,
        depth=depth,
        cache_type=cache_type,
        experts=model.experts,
        assumptions=tuple(model.assumptions),
    )


@dataclass(frozen=True)
class _Layer:
    """The cache of a layer: bytes for each token, of how many tokens at most, and bytes of a state."""

    per_token: float = 0
    window: int | None = None
    state: float = 0
    writes: bool = True

    def read(self, depth: int) -> float:
        seen = depth if self.window is None else min(depth, self.window)
        return self.per_token * seen + 2 * self.state

    def held(self, context: int) -> float:
        room = context if self.window is None else min(context, self.window + _WINDOW_BATCH)
        return self.per_token * room + self.state


class _Model:
    """A header with the questions that counting asks."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.assumptions: list[str] = []
        if self.fact("block_count", None) is None:
            raise self.no_layers()
        blocks = self.number("block_count")
        if blocks > _MOST_LAYERS:
            raise self.nonsense("block_count", blocks)
        self.blocks = blocks - self.number("nextn_predict_layers")
        count, used = self.number("expert_count"), self.number("expert_used_count")
        self.experts = (used, count) if count and used else None
        self.tied = "output.weight" not in header.tensors
        self.own_caches = self.blocks - self.number("attention.shared_kv_layers")

    def fact(self, key: str, default: Any) -> Any:
        value = self.header.facts.get(f"{self.header.arch}.{key}")
        return default if value is None else value

    def number(self, key: str) -> int:
        return self.checked(key, self.fact(key, 0))

    def checked(self, key: str, value: Any) -> int:
        """A value that a model can have as a number of something."""
        if not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self.nonsense(key, value)
        return value

    def nonsense(self, key: str, value: Any) -> ModelError:
        return ModelError(
            "The model says of itself what cannot be",
            why=f"{self.header.arch}.{key} is {str(value)[:60]!r}",
            hint="download or convert the model again, or give another file",
        )

    def no_layers(self) -> ModelError:
        kind = self.header.facts.get("general.type", "model")
        if kind != "model":  # an adapter, for example
            return ModelError(
                "The file is no model, but something that goes with one",
                why=f"it says that it is: {str(kind)[:60]}",
                hint="give the model that it goes with",
            )
        return ModelError(
            "The model does not say how many layers it has",
            why=f"there is no {self.header.arch}.block_count",
            hint="give the model's first part, or another file",
        )

    def use(self, name: str) -> Use:
        """How one token uses a tensor."""
        if _OUTSIDE.match(name) or ".nextn." in name:
            return "unused"
        if name == "token_embd.weight" and self.tied:
            return "whole"
        if name in _GATHERED:
            return "row"
        block = _BLOCK.match(name)
        if block and int(block[1]) >= self.blocks:
            return "unused"
        if block and int(block[1]) >= self.own_caches and _OF_THE_CACHE.match(name):
            return "unused"
        if name.endswith(".attn_kv_b.weight") and name.replace("kv_b", "k_b") in self.header.tensors:
            return "unused"
        return "experts" if _EXPERTS.match(name) and self.experts else "whole"

    def share(self, use: Use, tensor: Tensor) -> float:
        """The part of a tensor that one token reads."""
        if use == "experts" and self.experts:
            return self.experts[0] / self.experts[1]
        if use == "row":
            return 1 / max(1, prod(tensor.shape[1:]))
        return 1.0 if use == "whole" else 0.0

    def layers(self, cache_type: str) -> Iterator[_Layer]:
        """The cache of each layer."""
        element = _element(cache_type)
        windows = self.windows()
        for number in range(self.blocks):
            names = (f"blk.{number}.ssm_conv1d.weight", f"blk.{number}.ssm_out.weight")
            if any(name in self.header.tensors for name in names):
                yield _Layer(state=self.state())
            else:
                window = windows[number]
                heads = self.of_layer(
                    "attention.head_count_kv", number, self.of_layer("attention.head_count", number, 0)
                )
                per_token = heads * self.width(number, window is not None) * element
                yield _Layer(per_token, window, writes=number < self.own_caches)

    def windows(self) -> list[int | None]:
        """For each layer how many tokens it sees; None for all."""
        window = self.number("attention.sliding_window")
        pattern = self.fact("attention.sliding_window_pattern", _PERIODS.get(self.header.arch))
        if not window:
            return [None] * self.blocks
        if pattern is None:
            self.assumptions.append(
                f"The file does not say which layers have the window of {window} tokens: none is counted."
            )
            return [None] * self.blocks
        if not isinstance(pattern, (int, tuple)) or pattern == ():
            raise self.nonsense("attention.sliding_window_pattern", pattern)
        if isinstance(pattern, int):
            pattern = [not pattern or (number + 1) % pattern != 0 for number in range(self.blocks)]
        return [window if pattern[number % len(pattern)] else None for number in range(self.blocks)]

    def width(self, number: int, windowed: bool) -> int:
        """Elements of K and V of one token and head."""
        heads = self.of_layer("attention.head_count", number, 1) or 1
        usual = self.number("embedding_length") // heads
        key, value = (self.number(f"attention.{what}_length") or usual for what in ("key", "value"))
        if windowed:
            key = self.number("attention.key_length_swa") or key
            value = self.number("attention.value_length_swa") or value
        if f"blk.{number}.attn_k_b.weight" in self.header.tensors:
            return key  # MLA: V is a part of K
        return key + value

    def state(self) -> float:
        """Bytes of a layer's recurrent state: what it remembers, and the last inputs of its convolution."""
        inner, size = self.number("ssm.inner_size"), self.number("ssm.state_size")
        inputs = inner + 2 * self.number("ssm.group_count") * size
        return (inner * size + max(0, self.number("ssm.conv_kernel") - 1) * inputs) * _STATE_BYTES

    def of_layer(self, key: str, number: int, default: int) -> int:
        value = self.fact(key, default)
        if isinstance(value, tuple):
            if number >= len(value):
                raise self.nonsense(key, value)
            value = value[number]
        return self.checked(key, value)


def _element(cache_type: str) -> float:
    """Bytes of one element."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[cache_type.upper()]]
    return size / block
