"""What lies in the cache, and taking away what nobody has used for long."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from numamirror_build.store import discard, locked
from numamirror_build.uses import used

_LOCKS, _LOGS, _ENVIRONMENTS = "locks", "logs", "environments"


@dataclass(frozen=True)
class Item:
    """A folder, or a log file, of the cache.

    Attributes:
        kind: the sort of folder.
        key: its name.
        path: where it is.
        size: in bytes on the disk.
        last_used: seconds since 1970.
        finished: whether it was made to the end.
    """

    kind: str
    key: str
    path: Path
    size: int
    last_used: float
    finished: bool

    def as_json(self) -> dict[str, Any]:
        """The item for machines."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True)
class Pruned:
    """What was taken away, or would be.

    Attributes:
        removed: the items.
        in_use: items that nobody has used for long by the record, but that a process uses or makes now.
    """

    removed: tuple[Item, ...]
    in_use: tuple[Item, ...]


def list_items(root: Path) -> list[Item]:
    """All that can be listed and taken away, by kind and key; nothing where there is no cache."""
    return list(_items(root)) if root.is_dir() else []


def prune(root: Path, *, unused_for: float, dry_run: bool) -> Pruned:
    """Take away what has not been used for a time, and never what a process uses or makes.

    Whoever needs it again makes it again.

    Args:
        root: the cache.
        unused_for: seconds.
        dry_run: only say what would be taken away; nothing is written.

    Raises:
        ConfigError: the cache cannot be written to.
    """
    removed: list[Item] = []
    in_use: list[Item] = []
    before = time.time() - unused_for
    only_read = dry_run or not root.is_dir()
    with nullcontext() if only_read else locked(root / _LOCKS / "prune"):
        for item in list_items(root):
            if item.last_used >= before:
                continue
            free = f"{item.kind}/{item.key}" not in used(root)
            if free and (dry_run or _remove(root, item, before)):
                removed.append(item)
            else:
                in_use.append(item)
    return Pruned(tuple(removed), tuple(in_use))


def _items(root: Path) -> Iterator[Item]:
    for kind in sorted(path for path in root.iterdir() if path.is_dir() and path.name != _LOCKS):
        for path in sorted(kind.iterdir()):
            if path.name.startswith(".") or path.is_dir() == (kind.name == _LOGS):
                continue
            marker = _marker(kind.name, path)
            with suppress(FileNotFoundError):  # somebody else's
                finished = marker.exists()
                if not finished and not path.with_name(f"{path.name}.lock").exists():
                    continue  # not made by key, such as lists of packages
                last_used = (marker if finished else path).stat().st_mtime
                yield Item(kind.name, path.name, path, _size(path), last_used, finished)


def _marker(kind: str, path: Path) -> Path:
    """The file that says that a folder is finished, and by its time when it was last used."""
    if kind == _LOGS:
        return path
    return path / "complete" if kind == _ENVIRONMENTS else path.with_name(f"{path.name}.json")


def _size(path: Path) -> int:
    total = path.lstat().st_blocks * 512
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 (many files)
    return total


def _remove(root: Path, item: Item, before: float) -> bool:
    """Take an item away unless somebody has begun to use it; whether it is gone."""
    if item.kind == _LOGS:
        item.path.unlink(missing_ok=True)
        return True
    marker = _marker(item.kind, item.path)
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(f"{item.path}.lock", timeout=0))
            if (item.path / "lock").exists():  # a compiler that outlives its killed parent holds it
                stream = stack.enter_context((item.path / "lock").open("r"))
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (Timeout, BlockingIOError):
            return False
        if marker.exists() and marker.stat().st_mtime >= before:
            return False
        # Who notes a use before the next look gets the marker back; who does it later finds none, and waits.
        aside = marker.with_name(f".{marker.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            marker.rename(aside)
        if f"{item.kind}/{item.key}" in used(root):
            with suppress(FileNotFoundError):
                aside.rename(marker)
            return False
        aside.unlink(missing_ok=True)
        discard(item.path)
    return True
