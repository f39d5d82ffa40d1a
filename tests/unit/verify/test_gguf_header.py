"""Headers of GGUF files: architecture, and bytes of tensors of any type."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numamirror_build.advise.traffic import traffic_of
from numamirror_build.errors import ModelError
from numamirror_build.store import Store
from numamirror_build.verify.gguf_header import read_header
from numamirror_build.verify.models import RECIPES, make_model, read_contents, read_model

FOREIGN = 144  # a type of ik_llama.cpp


def contents(path: Path) -> tuple[str, dict[str, int]]:
    """The architecture, and the bytes of each tensor."""
    read = read_header(path)
    return read.arch, {name: tensor.size for name, tensor in read.tensors.items()}


def test_sizes_are_those_of_the_package(tmp_path: Path) -> None:
    """Of types that the package ``gguf`` knows, it says the same."""
    for recipe in RECIPES[:3]:
        path = make_model(Store(tmp_path), recipe).path
        theirs = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors}
        assert contents(path) == ("llama", theirs)


def header(*infos: tuple[str, int, int, int], alignment: bytes = b"") -> bytes:
    """A header with these tensors: name, elements, type, offset; filled up to the next 32 bytes.

    With an alignment, which is a type and a value, that is said, too.
    """
    text = b"GGUF" + struct.pack("<IQQ", 3, len(infos), 2 if alignment else 1)
    key, value = b"general.architecture", b"made-up"
    text += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    if alignment:
        key = b"general.alignment"
        text += struct.pack("<Q", len(key)) + key + alignment
    for name, elements, kind, offset in infos:
        text += struct.pack("<Q", len(name)) + name.encode()
        text += struct.pack("<IQIQ", 1, elements, kind, offset)
    return text + b"\0" * (-len(text) % 32)


def test_a_type_that_is_not_known(tmp_path: Path) -> None:
    """It has at least as many bytes as there are until the next tensor, less what may fill them up."""
    path = tmp_path / "model.gguf"
    infos = [("last", 256, FOREIGN, 256), ("first", 256, FOREIGN, 0), ("known", 32, 0, 128)]
    path.write_bytes(header(*infos) + b"x" * (256 + 77))
    assert contents(path) == ("made-up", {"first": 128 - 31, "known": 128, "last": 77})
    path.write_bytes(header(*infos) + b"x" * 256)
    with pytest.raises(ValueError, match="no bytes"):
        read_header(path)


def test_a_header_that_makes_no_sense(tmp_path: Path) -> None:
    """Lengths beyond the file's end, unknown kinds of values, old versions, and bad alignments are errors."""
    path = tmp_path / "model.gguf"
    good = header(("x", 32, 0, 0)) + b"x" * 128
    for place, change in (
        (4, b"\1"),
        (4, b"\4"),
        (4, b"\0\0\0\3"),
        (24, b"\xff" * 8),
        (16, b"\xff" * 4),
        (52, b"\x63"),
    ):
        path.write_bytes(good[:place] + change + good[place + len(change) :])
        with pytest.raises((ValueError, struct.error)):
            read_header(path)
    none, array, below = struct.pack("<II", 4, 0), struct.pack("<IIQ", 9, 4, 0), struct.pack("<Ii", 5, -32)
    for alignment in (none, array, below):
        path.write_bytes(header(("x", 32, 0, 0), alignment=alignment) + b"x" * 128)
        with pytest.raises(ValueError, match=r"general\.alignment"):
            read_header(path)
        with pytest.raises(ModelError, match="damaged"):
            read_contents(path)
    for whole in (good, header(("x", 32, 0, 0), alignment=struct.pack("<II", 4, 32)) + b"x" * 128):
        path.write_bytes(whole)
        assert contents(path) == ("made-up", {"x": 128})


LISTS = 100_000
HUGE = 1 << 40


def text(value: bytes, length: int | None = None) -> bytes:
    """A text, which may say that it is longer than it is."""
    return struct.pack("<Q", len(value) if length is None else length) + value


def pair(key: bytes, value: bytes) -> bytes:
    """A key and its value: type and content."""
    return text(key) + value


def whole(*pairs: bytes, infos: tuple[bytes, ...] = (), counts: tuple[int, int] | None = None) -> bytes:
    """A file of such pairs and tensors; it may say that it has other numbers of them."""
    tensors, keys = counts or (len(infos), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + b"".join([*pairs, *infos])
    return head + b"\0" * (-len(head) % 32)


def info(name: bytes, *shape: int, kind: int = 0, offset: int = 0, dimensions: int | None = None) -> bytes:
    """What a header says of a tensor."""
    count = len(shape) if dimensions is None else dimensions
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", count, *shape, kind, offset)


ONE = struct.pack("<II", 4, 1)
HOSTILE = {
    "lists in lists": whole(pair(b"k", struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * LISTS)),
    "a key twice": whole(pair(b"k", ONE), pair(b"k", ONE)),
    "a tensor twice": whole(infos=(info(b"a", 8), info(b"a", 8, offset=32))) + b"x" * 64,
    "tensors in one place": whole(infos=(info(b"a", 8), info(b"b", 8))) + b"x" * 64,
    "tensors that overlap": whole(infos=(info(b"a", 16), info(b"b", 8, offset=32))) + b"x" * 96,
    "between the alignment": whole(infos=(info(b"a", 8, offset=4),)) + b"x" * 64,
    "no whole blocks": whole(infos=(info(b"a", 33, kind=8),)) + b"x" * 64,
    "more elements than numbers": whole(infos=(info(b"a", 1 << 63, 1 << 63, 1 << 63),)) + b"x" * 64,
    "far behind the end": whole(infos=(info(b"a", 8, offset=1 << 63),)) + b"x" * 64,
    "dimensions without end": whole(infos=(info(b"a", 8, dimensions=(1 << 32) - 1),)),
    "nine dimensions": whole(infos=(info(b"a", *[1] * 9),)) + b"x" * 64,
    "pairs without end": whole(pair(b"k", ONE), counts=(0, (1 << 64) - 1)),
    "tensors without end": whole(pair(b"k", ONE), counts=((1 << 64) - 1, 1)),
    "a text without end": whole(pair(b"k", struct.pack("<I", 8) + text(b"x", (1 << 64) - 1))),
    "a key without end": whole(text(b"x", 1 << 40)),
    "a list without end": whole(pair(b"k", struct.pack("<IIQ", 9, 12, (1 << 64) - 1))),
    "texts without end": whole(pair(b"k", struct.pack("<IIQ", 9, 8, (1 << 64) - 1))),
    "a list of no type": whole(pair(b"k", struct.pack("<IIQ", 9, 77, 2))),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_content_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever numbers, names and depths a file has: a model error, exit code 30, at once."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged or cut short") as caught:
        read_contents(path)
    assert caught.value.exit_code == 30
    assert str(path) in str(caught.value.where)


@pytest.fixture
def bounded() -> Iterator[None]:
    """What a test may take: 16 MB of memory and five seconds of CPU time."""
    begun = time.process_time()
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<I", 8) + struct.pack("<Q", HUGE // 2),
        struct.pack("<IIQ", 9, 0, HUGE // 2),
        struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", HUGE // 2),
    ],
    ids=["text", "list", "list of texts"],
)
def test_a_file_that_is_really_that_long_costs_nothing(tmp_path: Path, value: bytes, bounded: None) -> None:
    """A terabyte that takes no room on the disk, with a value of half of it: nothing of it is read."""
    path = tmp_path / "model.gguf"
    path.write_bytes(whole(pair(b"k", value), counts=(2, 1)))
    os.truncate(path, HUGE)
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_contents(path)


@pytest.mark.parametrize("counts", [(1 << 35, 1), (0, 2)], ids=["tensors", "list of texts"])
def test_what_a_hole_says_costs_nothing(tmp_path: Path, counts: tuple[int, int], bounded: None) -> None:
    """A terabyte of zeros is as many tensors without names, or empty texts, as one likes: few are read."""
    path = tmp_path / "model.gguf"
    value = struct.pack("<IIQ", 9, 8, HUGE // 16) if counts[0] == 0 else ONE
    path.write_bytes(whole(pair(b"k", value), counts=counts))
    os.truncate(path, HUGE)
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_contents(path)


GOOD = whole(
    pair(b"general.architecture", struct.pack("<I", 8) + text(b"llama")),
    pair(b"llama.block_count", ONE),
    pair(b"llama.attention.head_count", struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 4, 4)),
    pair(b"tokenizer.ggml.tokens", struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"bc")),
    infos=(info(b"token_embd.weight", 8, 4), info(b"blk.0.attn_q.weight", 32, 2, kind=8, offset=128)),
) + b"x" * (128 + 68)
CHANGES = st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8)), max_size=4)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, keep=st.one_of(st.none(), st.integers(4, len(GOOD))))
def test_a_damaged_file_is_refused_or_makes_sense(
    tmp_path: Path, changes: list[tuple[int, bytes]], keep: int | None
) -> None:
    """Bytes changed and cut anywhere: a model error, or a header with all its tensors in the file."""
    content = bytearray(GOOD)
    for place, new in changes:
        content[place : place + len(new)] = new
    path = tmp_path / "model.gguf"
    path.write_bytes(content[:keep])
    try:
        header = read_model(path)
        traffic_of(header, context=64, depth=8)
    except ModelError:
        return
    assert sum(tensor.size for tensor in header.tensors.values()) < len(content)
