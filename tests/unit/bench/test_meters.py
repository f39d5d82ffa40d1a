"""Meters: how programs are asked, and what is taken from what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from numamirror_build.bench.arms import Arm, Files, Task
from numamirror_build.bench.meters import LlamaBench, TokenTimes, ask_program
from tests.unit.bench.made_up import write_program
from tests.unit.bench.test_placement import has_numa_maps

MODEL = Files(Path("/m.gguf"), (Path("/m.gguf"),))

NEW = "--load-mode <auto|none|mmap> --mmap -d, --n-depth <n> -pg <pp,tg>"
OLD = "-mmp, --mmap <0|1> -pg <pp,tg>"
IK = "-mmp, --mmap <0|1> -pg <pp,tg> -gp <pp,tg>"

# says what it is given, as a llama-bench says a result, and waits to be looked at
SLOW = """#!/bin/sh
[ "$1" = --help ] && exec echo "{help}"
echo "[ {{"
echo '    "avg_ts": 12.5,'
echo "  }},"
sleep 0.3
echo '  {{ "avg_ts": 99.0 }} ]'
"""


def asked(folder: Path, help_: str) -> LlamaBench:
    """A program with such a help."""
    path = folder / "llama-bench"
    path.write_text(SLOW.format(help=help_))
    path.chmod(0o755)
    return ask_program(path)


@pytest.mark.parametrize(
    ("help_", "arm", "test", "words"),
    [
        (NEW, Arm("none", "pristine"), Task("tg", 64), "-p 0 -n 64,8 -t 8 -r 1 --load-mode none -o json"),
        (
            NEW,
            Arm("d", "pristine", "distribute", mapped=True),
            Task("pp", 32, 100),
            "-p 32 -n 0 -d 100 -t 8 -r 1 --load-mode mmap --numa distribute -o json",
        ),
        (OLD, Arm("none", "pristine"), Task("pp", 32), "-p 32 -n 8 -t 8 -r 1 -mmp 0 -o json"),
        (
            IK,
            Arm("m", "patched", "mirror"),
            Task("tg", 4, 100),
            "-p 0 -n 0 -gp 100,4 -t 8 -r 1 -mmp 0 --numa mirror -o json",
        ),
        ("", Arm("none", "pristine"), Task("tg", 1), "-p 0 -n 1,8 -t 8 -r 1 -o json"),
    ],
)
def test_command_lines(tmp_path: Path, help_: str, arm: Arm, test: Task, words: str) -> None:
    """One test, once, as JSON, in the words that the program knows; with an empty cache another after it."""
    program = asked(tmp_path, help_)
    assert program.command(arm, MODEL.path, 8, test) == [str(program.path), "-m", "/m.gguf", *words.split()]


def test_a_launcher_comes_first(tmp_path: Path) -> None:
    """What puts the program in its place becomes it."""
    arm = Arm("i", "pristine", prefix=("launch", "0"))
    command = asked(tmp_path, NEW).command(arm, MODEL.path, 1, Task("tg", 1))
    assert command[:3] == ["launch", "0", str(tmp_path / "llama-bench")]


@pytest.mark.parametrize(("help_", "refused"), [(NEW, []), (OLD, ["tg4@d9", "pp4@d9"]), (IK, ["pp4@d9"])])
def test_what_cannot_be_measured(tmp_path: Path, help_: str, refused: list[str]) -> None:
    """A program without an option for tokens before the test says so instead of measuring something else."""
    program = asked(tmp_path, help_)
    tasks = [Task("tg", 4), Task("pp", 4), Task("tg", 4, 9), Task("pp", 4, 9)]
    assert [task.name for task in tasks if program.refusal(task)] == refused


def test_the_first_result_counts_and_the_process_is_looked_at(tmp_path: Path) -> None:
    """Tokens per second are those of the test, not of what comes after; between them its memory is seen."""
    told = asked(tmp_path, NEW).measure(Arm("none", "pristine"), MODEL, 1, Task("tg", 4), tmp_path, {})
    assert told.rate == 12.5
    if has_numa_maps():
        assert told.placement and told.placement.whole
    deep = asked(tmp_path, NEW).measure(Arm("none", "pristine"), MODEL, 1, Task("tg", 4, 9), tmp_path, {})
    assert deep.rate == 12.5
    assert deep.placement is None, "there is nothing after the test: the model may be gone"


def test_a_program_that_fails(tmp_path: Path) -> None:
    """There is no rate, and the caller sees status and output."""
    program = LlamaBench(write_program(tmp_path))
    env = {"GGML_NUMA_MIRROR_STATUS": str(tmp_path / "s"), "PATH": "/usr/bin:/bin"}
    told = program.measure(Arm("m", "patched", "mirror"), MODEL, 1, Task("tg", 4), tmp_path, env)
    assert (told.rate, told.done.returncode) == (None, 1)
    assert "only one NUMA node" in told.done.output


FAKE = """
import json, sys
_, e, script, runner, asked = sys.argv
request = json.load(open(asked))
json.dump({**request, "argv": [e, script, runner]}, open("asked.json", "w"))
if request["tokens"] == 13:
    sys.exit("error: unlucky")
facts = {"first": 0.5, "seconds": [0.1, 0.3], "numa_maps": "7f file=/m.gguf N1=2 kernelpagesize_kB=4"}
json.dump(facts, open(request["facts"], "w"))
"""


def test_token_times(tmp_path: Path) -> None:
    """The binding's Python gets the request; all slots' tokens after the first step make the rate."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}{FAKE}")
    python.chmod(0o755)
    meter = TokenTimes(python, Path("/runner"), "llama_cpp", {"LIB": "there"}, {"flash_attn": False})
    arm = Arm("distribute", "pristine", "distribute", mapped=True)
    told = meter.measure(arm, MODEL, 3, Task("tok", 2, 16, 4), tmp_path, {})
    assert told.rate == pytest.approx(4 * 2 / 0.4)
    assert told.facts == {"first_token": 0.5, "token_times": [0.1, 0.3]}
    assert told.placement and told.placement.model == {"1": 8192}
    request = json.loads((tmp_path / "asked.json").read_text())
    expected = {"strategy": 1, "mapped": True, "threads": 3, "tokens": 2, "depth": 16, "slots": 4}
    assert {name: request[name] for name in expected} == expected
    assert request["argv"][0] == "-E"
    assert request["context"] == {"flash_attn": False}, "as there are several slots"
    (tmp_path / "times.json").unlink()
    failed = meter.measure(arm, MODEL, 3, Task("tok", 13), tmp_path, {})
    assert failed.rate is None and "unlucky" in failed.done.output
    assert json.loads((tmp_path / "asked.json").read_text())["context"] == {}
