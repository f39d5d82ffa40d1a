"""The program with short steps in the place of real ones, for tests that interrupt it.

Every step takes a moment and writes a file in two halves, through the real store;
the command line, the store, the delivery and the process module are the real ones.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numamirror_build import proc
from numamirror_build.building import install
from numamirror_build.cli.main import run
from numamirror_build.pipeline import Pipeline

MOMENT = float(os.environ.get("JOB_MOMENT", "0.05"))
HALF = int(os.environ.get("JOB_BYTES", "1000")) // 2


def write(path: Path) -> None:
    """Write a file in two halves."""
    with path.open("wb") as stream:
        stream.write(b"1" * HALF)
        stream.flush()
        time.sleep(MOMENT)
        stream.write(b"2" * HALF)


def step(kind: str, *names: str) -> Callable[[Pipeline], SimpleNamespace]:
    """A step that makes files; its value has what the main job asks of any value."""

    def make(pipeline: Pipeline) -> SimpleNamespace:
        def maker(folder: Path) -> Mapping[str, Any]:
            pipeline.progress.step(f"Making {kind}")
            proc.run(["sleep", str(MOMENT)])
            for name in names:
                write(folder / name)
            return {}

        entry = pipeline.store.make(kind, "key", maker)
        return SimpleNamespace(
            path=entry.path if len(names) > 1 else entry.path / names[0],
            programs={names[0]: entry.path / names[0]},
            files=[entry.path / name for name in names],
            report=entry.path / names[0],
            page=entry.path / names[-1],
            counts=lambda: {"pass": 1, "fail": 0, "skip": 0},
            passed=True,
            warning=None,
            key="key",
            seconds=entry.seconds,
            fresh=entry.fresh,
        )

    return make


def verification(pipeline: Pipeline) -> SimpleNamespace:
    """The last step, after those it needs."""
    for value in ("patched_tree", "patched_build", "wheel"):
        getattr(pipeline, value)
    return step("verifications", "v.json", "v.html")(pipeline)


STEPS = {
    "patched_tree": step("trees", "a.c", "b.c"),
    "patched_build": step("builds", "tool", "libx.so"),
    "wheel": step("wheels", "w.whl"),
    "verification": verification,
    "checkout": lambda pipeline: SimpleNamespace(
        path=Path(), source="x", tree="t", verified=True, key="k", seconds=0.0, fresh=False
    ),
    "audit": lambda pipeline: SimpleNamespace(
        compiled=("a.c",), excluded=(), as_json=dict, summary=lambda: "all seen"
    ),
    "plan": lambda pipeline: SimpleNamespace(digest="d", scope="cpu", counts=dict, hooks=dict, new_files=()),
}

if __name__ == "__main__":
    install.installed_files = lambda build: {f"bin/{path.name}": path for path in build.files}
    for name, function in STEPS.items():
        made = getattr(Pipeline, name)
        made.func = function
    sys.exit(run(sys.argv[1:]))
