"""``report``: which files are reported on, and what is written."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from numamirror_build import __version__
from numamirror_build.bench.results import load_results
from numamirror_build.cli.answers import Answer
from numamirror_build.errors import ConfigError, content_as_error
from numamirror_build.report.document import Report, Section, Status
from numamirror_build.report.prediction import prediction_sections
from numamirror_build.report.render import markdown, page
from numamirror_build.report.sections import bench_sections, trace_sections, verification_sections
from numamirror_build.store import json_text, write_together

NAME = "report"


def write(
    folder: Path,
    *,
    results: Path | None,
    verification: Path | None,
    trace: Path | None,
    prediction: Path | None,
) -> Answer:
    """Write a report of what is given: as a page, as Markdown, and as JSON."""
    given = [path for path in (results, prediction, verification, trace) if path]
    with content_as_error(*given):
        made = _report(results, prediction, verification, trace)
        html, text = page(made).encode(), markdown(made).encode()
    contents: dict[str, bytes | str] = {"html": html, "md": text, "json": json_text(made.as_json())}
    paths = {kind: folder.absolute() / f"{NAME}.{kind}" for kind in contents}
    write_together({paths[kind]: content for kind, content in contents.items()})
    written = {kind: str(path) for kind, path in paths.items()}
    return Answer({"report": written, "status": made.status}, "\n".join(written.values()))


def _report(
    results: Path | None, prediction: Path | None, verification: Path | None, trace: Path | None
) -> Report:
    sections: list[Section] = []
    titles: list[str] = []
    verdicts: list[str] = []
    status: Status = ""
    measured = load_results(results) if results else None
    if measured:
        sections += bench_sections(measured)
        titles.append(f"What the mirror brings: {measured.subject['model']['name']}")
        failed = sum(one.outcome == "failed" for one in measured.measured)
        verdicts.append(f"{len(measured.measured)} points measured, {failed} of them failed.")
    if prediction:
        expected = _read(prediction)
        sections += prediction_sections(expected, measured)
        if not measured or measured.subject["model"]["name"] != expected["model"]:
            titles.append(f"What to expect of {expected['model']}")
    if verification:
        document = _read(verification)
        sections += verification_sections(document)
        counts = [
            sum(check["status"] == status for check in document["checks"])
            for status in ("pass", "fail", "skip")
        ]
        subject = document["subject"]
        titles.append(f"Verification of {subject['upstream']} {subject['pin']}")
        verdicts.append("{} checks passed, {} failed, {} skipped.".format(*counts))
        status = "pass" if document["passed"] else "fail"
    if trace:
        sections += trace_sections(_read(trace))
        titles.append("Loads from other nodes")
    if not titles:
        raise click.UsageError("Say what to report on: --results, --prediction, --verification or --trace.")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Report(
        " · ".join(titles),
        " ".join(verdicts),
        status,
        f"{now} by numamirror-build {__version__}",
        tuple(sections),
    )


def _read(path: Path) -> Any:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError("A file to report on is no JSON", where=str(path), why=str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError("A file to report on is no document", where=str(path), why="it has no keys")
    return document
