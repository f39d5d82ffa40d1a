"""Few rows in which every pair of values of two factors occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

Cell = tuple[int, int]  # number of a factor, number of its value


def covering(*factors: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows with one value of each factor, such that every pair of values of two factors is in a row.

    Far fewer than all combinations, and the same ones each time.
    """
    cells = [[(number, value) for value in range(len(factor))] for number, factor in enumerate(factors)]
    missing = {pair for left, right in combinations(cells, 2) for pair in product(left, right)}
    used: Counter[Cell] = Counter()
    while missing:
        row = dict(min(missing))
        for number in range(len(factors)):
            if number not in row:
                _, value = min(cells[number], key=lambda cell: (-_gain(row, cell, missing), used[cell], cell))
                row[number] = value
        chosen = sorted(row.items())
        used.update(chosen)
        missing.difference_update(combinations(chosen, 2))
        yield tuple(factors[number][value] for number, value in chosen)


def _gain(row: dict[int, int], cell: Cell, missing: set[tuple[Cell, Cell]]) -> int:
    """How many missing pairs a row gets with one more cell."""
    return sum((min(cell, other), max(cell, other)) in missing for other in row.items())
