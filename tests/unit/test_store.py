from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from numamirror_build import store as store_module
from numamirror_build.errors import DiskFullError, OutputError
from numamirror_build.store import (
    Store,
    check_writable,
    digest,
    file_sha256,
    write_atomic,
    write_json,
    write_together,
)


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    """An empty cache."""
    return Store(tmp_path / "cache")


def maker(text: str = "whole") -> store_module.Maker:
    """Makes a folder with one file."""

    def make(folder: Path) -> Mapping[str, Any]:
        (folder / "file").write_text(text)
        return {"text": text}

    return make


def breaking(folder: Path) -> Mapping[str, Any]:
    """Gets half-way and fails."""
    (folder / "half").write_text("half")
    raise RuntimeError("broken")


# --- digests ---


def test_what_is_from_the_future_is_not_kept(tmp_path: Path) -> None:
    """When the clock has gone back, a maker that could go on starts with an empty folder."""
    store = Store(tmp_path)

    def fail(folder: Path) -> dict[str, int]:
        (folder / "half").write_text("")
        os.utime(folder / "half", (time.time() + 3600,) * 2)
        raise KeyError

    with pytest.raises(KeyError):
        store.make("k", "a", fail, resume=True)
    entry = store.make("k", "a", lambda folder: {"left": [p.name for p in folder.iterdir()]}, resume=True)
    assert entry.made["left"] == []


def test_what_others_still_change_is_gone_on_with(tmp_path: Path) -> None:
    """What a killed run started may make and remove files while the next run looks at them."""
    folder = tmp_path / "k/a"
    folder.mkdir(parents=True)
    ended = threading.Event()

    def disturb() -> None:
        while not ended.is_set():
            for i in range(20):
                (folder / f"{i}").mkdir()
                (folder / f"{i}/file").touch()
            for i in range(20):
                (folder / f"{i}/file").unlink()
                (folder / f"{i}").rmdir()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        assert not any(store_module._is_from_the_future(folder) for _ in range(500))
    finally:
        ended.set()
        thread.join()


def test_digest_depends_on_content_not_on_order() -> None:
    """The same values in another order have the same digest; another value or type has another one."""
    assert digest({"a": 1, "b": [1, "x"]}) == digest({"b": [1, "x"], "a": 1})
    values = [{"a": 1}, {"a": "1"}, {"a": [1]}, {"b": 1}, {"a": None}, {}, ["a", 1], [1, "a"]]
    assert len({digest(value) for value in values}) == len(values)


def test_digest_is_the_same_everywhere() -> None:
    """The digest is fixed: it names folders that outlive this process."""
    assert digest({"a": [1, "\u00e9"]}) == "83a175c500b5b96c13553ef38f7d1acfb22f0f69d64880f0156110554c0b2b0c"


def test_file_sha256(tmp_path: Path) -> None:
    """Files of more than one block have the sum that sha256sum prints."""
    path = tmp_path / "x"
    path.write_bytes(b"0123456789abcdef" * 200_000)
    expected = subprocess.run(["sha256sum", path], capture_output=True, text=True).stdout.split()[0]
    assert file_sha256(path) == expected


# --- atomic files ---


def test_write_atomic_replaces_and_makes_folders(tmp_path: Path) -> None:
    """A file is written with its folders, replaces what was there, and can be read by others."""
    path = tmp_path / "a/b/file"
    write_atomic(path, "old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the error is "disk full" (exit code 23), and the old content stays."""
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError) as caught:
        write_atomic(path, "new")
    assert caught.value.exit_code == 23
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(params=["/proc/x", "/proc/x/y", "file/x", "file/x/y", "folder"])
def bad_place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A place where no file can be."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path / str(request.param)


def test_files_are_written_together_or_not_at_all(tmp_path: Path, bad_place: Path) -> None:
    """When one cannot be written, none is; the error names the one, and nothing is left of the others."""
    (tmp_path / "old").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError) as caught:
        write_together({tmp_path / "old": "new", tmp_path / "other": "new", bad_place: "new"})
    assert caught.value.where == str(bad_place)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "old").read_text() == "old"


def test_a_written_file_keeps_its_mode(tmp_path: Path) -> None:
    """What could be run still can; what is new can be read by all."""
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o750)
    write_together({tmp_path / "old": "new", tmp_path / "other": "new"})
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in ("old", "other")] == [0o750, 0o644]


def test_a_place_is_looked_at_before(tmp_path: Path, bad_place: Path) -> None:
    """A file that could not be written is an error; of one that could be nothing is made or changed."""
    (tmp_path / "old").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    check_writable(tmp_path / "old", tmp_path / "a/b/new")
    with pytest.raises(OutputError) as caught:
        check_writable(tmp_path / "old", bad_place)
    assert caught.value.where == str(bad_place)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "old").read_text() == "old"


def test_write_json_is_stable(tmp_path: Path) -> None:
    """Keys are sorted and the file ends with a newline: the same value gives the same bytes."""
    write_json(tmp_path / "x", {"b": 1, "a": [2]})
    assert (tmp_path / "x").read_text() == '{\n  "a": [\n    2\n  ],\n  "b": 1\n}\n'


# --- folders ---


def test_a_folder_is_made_once(cache: Store) -> None:
    """The second time the folder comes from the cache with the same facts, and the maker is not asked."""
    first = cache.make("things", "k", maker())
    second = cache.make("things", "k", breaking)
    assert (first.fresh, second.fresh) == (True, False)
    assert (first.path, first.made, first.seconds) == (second.path, second.made, second.seconds)
    assert second.made == {"text": "whole"}
    found = cache.finished("things", "k")
    assert found and found.path == first.path
    assert cache.make("things", "other", maker()).path != first.path


def test_a_failed_maker_leaves_nothing_finished(cache: Store) -> None:
    """What a failed maker left behind is not finished, and the next one starts with an empty folder."""
    with pytest.raises(RuntimeError):
        cache.make("things", "k", breaking)
    assert cache.finished("things", "k") is None
    entry = cache.make("things", "k", maker())
    assert [path.name for path in entry.path.iterdir()] == ["file"]


def test_resume_keeps_what_was_done(cache: Store) -> None:
    """A maker that can go on from where it was interrupted finds what it left."""
    with pytest.raises(RuntimeError):
        cache.make("things", "k", breaking, resume=True)
    entry = cache.make("things", "k", maker(), resume=True)
    assert sorted(path.name for path in entry.path.iterdir()) == ["file", "half"]


def test_a_folder_that_is_not_intact_is_made_again(cache: Store) -> None:
    """A finished folder is judged by ``intact``; if it says no, the folder is made anew."""
    cache.make("things", "k", maker("one"))
    assert (
        cache.make("things", "k", breaking, intact=lambda entry: entry.made["text"] == "one").fresh is False
    )
    entry = cache.make("things", "k", maker("two"), intact=lambda entry: entry.made["text"] == "two")
    assert entry.fresh and (entry.path / "file").read_text() == "two"


@pytest.mark.parametrize("loss", ["not intact", "folder deleted"])
def test_while_a_folder_is_made_again_it_is_not_finished(cache: Store, loss: str) -> None:
    """The old record goes before the folder is touched: what fails half-way does not look finished."""
    entry = cache.make("things", "k", maker())
    if loss == "folder deleted":
        (entry.path / "file").unlink()
        entry.path.rmdir()
    with pytest.raises(RuntimeError):
        cache.make("things", "k", breaking, intact=lambda entry: False)
    assert cache.finished("things", "k") is None


@pytest.mark.parametrize("record", ["", "{", "[]", "null", "{}", '{"made": {}}', "\x00\xff"])
def test_a_broken_record_is_none(cache: Store, record: str) -> None:
    """A record that cannot be read counts as not there."""
    entry = cache.make("things", "k", maker())
    entry.path.with_name("k.json").write_text(record, encoding="latin-1")
    assert cache.finished("things", "k") is None
    assert cache.make("things", "k", maker()).fresh


def test_the_record_says_how_long_it_took(cache: Store) -> None:
    """Seconds are measured when the folder is made and kept with it."""

    def slow(folder: Path) -> Mapping[str, Any]:
        time.sleep(0.05)
        return {}

    assert cache.make("things", "k", slow).seconds >= 0.05
    record = json.loads((cache.root / "things/k.json").read_text())
    assert record["seconds"] >= 0.05


def test_full_disk(cache: Store) -> None:
    """A maker that runs out of space ends in "disk full", and its folder is not finished."""

    def full(folder: Path) -> Mapping[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFullError, match="--cache-dir"):
        cache.make("things", "k", full)
    assert cache.finished("things", "k") is None


def test_two_at_once_make_it_once(cache: Store) -> None:
    """Whoever comes second waits for the first and takes its folder."""
    calls: list[int] = []

    def slow(folder: Path) -> Mapping[str, Any]:
        calls.append(1)
        time.sleep(0.2)
        return maker()(folder)

    fresh: list[bool] = []
    threads = [
        threading.Thread(target=lambda: fresh.append(Store(cache.root).make("things", "k", slow).fresh))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), sorted(fresh)) == (1, [False, False, False, True])


WRITING = """
import itertools, os
for i in itertools.count():
    try:
        os.makedirs(f"d{i % 10}", exist_ok=True)
        open(f"d{i % 10}/{i}", "w").close()
    except FileNotFoundError:
        pass  # it has just been taken away
"""
SLOW = """
import sys, time
from pathlib import Path
from numamirror_build.store import Store
def slow(folder):
    (folder / "half").write_text("half")
    print("half", flush=True)
    time.sleep(60)
Store(Path(sys.argv[1])).make("things", "k", slow, resume=len(sys.argv) > 2)
"""


@pytest.mark.parametrize("resume", [False, True])
def test_killed_half_way(cache: Store, resume: bool) -> None:
    """After kill -9 the folder is not finished, its lock is free, and the next run makes it or goes on."""
    options = ["resume"] if resume else []
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(cache.root), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "half\n"
    process.kill()
    process.communicate()
    assert cache.finished("things", "k") is None
    entry = cache.make("things", "k", maker(), resume=resume)
    assert entry.fresh and (entry.path / "half").exists() is resume


def test_a_folder_somebody_still_writes_to_can_be_taken_away(cache: Store) -> None:
    """What a killed run started may still be writing: the next run gets an empty folder all the same."""
    with pytest.raises(RuntimeError):
        cache.make("things", "k", breaking)
    folder = cache.folder("things", "k")
    writer = subprocess.Popen([sys.executable, "-c", WRITING], cwd=folder)
    try:
        while not (folder / "d9").exists():
            time.sleep(0.01)
        entry = cache.make("things", "k", maker())
        assert [path.name for path in entry.path.iterdir()] == ["file"]
    finally:
        writer.kill()
        writer.wait()
    cache.make("things", "k", maker(), intact=lambda entry: False)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["k", "k.json", "k.lock"]
