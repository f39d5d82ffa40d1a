"""What ``regress`` answers, and the files that it writes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from numamirror_build import data
from numamirror_build.cli.answers import Answer, table, without_passwords
from numamirror_build.config import APP, OPTIONS, Settings, key_of, usable_cpus
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.regress.report import junit, page, table_of, why
from numamirror_build.regress.run import Regression, parallel_by_default, run_regression
from numamirror_build.regress.steps import Level
from numamirror_build.store import check_writable, write_atomic
from numamirror_build.upstreams.pins import find_pin, load_pins

_DECISIVE = ("upstream", "source", "git_url", "scope", "cmake_arg", "model")
"""The settings that the results depend on."""


def regress(
    pipeline: Pipeline,
    settings: Settings,
    *,
    level: Level,
    defaults: Level | None,
    pins: Sequence[str],
    parallel: int | None,
    junit_file: Path | None,
    page_file: Path | None,
) -> Answer:
    """Run a regression; the table, and an exit code that says whether all passed."""
    check_writable(*(file for file in (junit_file, page_file) if file))
    named = "upstream" in settings.origins
    upstreams = [settings.upstream] if named or pins else data.upstream_names()
    made = run_regression(
        pipeline.store,
        _requests(pipeline.request, upstreams, pins, level),
        level,
        defaults=defaults,
        parallel=parallel or (1 if level == "plan" else parallel_by_default(usable_cpus())),
        progress=pipeline.progress,
    )
    if junit_file:
        write_atomic(junit_file, junit(made))
    if page_file:
        write_atomic(page_file, page(made, _command(level, defaults, settings, pins)))
    return Answer(made.as_json(), _text(made), made.exit_code)


def _requests(request: Request, upstreams: Sequence[str], pins: Sequence[str], level: Level) -> list[Request]:
    return [
        replace(request, upstream=upstream, pin=pin)
        for upstream in upstreams
        for pin in _names(upstream, pins, level)
    ]


def _names(upstream: str, wanted: Sequence[str], level: Level) -> list[str]:
    if wanted:
        pins = {find_pin(upstream, name): None for name in wanted}
        return [pin.name if pin.listed else pin.commit for pin in pins]
    listed = load_pins(upstream)
    if level in ("plan", "audit"):  # releases of one commit are one tree; their wheels differ
        return list({pin.commit: pin.name for pin in listed}.values())
    return [pin.name for pin in listed]


def _command(level: Level, defaults: Level | None, settings: Settings, pins: Sequence[str]) -> str:
    """What makes the table again, with the settings that count wherever they stood, but no password."""
    words = [f"./{APP}", "regress"]
    for name in _DECISIVE:
        if name in settings.origins:
            value = getattr(settings, name)
            for text in value if OPTIONS[name].kind == "texts" else [value]:
                words += [f"--{key_of(name)}", without_passwords(text)]
    words += ["--pins", ",".join(pins)] if pins else []
    words += ["--level", level, *(["--defaults", defaults] if defaults else [])]
    return shlex.join(words)


def _text(made: Regression) -> str:
    head, rows = table_of(made)
    lines = table(head, rows, right=(3, *range(5, len(head))))
    for result in made.results:
        if step := result.failed:
            lines += ["", f"{result.upstream} {result.pin}: {step.name} failed", *why(step)]
    passed = sum(result.passed for result in made.results)
    lines += ["", f"{passed} of {len(made.results)} pins passed, {made.seconds:.0f} s"]
    return "\n".join(lines)
