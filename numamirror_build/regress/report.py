"""A regression as a table, as a page of the docs, and as JUnit XML for CI."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

from numamirror_build.config import APP
from numamirror_build.regress.run import Regression
from numamirror_build.regress.steps import PinResult, Step
from numamirror_build.upstreams.pins import Pin, load_pins


def page(regression: Regression, command: str) -> str:
    """The table as Markdown."""
    head, rows = table_of(regression)
    lines = [
        f"<!-- Written by `{APP} regress`. Run it again, do not edit. -->",
        "",
        "# All pins",
        "",
        "```sh",
        command,
        "```",
        "",
        "Accesses are those to a tensor's data; the change is that from the line before.",
        "Times are seconds of clock when the step was made, in this run or an earlier one",
        "(for a plan in this run, where it may have been read from the cache),",
        "on a machine that did other work, too; a compiler's cache may have helped.",
        "Where a row ends early, the pin was to go no further.",
        "",
        *("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]),
    ]
    for result in regression.results:
        if same := [pin.name for pin in load_pins(result.upstream) if _is_another(pin, result)]:
            lines += ["", f"{result.upstream} {', '.join(same)}: the commit of {result.pin}."]
    for result in regression.results:
        if step := result.failed:
            lines += [
                "",
                f"## {result.upstream} {result.pin}: {step.name} failed",
                "",
                "```",
                *why(step),
                "```",
            ]
    return _printable("\n".join(lines) + "\n")


def _printable(text: str) -> str:
    """A text with escapes for what XML cannot have, and no page should: control characters, broken UTF-8."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _is_another(pin: Pin, result: PinResult) -> bool:
    return pin.commit == result.commit and pin.name != result.pin


def junit(regression: Regression) -> str:
    """One suite per pin, one case per step."""
    root = ElementTree.Element("testsuites", name=f"{APP} regress", time=f"{regression.seconds:.3f}")
    for result in regression.results:
        name = f"{result.upstream}.{result.pin}"
        counts = {
            status: sum(step.status == status for step in result.steps) for status in ("fail", "not run")
        }
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(result.steps)),
            failures=str(counts["fail"]),
            errors="0",
            skipped=str(counts["not run"]),
            time=f"{sum(step.seconds for step in result.steps):.3f}",
        )
        for step in result.steps:
            case = ElementTree.SubElement(
                suite, "testcase", classname=name, name=step.name, time=f"{step.seconds:.3f}"
            )
            if step.status == "fail":
                what = str((step.error or {}).get("what", ""))
                failure = ElementTree.SubElement(case, "failure", message=what)
                failure.text = "\n".join(why(step))
            elif step.status == "not run":
                ElementTree.SubElement(case, "skipped", message="an earlier step failed")
    ElementTree.indent(root)
    return _printable(ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def table_of(regression: Regression) -> tuple[list[str], list[list[str]]]:
    """Head and rows, one per pin."""
    names = list(dict.fromkeys(step.name for result in regression.results for step in result.steps))
    rows = [
        [
            f"{result.upstream} {result.pin}",
            result.commit[:12],
            (result.date or "")[:10],
            str(sum(result.sites.values())) if result.sites else "",
            _change(change),
            *(_cell(result, name) for name in names),
        ]
        for result, change in zip(regression.results, regression.changes(), strict=True)
    ]
    return ["pin", "commit", "date", "accesses", "change", *names], rows


def _change(change: Mapping[str, Mapping[str, int]]) -> str:
    by_file = {path: sum(counts.values()) for path, counts in change.items()}
    if not any(by_file.values()):
        return ""
    more = sum(number for number in by_file.values() if number > 0)
    fewer = sum(number for number in by_file.values() if number < 0)
    counts = " ".join(f"{number:+}" for number in (more, fewer) if number)
    return f"{counts} in {len(by_file)} file{'s' if len(by_file) > 1 else ''}"


def _cell(result: PinResult, name: str) -> str:
    step = next((step for step in result.steps if step.name == name), None)
    if step is None:
        return ""
    if step.status != "pass":
        return "FAILED" if step.status == "fail" else "not run"
    return f"{step.seconds:.1f}"


def why(step: Step) -> list[str]:
    """What a failed step says, without the hint."""
    error = step.error or {}
    parts = [error.get("what"), error.get("where"), error.get("why")]
    return [line for part in parts if part for line in str(part).splitlines()]
