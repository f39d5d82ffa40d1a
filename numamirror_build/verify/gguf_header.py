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
_DEEPEST = 8  # lists in lists; upstreams write none
_LONGEST_TEXT = 64 << 20  # chat templates have some KiB
_MOST_TEXTS = 1 << 21  # vocabularies have some 100,000
_MOST_DIMENSIONS = 8  # upstreams have 4
_VERSIONS = (2, 3)


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

    Nothing that a header says is believed before the file was seen to be as long,
    and nothing that is long is read: what it costs to refuse a file does not depend on the numbers in it.

    Raises:
        ValueError: the file is shorter than its header says, or the header makes no sense:
            names that come twice, lists of more than 2,097,152 texts,
            tensors that overlap or begin between multiples of the alignment,
            lists in lists in lists, more than 8 dimensions, texts of more than 64 MiB.
        struct.error: the header ends in the middle of something.
    """
    with path.open("rb") as stream:
        _, version, tensors, pairs = _unpack(stream, "4sIQQ")
        if version not in _VERSIONS:
            raise ValueError(f"version {version}, where 2 and 3 are known")
        facts: dict[str, Any] = {}
        for _ in range(pairs):
            key = _string(stream)
            if key in facts:
                raise ValueError(f"the key {_shown(key)} comes twice")
            facts[key] = _value(stream, _unpack(stream, "I")[0])
        infos = []
        names: set[str] = set()
        for _ in range(tensors):
            infos.append(_info(stream))
            name = infos[-1][0]
            if name in names:
                raise ValueError(f"the tensor {_shown(name)} comes twice")
            names.add(name)
        alignment = facts.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"general.alignment is no positive number: {alignment}")
        begin = -(-stream.tell() // alignment) * alignment
    length = path.stat().st_size
    places = sorted({offset for _, _, _, offset in infos} | {length - begin})
    until = {place: after - place for place, after in pairwise(places)}
    sizes: dict[str, int] = {}
    for name, kind, shape, offset in infos:
        if offset % alignment:
            raise ValueError(
                f"the tensor {_shown(name)} begins at {offset}, between multiples of {alignment}"
            )
        sizes[name] = _size(kind, shape, until.get(offset, 0), alignment)
    end = 0
    for offset, name in sorted((offset, name) for name, _, _, offset in infos):
        if offset < end:
            raise ValueError(f"the tensor {_shown(name)} begins at {offset}, inside of another one")
        end = offset + sizes[name]
    if infos and begin + end > length:
        raise ValueError(f"its tensors end at {begin + end}")
    return Header(facts, {name: Tensor(shape, kind, sizes[name]) for name, kind, shape, _ in infos})


def _size(kind: int, shape: tuple[int, ...], until: int, alignment: int) -> int:
    try:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        if until <= 0:
            raise ValueError(f"a tensor of type {kind} has no bytes") from None
        return until if until % alignment else until - alignment + 1
    if shape and shape[0] % block:
        raise ValueError(f"rows of {shape[0]} elements are no whole blocks of {block}")
    return prod(shape) // block * size


def _info(stream: BinaryIO) -> tuple[str, int, tuple[int, ...], int]:
    name = _string(stream)
    (dimensions,) = _unpack(stream, "I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"the tensor {_shown(name)} has {dimensions} dimensions")
    shape = _unpack(stream, f"{dimensions}Q")
    kind, offset = _unpack(stream, "IQ")
    return name, kind, shape, offset


def _value(stream: BinaryIO, kind: int, depth: int = 0) -> Any:
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        if depth == _DEEPEST:
            raise ValueError(f"a list {depth} lists deep")
        inner, count = _unpack(stream, "IQ")
        if inner in _SCALARS:
            if count <= _LONGEST:
                return _unpack(stream, f"{count}{_SCALARS[inner]}")
            _skip(stream, count * struct.calcsize("<" + _SCALARS[inner]))
            return None
        if count > _MOST_TEXTS:
            raise ValueError(f"a list of {count} texts or lists")
        for _ in range(count):
            _value(stream, inner, depth + 1)
        return None
    if kind not in _SCALARS:
        raise ValueError(f"there is no type {kind} of values")
    return _unpack(stream, _SCALARS[kind])[0]


def _string(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    if length > _LONGEST_TEXT:
        raise ValueError(f"a text of {length} bytes")
    return _read(stream, length).decode(errors="replace")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack("<" + layout, _read(stream, struct.calcsize("<" + layout)))


def _read(stream: BinaryIO, count: int) -> bytes:
    _check_there(stream, count)
    return stream.read(count)


def _skip(stream: BinaryIO, count: int) -> None:
    _check_there(stream, count)
    stream.seek(count, os.SEEK_CUR)


def _check_there(stream: BinaryIO, count: int) -> None:
    if count > os.fstat(stream.fileno()).st_size - stream.tell():
        raise ValueError("it ends in the header")
