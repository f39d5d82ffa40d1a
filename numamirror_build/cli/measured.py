"""What measurements say: those of ``bench``, and of ``bench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numamirror_build.bench.published import Line, Published, known_tables, load_table
from numamirror_build.bench.results import Results, load_results, require_same
from numamirror_build.bench.statistics import Comparison, Summary
from numamirror_build.bench.summary import (
    Duel,
    Row,
    advice,
    against,
    cost_when_off,
    document,
    duels_of,
    placements_of,
    rows_of,
)
from numamirror_build.cli.answers import Answer, table
from numamirror_build.errors import ConfigError, content_as_error

MIB = 1 << 20


def measured(made: Results, path: Path) -> Answer:
    """All series, and which way to use.

    Args:
        made: the results.
        path: where they are.

    Raises:
        ConfigError: something in them is not as ``bench`` writes it.
    """
    with content_as_error(path):
        return Answer({"results": str(path), **document(made)}, "\n".join(_text(made)))


def comparison(first: Path, second: str) -> Answer:
    """Results against other results, or against what others have published.

    Args:
        first: a file of results.
        second: another, a published table in TOML, or the name of one that the package has.

    Raises:
        ConfigError: the second is none of these, or something in them is not as ``bench`` writes it.
        StateError: both are results, of different states, models or numbers of pretended nodes.
    """
    mine = load_results(first)
    if second in known_tables() or Path(second).suffix == ".toml":
        theirs = load_table(second)
        with content_as_error(first):
            return _beside(mine, theirs)
    if not Path(second).is_file():
        raise ConfigError(
            "There is nothing of that name to compare with",
            where=second,
            hint=f"give a file of results, a published table in TOML, or one of: {', '.join(known_tables())}",
        )
    other = load_results(Path(second))
    with content_as_error(first, Path(second)):
        return _between(mine, other, first, Path(second))


def _between(one: Results, other: Results, first: Path, second: Path) -> Answer:
    """Two files of results, series by series; of the same model, on the same machine in the same state."""
    where = f"{first} and {second}"
    require_same(one.state, other.state, "The machine's state", where)
    require_same(one.subject["model"], other.subject["model"], "The model", where)
    require_same(one.subject["pretend"], other.subject["pretend"], "The number of pretended nodes", where)
    require_same(one.subject.get("lab"), other.subject.get("lab"), "The machine of the lab", where)
    pairs = against(one, other)
    rows = [
        [
            row.arm,
            str(row.threads),
            row.test,
            _middle(row.summary),
            _middle(before.summary),
            *_compared(found),
        ]
        for row, before, found in pairs
    ]
    head = ["arm", "threads", "test", first.stem, second.stem, "ratio", "p", ""]
    documents = [
        {"arm": row.arm, "threads": row.threads, "test": row.test, **found.as_json()}
        for row, _, found in pairs
    ]
    text = table(head, rows, right=(1, 3, 4, 5, 6)) if rows else ["The two have no series in common."]
    return Answer({"comparisons": documents}, "\n".join(text))


def _beside(mine: Results, theirs: Published) -> Answer:
    """Ratios beside those of a published table. Rates of two machines are not compared."""
    rows = rows_of(mine.measured)
    duels = [duel for duel in duels_of(rows, theirs.baseline) if not duel.test.startswith("pp")]
    name = str(mine.subject["model"]["name"])
    lines = [_published(line, line.is_for(name)) for line in theirs.lines]
    lines += [_own(name, duel) for duel in duels]
    head = ["", "model", "test", "without", "mirror", "ratio", "95 % interval"]
    words = [
        f"theirs: {theirs.name}; {theirs.machine}.",
        f"Source: {theirs.source}.",
        "Another machine and other programs: rates are not compared, ratios are only shown side by side: "
        f"the mirror's speed by that of {theirs.baseline}, in generation.",
    ]
    if not duels:
        words.append(f"Yours have no generation with a mirror and with {theirs.baseline}.")
    if mine.subject.get("pretend"):
        words.append("The nodes are pretended: your ratios say nothing about a machine with several.")
    if mine.subject.get("lab"):
        words.append("Your machine is emulated: its ratios say nothing.")
    own = {duel.test: duel.as_json() for duel in duels}
    answer = {"published": theirs.as_json(), "model": name, "own": own, "comparable": False}
    return Answer(answer, "\n".join([*table(head, lines, right=(3, 4, 5)), "", *words]))


def _published(line: Line, same: bool) -> list[str]:
    rates = ["-" if rate is None else f"{rate:.2f}" for rate in (line.without, line.mirror)]
    side = "theirs, your model" if same else "theirs"
    return [side, line.model, "", *rates, f"{line.ratio:.2f}", ""]


def _own(name: str, duel: Duel) -> list[str]:
    found = duel.comparison
    between = "" if found.low is None or found.high is None else f"{found.low:.2f} to {found.high:.2f}"
    sides = [_middle(row.summary) for row in (duel.other, duel.mirror)]
    return ["yours", name, duel.test, *sides, f"{found.ratio:.2f}", between]


def _text(made: Results) -> list[str]:
    rows = rows_of(made.measured)
    lines = table(
        ["arm", "threads", "test", "t/s", "95 % interval", "runs", "failed"],
        [
            [
                row.arm,
                str(row.threads),
                row.test,
                _middle(row.summary),
                _interval(row.summary),
                str(len(row.samples)),
                row.failed[0] if row.failed else "",
            ]
            for row in rows
        ],
        right=(1, 3, 5),
    )
    off = [
        f"the patched program without a mirror, {test}, {threads} threads: {' '.join(_compared(found))}"
        for test, threads, found in cost_when_off(rows)
    ]
    parts = [lines, _tokens(rows), _memory(made), off, advice(made)]
    return "\n\n".join("\n".join(part) for part in parts if part).splitlines()


def _tokens(rows: Sequence[Row]) -> list[str]:
    timed = [(row, row.times) for row in rows if row.times]
    head = ["arm", "threads", "test", "first token", "median", "95 %", "slowest"]
    lines = [
        [row.arm, str(row.threads), row.test, *(f"{ms:.2f}" for ms in times.as_json().values())]
        for row, times in timed
    ]
    return ["milliseconds per token:", *table(head, lines, right=(1, 3, 4, 5, 6))] if lines else []


def _memory(made: Results) -> list[str]:
    placed = placements_of(made.measured)
    lines = [
        [arm, "  ".join(f"{node}: {size / MIB:,.0f}" for node, size in nodes.items())]
        for arm, nodes in placed.items()
    ]
    return table(["arm", "MiB of the process on each node"], lines) if lines else []


def _middle(summary: Summary | None) -> str:
    return f"{summary.median:.2f}" if summary else "-"


def _interval(summary: Summary | None) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return ""
    return f"{summary.low:.2f} to {summary.high:.2f}"


def _compared(found: Comparison) -> list[str]:
    return [f"{found.ratio:.3f}", "" if found.p is None else f"{found.p:.2g}", found.verdict]
