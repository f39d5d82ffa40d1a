"""Few rows with all pairs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from numamirror_build.verify.covering import covering

FACTORS = st.lists(st.integers(1, 5).map(lambda count: tuple(range(count))), min_size=2, max_size=5)


@given(FACTORS)
def test_every_pair_is_in_a_row(factors: list[tuple[int, ...]]) -> None:
    """Any value of a factor meets any value of any other, and no row helps nothing."""
    rows = list(covering(*factors))
    seen: set[object] = set()
    for row in rows:
        pairs = {(left, row[left], right, row[right]) for left, right in combinations(range(len(row)), 2)}
        assert pairs - seen
        seen |= pairs
    wanted = sum(len(left) * len(right) for left, right in combinations(factors, 2))
    assert len(seen) == wanted


def test_rows_are_few_and_always_the_same() -> None:
    """Hardly more rows than the two longest factors need, instead of thousands."""
    factors = ("abc", "def", "12345", range(8), range(20))
    rows = list(covering(*factors))
    assert rows == list(covering(*factors))
    assert 8 * 20 <= len(rows) <= 1.1 * 8 * 20
