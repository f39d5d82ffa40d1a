"""Listing and pruning the cache."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from numamirror_build import cache as cache_module
from numamirror_build.cache import Pruned, list_items, prune
from numamirror_build.cli.main import run
from numamirror_build.store import Store
from numamirror_build.uses import Uses, used

DAY = 86_400.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache with a finished folder of each of two kinds, used 10 days ago by a process that has ended."""
    code = "import sys; from tests.unit.test_cache import fill; fill(sys.argv[1])"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, cwd=root)
    age(tmp_path, "trees/one", 10)
    age(tmp_path, "plans/two", 10)
    return tmp_path


def fill(root: str) -> None:
    """Make two folders."""
    for kind, key in (("trees", "one"), ("plans", "two")):
        Store(Path(root)).make(kind, key, make)


def make(folder: Path) -> dict[str, str]:
    """Ten kilobytes."""
    (folder / "file").write_bytes(b"x" * 10_000)
    return {}


def age(root: Path, name: str, days: float) -> None:
    """Let a folder have been used so many days ago."""
    then = time.time() - days * DAY
    for path in (root / f"{name}.json", root / name):
        if path.exists():
            os.utime(path, (then, then))


def names(pruned: Pruned) -> tuple[list[str], list[str]]:
    """What was removed, and what was left because it is in use."""
    return tuple([f"{item.kind}/{item.key}" for item in items] for items in (pruned.removed, pruned.in_use))  # type: ignore[return-value]


def pruned(root: Path, days: float = 7, *, dry_run: bool = False) -> tuple[list[str], list[str]]:
    """Prune, and say what happened."""
    return names(prune(root, unused_for=days * DAY, dry_run=dry_run))


def test_what_is_listed(root: Path) -> None:
    """Kind, key, size on the disk, age, whether it is whole; not folders that have no key."""
    (root / "lab/apt").mkdir(parents=True)
    (root / "builds/half").mkdir(parents=True)
    (root / "builds/half.lock").touch()
    items = {f"{item.kind}/{item.key}": item for item in list_items(root)}
    assert set(items) == {"trees/one", "plans/two", "builds/half"}
    assert 10_000 <= items["trees/one"].size < 40_000
    assert abs(time.time() - 10 * DAY - items["trees/one"].last_used) < 60
    assert (items["trees/one"].finished, items["builds/half"].finished) == (True, False)


def test_what_is_old_goes_and_what_is_young_stays(root: Path) -> None:
    """Only what was not used for so long; folder and record are gone, and it can be made again."""
    age(root, "plans/two", 3)
    assert pruned(root) == (["trees/one"], [])
    assert not (root / "trees/one").exists() and not (root / "trees/one.json").exists()
    assert (root / "plans/two/file").exists()
    assert Store(root).make("trees", "one", make).fresh


def test_using_it_makes_it_young(root: Path) -> None:
    """What is found in the cache counts as used now, in later processes' eyes, too."""
    code = "import sys; from tests.unit.test_cache import fill; fill(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, root], check=True, cwd=Path(__file__).parents[2])
    assert pruned(root) == ([], [])


def test_a_dry_run_removes_nothing(root: Path) -> None:
    """It says what would go, and writes nothing."""
    before = sorted(root.rglob("*"))
    assert pruned(root, dry_run=True) == (["plans/two", "trees/one"], [])
    assert sorted(root.rglob("*")) == before


@pytest.fixture
def user(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which uses a tree and does nothing."""
    code = (
        "import sys, time; from pathlib import Path; from numamirror_build.store import Store; "
        "Store(Path(sys.argv[1])).finished('trees', 'one'); print('used', flush=True); time.sleep(300)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, root], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline()
    age(root, "trees/one", 10)
    yield process
    process.kill()
    process.wait()


def test_what_a_process_uses_stays(root: Path, user: subprocess.Popen[bytes]) -> None:
    """However old its record is; when the process was killed, it no longer counts, and its note goes."""
    assert pruned(root) == (["plans/two"], ["trees/one"])
    assert (root / "trees/one/file").exists()
    user.send_signal(signal.SIGKILL)
    user.wait()
    assert pruned(root) == (["trees/one"], [])
    assert not list((root / "locks").glob("use-*"))


def test_who_begins_to_use_it_meanwhile_keeps_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the last a process notes its use: the folder is whole afterwards."""
    answers = [set[str](), {"plans/two"}, set[str](), {"trees/one"}]
    monkeypatch.setattr(cache_module, "used", lambda root: answers.pop(0))
    assert pruned(root) == ([], ["plans/two", "trees/one"])
    monkeypatch.undo()
    assert json.loads((root / "trees/one.json").read_text())["made"] == {}
    assert not Store(root).make("trees", "one", make).fresh


def test_what_is_being_made_stays(root: Path) -> None:
    """A folder whose lock is held, and a build that a compiler still writes to."""
    (root / "builds/half").mkdir(parents=True)
    (root / "builds/half.lock").touch()
    age(root, "builds/half", 10)
    (root / "builds/half/lock").touch()
    os.utime(root / "builds/half", (0, 0))
    with FileLock(root / "trees/one.lock"), (root / "builds/half/lock").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert pruned(root) == (["plans/two"], ["builds/half", "trees/one"])
    assert pruned(root) == (["builds/half", "trees/one"], [])


def test_logs_and_environments_are_pruned_too(root: Path) -> None:
    """A log by its own time, a Python environment by that of its mark."""
    (root / "logs").mkdir()
    (root / "logs/build-a.log").write_text("x")
    (root / "environments/env").mkdir(parents=True)
    (root / "environments/env/complete").touch()
    for path in ("logs/build-a.log", "environments/env/complete"):
        os.utime(root / path, (0, 0))
    assert pruned(root, 20) == (["environments/env", "logs/build-a.log"], [])
    assert not (root / "environments/env").exists() and not (root / "logs/build-a.log").exists()


def test_a_process_names_what_it_uses_once(tmp_path: Path) -> None:
    """Only living processes' notes count; one in this process does not see a lock of its own as free."""
    uses = Uses(tmp_path)
    for _ in range(2):
        uses.note("trees", "one")
    assert used(tmp_path) == {"trees/one"}
    (path,) = (tmp_path / "locks").iterdir()
    assert path.read_text() == "trees/one\n"


def test_a_cache_that_cannot_be_written_is_used_all_the_same(tmp_path: Path) -> None:
    """There is a file where the notes would be: no note, no error."""
    (tmp_path / "locks").write_text("")
    Uses(tmp_path).note("trees", "one")


@pytest.mark.parametrize("words", ["list", "prune --unused-for 1 --dry-run", "prune --unused-for 1"])
def test_no_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    """A folder that is not there is told as such, and not made."""
    folder = tmp_path / "zz/y"
    assert run(["cache", *words.split(), "--cache-dir", str(folder)]) == 0
    assert f"{folder}: there is no such folder" in capsys.readouterr().out
    assert run(["cache", *words.split(), "--cache-dir", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exists"] is False
    assert not folder.parent.exists()


def test_commands(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`list` has the kinds and sums, `prune` what went, both for machines as well."""
    folder = ["--cache-dir", str(root)]
    assert run(["cache", "list", *folder]) == 0
    assert "trees" in capsys.readouterr().out
    assert run(["cache", "prune", "--unused-for", "7", "--dry-run", *folder]) == 0
    assert "2 folders and logs would be removed" in capsys.readouterr().out
    assert run(["cache", "prune", "--unused-for", "7", "--json", *folder]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["key"] for item in document["removed"]] == ["two", "one"] and document["in_use"] == []
    assert run(["cache", "prune", *folder]) == 2
