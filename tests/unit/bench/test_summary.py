"""What results are made into."""

from __future__ import annotations

import json
from dataclasses import replace

from numamirror_build.bench.summary import advice, against, cost_when_off, document, duels_of, rows_of
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
    made = results(GAIN, pretend=2)
    facts = {"load": 7.0, "settling": {"settled": False}}
    first = replace(made.measured[0], facts=facts)
    told = advice(replace(made, measured=(first, *made.measured[1:])))
    assert len(told) == 4
    assert "pretended" in told[1] and "Other work" in told[2] and "did not settle" in told[3]


def test_cost_when_off() -> None:
    """The patched program is compared with upstream's, thread count by thread count."""
    ((test, threads, found),) = cost_when_off(rows_of(results(GAIN).measured))
    assert (test, threads, found.verdict) == ("tg8", 4, "better")


def test_earlier_results() -> None:
    """Series that both have are compared."""
    pairs = against(results(GAIN), results({("mirror", 4): around(10), ("mirror", 8): around(1)}))
    assert [(row.arm, row.threads, found.verdict) for row, _, found in pairs] == [("mirror", 4, "better")]
