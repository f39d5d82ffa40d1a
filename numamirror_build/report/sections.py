"""Sections of a report: from results of a benchmark, from a verification, and from a trace of the lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numamirror_build.bench.results import Results
from numamirror_build.bench.statistics import Summary
from numamirror_build.bench.summary import MIRRORS, advice, cost_when_off, placements_of, rows_of
from numamirror_build.bench.summary import Row as Series
from numamirror_build.errors import ConfigError, cause_of
from numamirror_build.report.document import Bar, Plot, Row, Section, Table
from numamirror_build.verify.report import families_of

MIB = 1 << 20
GIB = 1 << 30

_STATUS = {"pass": "✓ pass", "fail": "✗ FAIL", "skip": "- skip"}
_KINDS = {"tg": "Generating", "pp": "Reading a prompt", "tok": "Generating through the binding"}
_CLASSES = {"weights": "Weights", "kv": "KV cache"}


def bench_sections(results: Results) -> list[Section]:
    """Advice, speeds of every series, memory of replicas, the cost when off, and the machine."""
    rows = rows_of(results.measured)
    return [
        Section("Which way to use", tuple(advice(results))),
        *(
            _speeds(test, [row for row in rows if row.test == test])
            for test in dict.fromkeys(r.test for r in rows)
        ),
        *_tokens(rows),
        *_memory(results),
        *_off(rows),
        _state(results),
    ]


def verification_sections(document: Mapping[str, Any]) -> list[Section]:
    """What was verified, how much came from other nodes in the lab, and one for each family of checks.

    Raises:
        ConfigError: it is no verification.
    """
    try:
        checks = document["checks"]
        families = families_of(checks)
        counts = [
            Bar(family["title"], sum(check["status"] == "pass" for check in family["checks"]))
            for family in families
        ]
        return [
            _verified(document["subject"], Plot("Checks that passed", "", tuple(counts))),
            *_loads_in_lab(checks),
            *(_family(family) for family in families),
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError("This is no report of a verification", why=cause_of(error)) from error


def _family(family: Mapping[str, Any]) -> Section:
    rows = tuple(
        Row((_STATUS[check["status"]], check["title"], check["reason"] or ""), check["status"])
        for check in family["checks"]
    )
    return Section(family["title"], (family["about"],), table=Table(("", "check", "reason"), rows))


def _verified(subject: Mapping[str, Any], plot: Plot) -> Section:
    machine = subject.get("machine", {})
    facts = {
        "commit": subject.get("commit"),
        "plan": subject.get("plan"),
        "wheel": subject.get("wheel", {}).get("file"),
        "matrix": subject.get("level"),
        "models": ", ".join(model["name"] for model in subject.get("models", ())),
        "builds": ", ".join(f"{name} {key}" for name, key in subject.get("builds", {}).items()),
        "lab": ", ".join(map(str, subject.get("lab", {}).values())),
        "machine": ", ".join(f"{name} {value}" for name, value in machine.items()),
    }
    rows = tuple(Row((name, str(value))) for name, value in facts.items() if value)
    return Section("What was verified", (), (plot,), Table(("", ""), rows))


def _loads_in_lab(checks: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Plots of what each arm read from other nodes, a plot for each machine and class."""
    shares: dict[str, list[Bar]] = {}
    for check in checks:
        family, *where = check["id"].split("/")
        if family not in ("lab-remote", "lab-arms") or "generation" not in check["facts"]:
            continue
        machine, arm, model = where
        for what, figures in check["facts"]["generation"].items():
            share = Bar(f"{arm}, {model}", 100 * figures["remote_share"], stands_out=arm in MIRRORS)
            shares.setdefault(f"{_CLASSES.get(what, what)}, {machine}", []).append(share)
    plots = tuple(Plot(title, "% from other nodes", tuple(bars)) for title, bars in shares.items())
    text = "Counted in the lab at each load instruction, while tokens are generated."
    return [Section("Loads from other nodes", (text,), plots)] if plots else []


def trace_sections(document: Mapping[str, Any]) -> list[Section]:
    """Which part of what was loaded came from other nodes, by phase and class.

    Raises:
        ConfigError: it is no trace.
    """
    try:
        shares = [
            (f"{phase}, {what}", one["loaded"], one["loaded_remotely"])
            for phase, classes in document["loads"].items()
            for what, one in classes.items()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError("This is no trace of the lab", why=cause_of(error)) from error
    bars = tuple(Bar(label, 100 * remote / loaded) for label, loaded, remote in shares if loaded)
    table = Table(
        ("phase, class", "bytes loaded", "from other nodes"),
        tuple(Row((label, f"{loaded:,}", f"{remote:,}")) for label, loaded, remote in shares),
        right=(1, 2),
    )
    text = "Counted in the lab, on a machine with several nodes: every load of every thread."
    return [Section("Loads from other nodes", (text,), (Plot("From other nodes", "%", bars),), table)]


def _speeds(test: str, rows: list[Series]) -> Section:
    bars = tuple(
        Bar(_label(row), made.median, made.low, made.high, row.arm in MIRRORS)
        for row in rows
        if (made := row.summary)
    )
    table = Table(
        ("arm", "threads", "t/s", "95 % interval", "runs", "failed"),
        tuple(
            Row(
                (
                    row.arm,
                    str(row.threads),
                    f"{row.summary.median:.2f}" if row.summary else "",
                    _interval(row.summary),
                    str(len(row.samples)),
                    row.failed[0] if row.failed else "",
                )
            )
            for row in rows
        ),
        right=(1, 2, 4),
    )
    kind = next(words for beginning, words in _KINDS.items() if test.startswith(beginning))
    return Section(f"{kind}: {test}", (), (Plot("Tokens per second", "t/s", bars),), table)


def _tokens(rows: list[Series]) -> list[Section]:
    """Times of single tokens: the median, and as the interval what all but one of twenty are within."""
    made = []
    for test in dict.fromkeys(row.test for row in rows):
        timed = [(row, row.times) for row in rows if row.test == test and row.times]
        if not timed:
            continue
        bars = tuple(
            Bar(_label(row), times.median, times.median, times.slow, row.arm in MIRRORS)
            for row, times in timed
        )
        table = Table(
            ("arm", "threads", "first token", "median", "95 %", "slowest"),
            tuple(
                Row((row.arm, str(row.threads), *(f"{ms:.2f}" for ms in times.as_json().values())))
                for row, times in timed
            ),
            right=(1, 2, 3, 4, 5),
        )
        text = "Of all repetitions; the line goes from the median to what one token of twenty exceeds."
        made.append(Section(f"Each token: {test}", (text,), (Plot("Time of a token", "ms", bars),), table))
    return made


def _memory(results: Results) -> list[Section]:
    replicas = {
        f"{one.point.arm}, node {node['id']}": (one.point.arm, node["bytes"])
        for one in results.measured
        for node in (one.facts.get("mirror") or {}).get("nodes") or ()
    }
    processes, models = (
        {
            f"{arm}, node {node}": (arm, size)
            for arm, nodes in placements_of(results.measured, what).items()
            for node, size in nodes.items()
        }
        for what in ("whole", "model")
    )
    plots = [
        _sizes(title, sizes)
        for title, sizes in (
            ("Memory of a process on each node, after the test, as the kernel counts it", processes),
            ("The model's file, where it is mapped", models),
            ("Replicas, as the runtime's status record says", replicas),
        )
        if sizes
    ]
    text = ("What is mapped from the page cache counts, too: it is where it was first read.",)
    return [Section("Memory of each node", text if processes else (), tuple(plots))] if plots else []


def _sizes(title: str, sizes: Mapping[str, tuple[str, int]]) -> Plot:
    """Bytes by label, each with its arm."""
    most = max(size for _, size in sizes.values())
    unit, name = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    bars = (Bar(label, size / unit, stands_out=arm in MIRRORS) for label, (arm, size) in sizes.items())
    return Plot(title, name, tuple(bars))


def _off(rows: list[Series]) -> list[Section]:
    found = cost_when_off(rows)
    if not found:
        return []
    table = Table(
        ("test", "threads", "ratio", "p", ""),
        tuple(
            Row(
                (test, str(threads), f"{one.ratio:.3f}", "" if one.p is None else f"{one.p:.2g}", one.verdict)
            )
            for test, threads, one in found
        ),
        right=(1, 2, 3),
    )
    text = "The patched program without a mirror, against upstream's: 1 is no cost."
    return [Section("Without a mirror", (text,), table=table)]


def _state(results: Results) -> Section:
    state = results.state
    nodes = [
        f"node {node['id']}: CPUs {node['usable']}, {node['total'] / GIB:.1f} GiB"
        for node in state.get("nodes", ())
    ]
    builds = results.subject.get("builds", {})
    facts = {
        "model": results.subject.get("model", {}).get("name"),
        "upstream": f"{results.subject.get('upstream')} {results.subject.get('commit')}",
        "builds": ", ".join(f"{name} {key}" for name, key in builds.items()),
        "processor": state.get("processor"),
        "kernel": state.get("kernel"),
        "nodes": "; ".join(nodes),
        "pretended nodes": results.subject.get("pretend"),
        "lab": _emulated(results.subject.get("lab")),
        "numa_balancing": state.get("numa_balancing"),
        "huge pages": state.get("huge_pages"),
        "governor": ", ".join(state.get("governors", ())),
        "memory policy": state.get("policy"),
    }
    rows = tuple(
        Row((name, str(value)))
        for name, value in facts.items()
        if value not in (None, "", 0) or name == "numa_balancing"
    )
    return Section("What was measured on", table=Table(("", ""), rows))


def _emulated(lab: Mapping[str, Any] | None) -> str:
    return (
        f"an emulated machine with {len(lab['layout']['nodes'])} nodes, Linux {lab['kernel']}" if lab else ""
    )


def _label(row: Series) -> str:
    return f"{row.arm}, {row.threads} threads"


def _interval(summary: Summary | None) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return ""
    return f"{summary.low:.2f} to {summary.high:.2f}"
