"""Sections of a report: what is to be expected, with what was measured of the same model beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numamirror_build.bench.results import Results
from numamirror_build.bench.summary import MIRRORS, OFF, best, rows_of
from numamirror_build.bench.summary import Row as Series
from numamirror_build.errors import ConfigError, cause_of
from numamirror_build.report.document import Bar, Mark, Plot, Roof, Roofline, Row, Section, Table

GIB = 1 << 30
GIGA = 1e9

_GENERATING = re.compile(r"(?:tg|tok)\d+(?:x(?P<slots>\d+))?")  # with an empty cache


def prediction_sections(document: Mapping[str, Any], results: Results | None) -> list[Section]:
    """What ``advise`` expects of each arm, what it assumes, and how near that is to the machine's limits.

    Args:
        document: what ``advise --json`` wrote.
        results: what was measured; of another model it is left out.

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
        traffic, machine = document["traffic"], document["machine"]
        read = traffic["weights_read"] + traffic["cache_read"]
        text = (
            f"{document['model']} on {machine['name']}: a token reads {read / GIB:.2f} GiB.",
            *document["advice"],
            *traffic["assumptions"],
            *machine["assumptions"],
            *(f"{one['arm']}: {one['condition']}" for one in arms if one["condition"]),
        )
        same = results if results and results.subject["model"]["name"] == document["model"] else None
        expected = Section("What is to be expected", text, (Plot("Tokens per second", "t/s", bars),), table)
        return [expected, _limits(document, same)]
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError("This is no prediction of advise", why=cause_of(error)) from error


def _limits(document: Mapping[str, Any], results: Results | None) -> Section:
    """A roofline: how many weights are used per second, by how many are used per byte that is read."""
    traffic = document["traffic"]
    elements = traffic["elements_read"]
    intensity = elements / (traffic["weights_read"] + traffic["cache_read"])
    marks = [
        Mark(
            f"{one['arm']}, expected {one['tokens_per_second']:.3g} t/s",
            intensity,
            one["tokens_per_second"] * elements / GIGA,
            stands_out=one["arm"] in MIRRORS,
        )
        for one in document["arms"]
    ]
    if results:
        marks += _measured(rows_of(results.measured), intensity, elements)
    roofs = tuple(_roofs(document["machine"], document["parameters"]))
    values = [node["bandwidth"] for node in document["machine"]["nodes"]]
    values += [value for mark in marks for value in (mark.x, mark.y)]
    values += [value for roof in roofs for value in (roof.slope, roof.ceiling) if value is not None]
    if not all(0 < value < math.inf for value in values):
        raise ValueError("a rate or a bandwidth is not a positive number")
    text = [
        "The lines are what memory and cores could do at best; the arms' threads also wait for each other.",
        "One weight is one multiplication and one addition.",
    ]
    if results:
        text.append("Several requests at once (x4) use what is read so many times: they are further right.")
    plot = Roofline(
        "Expected (circles) and measured (discs)" if results else "Expected",
        "weights used per byte read",
        "billions of weights used per second",
        roofs,
        tuple(marks),
    )
    return Section("How near to the limits", tuple(text), roofline=plot)


def _roofs(machine: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Roof]:
    nodes, clock = machine["nodes"], machine["clock"]

    def roof(label: str, bandwidth: float, cores: int) -> Roof:
        ceiling = cores * clock * parameters["elements_per_cycle"] / GIGA if clock else None
        return Roof(label, bandwidth / GIGA, ceiling)

    best_node = max(nodes, key=lambda node: float(node["bandwidth"]))
    if len(nodes) > 1:
        cores = sum(node["cores"] for node in nodes)
        yield roof("all nodes, each its own memory", sum(node["bandwidth"] for node in nodes), cores)
    yield roof("one node", best_node["bandwidth"], best_node["cores"])
    if len(nodes) > 1:
        yield Roof("the link between nodes", machine["remote_share"] * best_node["bandwidth"] / GIGA)


def _measured(rows: Sequence[Series], intensity: float, elements: int) -> Iterator[Mark]:
    """The best of each arm at generating, one request or several."""
    for test in dict.fromkeys(row.test for row in rows):
        found = _GENERATING.fullmatch(test)
        if not found:
            continue
        slots = int(found["slots"] or 1)
        for arm in dict.fromkeys(row.arm for row in rows if row.arm != OFF):
            row = best([row for row in rows if (row.arm, row.test) == (arm, test)])
            if row and row.summary:
                rate = row.summary.median
                yield Mark(
                    f"{arm}, {test} {rate:.3g} t/s",
                    slots * intensity,
                    rate * elements / GIGA,
                    measured=True,
                    stands_out=arm in MIRRORS,
                )
