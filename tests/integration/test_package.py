"""The package as it is installed: complete in itself, from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


EXPORT = """
import sys
from pathlib import Path
from numamirror_build.patching.export import export_series
from numamirror_build.patching.plan import build_plan
from numamirror_build.rewrite import AccessReport
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.pins import find_pin

pin, here = find_pin("llama.cpp", None), Path.cwd()
nothing = AccessReport((), ())
plan = build_plan(pin, None, "cpu", hook_edits=(), accesses=nothing, new_files=())
checkout = Checkout(pin, here / "empty", None, "path", False, "key", 0.0, True)
print(*export_series(checkout, plan, here / "series"))
"""


def run_installed(place: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder with the installed package."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=place.parent,
        env={**os.environ, "PYTHONPATH": str(place), "NUMAMIRROR_CACHE_DIR": str(place.parent / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_wheel_carries_its_data_and_works_without_the_repository(tmp_path: Path) -> None:
    """Patches, templates and the notice are inside, and what reads them runs from elsewhere."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            tmp_path,
            ROOT,
        ],
        check=True,
    )
    wheel = next(tmp_path.glob("numamirror_build-*.whl"))
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    carried = [
        ROOT / "LICENSE",
        ROOT / "NOTICE",
        *(ROOT / "patches").rglob("*.toml"),
        *(ROOT / "patches").rglob("*.py"),
        *filter(Path.is_file, (ROOT / "templates").rglob("*")),
    ]
    data = place / "numamirror_build" / "_data"
    assert [path for path in carried if not (data / path.relative_to(ROOT)).is_file()] == []
    code = (
        "import sys, numamirror_build; from numamirror_build.cli.main import run;"
        "print(numamirror_build.__file__, file=sys.stderr); sys.exit(run(['pins', '--json']))"
    )
    done = run_installed(place, code)
    assert Path(done.stderr.strip()).is_relative_to(place), "it was the installed one that ran"
    assert json.loads(done.stdout)["default"]
    (patch,) = run_installed(place, EXPORT).stdout.split()
    assert "+# The NUMA mirror" in Path(patch).read_text().splitlines()
