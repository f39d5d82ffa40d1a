"""The cache: folders that are made once per key, never taken for finished before they are.

A key is the digest of everything that goes into the folder.
The record beside the folder is written last, by atomic replace:
without it the folder is unfinished, whatever is in it.
A lock per key lets two runs at once wait for each other instead of doing harm.
A record's time is when the folder was last used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from typing import Any

from filelock import FileLock

from numamirror_build.errors import ConfigError, OutputError, disk_full_as_error, output_as_error
from numamirror_build.uses import uses_of

Maker = Callable[[Path], Mapping[str, Any]]


def digest(value: Any) -> str:
    """The sha256 (hex) of a JSON-like value in its one canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 (hex) of a file's content."""
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that it has either its old or its new content at every moment; it keeps its mode.

    Raises:
        OutputError: it cannot be written.
        DiskFullError: no space left.
    """
    write_together({path: content})


def write_together(files: Mapping[Path, bytes | str]) -> None:
    """Write files as :func:`write_atomic` does, none of them before all can be written; errors as of that."""
    with ExitStack() as stack:
        written = {path: _written_beside(path, content, stack) for path, content in files.items()}
        for path, new in written.items():
            with output_as_error(str(path)):
                new.replace(path)


def _written_beside(path: Path, content: bytes | str, stack: ExitStack) -> Path:
    """A new file with the content, beside a path; if it is still there at the end of the stack, it goes."""
    with output_as_error(str(path)):
        _see_place(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        stack.callback(Path(name).unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
    return Path(name)


def check_writable(*paths: Path) -> None:
    """See that files can be written, before work that would be lost; nothing is made or changed.

    Raises:
        OutputError: one of them cannot.
        DiskFullError: no space left.
    """
    for path in paths:
        with output_as_error(str(path)):
            _see_place(path)
            folder = next(parent for parent in path.absolute().parents if parent.exists())
            try:
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                error.filename = str(folder)  # not the file that was tried with
                raise


def _see_place(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise OutputError("Something else than a file is there", where=str(path), hint="name another place")


def json_text(value: Any) -> str:
    """A JSON file's text: keys sorted, two spaces, final newline."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; errors as of :func:`write_atomic`."""
    write_atomic(path, json_text(value))


@dataclass(frozen=True)
class Entry:
    """A finished folder of the cache.

    Attributes:
        path: the folder.
        made: what the maker said about it.
        seconds: how long making it took, when it was made.
        fresh: whether this run made it.
    """

    path: Path
    made: Mapping[str, Any]
    seconds: float
    fresh: bool


class Store:
    """Folders by kind and key below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._uses = uses_of(root)

    def folder(self, kind: str, key: str) -> Path:
        """Where the folder of a key is or will be."""
        return self.root / kind / key

    def finished(self, kind: str, key: str) -> Entry | None:
        """The finished folder of a key, or None."""
        self._uses.note(kind, key)
        return self._read(self.folder(kind, key))

    def make(
        self,
        kind: str,
        key: str,
        maker: Maker,
        *,
        resume: bool = False,
        intact: Callable[[Entry], bool] | None = None,
    ) -> Entry:
        """The folder of a key; made by ``maker`` unless it is finished.

        Args:
            kind: the sort of folder, for example ``trees``.
            key: digest of all inputs.
            maker: fills the (existing) folder it is given and returns JSON-like facts about it.
            resume: keep what an interrupted run left in the folder, for makers that can go on from there;
                what is from the future, as the clock has gone back, is not kept.
            intact: asked about a finished folder; if it says no, the folder is made anew.

        Raises:
            ConfigError: it is not finished, and the cache cannot be written to.
            DiskFullError: no space left.
        """
        folder = self.folder(kind, key)
        self._uses.note(kind, key)

        def usable() -> Entry | None:
            entry = self._read(folder)
            return entry if entry and (intact is None or intact(entry)) else None

        if entry := usable():
            return entry
        with disk_full_as_error(str(folder)), locked(folder):
            if entry := usable():
                return entry
            self._record(folder).unlink(missing_ok=True)  # first: what is being changed is not finished
            if not resume or _is_from_the_future(folder):
                discard(folder)
            folder.mkdir(exist_ok=True)
            start = time.monotonic()
            made = dict(maker(folder))
            seconds = round(time.monotonic() - start, 3)
            write_json(self._record(folder), {"made": made, "seconds": seconds})
        return Entry(folder, made, seconds, fresh=True)

    @staticmethod
    def _record(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}.json")

    def _read(self, folder: Path) -> Entry | None:
        try:
            record = json.loads(self._record(folder).read_text())
            entry = Entry(folder, record["made"], record["seconds"], fresh=False)
            with suppress(OSError):  # a cache that others write
                os.utime(self._record(folder))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return entry if folder.is_dir() else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache that is, or will be, beside it.

    Raises:
        ConfigError: the cache cannot be written to.
    """
    lock = FileLock(f"{folder}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise ConfigError(
            "The cache cannot be written to, and lacks what is needed",
            where=str(folder),
            why=error.strerror,
            hint="choose another with --cache-dir, or let whoever may write to it make it",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _is_from_the_future(folder: Path) -> bool:
    """Whether the clock has gone back since something in a folder was made: tools cannot go on from there."""
    soon = time.time() + 60
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # what a killed run started may still be at work
                if Path(parent, name).lstat().st_mtime > soon:
                    return True
    return False


def discard(folder: Path) -> None:
    """Take a folder away, even while what a killed run started may still be writing in it."""
    for old in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        folder.rename(old / folder.name)
        shutil.rmtree(old, ignore_errors=True)
