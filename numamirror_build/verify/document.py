"""The values a verification ends in: checks, and the document that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SCHEMA = 1

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """One question that verification asked, and its answer.

    Attributes:
        id: stable name, for example ``same-answers/dense-q8_0/mirror-2``.
        title: the question's subject, for people.
        status: ``pass``, ``fail``, or ``skip``.
        reason: why it failed or was skipped; None when it passed.
        facts: the figures behind the answer, JSON-like.
    """

    id: str
    title: str
    status: Status
    reason: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The check for machines."""
        return {
            "id": self.id,
            "title": self.title,
            "status": self.status,
            "reason": self.reason,
            "facts": dict(self.facts),
        }


@dataclass(frozen=True)
class Table:
    """Figures side by side, for people; the checks' facts have them for machines."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def passed(checks: Sequence[Check]) -> bool:
    """Whether no check failed, and at least one passed."""
    statuses = {check.status for check in checks}
    return "fail" not in statuses and "pass" in statuses


@dataclass(frozen=True)
class Verification:
    """What was checked on a patched build, and on its wheel or in the lab.

    Attributes:
        checks: all checks in order.
        tables: figures of several checks side by side.
        subject: what was verified: upstream, commit, plan, builds, wheel or lab, machine; JSON-like.
        report: the JSON file.
        page: the readable page (HTML, complete in itself).
        key: name of the cache entry.
        seconds: how long it took when it was made.
        fresh: whether this run made it.
    """

    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    subject: Mapping[str, Any]
    report: Path
    page: Path
    key: str
    seconds: float
    fresh: bool

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "fail")

    @property
    def passed(self) -> bool:
        """Whether no check failed, and at least one passed."""
        return passed(self.checks)

    def counts(self) -> dict[str, int]:
        """How many checks have each status."""
        return {
            status: sum(check.status == status for check in self.checks)
            for status in ("pass", "fail", "skip")
        }
