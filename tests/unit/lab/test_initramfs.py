from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from numamirror_build.lab.initramfs import make_initramfs

FILES = {"init": (0o755, b"#!/bin/sh\n"), "a/long name": (0o640, b"x" * 1001), "a/empty": (0o600, b"")}


def test_the_same_content_gives_the_same_bytes() -> None:
    """Nothing of the machine or the time gets into the archive."""
    assert make_initramfs(["a"], FILES) == make_initramfs(["a"], dict(FILES))
    assert make_initramfs(["a"], FILES) != make_initramfs(["b"], FILES)


def test_entries_are_padded_to_four_bytes() -> None:
    """A header is 110 bytes, and then come name and content, each to a multiple of four."""
    data = make_initramfs([], {"init": (0o755, b"12345")})
    assert data[:6] == b"070701"
    assert data[14:22] == b"000081ED"
    assert data[110:115] == b"init\0"
    assert data[116:124] == b"12345\0\0\0"
    assert data[124:130] == b"070701"
    assert len(data) % 4 == 0


def test_another_program_reads_the_archive(tmp_path: Path) -> None:
    """cpio unpacks the same folders, files, permissions and content."""
    busybox = shutil.which("busybox")
    reader = ["cpio"] if shutil.which("cpio") else [busybox, "cpio"] if busybox else None
    if reader is None:
        pytest.skip("needs cpio or busybox")
    subprocess.run(
        [*reader, "-i"],
        input=make_initramfs(["a", "a/b"], FILES),
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "a/b").is_dir()
    for name, (mode, content) in FILES.items():
        assert (tmp_path / name).read_bytes() == content
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
