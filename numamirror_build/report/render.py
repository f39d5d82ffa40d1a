"""A report as a page that is complete in itself, and as Markdown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jinja2

from numamirror_build import data
from numamirror_build.report import roofline
from numamirror_build.report.document import Bar, Plot, Report, Roof, Roofline, Table

# of a plot, in pixels
BARS, VALUES, STEP = 420, 90, 26
_LETTER, _LEAST, _MOST = 7.2, 120, 400  # of labels
_TICKS = 5


@dataclass(frozen=True)
class DrawnBar:
    """A bar with its places in pixels; the interval is None where there is none."""

    bar: Bar
    y: int
    width: float
    interval: tuple[float, float] | None
    text: str


@dataclass(frozen=True)
class Drawing:
    """A plot with places in pixels, and the numbers along its axis with theirs."""

    plot: Plot
    bars: tuple[DrawnBar, ...]
    ticks: tuple[tuple[str, float], ...]
    height: int
    width: int
    left: int


def draw(plot: Plot) -> Drawing:
    """Work out where everything is."""
    step = _step(max((bar.high or bar.value for bar in plot.bars), default=0))
    scale = BARS / (step * _TICKS)
    bars = tuple(
        DrawnBar(
            bar,
            number * STEP,
            round(bar.value * scale, 1),
            None
            if bar.low is None or bar.high is None
            else (round(bar.low * scale, 1), round(bar.high * scale, 1)),
            f"{bar.value:.3g} {plot.unit}" if bar.value < 1000 else f"{bar.value:,.0f} {plot.unit}",
        )
        for number, bar in enumerate(plot.bars)
    )
    ticks = tuple((f"{step * number:g}", round(step * number * scale, 1)) for number in range(_TICKS + 1))
    longest = max((len(bar.label) for bar in plot.bars), default=0)
    left = round(min(max(_LETTER * longest + 10, _LEAST), _MOST))
    return Drawing(plot, bars, ticks, len(bars) * STEP, left + BARS + VALUES, left)


def page(report: Report) -> str:
    """The report as HTML with nothing to load from elsewhere."""
    loader = jinja2.FileSystemLoader(data.templates() / "report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("report.html.j2")
    return template.render(report=report, draw=draw, draw_roofline=roofline.draw)


def markdown(report: Report) -> str:
    """The report as Markdown; plots are left out, their figures are in the tables."""
    parts = [f"# {report.title}", report.verdict, f"Made {report.made}."]
    for section in report.sections:
        parts.append(f"## {section.title}")
        parts += section.text
        if section.roofline:
            parts.append(_marks(section.roofline))
        if section.table:
            parts.append(_table(section.table))
        elif section.plots:
            parts += [_bars(plot) for plot in section.plots]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    rule = ["---:" if column in table.right else "---" for column in range(len(table.head))]
    rows = [table.head, rule, *(row.cells for row in table.rows)]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _bars(plot: Plot) -> str:
    rows = ["| | " + plot.unit + " |", "| --- | ---: |"]
    return "\n".join([*rows, *(f"| {_cell(bar.label)} | {bar.value:.3g} |" for bar in plot.bars)])


def _marks(plot: Roofline) -> str:
    rows = [f"| | {plot.x} | {plot.y} |", "| --- | ---: | ---: |"]
    rows += [f"| {_cell(mark.label)} | {mark.x:.3g} | {mark.y:.3g} |" for mark in plot.marks]
    rows += [f"| limit: {_cell(roof.label)} | | {_limit(roof)} |" for roof in plot.roofs]
    return "\n".join(rows)


def _limit(roof: Roof) -> str:
    ceiling = "" if roof.ceiling is None else f", at most {roof.ceiling:.3g}"
    return f"{roof.slope:.3g} per unit{ceiling}"


def _cell(text: str) -> str:
    for special in "\\|<>*_`":
        text = text.replace(special, "\\" + special)
    return " ".join(text.split())


def _step(most: float) -> float:
    """A round number, five of which reach at least as far."""
    if most <= 0:
        return 1
    power: float = 10 ** math.floor(math.log10(most / _TICKS))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * _TICKS >= most)
