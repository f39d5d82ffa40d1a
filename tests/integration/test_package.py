"""The package as it is installed: complete in itself, from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_carries_its_data_and_works_without_the_repository(tmp_path: Path) -> None:
    """Patches, templates and the notice are inside, and a command that reads them runs from elsewhere."""
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
        *(ROOT / "templates").rglob("*.j2"),
    ]
    data = place / "numamirror_build" / "_data"
    assert [path for path in carried if not (data / path.relative_to(ROOT)).is_file()] == []
    code = (
        "import sys, numamirror_build; from numamirror_build.cli.main import run;"
        "print(numamirror_build.__file__, file=sys.stderr); sys.exit(run(['pins', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place), "NUMAMIRROR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stderr.strip()).is_relative_to(place), "it was the installed one that ran"
    assert json.loads(done.stdout)["default"]
