"""Headers of GGUF files: architecture, and bytes of tensors of any type."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import pytest

from numamirror_build.errors import ModelError
from numamirror_build.store import Store
from numamirror_build.verify.gguf_header import read_header
from numamirror_build.verify.models import RECIPES, make_model, read_contents

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
    for place, change in ((4, b"\1"), (24, b"\xff" * 8), (16, b"\xff" * 4), (52, b"\x63")):
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
