"""A run with a shell script in the place of QEMU, which plays the guest's part."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError, LabError, LabTimeoutError
from numamirror_build.lab.guest import Command
from numamirror_build.lab.layout import even_layout
from numamirror_build.lab.parts import Parts
from numamirror_build.lab.run import Outcome, SeenNode, run_in_lab
from tests.unit.building.conftest import Heard
from tests.unit.test_proc import gone, written_number

# finds the ports as QEMU would
QEMU = r"""#!/bin/sh
[ "$1" != --version ] || { echo "QEMU emulator version 7.2.1"; exit; }
[ "$1 $2" = "-L firmware" ] || exit 9
for word; do
    case $word in
    file,id=control,*) control=${word##*path=} ;;
    file,id=stdout,*) stdout=${word##*path=} ;;
    file=*,out=*) trace=${word##*out=} trace=${trace%%,*} ;;
    file,id=stderr,*) stderr=${word##*path=} ;;
    local,id=scratch,*) scratch=${word#*path=} scratch=${scratch%%,*} ;;
    esac
done
nodes() {
    echo "node 1 1000 21 10 cpus 2-3"
    echo "node 0 1000 10 21 cpus 0,1"
}
"""


class Lab:
    """A lab whose machine is a script."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.progress = Heard()

    def run(
        self,
        script: str,
        *,
        timeout: float = 60,
        scratch: Path | None = None,
        plugin: Path | None = None,
    ) -> Outcome:
        """Run a command on a machine of two nodes that behaves as the script does."""
        files = {"qemu": QEMU + script, "busybox": "", "module.ko": "", "vmlinuz": ""}
        for name, content in files.items():
            (self.tmp_path / name).write_text(content)
        (self.tmp_path / "qemu").chmod(0o755)
        parts = Parts(
            qemu=self.tmp_path / "qemu",
            qemu_env={"WORD": "a word"},
            qemu_options=("-L", "firmware"),
            kernel=self.tmp_path / "vmlinuz",
            modules=(self.tmp_path / "module.ko",),
            busybox=self.tmp_path / "busybox",
        )
        return run_in_lab(
            even_layout(2, 2, "1G", 21),
            Command(("true",), {}, self.tmp_path, scratch),
            parts,
            timeout=timeout,
            on_stdout=self.stdout.extend,
            on_stderr=self.stderr.extend,
            progress=self.progress,
            plugin=plugin,
        )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab."""
    return Lab(tmp_path)


def test_output_status_nodes_and_files_come_back(lab: Lab, tmp_path: Path) -> None:
    """What the command writes is handed on apart, new and changed files of the scratch folder are listed."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "old").write_text("old")
    (scratch / "changed").write_text("before")
    outcome = lab.run(
        """
        nodes >$control
        echo ready >$control
        printf out >$stdout
        printf err >$stderr
        printf "$WORD" >$stdout
        mkdir $scratch/sub
        printf 123 >$scratch/sub/new
        printf after >$scratch/changed
        echo exit 7 >$control
        """,
        scratch=scratch,
    )
    assert (bytes(lab.stdout), bytes(lab.stderr)) == (b"outa word", b"err")
    assert outcome.exit_status == 7
    assert outcome.nodes == (
        SeenNode(0, "0,1", 1000 << 10, (10, 21)),
        SeenNode(1, "2-3", 1000 << 10, (21, 10)),
    )
    assert outcome.files == {"changed": 5, "sub/new": 3}
    assert 0 < outcome.boot_seconds <= outcome.seconds
    assert lab.progress.steps == [
        "Starting a machine: 2 nodes, 4 CPUs, 2048 MiB",
        "Running the command in it",
    ]


def test_the_first_file_system_is_a_file_without_a_name(lab: Lab) -> None:
    """The machine reads it through a descriptor; nothing is written to the disk."""
    outcome = lab.run(
        """
        while [ "$1" != -initrd ]; do shift; done
        head -c 6 "$2" >$stdout
        nodes >$control
        printf 'ready\\nexit 0\\n' >$control
        """
    )
    assert outcome.exit_status == 0
    assert bytes(lab.stdout) == b"070701"


def test_the_trace_comes_back(lab: Lab) -> None:
    """What the plugin writes when the machine ends is a part of the outcome; it must be whole."""
    script = "nodes >$control; printf 'ready\\nexit 0\\n' >$control; printf '[0, 3, 1, 0, 8, 0]\\n' >$trace;"
    outcome = lab.run(script + "printf '\"end\"\\n' >$trace", plugin=Path("/trace.so"))
    assert outcome.trace and outcome.trace.loaded("generation", "weights") == 8
    with pytest.raises(LabError, match="The trace is not complete"):
        lab.run(script, plugin=Path("/trace.so"))


@pytest.mark.parametrize(
    "nodes",
    [
        "node 0 1000 10 cpus 0-3",
        "node 0 1000 10 21 cpus 0-2\nnode 1 1000 21 10 cpus 3",
        "node 0 0 10 21 cpus 0-1\nnode 1 1000 21 10 cpus 2-3",
        "node 0 1000 10 20 cpus 0-1\nnode 1 1000 20 10 cpus 2-3",
        "node 0 1000 10 21 cpus 0-1\nnode 2 1000 21 10 cpus 2-3",
    ],
)
def test_other_nodes_than_asked_for_are_an_error(lab: Lab, nodes: str) -> None:
    """Numbers, CPUs, memory and distances are compared before the command runs on a wrong machine."""
    with pytest.raises(LabError, match="does not see the nodes that were asked for"):
        lab.run(f"echo $$ >{lab.tmp_path}/pid; printf '{nodes}\\nready\\n' >$control; sleep 60")
    assert gone(written_number(lab.tmp_path / "pid"))


def test_a_guest_that_fails_says_where(lab: Lab) -> None:
    """What the guest's first process could not do is the reason."""
    with pytest.raises(LabError, match="The machine did not start") as caught:
        lab.run("echo failed mount -t 9p >$control; echo console; exit 0")
    assert caught.value.why == "in the guest: mount -t 9p"
    assert caught.value.details == {"qemu_status": 0, "console": ["console"]}


def test_a_machine_that_does_not_start_shows_its_complaint(lab: Lab) -> None:
    """What QEMU says is the reason; its status is kept."""
    with pytest.raises(LabError, match="The machine did not start") as caught:
        lab.run("echo qemu: no such device >&2; exit 1")
    assert caught.value.why == "qemu: no such device"
    assert caught.value.details["qemu_status"] == 1
    with pytest.raises(LabError) as caught:
        lab.run("exit 3")
    assert caught.value.why == "QEMU ended with status 3"


def test_a_kernel_that_panics_is_named(lab: Lab) -> None:
    """Among all that a dying kernel says, the line that matters is the reason."""
    with pytest.raises(LabError, match="The machine broke down while the command ran") as caught:
        lab.run(
            r"""
            nodes >$control
            echo ready >$control
            printf '\033[2J[1.0] Kernel panic - not syncing: out of memory\r\n[1.1] Call Trace:\n[1.2] x\n'
            """
        )
    assert caught.value.why == "[1.0] Kernel panic - not syncing: out of memory"


def test_the_time_limit_holds(lab: Lab) -> None:
    """The message says whether the machine had started; the machine is gone."""
    with pytest.raises(LabTimeoutError, match=r"The machine did not start within 0\.5 seconds"):
        lab.run("sleep 60", timeout=0.5)
    with pytest.raises(LabTimeoutError, match="The command did not end within 3 seconds"):
        lab.run(f"echo $$ >{lab.tmp_path}/pid; nodes >$control; echo ready >$control; sleep 60", timeout=3)
    assert gone(written_number(lab.tmp_path / "pid"))


def test_a_scratch_folder_that_cannot_be_made(lab: Lab, tmp_path: Path) -> None:
    """The whole file system, by any name, and a folder in a file, are refused before anything starts."""
    (tmp_path / "file").write_text("")
    (tmp_path / "root").symlink_to("/")
    refused = {tmp_path / "file/folder": "cannot be made"}
    for root in (Path("/"), Path("/tmp/.."), tmp_path / "root"):
        refused[root] = "whole file system"
    for folder, what in refused.items():
        with pytest.raises(ConfigError, match=what):
            lab.run(f"touch {tmp_path}/started", scratch=folder)
    assert not (tmp_path / "started").exists()
