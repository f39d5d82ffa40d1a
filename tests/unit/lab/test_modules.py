from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from numamirror_build.errors import LabError
from numamirror_build.lab.modules import needed_modules, read_module


def write(folder: Path, name: str, depends: str, *, packed: bool = False) -> Path:
    """A module that depends on others."""
    content = b"\x7fELF...license=GPL\0depends=" + depends.encode() + b"\0name=x\0"
    path = folder / "kernel" / f"{name}.ko{'.xz' if packed else ''}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(content) if packed else content)
    return path


def names(paths: tuple[Path, ...]) -> list[str]:
    """Names of modules."""
    return [path.name.partition(".")[0] for path in paths]


def test_what_a_module_needs_comes_before_it(tmp_path: Path) -> None:
    """Each module once, after all that it depends on; dashes and underscores are the same."""
    for name, depends in {"9p": "net-9p,netfs", "net_9p": "netfs", "netfs": "", "other": ""}.items():
        write(tmp_path, name, depends)
    assert names(needed_modules(tmp_path, ["9p", "netfs"])) == ["netfs", "net_9p", "9p"]


def test_what_is_built_in_is_not_loaded(tmp_path: Path) -> None:
    """A kernel that has a module built in needs no file for it."""
    write(tmp_path, "9p", "netfs")
    (tmp_path / "modules.builtin").write_text("kernel/fs/netfs/netfs.ko\n")
    assert names(needed_modules(tmp_path, ["9p"])) == ["9p"]


def test_packed_modules_are_read(tmp_path: Path) -> None:
    """Newer Debian kernels have modules packed with xz; the guest gets them unpacked."""
    path = write(tmp_path, "a", "b", packed=True)
    write(tmp_path, "b", "", packed=True)
    assert names(needed_modules(tmp_path, ["a"])) == ["b", "a"]
    assert read_module(path).startswith(b"\x7fELF")


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    """The message says which module, and of which kernel."""
    write(tmp_path, "a", "gone")
    with pytest.raises(LabError, match="The kernel has no module gone") as caught:
        needed_modules(tmp_path, ["a"])
    assert caught.value.where == str(tmp_path)
