"""The small files of sysfs, procfs and control groups; what is not there says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def text(path: Path) -> str | None:
    """A file's content without white space around it; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The number that a file consists of; None if it cannot be read or is none."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def chosen(path: Path) -> str | None:
    """The word in brackets of a file such as ``always [madvise] never``."""
    words = (text(path) or "").split()
    return next((word.strip("[]") for word in words if word.startswith("[")), None)


def sizes(path: Path) -> dict[str, int]:
    """Bytes by name of a file in the form of ``meminfo``, that of the machine or that of a node."""
    found = {}
    for line in (text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        words = value.split()
        if colon and words and words[0].isdigit():
            found[name.split()[-1]] = int(words[0]) * 1024
    return found


def status(root: Path, name: str) -> str | None:
    """What ``/proc/self/status`` says under a name."""
    for line in (text(root / "proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def ids(written: str | None) -> tuple[int, ...]:
    """The numbers of a list such as ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, (written or "").strip().split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def as_list(numbers: Iterable[int]) -> str:
    """Numbers as the kernel writes them, for example ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
