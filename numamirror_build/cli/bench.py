"""``bench``: what is measured, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from numamirror_build import __version__
from numamirror_build.bench.arms import Task, arms_for, ask_program
from numamirror_build.bench.results import Journal, load_results, require_same, state_of
from numamirror_build.bench.run import Plan, measure
from numamirror_build.bench.statistics import Comparison, Summary
from numamirror_build.bench.summary import advice, against, cost_when_off, document, rows_of
from numamirror_build.cli.answers import Answer, table
from numamirror_build.machine.state import State, read_state
from numamirror_build.verify.models import find_model, read_model

if TYPE_CHECKING:
    from numamirror_build.pipeline import Pipeline


def run(
    pipeline: Pipeline,
    model: str,
    *,
    arms: Sequence[str],
    threads: Sequence[int],
    generate: Sequence[int],
    prompt: Sequence[int],
    depth: Sequence[int],
    repetitions: int,
    pretend: int,
    results: Path,
) -> Answer:
    """Measure what is not in the file of results yet, and say what it shows."""
    state = read_state()
    found = find_model(pipeline.store, model, progress=pipeline.progress)
    known = {arm.name: arm for arm in arms_for(state.mirrored, pretend)}
    if unknown := [name for name in arms if name not in known]:
        raise click.UsageError(f"No such arm here: {', '.join(unknown)}. There are: {', '.join(known)}.")
    tests = [
        *(Task("tg", count, before) for count in generate for before in depth),
        *(Task("pp", count, before) for count in prompt for before in depth),
    ]
    chosen = tuple(known[name] for name in arms or known)
    plan = Plan(chosen, tuple(threads or _sweep(state)), tuple(tests), repetitions)
    subject = {
        "tool": __version__,
        "upstream": pipeline.pin.upstream,
        "pin": pipeline.pin.name,
        "commit": pipeline.pin.commit,
        "builds": {"pristine": pipeline.pristine_build.key, "patched": pipeline.patched_build.key},
        "model": {"name": found.name, "bytes": _bytes_of(found.path)},
        "pretend": pretend,
        "state": state_of(state),
    }
    programs = {
        "pristine": ask_program(pipeline.pristine_build.programs["llama-bench"]),
        "patched": ask_program(pipeline.patched_build.programs["llama-bench"]),
    }
    journal = Journal(results.absolute(), subject)
    pipeline.progress.step(f"Measuring {len(plan.points(state))} points")
    measure(plan, programs, found.path, journal, read_state, pipeline.progress)
    made = journal.results()
    return Answer({"results": str(journal.path), **document(made)}, "\n".join(_text(made)))


def _bytes_of(path: Path) -> int:
    """Bytes of all tensors of a model: with its name what tells it from another."""
    return sum(tensor.size for tensor in read_model(path).tensors.values())


def comparison(first: Path, second: Path) -> Answer:
    """Two files of results, series by series; of the same model, on the same machine in the same state."""
    one, other = load_results(first), load_results(second)
    where = f"{first} and {second}"
    require_same(one.state, other.state, "The machine's state", where)
    require_same(one.subject["model"], other.subject["model"], "The model", where)
    require_same(one.subject["pretend"], other.subject["pretend"], "The number of pretended nodes", where)
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


def _sweep(state: State) -> list[int]:
    """All cores, and half of them."""
    cores = sum(node.cores for node in state.mirrored) or 1
    return sorted({max(1, cores // 2), cores})


def _text(made: Any) -> list[str]:
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
    return [*lines, "", *off, *([""] if off else []), *advice(made)]


def _middle(summary: Summary | None) -> str:
    return f"{summary.median:.2f}" if summary else "-"


def _interval(summary: Summary | None) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return ""
    return f"{summary.low:.2f} to {summary.high:.2f}"


def _compared(found: Comparison) -> list[str]:
    return [f"{found.ratio:.3f}", "" if found.p is None else f"{found.p:.2g}", found.verdict]
