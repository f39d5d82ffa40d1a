"""The guest's first file system, as an archive for the kernel; same content, same bytes."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping


def make_initramfs(folders: Iterable[str], files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive in the format that the kernel calls newc.

    Args:
        folders: paths without a leading slash; one that lies in another comes after it.
        files: permissions and content by path.
    """
    entries = [(path, stat.S_IFDIR | 0o755, b"") for path in folders]
    entries += [(path, stat.S_IFREG | mode, content) for path, (mode, content) in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(
        _entry(number, path, mode, content) for number, (path, mode, content) in enumerate(entries, 1)
    )


def _entry(number: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    # inode, mode, owner, group, links, time, size, two devices of two numbers, length of the name, sum
    fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
