"""Tables that other people have published."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.advise.platform import load_platform
from numamirror_build.bench.published import known_tables, load_table
from numamirror_build.errors import ConfigError
from tests.unit.advise.published import PUBLISHED

GOOD = """
name = "n"
source = "s"
machine = "m"
baseline = "isolate"
[[row]]
model = "a-b Q4_K_M"
without = 4
mirror = 6
"""
ALONE = GOOD.replace("without = 4\nmirror = 6", "ratio = 1.5")


def test_what_the_package_has() -> None:
    """Every table says where it is from, and has the figures that the prediction is held against."""
    tables = {name: load_table(name) for name in known_tables()}
    assert set(tables) == {"2x-epyc-9275f", "2x-xeon-6248r"}
    for published in PUBLISHED:
        (line,) = (line for line in tables[published.machine].lines if line.is_for(published.name))
        assert line.ratio == pytest.approx(published.ratio)
    assert sum(len(table.lines) for table in tables.values()) == len(PUBLISHED)
    for name, table in tables.items():
        assert load_platform(name) and len(table.source) > 40 and table.as_json()["lines"]


def test_a_file(tmp_path: Path) -> None:
    """A ratio follows from rates; a model is known however its name is written."""
    path = tmp_path / "t.toml"
    path.write_text(GOOD)
    (line,) = load_table(str(path)).lines
    assert (line.without, line.mirror, line.ratio) == (4, 6, 1.5)
    path.write_text(ALONE)
    (alone,) = load_table(str(path)).lines
    assert (alone.without, alone.mirror, alone.ratio) == (None, None, 1.5)
    assert line.is_for("A_B-q4_k_m") and not line.is_for("a-b Q4_K_S")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (GOOD.replace('source = "s"', ""), "source"),
        (GOOD + "ratios = 1", "unknown keys: ratios"),
        (GOOD.replace("mirror = 6", ""), "mirror"),
        (GOOD.replace("without = 4", "without = 0"), "not a positive number: 0"),
        (GOOD.replace("without = 4", "without = inf"), "not a positive number: inf"),
        (GOOD.replace("without = 4", "without = 1e-308").replace("= 6", "= 1e308"), "number: inf"),
        (GOOD + "ratio = 1.5", "a ratio stands alone"),
        (ALONE.replace("1.5", "nan"), "not a positive number: nan"),
        (ALONE.replace("1.5", "-1"), "not a positive number: -1"),
        (GOOD.replace("without = 4", "without = 'x'"), "ValueError"),
        ("name = ", "not valid TOML"),
    ],
)
def test_what_is_no_table(tmp_path: Path, content: str, why: str) -> None:
    """What is missing or wrong is named, with the file."""
    path = tmp_path / "t.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_table(str(path))
    assert why in str(caught.value) and str(path) in str(caught.value)


def test_no_such_table() -> None:
    """Those that there are are named."""
    with pytest.raises(ConfigError, match="2x-xeon-6248r"):
        load_table("elsewhere.toml")
