"""Sections of a report, from results of a benchmark, from a verification, and from a trace of the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numamirror_build.bench.results import Results
from numamirror_build.bench.statistics import Summary
from numamirror_build.bench.summary import MIRRORS, advice, cost_when_off, rows_of
from numamirror_build.bench.summary import Row as Series
from numamirror_build.errors import ConfigError
from numamirror_build.report.document import Bar, Plot, Row, Section, Table
from numamirror_build.verify.report import families_of

GIB = 1 << 30


def bench_sections(results: Results) -> list[Section]:
    """Advice, speeds of every series, memory of replicas, the cost when off, and the machine."""
    rows = rows_of(results.measured)
    return [
        Section("Which way to use", tuple(advice(results))),
        *(
            _speeds(test, [row for row in rows if row.test == test])
            for test in dict.fromkeys(r.test for r in rows)
        ),
        *_memory(results),
        *_off(rows),
        _state(results),
    ]


def verification_sections(document: Mapping[str, Any]) -> list[Section]:
    """One for each family of checks.

    Raises:
        ConfigError: it is no verification.
    """
    try:
        return [
            Section(
                family["title"],
                (family["about"],),
                table=Table(
                    ("", "check", "reason"),
                    tuple(
                        Row((check["status"], check["title"], check["reason"] or ""), check["status"])
                        for check in family["checks"]
                    ),
                ),
            )
            for family in families_of(document["checks"])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "This is no report of a verification", why=f"{type(error).__name__}: {error}"
        ) from error


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
        raise ConfigError("This is no trace of the lab", why=f"{type(error).__name__}: {error}") from error
    bars = tuple(Bar(label, 100 * remote / loaded) for label, loaded, remote in shares if loaded)
    table = Table(
        ("phase, class", "bytes loaded", "from other nodes"),
        tuple(Row((label, f"{loaded:,}", f"{remote:,}")) for label, loaded, remote in shares),
        right=(1, 2),
    )
    text = "Counted in the lab, on a machine with several nodes: every load of every thread."
    return [Section("Loads from other nodes", (text,), (Plot("From other nodes", "%", bars),), table)]


def prediction_sections(document: Mapping[str, Any]) -> list[Section]:
    """What ``advise`` expects of each arm, and what it assumes.

    Raises:
        ConfigError: it is no prediction.
    """
    try:
        arms = document["arms"]
        bars = tuple(
            Bar(one["arm"], one["tokens_per_second"], stands_out=one["arm"] in MIRRORS) for one in arms
        )
        table = Table(
            ("arm", "t/s", "bound by", "GiB per node", "fits"),
            tuple(
                Row(
                    (
                        one["arm"],
                        f"{one['tokens_per_second']:.2f}",
                        one["bound"],
                        " + ".join(f"{size / GIB:.1f}" for size in one["memory"]),
                        "yes" if one["fits"] else "no",
                    )
                )
                for one in arms
            ),
            right=(1,),
        )
        read = document["traffic"]["weights_read"] + document["traffic"]["cache_read"]
        text = (
            f"{document['model']} on {document['machine']['name']}: a token reads {read / GIB:.2f} GiB.",
            *document["advice"],
            *document["traffic"]["assumptions"],
            *document["machine"]["assumptions"],
            *(f"{one['arm']}: {one['condition']}" for one in arms if one["condition"]),
        )
    except (KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError("This is no prediction of advise", why=why) from error
    return [Section("What is to be expected", text, (Plot("Tokens per second", "t/s", bars),), table)]


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
    kind = "Generating" if test.startswith("tg") else "Reading a prompt"
    return Section(f"{kind}: {test}", (), (Plot("Tokens per second", "t/s", bars),), table)


def _memory(results: Results) -> list[Section]:
    held: dict[str, Bar] = {}
    for one in results.measured:
        for node in one.facts.get("mirror", {}).get("nodes") or ():
            label = f"{one.point.arm}, node {node['id']}"
            held[label] = Bar(label, node["bytes"] / GIB, stands_out=True)
    if not held:
        return []
    text = "What the runtime's status record says of each replica."
    return [Section("Memory of replicas", (text,), (Plot("On each node", "GiB", tuple(held.values())),))]


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


def _label(row: Series) -> str:
    return f"{row.arm}, {row.threads} threads"


def _interval(summary: Summary | None) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return ""
    return f"{summary.low:.2f} to {summary.high:.2f}"
