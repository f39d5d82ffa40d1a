"""Measuring, with a program in the place of llama-bench."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.bench.arms import Files, Kind, Task, Tree, arms_for
from numamirror_build.bench.meters import Meter, ask_program
from numamirror_build.bench.results import Journal, Measured, Point, state_of
from numamirror_build.bench.run import Plan, measure, settle
from numamirror_build.errors import StateError
from numamirror_build.machine.state import State, read_state
from numamirror_build.progress import Quiet
from tests.machines import Machine, Node
from tests.unit.bench.made_up import write_program

TESTS = (Task("tg", 4), Task("pp", 8, 2))


class Bench:
    """A machine, programs, and a journal."""

    def __init__(self, folder: Path, nodes: dict[int, Node], pretend: int = 0) -> None:
        self.folder = folder
        self.root = Machine(nodes).write(folder / "machine")
        self.arms = arms_for(self.state().mirrored, pretend)
        program = ask_program(write_program(folder / "bin"))
        kinds: tuple[Kind, ...] = ("tg", "pp")
        trees: tuple[Tree, ...] = ("pristine", "patched")
        self.meters: dict[tuple[Kind, Tree], Meter] = {
            (kind, tree): program for kind in kinds for tree in trees
        }
        path = folder / "m.gguf"
        path.write_bytes(b"GGUF")
        self.model = Files(path, (path,))

    def state(self) -> State:
        """What the machine says now."""
        return read_state(self.root)

    def plan(self, repetitions: int = 2) -> Plan:
        """All arms with two thread counts."""
        return Plan(self.arms, (1, 2), TESTS, repetitions)

    def journal(self) -> Journal:
        """The file, begun or continued."""
        return Journal(self.folder / "r.jsonl", {"state": state_of(self.state()), "model": {"name": "m"}})

    def run(self, repetitions: int = 2) -> Journal:
        """Measure what is left."""
        journal = self.journal()
        measure(self.plan(repetitions), self.meters, self.model, journal, self.state, Quiet())
        return journal

    def calls(self) -> list[str]:
        """What the program was called with."""
        path = self.folder / "bin/calls"
        return path.read_text().splitlines() if path.exists() else []


def test_order(tmp_path: Path) -> None:
    """A repetition goes through all arms, every other one backwards."""
    bench = Bench(tmp_path, {0: Node("0-1")}, pretend=2)
    points = [point for _, _, point in bench.plan().points(bench.state())]
    order = [point.arm for point in points if point.test == "tg4" and point.threads == 1]
    forward = ["none", "off", "mirror-weights", "mirror"]
    assert order == [*forward, *reversed(forward)]
    assert len(points) == len(set(points)) == 2 * 2 * 2 * 4


def test_every_point_is_a_process(tmp_path: Path) -> None:
    """Each point is measured once, by a process of its own, and its rate is kept."""
    bench = Bench(tmp_path, {0: Node("0-1")}, pretend=2)
    journal = bench.run()
    assert len(journal.done) == len(bench.calls()) == 32
    assert journal.done[Point("none", 2, "tg4", 1)].rate == 2
    made = journal.done[Point("mirror", 2, "pp8@d2", 0)]
    assert (made.outcome, made.rate) == ("done", 4)
    assert made.facts["mirror"]["active"] is True
    assert {"seconds", "load", "major_faults"} <= set(made.facts)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    """An interrupted run goes on where it was; a line that it did not finish is measured again."""
    bench = Bench(tmp_path, {0: Node("0-1")})
    bench.run(repetitions=1)
    path = tmp_path / "r.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:5]) + "\n" + lines[5][:40])
    before = len(bench.calls())
    journal = bench.run(repetitions=1)
    assert len(bench.calls()) - before == 8 - 4
    assert len(journal.done) == len(bench.journal().done) == 8


def test_a_mirror_that_is_refused(tmp_path: Path) -> None:
    """A point that fails is a result with a reason, and the others go on."""
    bench = Bench(tmp_path, {0: Node("0-1")}, pretend=2)
    bench.arms = tuple(
        arm for arm in arms_for(bench.state().mirrored * 2, 0) if arm.name in ("none", "mirror")
    )
    journal = bench.run(repetitions=1)
    made = journal.done[Point("mirror", 1, "tg4", 0)]
    assert (made.outcome, made.rate) == ("failed", None)
    assert made.reason and "only one NUMA node" in made.reason
    assert journal.done[Point("none", 1, "tg4", 0)].outcome == "done"


def test_a_machine_that_changes(tmp_path: Path) -> None:
    """Results of two states do not come into one file: the setting that changed is named."""
    bench = Bench(tmp_path, {0: Node("0-1")})
    bench.run(repetitions=1)
    changed = bench.root / "proc/sys/kernel/numa_balancing"
    changed.parent.mkdir(parents=True)
    changed.write_text("1\n")
    with pytest.raises(StateError, match="not the same") as caught:
        bench.run(repetitions=2)
    assert "numa_balancing: None and 1" in str(caught.value.why)


def test_a_machine_that_changes_meanwhile(tmp_path: Path) -> None:
    """The state is asked for before each point."""
    bench = Bench(tmp_path, {0: Node("0-1")})
    journal = bench.journal()
    asked = []

    def state() -> State:
        asked.append(1)
        if len(asked) == 4:
            Machine({0: Node("0-1")}, cpus_allowed="0").write(bench.root)
        return bench.state()

    with pytest.raises(StateError):
        measure(bench.plan(), bench.meters, bench.model, journal, state, Quiet())
    assert len(journal.done) == 2


def test_distribute_settles_first(tmp_path: Path) -> None:
    """With several nodes distribute runs until it is no faster, before its first point of a thread count."""
    bench = Bench(tmp_path, {0: Node("0"), 1: Node("1")})
    bench.arms = tuple(arm for arm in bench.arms if arm.name == "distribute")
    journal = bench.run()
    settled = [one for one in journal.done.values() if "settling" in one.facts]
    assert [one.point.threads for one in settled] == [1, 2]
    assert settled[0].facts["settling"]["settled"]
    assert settled[0].facts["settling"]["rates"] == [1.0, 1.0]
    assert len(bench.calls()) == 8 + 2 * 2
    assert all("-mmp 1" in call or "--load-mode mmap" in call for call in bench.calls())


Places = list[dict[str, int] | None]


@pytest.mark.parametrize(
    ("rates", "faults", "places", "settled", "rounds"),
    [
        ([1, 2, 3, 3.01, 9], [9, 5, 0, 0, 0], [None] * 5, True, 4),
        ([1, 1, 1, 1], [3, 2, 1, 0], [None] * 4, True, 4),
        ([1, None], [0, 0], [None] * 2, False, 1),
        ([1.1**n for n in range(99)], [0] * 99, [None] * 99, False, 30),
        # pages that are still on their way to the other node
        (
            [1] * 4,
            [0] * 4,
            [{"0": 900}, {"0": 500, "1": 400}, {"0": 450, "1": 450}, {"0": 449, "1": 451}],
            True,
            4,
        ),
        ([1] * 3, [0] * 3, [None, {"0": 900}, {"0": 900}], True, 2),
        ([1] * 3, [0] * 3, [{"0": 800}, {"0": 900}, {"0": 900}], True, 3),
    ],
)
def test_settling(
    rates: list[float | None], faults: list[int], places: Places, settled: bool, rounds: int
) -> None:
    """It has settled when a round read nothing from disk, was no faster and moved nothing; or never."""
    runs = iter(zip(rates, faults, places, strict=True))

    def run() -> Measured:
        rate, major, model = next(runs)
        placement = {"placement": {"whole": {}, "model": model}} if model else {}
        return Measured(Point("d", 1, "tg4", 0), "done", rate, facts={"major_faults": major, **placement})

    made = settle(run)
    assert (made["settled"], len(made["rates"])) == (settled, rounds)
    assert made["places"] == places[:rounds]
