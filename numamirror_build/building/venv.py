"""Virtual environments with the wheel installed, for checks that use the binding as its users do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numamirror_build.building.wheel import Wheel
from numamirror_build.errors import WheelError
from numamirror_build.proc import run
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest

REQUIREMENTS = ("numpy", "pytest")


def make_venv(
    store: Store, wheel: Wheel, *, requirements: tuple[str, ...] = REQUIREMENTS, progress: Progress
) -> Path:
    """The Python executable of a virtual environment with the wheel and what it depends on.

    Dependencies come from the package index that pip is configured for. The environment is kept in the cache.

    Args:
        store: the cache.
        wheel: what to install.
        requirements: what to install beside it.
        progress: told what goes on.

    Raises:
        WheelError: pip could not install it.
        DiskFullError: no space left.
    """

    def maker(folder: Path) -> Mapping[str, Any]:
        progress.step(f"Installing {wheel.path.name} in an environment of its own")
        log = folder / "install.log"
        python = folder / "bin/python"
        created = run([sys.executable, "-m", "venv", "--without-pip", folder], log=log)
        installed = created.returncode == 0 and run(
            [
                *(sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"),
                *("install", "--no-input", "--progress-bar", "off", str(wheel.path), *requirements),
            ],
            log=log,
        )
        if not installed or installed.returncode:
            lines = (installed or created).output.splitlines()
            errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
            raise WheelError(
                "The wheel could not be installed",
                where=str(wheel.path),
                why="\n".join(errors or lines[-3:]) or None,
                hint=f"the whole output is in {log}",
            )
        return {}

    key = digest(
        {
            "wheel": wheel.sha256,
            "requirements": requirements,
            "python": [sys.executable, sys.version],
        }
    )[:20]
    entry = store.make("venvs", key, maker, intact=lambda entry: (entry.path / "bin/python").exists())
    return entry.path / "bin/python"
