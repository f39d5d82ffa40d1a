"""A verification on disk: JSON for machines, and a page that is complete in itself for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from numamirror_build import data
from numamirror_build.errors import VerificationError
from numamirror_build.store import Entry, write_atomic, write_json
from numamirror_build.verify.document import SCHEMA, Check, Table, Verification, passed

REPORT = "verification.json"
PAGE = "verification.html"

# The first part of a check's id is its family.
FAMILIES = {
    "layout": (
        "The binding fits the library",
        "Sizes and offsets of the structures that are handed over, as the binding declares them and as a "
        "compiler lays them out from the headers. Nothing that the binding returns is trusted before.",
    ),
    "libraries": (
        "The right libraries ran",
        "The files that were mapped into the process, as the kernel lists them.",
    ),
    "repacked": (
        "Weights were repacked",
        "The CPU backend keeps some types in another order; such buffers are replicated as well.",
    ),
    "same-answers": (
        "The answers are unchanged",
        "Logits of every compared position, bit for bit equal to those of the pristine build with the same "
        "prompt, batch and threads. Pristine is run twice: a machine that does not repeat itself shows here.",
    ),
    "engaged": (
        "The replicas are there",
        "What the runtime's status record says: every weight byte and each context's cache, "
        "in as many replicas as asked.",
    ),
    "mutation": (
        "The replicas are read",
        "One replica is left empty on purpose. If the answers did not change, nobody would have read it.",
    ),
    "idle": ("Nothing happens unasked", "The patched libraries without any request for a mirror."),
    "refused": (
        "No silent failure",
        "A mirror that cannot be had ends in an error when the model is loaded.",
    ),
    "cost": (
        "No cost when off",
        "Instructions, counted by valgrind, of builds without the newest instructions.",
    ),
    "wheel": ("The wheel", "Installed in a clean environment, with its own libraries."),
    "lab-answers": (
        "The answers are unchanged on several nodes",
        "Logits on a virtual machine with several nodes, bit for bit equal to those of pristine outside.",
    ),
    "lab-pages": (
        "Replicas lie where they are read",
        "Every page of weights and caches, as that machine's kernel says, and as the status record does.",
    ),
    "lab-threads": (
        "Threads stay on their nodes",
        "The CPUs on which the kernel lets each thread run, while the model is loaded.",
    ),
    "lab-remote": (
        "Replicas are read nearby",
        "Bytes loaded while tokens are generated, counted at each load instruction.",
    ),
    "lab-arms": (
        "What pristine reads from other nodes",
        "The same count for upstream's own options. Nothing is asked but that the count saw their reads.",
    ),
}


def save(
    folder: Path, checks: Sequence[Check], subject: Mapping[str, Any], tables: Sequence[Table] = ()
) -> None:
    """Write both files, each at once or not at all."""
    document = {
        "schema": SCHEMA,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "passed": passed(checks),
        "subject": dict(subject),
        "checks": [check.as_json() for check in checks],
        "tables": [asdict(table) for table in tables],
    }
    write_json(folder / REPORT, document)
    write_atomic(folder / PAGE, page(document))


def load(entry: Entry, key: str) -> Verification:
    """The verification that a cache entry holds."""
    document = json.loads((entry.path / REPORT).read_text())
    return Verification(
        tuple(Check(**check) for check in document["checks"]),
        tuple(
            Table(table["title"], tuple(table["head"]), tuple(map(tuple, table["rows"])))
            for table in document["tables"]
        ),
        document["subject"],
        entry.path / REPORT,
        entry.path / PAGE,
        key,
        entry.seconds,
        entry.fresh,
    )


def verdict(folder: Path, checks: Sequence[Check]) -> VerificationError | None:
    """The error that a verification ends with, whose report is in that folder; None when it has passed."""
    failed = [check for check in checks if check.status == "fail"]
    if not failed:
        return None
    return VerificationError(
        f"{len(failed)} of {len(checks)} checks failed",
        where=str(folder / PAGE),
        why="\n".join(f"{check.id}: {_first_line(check)}" for check in failed[:5]),
        hint="do not use what was built; the page above has the details",
        details={"report": str(folder / REPORT), "failed": [check.id for check in failed]},
    )


def page(document: Mapping[str, Any]) -> str:
    """The page of a report, as HTML without anything to load from elsewhere."""
    loader = jinja2.FileSystemLoader(data.templates() / "report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    checks = document["checks"]
    counts = {
        status: sum(check["status"] == status for check in checks) for status in ("pass", "fail", "skip")
    }
    return environment.get_template("verification.html.j2").render(
        document=document, counts=counts, families=families_of(checks)
    )


def _first_line(check: Check) -> str:
    return (check.reason or "").partition("\n")[0][:200]


def families_of(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Checks by family, in the order of :data:`FAMILIES`, each with a title and what it is about."""
    order = list(FAMILIES)

    def family(check: Mapping[str, Any]) -> str:
        return str(check["id"]).partition("/")[0]

    ordered = sorted(checks, key=lambda check: order.index(family(check)))
    return [
        {"title": FAMILIES[name][0], "about": FAMILIES[name][1], "checks": list(group)}
        for name, group in groupby(ordered, key=family)
    ]
