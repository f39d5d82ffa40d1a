"""Which modules of a kernel the guest needs, and in which order it loads them."""

from __future__ import annotations

import lzma
import re
from collections.abc import Sequence
from pathlib import Path

from numamirror_build import proc
from numamirror_build.errors import LabError

# virtio over PCI, the ports that output goes through, the host's file system, and a writable layer over it
WANTED = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst")
_SECONDS = 60.0  # for unpacking one
_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


def needed_modules(folder: Path, wanted: Sequence[str] = WANTED) -> tuple[Path, ...]:
    """The files of the wanted modules and of what they depend on, in an order in which they can be loaded.

    What the kernel has built in is left out.

    Args:
        folder: the kernel's folder below ``/lib/modules``.
        wanted: names of modules.

    Raises:
        LabError: a module is missing, or cannot be unpacked.
        ToolMissingError: modules are packed with zstd, as Ubuntu's are, and that program is not installed.
    """
    files = {_name(path): path for path in sorted(folder.rglob("*.ko*")) if path.name.endswith(_SUFFIXES)}
    builtin = {_name(Path(line)) for line in _lines(folder / "modules.builtin")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise LabError(
                f"The kernel has no module {name}",
                where=str(folder),
                hint="install another kernel, or remove this one",
            )
        found = _DEPENDS.search(read_module(files[name]))
        for other in found[1].decode().split(",") if found and found[1] else []:
            add(other.replace("-", "_"))
        order[name] = files[name]

    for name in wanted:
        add(name)
    return tuple(order.values())


def read_module(path: Path) -> bytes:
    """A module's content, unpacked.

    Raises:
        LabError: it cannot be unpacked.
        ToolMissingError: it is packed with zstd, and that program is not installed.
    """
    if path.suffix == ".zst":
        return _unzstd(path)
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def _unzstd(path: Path) -> bytes:
    """What the program zstd makes of a file; Python's own library can unpack it from 3.14 on only."""
    zstd = proc.find_tool("zstd", hint="install it (Debian, Ubuntu: apt install zstd)")
    content = bytearray()
    status = proc.run_tethered(
        lambda _: [zstd, "--quiet", "--decompress", "--stdout", path], [content.extend], timeout=_SECONDS
    )
    if status != 0:
        raise LabError(
            "A module cannot be unpacked",
            where=str(path),
            why=content.decode(errors="replace")[-500:] or None,
        )
    return bytes(content)


def _name(path: Path) -> str:
    return path.name.partition(".ko")[0].replace("-", "_")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []
