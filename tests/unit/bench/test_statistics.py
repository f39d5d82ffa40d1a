"""What samples say."""

from __future__ import annotations

import json

import pytest

from numamirror_build.bench.statistics import compare, summarise

TEN = [10.0, 10.1, 9.9, 10.2, 9.8]


def test_a_summary() -> None:
    """The median, and an interval around it that is the same each time."""
    made = summarise(TEN)
    assert made == summarise(TEN)
    assert made.median == 10
    assert made.low is not None and made.high is not None
    assert 9.8 <= made.low <= 10 <= made.high <= 10.2
    assert summarise([5.0, 6.0]).low is None
    assert summarise([5.0, 5.0, 5.0]).low is None
    json.dumps(made.as_json())


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.5, "better"), (0.5, "worse"), (1.0, "same"), (1.0001, "same"), (1.029, "different")],
)
def test_verdicts(factor: float, verdict: str) -> None:
    """Different is a test, better is a factor: a small difference that is sure is not better."""
    samples = TEN if factor != 1.029 else [10.0, 10.001, 9.999, 10.002, 9.998]
    assert compare([factor * one for one in samples], samples).verdict == verdict


def test_noise_is_not_a_difference() -> None:
    """A ratio of medians alone says nothing."""
    made = compare([5.0, 20.0, 12.0, 4.0, 18.0], TEN)
    assert made.ratio == pytest.approx(1.2)
    assert made.verdict == "same"


@pytest.mark.parametrize(("count", "known"), [(1, False), (3, False), (4, True)])
def test_too_few(count: int, known: bool) -> None:
    """With three repetitions no difference can be told from chance, however large."""
    made = compare([100.0 + n for n in range(count)], [1.0 + n / 10 for n in range(count)])
    assert (made.verdict == "better") == known
    assert (made.p is not None) == known
