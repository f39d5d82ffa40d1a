"""Many pins, one after the other or at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.errors import UnknownPinError
from numamirror_build.pipeline import Request
from numamirror_build.progress import Quiet
from numamirror_build.regress import run
from numamirror_build.regress.run import parallel_by_default, run_regression
from numamirror_build.store import Store
from tests.unit.regress.made_up import PASSED, REGRESSION, result

PINS = ("0.3.9", "0.3.20", "0.3.36")


def requests(source: Path | str) -> list[Request]:
    """One request for each of three pins."""
    return [Request("llama.cpp", pin, source=str(source), jobs=8) for pin in PINS]


@pytest.mark.parametrize("parallel", [1, 2])
def test_one_pins_failure_is_not_the_others(tmp_path: Path, parallel: int) -> None:
    """Every pin has its result, in order, with one process as with several at once."""
    made = run_regression(
        Store(tmp_path), requests(tmp_path / "missing"), "plan", parallel=parallel, progress=Quiet()
    )
    assert [one.pin for one in made.results] == list(PINS)
    for one in made.results:
        assert one.failed is not None and one.failed.error is not None
        assert (one.failed.name, one.failed.error["what"]) == ("checkout", "There is no such source folder")
    assert not made.passed and made.exit_code == 12


@pytest.mark.parametrize("parallel", [1, 3])
def test_default_pins_have_a_level_of_their_own(tmp_path: Path, parallel: int) -> None:
    """The default pin of each upstream goes as far as is said for it, all others as is said for all."""
    wanted = [
        *requests(missing := tmp_path / "missing"),
        Request("ik_llama.cpp", "0.1.5", source=str(missing)),
    ]
    made = run_regression(
        Store(tmp_path), wanted, "plan", defaults="verify", parallel=parallel, progress=Quiet()
    )
    assert [one.steps[-1].name for one in made.results] == ["apply", "apply", "verify", "verify"]


def test_a_process_that_breaks_down_is_a_failed_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends without a result is told with its status; the other pins go on."""
    monkeypatch.setattr(run, "_child", _die)
    made = run_regression(Store(tmp_path), requests("auto"), "plan", parallel=3, progress=Quiet())
    assert [one.failed.error["what"] for one in made.results if one.failed and one.failed.error] == [
        "its process ended with status 7"
    ] * 3
    assert made.exit_code == 70


def _die(*_: object) -> None:
    os._exit(7)


_SLOW = """
import sys, time
from pathlib import Path
from numamirror_build.pipeline import Request
from numamirror_build.progress import Quiet
from numamirror_build.regress import run
from numamirror_build.store import Store
from tests.unit.regress.test_run import _wait

if __name__ == "__main__":
    run._child = _wait
    pins = [Request("llama.cpp", pin) for pin in ("0.3.9", "0.3.36")]
    run.run_regression(Store(Path(sys.argv[1])), pins, "plan", parallel=2, progress=Quiet())
"""


def _wait(_results: object, root: Path, request: Request, _level: str) -> None:
    (root / f"pid-{request.pin}").write_text(str(os.getpid()))
    time.sleep(300)


def test_an_interrupt_ends_the_processes(tmp_path: Path) -> None:
    """Ctrl-C leaves nothing running."""
    (tmp_path / "slow.py").write_text(_SLOW)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen([sys.executable, tmp_path / "slow.py", tmp_path], env=environment)
    try:
        deadline = time.monotonic() + 60
        while len(files := list(tmp_path.glob("pid-*"))) < 2 or not all(f.read_text() for f in files):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    finally:
        process.kill()
        process.wait()
    for file in files:
        assert not Path("/proc", file.read_text()).exists()


def test_all_pins_are_looked_up_before_the_first_is_done(tmp_path: Path) -> None:
    """A name that nobody knows is an error at once."""
    wanted = [*requests("auto"), Request("llama.cpp", "0.0.0")]
    with pytest.raises(UnknownPinError):
        run_regression(Store(tmp_path), wanted, "plan", progress=Quiet())
    assert list(tmp_path.iterdir()) == []


def test_what_changes_from_pin_to_pin() -> None:
    """Files and kinds that differ from the pin before; nothing where one of the two has no plan."""
    assert REGRESSION.changes() == [{}, {"a.c": {"read": 3, "write": 1}, "b.c": {"read": -1}}, {}]


def test_pins_of_two_upstreams_are_not_compared() -> None:
    """The first pin of an upstream has no pin before it."""
    one = result("1", PASSED, by_file={"a.c": {"read": 2}})
    other = replace(one, upstream="ik_llama.cpp", by_file={"a.c": {"read": 9}})
    assert run.Regression("plan", (one, other), 0).changes() == [{}, {}]


def test_the_document_has_all_of_it() -> None:
    """Level, pins with steps and changes, and whether they passed."""
    document = REGRESSION.as_json()
    assert (document["level"], document["passed"]) == ("plan", False)
    assert [pin["passed"] for pin in document["pins"]] == [True, True, False]
    assert document["pins"][1]["changes"]["b.c"] == {"read": -1}
    assert document["pins"][2]["steps"][1]["error"]["exit_code"] == 14


@pytest.mark.parametrize(("cpus", "pins"), [(1, 1), (2, 1), (7, 1), (8, 2), (64, 16)])
def test_as_many_pins_at_once_as_there_are_cores_for(cpus: int, pins: int) -> None:
    """One pin for each four CPUs, at least one."""
    assert parallel_by_default(cpus) == pins
