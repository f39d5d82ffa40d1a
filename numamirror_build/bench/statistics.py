"""What samples say: a middle with an interval, and whether two of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
BETTER = 1.03  # a smaller factor is not worth a change

Verdict = Literal["better", "worse", "different", "same", "unknown"]


@dataclass(frozen=True)
class Summary:
    """The median of samples, and an interval in which it lies; without one where there are too few."""

    count: int
    median: float
    low: float | None
    high: float | None

    def as_json(self) -> dict[str, Any]:
        """The summary for machines."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Samples against others.

    Attributes:
        ratio: of the medians.
        low: the smallest ratio that the samples allow.
        high: the largest.
        p: how likely so large a difference is if there is none; None where there are too few samples to tell.
        verdict: ``better`` or ``worse``: different by the test, and by a factor that is worth a change;
            ``different``: by the test alone; ``same``: the test finds nothing; ``unknown``: too few samples.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """The comparison for machines."""
        return asdict(self)


def summarise(samples: Sequence[float]) -> Summary:
    """Median and a bootstrapped interval."""
    low = high = None
    if len(samples) > 2 and len(set(samples)) > 1:
        made = stats.bootstrap(
            (np.asarray(samples),),
            np.median,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        )
        low, high = map(float, made.confidence_interval)
    return Summary(len(samples), float(np.median(samples)), low, high)


def compare(samples: Sequence[float], others: Sequence[float]) -> Comparison:
    """Whether samples differ from others, by the test of Mann and Whitney, and by which factor."""
    ratio = float(np.median(samples) / np.median(others))
    one, other = summarise(samples), summarise(others)
    low = one.low / other.high if one.low is not None and other.high is not None else None
    high = one.high / other.low if one.high is not None and other.low is not None else None
    # with fewer no ranks are unlikely enough
    least = float(
        stats.mannwhitneyu(range(len(samples)), range(100, 100 + len(others)), method="exact").pvalue
    )
    if least > 1 - CONFIDENCE:
        return Comparison(ratio, low, high, None, "unknown")
    p = float(stats.mannwhitneyu(samples, others, alternative="two-sided").pvalue)
    if p > 1 - CONFIDENCE:
        return Comparison(ratio, low, high, p, "same")
    if ratio >= BETTER:
        return Comparison(ratio, low, high, p, "better")
    return Comparison(ratio, low, high, p, "worse" if ratio <= 1 / BETTER else "different")
