"""Where everything is in a roofline plot, in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numamirror_build.report.document import Mark, Roof, Roofline

LEFT, WIDTH, HEIGHT, BELOW, RIGHT = 64, 420, 300, 44, 216  # HEIGHT at least: labels may need more
LINE = 15  # pixels between labels, so that one can be read beside another

_ROOM = 2.0  # factor by which an axis goes beyond what is on it
_DIGITS = (1, 2, 5)


@dataclass(frozen=True)
class DrawnRoof:
    """A limit as a line through points; its label stands above its beginning, turned as the line is."""

    roof: Roof
    points: str
    x: float
    y: float
    turned: float  # degrees


@dataclass(frozen=True)
class DrawnMark:
    """A mark, and the height of its label, which stands beside the plot."""

    mark: Mark
    x: float
    y: float
    label: float


@dataclass(frozen=True)
class Drawing:
    """A plot with places in pixels, and the numbers along its axes with theirs."""

    roofline: Roofline
    roofs: tuple[DrawnRoof, ...]
    marks: tuple[DrawnMark, ...]
    x_ticks: tuple[tuple[str, float], ...]
    y_ticks: tuple[tuple[str, float], ...]
    bottom: int
    left: int = LEFT
    right: int = LEFT + WIDTH
    width: int = LEFT + WIDTH + RIGHT

    @property
    def height(self) -> int:
        """Of the plot with what is written below it."""
        return self.bottom + BELOW


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis from one value to another, over so many pixels."""

    low: float
    high: float
    pixels: int

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(min(max(share, 0), 1) * self.pixels, 1)

    def below(self, value: float) -> float:
        """As :meth:`at`, but from the axis's end."""
        return self.pixels - self.at(value)

    def ticks(self) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        many = math.log10(self.high / self.low) > 2.5
        return [
            digit * 10.0**power
            for power in powers
            for digit in (_DIGITS[:1] if many else _DIGITS)
            if self.low <= digit * 10.0**power <= self.high
        ]


def draw(roofline: Roofline) -> Drawing:
    """Work out where everything is; there must be a roof and a mark."""
    knees = [roof.ceiling / roof.slope for roof in roofline.roofs if roof.ceiling]
    horizontal = _axis([*(mark.x for mark in roofline.marks), *knees], WIDTH)
    heights = [_height(roof, x) for roof in roofline.roofs for x in (horizontal.low * _ROOM, horizontal.high)]
    bottom = max(HEIGHT, LINE * len(roofline.marks))
    vertical = _axis([*(mark.y for mark in roofline.marks), *heights], bottom)
    marks = sorted(roofline.marks, key=lambda mark: -mark.y)
    places = _apart([vertical.below(mark.y) for mark in marks], bottom)
    return Drawing(
        roofline,
        tuple(_roof(roof, horizontal, vertical) for roof in roofline.roofs),
        tuple(
            DrawnMark(mark, LEFT + horizontal.at(mark.x), vertical.below(mark.y), label)
            for mark, label in zip(marks, places, strict=True)
        ),
        tuple((f"{value:g}", LEFT + horizontal.at(value)) for value in horizontal.ticks()),
        tuple((f"{value:g}", vertical.below(value)) for value in vertical.ticks()),
        bottom,
    )


def _axis(values: Sequence[float], pixels: int) -> _Axis:
    return _Axis(min(values) / _ROOM, max(values) * _ROOM, pixels)


def _height(roof: Roof, x: float) -> float:
    return min(roof.slope * x, roof.ceiling or math.inf)


def _roof(roof: Roof, horizontal: _Axis, vertical: _Axis) -> DrawnRoof:
    # it begins where it comes into sight from below, or at the left
    first = max(horizontal.low, vertical.low / roof.slope)
    knee = roof.ceiling / roof.slope if roof.ceiling else None
    xs = [first, *([knee] if knee and first < knee < horizontal.high else []), horizontal.high]
    points = [(LEFT + horizontal.at(x), vertical.below(_height(roof, x))) for x in xs]
    (x, y), (beyond, above), *_ = points
    turned = round(math.degrees(math.atan2(above - y, beyond - x)), 1)
    return DrawnRoof(roof, " ".join(f"{x:g},{y:g}" for x, y in points), x, y, turned)


def _apart(wanted: Sequence[float], bottom: int) -> list[float]:
    """Heights of labels from above, as near to the wanted ones as there is room between them."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + LINE) if places else place)
    over = places[-1] - bottom if places else 0
    if over > 0:
        # those at the bottom move up, and push the others before them
        limit = float(bottom)
        for index in reversed(range(len(places))):
            places[index] = min(places[index], limit)
            limit = places[index] - LINE
    return places
