"""The main job on a small upstream with all around it broken: tools, disk, cache, clock, kill -9.

Whatever happens ends in one clear error with its own exit code,
and the next run ends as if it had not happened.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from numamirror_build.errors import (
    BuildError,
    ConfigError,
    ContentMismatchError,
    DiskFullError,
    NumaMirrorError,
    SourceError,
    ToolMissingError,
    WheelError,
)
from tests.integration.small_upstream import Small, make
from tests.unit.upstreams.made_up import content

pytestmark = pytest.mark.build

SEED = 20261130
MANIFEST = "numamirror-build.json"


@dataclass(frozen=True)
class Reference:
    """What the undisturbed job makes: digests of what is handed over, its cache; and how long it takes."""

    files: dict[str, str]
    cache: Path
    seconds: float


def delivered(work: Path) -> dict[str, str]:
    """The digest of every file that was handed over, but of the record with its times."""
    return {
        path.relative_to(work / "dist").as_posix(): digest_of(path)
        for path in sorted((work / "dist").rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def digest_of(path: Path) -> str:
    """The digest of a file; of a wheel, which has dates and an order of its own, that of what is in it."""
    if path.suffix != ".whl":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as wheel:
        content = {name: sorted(wheel.read(name).splitlines()) for name in wheel.namelist()}
    return hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """The small upstream."""
    return make(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def reference(small: Small) -> Reference:
    """The job, undisturbed."""
    work = small.folder / "undisturbed"
    begun = time.monotonic()
    status, _, errors = small.run(work)
    assert status == 0, errors
    return Reference(delivered(work), work / "cache", time.monotonic() - begun)


@pytest.fixture
def begun(small: Small, reference: Reference, tmp_path: Path) -> Path:
    """A folder whose cache has what comes before the compiler."""
    work = tmp_path / "work"
    for kind in ("checkouts", "plans", "trees", "sdists"):
        shutil.copytree(reference.cache / kind, work / "cache" / kind, symlinks=True)
    return work


def ends_as_ever(small: Small, work: Path, reference: Reference) -> None:
    """The next run makes the same bytes, and the one after it finds that there is nothing to do."""
    status, _, errors = small.run(work)
    assert status == 0, errors
    assert delivered(work) == reference.files
    status, out, errors = small.run(work, "apply", "--json")
    assert status == 0, errors
    assert json.loads(out)["tree"]["fresh"] is False


def refused(result: tuple[int, str, str], *kinds: type[NumaMirrorError]) -> str:
    """The run ended in an error of one of these kinds; the message."""
    status, out, errors = result
    assert "Traceback" not in errors
    assert status in [kind.exit_code for kind in kinds], errors
    document = json.loads(out)
    assert document["exit_code"] == status
    assert document["what"] and (document["why"] or document["where"] or document["next"])
    return errors


# --- tools ---

FAULTS = {
    "fails": b"#!/bin/sh\necho 'broken by a test' >&2\nexit 1\n",
    "is killed": b"#!/bin/sh\nkill -KILL $$\n",
    "answers with garbage": b"#!/bin/sh\nprintf '\\377\\376\\001{]garbage\\n'\n",
    "says nothing": b"#!/bin/sh\n",
    "is no program": b"\x7fELF\xff\xff garbage",
    "is a folder": None,
}
TOOLS = {
    "git": ("checkout", (SourceError, ContentMismatchError, ToolMissingError)),
    "cmake": ("build", (BuildError, ToolMissingError)),
    "ninja": ("build", (BuildError, ToolMissingError)),
    "cc": ("build", (BuildError, ToolMissingError)),
    "c++": ("build", (BuildError, ToolMissingError)),
    "pip": ("wheel", (WheelError, SourceError)),
}
AT_CALL = """#!/bin/sh
count=$(($(cat {count}) + 1))
echo $count > {count}
[ $count -lt {call} ] || {{ {fault}; }}
exec {real} "$@"
"""


def environment(tool: str, folder: Path) -> dict[str, str]:
    """What makes the job take a tool from a folder."""
    if tool == "git":
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    if tool in ("cc", "c++"):
        return {"CC" if tool == "cc" else "CXX": str(folder / tool)}
    if tool == "pip":
        return {"PYTHONPATH": os.pathsep.join([str(folder), *(path for path in sys.path if path)])}
    return {"SMALL_TOOLS": str(folder)}


def put(tool: str, folder: Path, program: bytes | None) -> None:
    """Put something in a tool's place; None for a folder."""
    folder.mkdir(parents=True)
    if tool == "pip":
        (folder / "pip").mkdir()
        (folder / "pip/__init__.py").touch()
        text = f"import subprocess, sys, os\nsys.exit(subprocess.run([{str(folder / 'run')!r}]).returncode)\n"
        (folder / "pip/__main__.py").write_text(text)
        tool = "run"
    if program is None:
        (folder / tool).mkdir()
        return
    (folder / tool).write_bytes(program)
    (folder / tool).chmod(0o755)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_is_broken(
    small: Small, begun: Path, tmp_path: Path, reference: Reference, tool: str
) -> None:
    """It fails, is killed, says garbage or nothing, is no program: an error of the step; then all is well."""
    command, kinds = TOOLS[tool]
    if tool == "git":
        shutil.rmtree(begun / "cache")
    for number, (fault, program) in enumerate(FAULTS.items()):
        if tool == "pip" and fault in ("is no program", "is a folder"):
            continue
        if tool == "git" and fault == "is a folder":
            continue  # the next git on PATH is taken
        folder = tmp_path / str(number)
        put(tool, folder, program)
        if tool == "pip":
            shutil.rmtree(begun / "cache/sdists", ignore_errors=True)
        result = small.run(begun, command, "--json", **environment(tool, folder))
        assert result[0] != 0, fault
        message = refused(result, *kinds)
        assert tool in message or str(begun) in message, (fault, message)
    status, _, errors = small.run(begun, command)
    assert status == 0, errors


@pytest.mark.parametrize("tool", ["git", "cmake", "ninja", "cc", "c++"])
def test_a_tool_that_is_missing(small: Small, begun: Path, tmp_path: Path, tool: str) -> None:
    """Exit code 20, the tool's name, and how to get it."""
    environ = {"SMALL_MISSING": f"{tool} gcc clang g++ clang++ cc c++" if tool in ("cc", "c++") else tool}
    if tool == "git":
        shutil.rmtree(begun / "cache")
        environ = {"PATH": str(tmp_path / "empty")}
    message = refused(small.run(begun, TOOLS[tool][0], "--json", **environ), ToolMissingError)
    assert "next:" in message


@pytest.mark.parametrize("tool", ["cmake", "ninja", "cc", "c++"])
@pytest.mark.parametrize("fault", ["exit 1", "kill -KILL $$", "exit 0"])
def test_a_tool_that_breaks_at_work(
    small: Small, begun: Path, tmp_path: Path, reference: Reference, tool: str, fault: str
) -> None:
    """It answers when it is asked what it is, and from some call on it fails, dies, or does nothing."""
    real = shutil.which(tool, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    count = tmp_path / "count"
    ended = 0
    for call in (2, 4, 7, 11, 16):
        folder = tmp_path / str(call)
        text = AT_CALL.format(count=count, call=call, fault=fault, real=real)
        put(tool, folder, text.encode())
        count.write_text("0")
        result = small.run(begun, "build", "--json", **environment(tool, folder))
        if result[0] == 0:
            break
        refused(result, BuildError, ToolMissingError)
        ended += 1
    assert ended >= 1
    assert small.run(begun, "build")[0] == 0


@pytest.mark.parametrize("tool", ["git", "cmake", "ninja", "cc", "pip"])
def test_a_tool_that_hangs(small: Small, begun: Path, tmp_path: Path, tool: str) -> None:
    """Ctrl-C ends it and what it waits for, at once; the next run goes on."""
    real = shutil.which(tool) or "false"
    put(
        tool,
        tmp_path / "tools",
        f'#!/bin/sh\n[ "$1" = version ] && exec {real} version\nexec sleep 4321\n'.encode(),
    )
    if tool == "git":
        shutil.rmtree(begun / "cache")
    if tool == "pip":
        shutil.rmtree(begun / "cache/sdists")
    process = small.start(begun, TOOLS[tool][0], "--json", **environment(tool, tmp_path / "tools"))
    until = time.monotonic() + 60
    while not (sleeping := descendants(process.pid, "sleep")) and time.monotonic() < until:
        time.sleep(0.1)
    assert sleeping, "the tool was never called"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["error"]) == (130, "interrupted"), errors
    assert time.monotonic() - begin < 20
    assert not [pid for pid in sleeping if is_alive(pid)]
    assert small.run(begun, TOOLS[tool][0])[0] == 0


def is_alive(pid: int) -> bool:
    """Whether a process is there, and not only waits for somebody to notice its end."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def descendants(pid: int, name: str) -> list[int]:
    """The processes of a name that a process started, directly or not."""
    found = []
    waiting = [pid]
    for parent in waiting:
        children = Path(f"/proc/{parent}/task/{parent}/children")
        waiting += [int(word) for word in children.read_text().split()] if children.exists() else []
        comm = Path(f"/proc/{parent}/comm")
        if comm.exists() and comm.read_text().strip() == name:
            found.append(parent)
    return found


# --- disk, cache, clock ---


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a folder for a test; skips it where that may not be done."""
    places: list[Path] = []

    def mount(name: str, *arguments: str | Path) -> Path:
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *arguments, place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("mounting takes root")
        places.append(place)
        return place

    yield mount
    for place in reversed(places):
        subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_full_at_many_moments(
    small: Small, mounted: Callable[..., Path], reference: Reference
) -> None:
    """A disk with a little more room each time: exit code 23, wherever it is noticed; then all is well."""
    place = mounted("disk", "-t", "tmpfs", "-o", "size=64k", "tmpfs")
    full = 0
    for kilobytes in (64, 256, 400, 700, 1200, 2000, 3500, 6000, 12000, 50000):
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", place], check=True)
        status, out, errors = small.run(place, "wheel", "--json", TMPDIR=str(place))
        if status == 0:
            break
        full += 1
        assert refused((status, out, errors), DiskFullError), kilobytes
        assert "--cache-dir" in errors
    assert full >= 4
    ends_as_ever(small, place, reference)


def test_a_cache_that_cannot_be_written_to(
    small: Small, mounted: Callable[..., Path], reference: Reference, tmp_path: Path
) -> None:
    """What is in it can be used; what is not is an error that names it, exit code 3."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(reference.cache, work / "full", symlinks=True)
    full = mounted("work/cache", "--bind", work / "full")
    subprocess.run(["mount", "-o", "remount,ro,bind", full], check=True)
    for command in ("checkout", "plan", "apply"):
        status, _, errors = small.run(work, command)
        assert status == 0, errors
    (tmp_path / "empty").mkdir()
    empty = mounted("empty/cache", "-t", "tmpfs", "-o", "ro", "tmpfs")
    for command in ("checkout", "build"):
        assert str(empty) in refused(small.run(empty.parent, command, "--json"), ConfigError)


@pytest.mark.parametrize("days", [400, -15000])
def test_a_clock_that_goes_back_or_forward(
    small: Small, begun: Path, reference: Reference, days: int
) -> None:
    """All files of a half-done job are from next year, or long ago: it goes on and makes the same."""
    process = small.start(begun)
    time.sleep(0.7 * reference.seconds)
    process.kill()
    process.communicate()
    moved = time.time() + days * 86400
    for path in (begun / "cache").rglob("*"):
        os.utime(path, (moved, moved), follow_symlinks=False)
    ends_as_ever(small, begun, reference)
    status, _, errors = small.run(begun, "cache", "prune", "--unused-for", "0.5", "--json")
    assert status == 0, errors
    assert small.run(begun, "apply")[0] == 0


# --- other runs, and kill -9 ---


def test_three_runs_at_once(small: Small, tmp_path: Path, reference: Reference) -> None:
    """They wait for each other: all end well, and each step is done by one of them."""
    runs = [small.start(tmp_path, "wheel", "--json") for _ in range(3)]
    ended = [run.communicate(timeout=900) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], ended
    assert sorted(json.loads(out)["wheel"]["fresh"] for out, _ in ended) == [False, False, True]
    ends_as_ever(small, tmp_path, reference)


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(small: Small, tmp_path: Path, reference: Reference, kills: int) -> None:
    """kill -9, and at once the next run: what is finished is whole, and the last run makes the same bytes."""
    chance = Random(SEED)
    print(f"seed {SEED}")
    done = folder = 0
    while done < kills:
        work = tmp_path / str(folder)
        process = small.start(work)
        try:
            process.wait(chance.uniform(0.02, 1) * reference.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            done += 1
        process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        whole(work / "cache", reference.cache)
        if process.returncode == 0:
            assert delivered(work) == reference.files
            folder += 1
    ends_as_ever(small, work, reference)


def whole(cache: Path, reference: Path) -> None:
    """All that a cache calls finished, and that does not depend on its place, is as in another cache."""
    for record in (cache / "wheels").glob("*.json"):
        found, wanted = (
            [digest_of(path) for path in (place / "wheels" / record.stem).rglob("*.whl")]
            for place in (cache, reference)
        )
        assert found == wanted, record
    for kind in ("checkouts", "plans", "sdists", "trees", "verifications"):
        for record in (cache / kind).glob("*.json"):
            folder, other = record.with_suffix(""), reference / kind / record.stem
            assert other.is_dir(), f"{kind} {record.stem} is not what the job makes"
            assert files_of(folder) == files_of(other), (kind, record.stem)


def files_of(folder: Path) -> dict[str, tuple[str, bytes]]:
    """The files of a folder of the cache, but for logs, and git's own, which have times."""
    return {
        name: value
        for name, value in content(folder).items()
        if not name.startswith("git/") and not name.endswith((".log", "requirements.txt"))
    }
