from __future__ import annotations

import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from numamirror_build.errors import LabError, ToolMissingError
from numamirror_build.lab.modules import needed_modules, read_module

needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")


def _zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-q"], input=content, check=True, capture_output=True).stdout


PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".xz": lzma.compress, ".zst": _zstd}


def write(folder: Path, name: str, depends: str, *, packed: str = "") -> Path:
    """A module that depends on others."""
    content = b"\x7fELF...license=GPL\0depends=" + depends.encode() + b"\0name=x\0"
    path = folder / "kernel" / f"{name}.ko{packed}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(PACK[packed](content))
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


@pytest.mark.parametrize("packed", [".xz", pytest.param(".zst", marks=needs_zstd)])
def test_packed_modules_are_read(tmp_path: Path, packed: str) -> None:
    """Newer kernels of Debian have modules packed with xz, Ubuntu's with zstd; the guest gets them plain."""
    path = write(tmp_path, "a", "b", packed=packed)
    write(tmp_path, "b", "", packed=packed)
    assert names(needed_modules(tmp_path, ["a"])) == ["b", "a"]
    content = read_module(path)
    assert content.startswith(b"\x7fELF") and content.endswith(b"name=x\0")


@needs_zstd
def test_a_damaged_module_is_an_error(tmp_path: Path) -> None:
    """The message has the file, and what the program that unpacks says."""
    path = write(tmp_path, "a", "", packed=".zst")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(LabError, match="A module cannot be unpacked") as caught:
        read_module(path)
    assert caught.value.where == str(path)
    assert "a.ko.zst" in str(caught.value.why)


def test_the_program_that_unpacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without zstd its package is named, and not another kernel."""
    path = tmp_path / "a.ko.zst"
    path.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError) as caught:
        read_module(path)
    assert caught.value.hint == "install it (Debian, Ubuntu: apt install zstd)"


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    """The message says which module, and of which kernel."""
    write(tmp_path, "a", "gone")
    with pytest.raises(LabError, match="The kernel has no module gone") as caught:
        needed_modules(tmp_path, ["a"])
    assert caught.value.where == str(tmp_path)
