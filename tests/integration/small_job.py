"""The program on the small upstream; only the verification is a stand-in, as its models are no llama's.

``SMALL_DATA`` is the folder of the data, ``SMALL_TOOLS`` one with programs that take the place of others.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from numamirror_build import data
from numamirror_build.cli.main import run
from numamirror_build.pipeline import Pipeline
from tests.integration.job import step

_which = shutil.which


def which(cmd: str, mode: int = os.F_OK | os.X_OK, path: str | None = None) -> str | None:
    """Find a program; those of ``SMALL_TOOLS`` first, and none that ``SMALL_MISSING`` names."""
    if cmd in os.environ.get("SMALL_MISSING", "").split():
        return None
    given = Path(os.environ.get("SMALL_TOOLS", "/nonexistent"), cmd)
    return str(given) if given.exists() else _which(cmd, mode, path)


def main() -> int:
    """Run it."""
    data._root = lambda: Path(os.environ["SMALL_DATA"])
    shutil.which = which  # type: ignore[assignment]
    made: Any = Pipeline.verification
    made.func = step("verifications", "v.json", "v.html")
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
