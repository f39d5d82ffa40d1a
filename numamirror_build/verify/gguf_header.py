"""What the header of a GGUF file says, also of types of tensors that the package ``gguf`` does not know."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import gguf

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
_LONGEST = 4096  # of lists that are kept: one value per layer; vocabularies are longer


@dataclass(frozen=True)
class Tensor:
    """A tensor: its dimensions, that of a row first, the number of its type, and its bytes."""

    shape: tuple[int, ...]
    kind: int
    size: int


@dataclass(frozen=True)
class Header:
    """What a header says: values by key, without texts' lists and long lists, and tensors by name."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def arch(self) -> str:
        """The architecture's name; empty if none is named."""
        return str(self.facts.get("general.architecture", ""))


def read_header(path: Path) -> Header:
    """The header of a GGUF file.

    Of a type that is not known here, so many bytes are counted as there surely are until the next tensor:
    the space between two tensors is less than the alignment.

    Raises:
        ValueError: the file is shorter than its header says, or the header makes no sense.
        struct.error: the header ends in the middle of something.
    """
    with path.open("rb") as stream:
        _, version, tensors, pairs = _unpack(stream, "4sIQQ")
        if version < 2:
            raise ValueError(f"version {version}")
        facts = {}
        for _ in range(pairs):
            key = _string(stream)
            facts[key] = _value(stream, _unpack(stream, "I")[0])
        infos = [_info(stream) for _ in range(tensors)]
        alignment = facts.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"general.alignment is no positive number: {alignment}")
        begin = -(-stream.tell() // alignment) * alignment
    length = path.stat().st_size
    places = sorted({offset for _, _, _, offset in infos} | {length - begin})
    until = {place: after - place for place, after in pairwise(places)}
    sizes = {name: _size(kind, shape, until.get(offset, 0), alignment) for name, kind, shape, offset in infos}
    for name, _, _, offset in infos:
        if begin + offset + sizes[name] > length:
            raise ValueError(f"tensor {name} ends at {begin + offset + sizes[name]}")
    return Header(facts, {name: Tensor(shape, kind, sizes[name]) for name, kind, shape, _ in infos})


def _size(kind: int, shape: tuple[int, ...], until: int, alignment: int) -> int:
    try:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        if until <= 0:
            raise ValueError(f"a tensor of type {kind} has no bytes") from None
        return until if until % alignment else until - alignment + 1
    return prod(shape) // block * size


def _info(stream: BinaryIO) -> tuple[str, int, tuple[int, ...], int]:
    name = _string(stream)
    (dimensions,) = _unpack(stream, "I")
    shape = _unpack(stream, f"{dimensions}Q")
    kind, offset = _unpack(stream, "IQ")
    return name, kind, shape, offset


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        inner, count = _unpack(stream, "IQ")
        if inner in _SCALARS:
            data = _read(stream, count * struct.calcsize("<" + _SCALARS[inner]))
            return struct.unpack(f"<{count}{_SCALARS[inner]}", data) if count <= _LONGEST else None
        for _ in range(count):
            _value(stream, inner)
        return None
    if kind not in _SCALARS:
        raise ValueError(f"there is no type {kind} of values")
    return _unpack(stream, _SCALARS[kind])[0]


def _string(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    return _read(stream, length).decode(errors="replace")


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack("<" + layout, _read(stream, struct.calcsize("<" + layout)))


def _read(stream: BinaryIO, count: int) -> bytes:
    if count > os.fstat(stream.fileno()).st_size - stream.tell():
        raise ValueError("it ends in the header")
    return stream.read(count)
