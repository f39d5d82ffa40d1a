"""A regression as a page and as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from numamirror_build.regress.report import junit, page, table_of
from numamirror_build.regress.steps import Step
from numamirror_build.upstreams.pins import load_pins
from tests.unit.regress.made_up import REGRESSION, result


def test_a_row_per_pin_and_a_column_per_step() -> None:
    """Accesses, what changed, the seconds of each step, and which failed."""
    head, rows = table_of(REGRESSION)
    assert head == ["pin", "commit", "date", "accesses", "change", "checkout", "plan", "apply"]
    assert rows[0] == ["llama.cpp 1", "c" * 12, "2026-01-02", "3", "", "1.2", "", ""]
    assert rows[1][3:6] == ["6", "+4 -1 in 2 files", "1.2"]
    assert rows[2][3:] == ["", "", "1.2", "FAILED", "not run"]


def test_junit_has_a_case_per_step() -> None:
    """Suites, cases, failures and skipped ones as CI systems read them; the text is escaped."""
    root = ElementTree.fromstring(junit(REGRESSION))
    assert [suite.get("name") for suite in root] == ["llama.cpp.1", "llama.cpp.2", "llama.cpp.3"]
    last = root[2]
    assert {name: last.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.750",
    }
    assert [case.get("name") for case in last] == ["checkout", "plan", "apply"]
    failure = last.find("testcase/failure")
    assert failure is not None and failure.get("message") == "It <failed>"
    assert failure.text == "It <failed>\na.c\nx\ny"
    assert last.find("testcase[@name='apply']/skipped") is not None


ODD = "a\x1b[31m\x00\udcff\ufffe\tz"


def test_any_text_can_be_written() -> None:
    """Control characters and bytes that are no text have escapes: XML is valid, the page is UTF-8."""
    step = Step("checkout", "fail", error={"exit_code": 12, "what": ODD, "where": ODD, "why": ODD})
    regression = replace(REGRESSION, results=(result("1", step),))
    text = junit(regression)
    failure = ElementTree.fromstring(text.encode()).find(".//failure")
    assert failure is not None and failure.get("message") == "a\\x1b[31m\\x00\\udcff\\ufffe\tz"
    assert "a\\x1b[31m\\x00\\udcff\\ufffe\tz" in page(regression, f"x {ODD}").encode().decode()


def test_the_page_names_releases_of_the_same_commit() -> None:
    """A release that is no line of the table is named with the one that is."""
    *others, last = load_pins("ik_llama.cpp")
    result = replace(REGRESSION.results[0], upstream="ik_llama.cpp", pin=last.name, commit=last.commit)
    text = page(replace(REGRESSION, results=(result,)), "./numamirror-build regress")
    names = ", ".join(pin.name for pin in others)
    assert text.endswith(f"\n\nik_llama.cpp {names}: the commit of {last.name}.\n")


def test_the_page_names_the_command() -> None:
    """A reader can make it again; what failed has its reason below the table."""
    text = page(REGRESSION, "./numamirror-build regress")
    assert "```sh\n./numamirror-build regress\n```" in text
    assert "| llama.cpp 2 | cccccccccccc | 2026-01-02 | 6 | +4 -1 in 2 files | 1.2 |  |  |" in text
    assert "## llama.cpp 3: plan failed\n\n```\nIt <failed>\na.c\nx\ny\n```" in text
