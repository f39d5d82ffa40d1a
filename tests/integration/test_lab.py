"""The lab: machines that really start, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.errors import LabError, LabTimeoutError
from numamirror_build.pipeline import Pipeline

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed"),
]

LAB = [sys.executable, "-c", "from numamirror_build.cli.main import main; main()", "lab", "run"]
# a verification whose machine is like none that a whole run has
VERIFY = [
    sys.executable,
    "-c",
    """
from numamirror_build.config import default_cache_dir
from numamirror_build.lab.layout import even_layout
from numamirror_build.lab.verify import verify_in_lab
from numamirror_build.lab.verify.arms import NO_MMAP, Scope, Setting
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.store import Store

store = Store(default_cache_dir())
pristine, patched = Pipeline(store, Request("llama.cpp"), Quiet()).portable_builds
scope = Scope("test", (Setting("killed", even_layout(2, 1, "192M", 33)),), (NO_MMAP,), False)
verify_in_lab(store, pristine=pristine, patched=patched, scope=scope, progress=Quiet())
""",
]
SMALL = ["--cpus-per-node", "1", "--mem-per-node", "256M"]
ODD = """
distance = 20

[[node]]
id = 0
cpus = 1
memory = "256M"

[[node]]
id = 2
cpus = 2
memory = "384M"

[[node]]
id = 3
memory = "128M"

[[node]]
id = 4
cpus = 1

[[distances]]
from = 2
to = 3
distance = 40
"""
MOUNTS = Path("/proc/self/mounts")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no process of the lab, no mount, no temporary file."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("LAB_TEST", str(tmp_path))
    yield
    for _ in range(100):
        if not processes(tmp_path):
            break
        time.sleep(0.05)
    assert processes(tmp_path) == {}
    assert mounts(tmp_path) == []
    assert list(temporary.iterdir()) == []


def processes(tmp_path: Path) -> dict[int, str]:
    """What this test has started and still runs, and what that has started: its environment is theirs."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"LAB_TEST={tmp_path}\0".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def mounts(tmp_path: Path) -> list[str]:
    """Mounts that the lab could have made: of a kind that its machines have, or where the test has files."""
    lines = MOUNTS.read_text().splitlines()
    return [line for line in lines if line.split()[2] == "9p" or str(tmp_path) in line]


def machines(tmp_path: Path) -> list[int]:
    """The machines that this test has started and that run."""
    return [number for number, words in processes(tmp_path).items() if "qemu-system" in words.split(" ")[0]]


def computed(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    """Start ``lab run``."""
    return subprocess.Popen(
        [*LAB, *map(str, words)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, *words: str | Path) -> tuple[int, Any]:
    """Run ``lab run --json`` to its end: exit status and document."""
    process = start(folder, "--json", *words)
    out, error = process.communicate()
    assert out, error
    return process.returncode, json.loads(out)


def test_a_command_on_two_nodes(tmp_path: Path) -> None:
    """It finds files, folder and variables, and two nodes; what it writes to the scratch folder stays."""
    (tmp_path / "here").write_text("host")
    script = """
        cat here; echo; pwd; echo "$LAB_WORD"
        cat /sys/devices/system/node/has_cpu /sys/devices/system/node/has_memory
        nproc
        echo changed >here; cat here
        echo new >"a scratch, folder/new file"
        echo complaint >&2
        exit 7
    """
    scratch = "a scratch, folder"
    words = ["--scratch", scratch, "--env", "LAB_WORD=it's", "--", "sh", "-c", script]
    status, document = run(tmp_path, *SMALL, *words)
    assert status == document["exit_status"] == 7
    lines = document["stdout"].splitlines()
    assert lines == ["host", str(tmp_path), "it's", "0-1", "0-1", "2", "changed"]
    assert document["stderr"] == "complaint\n"
    assert (tmp_path / "here").read_text() == "host", "the host's files are not changed"
    assert document["files"] == {"new file": 4}
    assert (tmp_path / scratch / "new file").read_text() == "new\n"
    assert [(node["id"], node["cpus"], node["distances"]) for node in document["nodes"]] == [
        (0, "0", [10, 21]),
        (1, "1", [21, 10]),
    ]
    assert all(node["memory"] > 128 << 20 for node in document["nodes"])


def test_nodes_as_a_file_describes_them(tmp_path: Path) -> None:
    """The kernel sees the gap, the node without memory, that without CPUs, sizes and distances."""
    (tmp_path / "odd.toml").write_text(ODD)
    show = "cd /sys/devices/system/node; ls -d node*; cat has_cpu has_memory node2/cpulist node2/distance"
    status, document = run(tmp_path, "--layout", "odd.toml", "--", "sh", "-c", show)
    assert status == 0
    assert document["stdout"].split("\n") == [
        *("node0", "node2", "node3", "node4", "0,2,4", "0,2-3", "1-2", "20 10 40 20", "")
    ]
    sizes = {node["id"]: node["memory"] >> 20 for node in document["nodes"]}
    assert sizes[4] == 0 and 128 < sizes[0] < 256 and 256 < sizes[2] <= 384 and 64 < sizes[3] <= 128


def test_killed_while_the_command_runs(tmp_path: Path) -> None:
    """kill -9 of the program ends the machine; files written so far are there."""
    process = start(tmp_path, *SMALL, "--scratch", "s", "--", "sh", "-c", "echo x >s/x; echo on; sleep 600")
    assert process.stdout and process.stdout.readline() == "on\n", "output comes while the command runs"
    assert len(machines(tmp_path)) == 1
    process.kill()
    process.communicate()
    assert (tmp_path / "s/x").read_text() == "x\n"


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3])
def test_killed_before_there_is_a_machine(tmp_path: Path, seconds: float) -> None:
    """Whatever it is at while it looks for the parts and makes the first file system."""
    process = start(tmp_path, *SMALL, "--", "true")
    while process.poll() is None and computed(process.pid) < seconds:
        time.sleep(0.01)
    process.kill()
    process.communicate()


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 1.5, 3.0, 5.0])
def test_killed_while_the_machine_starts(tmp_path: Path, seconds: float) -> None:
    """The machine has computed for so long: firmware, kernel, modules, the command where that is quick."""
    process = start(tmp_path, *SMALL, "--", "sh", "-c", "while :; do :; done")
    while not (found := machines(tmp_path)):
        assert process.poll() is None
        time.sleep(0.01)
    while computed(found[0]) < seconds:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()


def test_killed_while_the_machine_ends(tmp_path: Path) -> None:
    """The command has said its last word, and the machine is being switched off."""
    process = start(tmp_path, *SMALL, "--", "echo", "last")
    assert process.stdout and process.stdout.readline() == "last\n"
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("program", "making"),
    [
        ("apt-get", "packages import PackageSource; PackageSource(store, Quiet()).alone('busybox-static')"),
        ("cc", "trace import make_plugin; make_plugin(store)"),
    ],
    ids=["apt-get", "cc"],
)
def test_killed_while_a_part_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, making: str
) -> None:
    """What fetches a package or compiles the trace ends with it, and so does what that has started."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(f"#!/bin/sh\nsleep 600 & echo >{tmp_path}/begun; sleep 600\n")
    (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    code = f"""
from pathlib import Path
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
store = Store(Path({str(tmp_path / "cache")!r}))
from numamirror_build.lab.{making}
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    assert any(words == "sleep 600 " for words in processes(tmp_path).values())
    process.kill()
    process.wait()


@pytest.mark.sources
@pytest.mark.build
def test_a_verification_that_is_killed(tmp_path: Path, pipeline: Pipeline) -> None:
    """kill -9 of a verification in the lab ends its machine, too."""
    assert pipeline.portable_builds
    process = subprocess.Popen(VERIFY, cwd=tmp_path)
    while not machines(tmp_path):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_end(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """Ctrl-C and SIGTERM end the machine and then the program, with the usual exit codes."""
    process = start(tmp_path, *SMALL, "--", "true")
    while not machines(tmp_path):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == status
    assert "Traceback" not in error
    assert machines(tmp_path) == []


def test_the_time_limit(tmp_path: Path) -> None:
    """A machine that takes longer is switched off; the exit code is the limit's own."""
    status, document = run(tmp_path, *SMALL, "--timeout", "2", "--", "true")
    assert status == LabTimeoutError.exit_code
    assert document["error"] == "lab-timeout"
    assert "within 2 seconds" in document["what"]


def test_a_kernel_that_dies(tmp_path: Path) -> None:
    """A machine that breaks down is an error of the lab, with the kernel's reason."""
    status, document = run(
        tmp_path, *SMALL, "--", "sh", "-c", "echo before; echo c >/proc/sysrq-trigger; sleep 60"
    )
    assert status == LabError.exit_code
    assert document["error"] == "lab"
    assert "Kernel panic" in document["why"]


def test_output_that_nobody_reads(tmp_path: Path) -> None:
    """When the reader of a pipe is content, the machine is switched off."""
    process = start(tmp_path, *SMALL, "--", "yes")
    assert process.stdout and process.stdout.readline() == "y\n"
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert machines(tmp_path) == []
