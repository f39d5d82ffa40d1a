"""Which folders of the cache processes use, so that nobody takes them away.

Each process that uses the cache has a file there, which names what it uses.
It is locked while the process lives.
The kernel gives the lock back however the process ends: a file without one says nothing any more.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_BEGINNING = "use-"


def uses_of(root: Path) -> Uses:
    """The one of this process for a cache: what it has used it may use again until it ends."""
    return _ours.setdefault(root.absolute(), Uses(root.absolute()))


class Uses:
    """What this process uses of a cache. A cache that cannot be written to is not noted in."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._noted: set[str] = set()
        self._stream: IO[str] | None = None

    def note(self, kind: str, key: str) -> None:
        """Say that a folder is used from now on; before it is looked at."""
        name = f"{kind}/{key}"
        if name in self._noted:
            return
        self._noted.add(name)
        with suppress(OSError):
            if self._stream is None:
                self._stream = _open(self._root)
                environment = Path(sys.prefix)
                if environment.parent == self._root / "environments":
                    self._stream.write(f"environments/{environment.name}\n")
            self._stream.write(f"{name}\n")
            self._stream.flush()


_ours: dict[Path, Uses] = {}


def used(root: Path) -> set[str]:
    """What living processes use, as ``kind/key``; files that dead ones left are removed."""
    names: set[str] = set()
    for path in (root / "locks").glob(f"{_BEGINNING}*"):
        with suppress(OSError), path.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                names.update(stream.read().splitlines())
            else:
                path.unlink(missing_ok=True)
    return names


def _open(root: Path) -> IO[str]:
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        handle, name = tempfile.mkstemp(prefix=f"{_BEGINNING}{os.getpid()}-", dir=folder)
        stream = os.fdopen(handle, "a")
        fcntl.flock(stream, fcntl.LOCK_EX)
        if Path(name).exists():  # else it was taken for a dead process's before it was locked
            atexit.register(_remove, Path(name), os.getpid())
            return stream
        stream.close()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # not a copy of the process
        with suppress(OSError):
            path.unlink(missing_ok=True)
