"""The page and the Markdown of a report."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from numamirror_build import proc
from numamirror_build.report import roofline
from numamirror_build.report.document import Bar, Mark, Plot, Report, Roof, Roofline, Row, Section, Table
from numamirror_build.report.render import BARS, draw, markdown, page
from numamirror_build.verify import report as verification
from tests.unit.verify.test_report import BAD, GOOD, SUBJECT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PLOT = Plot("Speed", "t/s", (Bar("none, 2 <threads>", 10, 9, 12.5), Bar("mirror", 15, stands_out=True)))
TABLE = Table(("arm", "t/s"), (Row(("a|b", "1.5")), Row(("<c>", "2"), "fail")), right=(1,))
ROOFLINE = Roofline(
    "Limits",
    "x unit",
    "y unit",
    (Roof("both <nodes>", 200, 1000), Roof("link", 40)),
    (Mark("none", 1.5, 50), Mark("mirror", 1.5, 220, stands_out=True), Mark("m x4", 6, 700, True, True)),
)
SECTIONS = (
    Section("One", ("text",), (PLOT,), TABLE),
    Section("Two", (), (PLOT,)),
    Section("Three", ("a", "b"), roofline=ROOFLINE),
)
REPORT = Report("What & why", "Fine.", "pass", "today", SECTIONS)


def test_places() -> None:
    """Bars begin at zero and are as long as their values; the axis ends at a round number."""
    drawing = draw(PLOT)
    assert [text for text, _ in drawing.ticks] == ["0", "5", "10", "15", "20", "25"]
    per_unit = drawing.bars[0].width / 10
    assert drawing.bars[1].width == pytest.approx(15 * per_unit)
    assert drawing.bars[0].interval == pytest.approx((9 * per_unit, 12.5 * per_unit))
    assert drawing.bars[1].interval is None
    assert drawing.ticks[-1][1] <= BARS
    assert all(bar.width <= BARS for bar in drawing.bars)


@pytest.mark.parametrize(
    ("most", "last"), [(0, 5), (1, 1), (3, 5), (99, 100), (101, 125), (0.093, 0.1), (1e12, 1e12)]
)
def test_the_axis_reaches_the_largest(most: float, last: float) -> None:
    """It ends at the next of a few round numbers, whatever the size; a plot of zeros has an axis, too."""
    text, place = draw(Plot("", "", (Bar("x", most),))).ticks[-1]
    assert float(text) == pytest.approx(last)
    assert place == pytest.approx(BARS)


def test_an_empty_plot() -> None:
    """Without bars there is nothing to fail on."""
    assert draw(Plot("", "", ())).bars == ()


def test_room_for_labels() -> None:
    """The longest label has room to the left of the bars."""
    short, long = (draw(Plot("", "", (Bar("x" * count, 1),))) for count in (3, 40))
    assert short.left < long.left and long.left > 40 * 7
    assert long.width - long.left == short.width - short.left


def test_a_roofline() -> None:
    """Equal factors are equal distances; a roof with a ceiling has a knee; a mark on a roof is on it."""
    drawing = roofline.draw(ROOFLINE)
    xs = {mark.mark.label: mark.x for mark in drawing.marks}
    assert xs["none"] == xs["mirror"] < xs["m x4"]
    ticks = dict(drawing.x_ticks)
    assert ticks["2"] - ticks["1"] == pytest.approx(ticks["10"] - ticks["5"], abs=0.3)
    heights = [mark.y for mark in drawing.marks]
    assert [mark.mark.label for mark in drawing.marks] == ["m x4", "mirror", "none"]
    assert heights == sorted(heights)
    both, link = drawing.roofs
    assert len(both.points.split()) == 3, "a slope and a ceiling"
    assert len(link.points.split()) == 2, "a slope alone"
    assert both.turned == pytest.approx(link.turned, abs=0.5) and both.turned < 0
    # a mark on a roof is on its line
    on_it = roofline.draw(replace(ROOFLINE, marks=(Mark("m", 100, 1000), Mark("n", 1, 100))))
    ceiling = float(on_it.roofs[0].points.split()[-1].split(",")[1])
    assert on_it.marks[0].y == pytest.approx(ceiling)


@pytest.mark.parametrize("count", [1, 5, 20, 40])
def test_labels_of_a_roofline(count: int) -> None:
    """Many marks at one place have labels apart from each other, within the plot."""
    marks = tuple(Mark(str(number), 1, 10) for number in range(count))
    drawing = roofline.draw(replace(ROOFLINE, marks=marks))
    labels = [mark.label for mark in drawing.marks]
    assert all(after - before >= roofline.LINE for before, after in pairwise(labels))
    assert labels[0] >= 0 and labels[-1] <= drawing.bottom < drawing.height


def test_the_page_is_complete_in_itself() -> None:
    """Nothing is loaded, nothing runs, and what is written is text."""
    text = page(REPORT)
    assert not re.search(r"<(script|link|img|iframe)|\b(src|href)=|url\(|@import", text)
    assert "What &amp; why" in text and "none, 2 &lt;threads&gt;" in text and "<c>" not in text
    assert text.count("<svg") == 3
    assert text.count('class="bar out"') == 2
    assert text.count("<circle") == 3 and "both &lt;nodes&gt;" in text


def test_dark_mode_and_print() -> None:
    """Both are provided for, in both kinds of pages."""
    for text in (page(REPORT), verification.page(made_up_verification())):
        assert "prefers-color-scheme: dark" in text
        assert "@media print" in text


def test_markdown() -> None:
    """Tables are tables, special characters are text, and a plot without a table becomes one."""
    text = markdown(REPORT)
    assert text.startswith("# What & why\n\nFine.\n")
    assert "| arm | t/s |\n| --- | ---: |\n| a\\|b | 1.5 |\n| \\<c\\> | 2 |" in text
    assert "| mirror | 15 |" in text
    assert "| m x4 | 6 | 700 |" in text
    assert "| limit: both \\<nodes\\> | | 200 per unit, at most 1e+03 |" in text


def made_up_verification() -> dict[str, object]:
    """The document of a verification."""
    checks = [check.as_json() for check in (GOOD, BAD)]
    return {"schema": 1, "made": "today", "passed": False, "subject": SUBJECT, "checks": checks}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("kind", ["report", "verification"])
def test_in_a_browser(tmp_path: Path, kind: str) -> None:
    """Chromium shows it without a message on its console or a request, with its plots; it prints it, too."""
    assert CHROMIUM
    text = page(REPORT) if kind == "report" else verification.page(made_up_verification())
    # counts what the browser sees: elements that have a size, and requests that it made
    probe = """<script>
        const bars = [...document.querySelectorAll("svg rect, svg circle")];
        document.body.dataset.drawn = bars.filter(one => one.getBoundingClientRect().width > 0).length;
        document.body.dataset.requests = performance.getEntriesByType("resource").length;
        document.body.dataset.wide = document.documentElement.scrollWidth > window.innerWidth;
    </script></body>"""
    (tmp_path / "page.html").write_text(text.replace("</body>", probe))
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={tmp_path}/profile", "--enable-logging=stderr", "--window-size=900,800"]
    address = (tmp_path / "page.html").as_uri()
    done = proc.run([*command, "--dump-dom", address], timeout=300)
    assert done.returncode == 0, done.output
    assert ":CONSOLE:" not in done.output
    drawn = 7 if kind == "report" else 0
    assert f'data-drawn="{drawn}" data-requests="0" data-wide="false"' in done.output
    proc.run([*command, f"--print-to-pdf={tmp_path}/page.pdf", address], timeout=300)
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
