"""What results are made into."""

from __future__ import annotations

import json
from dataclasses import replace

from numamirror_build.bench.results import Measured, Point, Results
from numamirror_build.bench.summary import (
    advice,
    against,
    cost_when_off,
    document,
    duels_of,
    placements_of,
    rows_of,
)
from tests.unit.bench.made_up import results


def around(middle: float) -> list[float]:
    """Five samples."""
    return [middle * factor for factor in (0.99, 0.995, 1, 1.005, 1.01)]


GAIN = {
    ("none", 2): around(8),
    ("none", 4): around(9),
    ("isolate-0", 2): around(10),
    ("off", 4): around(12),
    ("mirror", 2): around(11),
    ("mirror", 4): around(15),
}


def test_best_against_best() -> None:
    """Each side has its own best thread count; the patched program without a mirror is on neither."""
    made = results(GAIN)
    (duel,) = duels_of(rows_of(made.measured))
    assert (duel.mirror.arm, duel.mirror.threads) == ("mirror", 4)
    assert (duel.other.arm, duel.other.threads) == ("isolate-0", 2)
    assert duel.comparison.verdict == "better"
    (told,) = advice(made)
    assert told.startswith("tg8: mirror with 4 threads makes 15.00 t/s, isolate-0 with 2 10.00: 1.50 times")
    assert told.endswith("Use mirror.")
    json.dumps(document(made))


def test_one_arm_to_compare_with() -> None:
    """The mirror is compared with the best of the arms of a name, when that is asked for."""
    rows = rows_of(results({**GAIN, ("isolate-1", 2): around(9.5)}).measured)
    assert [duel.other.arm for duel in duels_of(rows, "isolate")] == ["isolate-0"]
    assert [duel.other.arm for duel in duels_of(rows, "none")] == ["none"]
    assert duels_of(rows, "interleave") == []


def point(repetition: int, **facts: object) -> Measured:
    """A point that was measured through the binding."""
    return Measured(Point("none", 2, "tok2", repetition), "done", 5.0, facts=facts)


def test_single_tokens() -> None:
    """The times of all repetitions are one set, in milliseconds; first tokens are apart."""
    measured = (
        point(0, first_token=0.5, token_times=[0.1, 0.2]),
        point(1, first_token=0.7, token_times=[0.2, 0.9]),
    )
    (row,) = rows_of(measured)
    assert row.times
    assert (row.times.first, row.times.median, row.times.slowest) == (600, 200, 900)
    assert 200 < row.times.slow < 900
    assert row.as_json()["token_times_ms"]["median"] == 200
    assert rows_of(results(GAIN).measured)[0].times is None


def test_memory_by_node() -> None:
    """Of an arm that count is kept which has most: others were taken when a part was gone."""
    first, second, third = (
        point(0, placement={"whole": {"10": 7, "9": 5}, "model": {}}),
        point(1, placement={"whole": {"9": 3}, "model": {}}),
        point(2),
    )
    assert placements_of((first, second, third)) == {"none": {"9": 5, "10": 7}}
    assert list(placements_of((first,))["none"]) == ["9", "10"]
    subject = {"state": {"nodes": []}, "model": {"name": "m"}}
    assert document(Results(subject, (first,)))["memory_per_node"] == {"none": {"9": 5, "10": 7}}


def test_a_distribute_that_is_best() -> None:
    """What the mirror brings where distribute cannot settle is said, too."""
    told = advice(results({**GAIN, ("distribute", 4): around(15)}))
    assert told[0].endswith("No gain that is worth the memory: use distribute.")
    assert "Where it cannot, isolate-0 with 2 threads is next with 10.00 t/s" in told[1]
    assert told[1].endswith("mirror makes 1.50 times of that.")
    only = {("distribute", 4): around(15), ("mirror", 4): around(15)}
    assert len(advice(results(only))) == 1


def test_no_gain() -> None:
    """Where it brings nothing, loses, or cannot be told, the advice is not to use it."""
    same = {("none", 4): around(10), ("mirror", 4): around(10.01)}
    assert advice(results(same))[0].endswith("No gain that is worth the memory: use none.")
    worse = {("none", 4): around(10), ("mirror", 4): around(7)}
    assert advice(results(worse))[0].endswith("No gain: use none.")
    noisy = {("none", 4): [10.0, 1.0, 20.0, 10.0], ("mirror", 4): [11.0, 3.0, 25.0, 11.0]}
    assert "no gain is shown" in advice(results(noisy))[0]
    few = {("none", 4): [10.0], ("mirror", 4): [20.0]}
    assert "too few repetitions" in advice(results(few))[0]


def test_a_mirror_that_was_refused() -> None:
    """The reason is told, and failed runs are counted."""
    made = results({("none", 2): around(8), ("mirror", 2): [None, None]})
    assert advice(made) == ["The mirror was not measured: numa mirror: one node."]
    assert rows_of(made.measured)[1].failed == ("numa mirror: one node",) * 2
    assert "machine has one node" in advice(results({("none", 2): around(8)}))[0]


def test_what_makes_figures_doubtful() -> None:
    """Pretended nodes, other work, and a distribute that did not settle are told of."""
    made = results(GAIN, pretend=2, lab={"kernel": "6.1"})
    facts = {"load": 7.0, "settling": {"settled": False}}
    first = replace(made.measured[0], facts=facts)
    told = advice(replace(made, measured=(first, *made.measured[1:])))
    assert len(told) == 5
    assert "pretended" in told[1] and "emulated" in told[2]
    assert "Other work" in told[3] and "did not settle" in told[4]


def test_cost_when_off() -> None:
    """The patched program is compared with upstream's, thread count by thread count."""
    ((test, threads, found),) = cost_when_off(rows_of(results(GAIN).measured))
    assert (test, threads, found.verdict) == ("tg8", 4, "better")


def test_earlier_results() -> None:
    """Series that both have are compared."""
    pairs = against(results(GAIN), results({("mirror", 4): around(10), ("mirror", 8): around(1)}))
    assert [(row.arm, row.threads, found.verdict) for row, _, found in pairs] == [("mirror", 4, "better")]
