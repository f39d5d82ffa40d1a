"""A job as a value, for this process or another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numamirror_build.bench import inside
from numamirror_build.bench.arms import Files, Task
from numamirror_build.bench.job import Job, job_of
from numamirror_build.bench.meters import TokenTimes, ask_program
from numamirror_build.bench.results import load_results
from numamirror_build.errors import ConfigError
from numamirror_build.machine.state import read_state
from tests.machines import Machine, Node
from tests.unit.bench.made_up import write_program


def job(folder: Path, *arms: str) -> Job:
    """A job for a machine with one node."""
    program = ask_program(write_program(folder / "bin"))
    path = folder / "m.gguf"
    path.write_bytes(b"GGUF")
    binding = TokenTimes(Path("/python"), Path("/runner"), "llama_cpp", {"LIB": "x"}, {"flash_attn": 0})
    return Job(
        arms=arms,
        threads=(1, 2),
        tests=(Task("tg", 4), Task("tok", 4, 1, 2)),
        repetitions=2,
        pretend=2,
        model=Files(path, (path,)),
        programs={"pristine": program, "patched": program},
        bindings={"pristine": binding, "patched": binding},
        subject={"model": {"name": "m"}},
        results=folder / "r.jsonl",
    )


def test_there_and_back(tmp_path: Path) -> None:
    """What is written for another process is what it reads."""
    made = job(tmp_path, "none", "mirror")
    assert job_of(json.loads(json.dumps(made.as_json()))) == made


def test_an_arm_that_the_machine_does_not_have(tmp_path: Path) -> None:
    """It is named, with those that there are."""
    state = read_state(Machine({0: Node("0-3")}).write(tmp_path / "machine"))
    assert [arm.name for arm in job(tmp_path, "mirror").plan(state).arms] == ["mirror"]
    with pytest.raises(ConfigError, match="isolate-1") as caught:
        job(tmp_path, "isolate-1").plan(state)
    assert "none, off, mirror-weights, mirror" in str(caught.value)


def test_in_another_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file's job is carried out on the machine that it is on; an error is told, with its status."""
    made = job(tmp_path, "none")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**made.as_json(), "tests": [{"kind": "tg", "tokens": 4}]}))
    assert inside.main(str(file)) == 0
    assert len(load_results(made.results).measured) == 2 * 2
    assert "none, 2 threads, tg4" in capsys.readouterr().err
    file.write_text(json.dumps({**made.as_json(), "arms": ["elsewhere"]}))
    assert inside.main(str(file)) == ConfigError.exit_code
    assert "No such arm here: elsewhere" in capsys.readouterr().err
