"""The main job, interrupted: nothing half-made is taken for finished, and the next run goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numamirror_build.errors import DiskFullError

JOB = Path(__file__).with_name("job.py")
SIZE = 1000


def start(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start the main job with short steps."""
    return subprocess.Popen(
        [sys.executable, JOB, "--out", folder / "dist", "--cache-dir", folder / "cache", *arguments],
        env={**os.environ, **environ},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files(folder: Path) -> dict[str, int]:
    """Size of each file that was handed over."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "numamirror-build.json"
    }


COMPLETE = dict.fromkeys(
    ["bin/libx.so", "bin/tool", "source/a.c", "source/b.c", "v.html", "v.json", "w.whl"], SIZE
)


def test_killed_at_many_moments_it_goes_on_and_ends_complete(tmp_path: Path) -> None:
    """kill -9 again and again, a little later each time: every run starts, and the last leaves all whole."""
    kills = 0
    for moment in range(60):
        process = start(tmp_path)
        try:
            process.communicate(timeout=0.2 * 1.06**moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
        else:
            break
    assert kills >= 3
    assert process.returncode == 0
    assert files(tmp_path / "dist") == COMPLETE
    assert json.loads((tmp_path / "dist/numamirror-build.json").read_text())["complete"] is True
    assert not [path for path in (tmp_path / "dist").rglob(".*")], "nothing temporary is left"


@pytest.mark.parametrize(
    ("number", "status", "kind"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_asked_to_end_it_ends_at_once_with_what_it_started(
    tmp_path: Path, number: signal.Signals, status: int, kind: str
) -> None:
    """Ctrl-C and SIGTERM end the running program, too; the message says how to go on, and that works."""
    process = start(tmp_path, "--json", JOB_MOMENT="60")
    while not (tmp_path / "cache/trees/key").exists() or not children_of(process.pid):
        time.sleep(0.02)
    children = children_of(process.pid)
    time.sleep(0.2)  # let it get past starting the program
    begun = time.monotonic()
    process.send_signal(number)
    out, error = process.communicate(timeout=30)
    assert time.monotonic() - begun < 15
    assert process.returncode == status
    assert json.loads(out)["error"] == kind
    assert "run the same command again" in error
    assert "Traceback" not in error
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    process = start(tmp_path)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert files(tmp_path / "dist") == COMPLETE


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that run."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def test_two_at_once_do_each_step_once(tmp_path: Path) -> None:
    """A second run waits for the first instead of doing harm; both end well."""
    both = [start(tmp_path, "--json") for _ in range(2)]
    ended = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert files(tmp_path / "dist") == COMPLETE
    fresh = [
        {product["path"]: product["fresh"] for product in json.loads(out)["products"]} for out, _ in ended
    ]
    assert all(fresh[0][path] != fresh[1][path] for path in fresh[0]), "each is made by exactly one of them"


def test_with_nothing_to_do_it_says_the_same_and_takes_no_time(tmp_path: Path) -> None:
    """The second run's table has the same files, all cached."""
    first = start(tmp_path).communicate(timeout=30)[0]
    begun = time.monotonic()
    second = start(tmp_path).communicate(timeout=30)[0]
    assert time.monotonic() - begun < 3
    assert [line.split()[:3] for line in first.splitlines()] == [
        line.split()[:3] for line in second.splitlines()
    ]
    assert "cached" in second
    assert "cached" not in first


def test_a_full_disk_is_named_and_leaves_room_to_go_on(tmp_path: Path) -> None:
    """On a file system that is too small the job ends with its own exit code; with more room it goes on."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        process = start(tmp_path, "--cache-dir", "small", "--json", JOB_BYTES="400000")
        out, error = process.communicate(timeout=30)
        assert process.returncode == DiskFullError.exit_code
        assert json.loads(out)["error"] == "disk-full"
        assert str(small) in error
        assert "--cache-dir" in error
        assert "Traceback" not in error
        process = start(tmp_path, "--cache-dir", "small", JOB_BYTES=str(SIZE))
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert files(tmp_path / "dist") == COMPLETE
    finally:
        subprocess.run(["umount", small], check=True)
        shutil.rmtree(small)
