"""Measuring on a machine of the lab: its speeds mean nothing, but every arm runs there, on real nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numamirror_build
from numamirror_build.bench.arms import arms_for
from numamirror_build.bench.job import Job
from numamirror_build.errors import ConfigError, LabError, StateError
from numamirror_build.lab.guest import Command, passed_environment
from numamirror_build.lab.layout import DISTANCE, Layout, even_layout
from numamirror_build.lab.parts import Parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.machine.topology import Node
from numamirror_build.progress import Progress
from numamirror_build.store import write_atomic

NODES, CPUS = 2, 2
SECONDS = 3600.0  # after which the machine is switched off

MIB = 1 << 20
_AT_LEAST = 384  # MiB of a node
_LAST = 10  # lines of what a failed job said
_SECONDS = re.compile(r"^\s*[\d.]+\s+")  # with which the job's lines begin

# There are fewer CPUs than threads: those that spin while they wait keep from running what they wait for.
_ENV = {"OMP_WAIT_POLICY": "passive"}


def layout_for(model: int) -> Layout:
    """A machine for a model of so many bytes: each node has room for it and its copy in the page cache."""
    needed = _AT_LEAST + 3 * model // MIB
    return even_layout(NODES, CPUS, f"{needed // 64 * 64 + 64}M", DISTANCE)


def arms_there(layout: Layout) -> list[str]:
    """Names of the arms that a machine has; they depend on nothing but the numbers of its nodes."""
    nodes = [
        Node(node.id, (), (), node.cpus, node.memory, node.memory, 0, (), (), 0, None)
        for node in layout.nodes
    ]
    return [arm.name for arm in arms_for(nodes, 0)]


def described(layout: Layout, parts: Parts) -> dict[str, Any]:
    """What tells one machine of the lab from another, for results."""
    return {"kernel": parts.release, "layout": layout.as_json()}


def carry_out_in_lab(job: Job, layout: Layout, parts: Parts, progress: Progress) -> None:
    """Carry out a job on a machine of the lab; what it has measured is in the job's file, however it ends.

    Raises:
        LabError: the machine did not start or broke down, or the job failed there.
        LabTimeoutError: it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="numamirror-bench-lab-") as folder:
        scratch = Path(folder).resolve()
        inner = scratch / "results.jsonl"
        if job.results.exists():
            shutil.copy2(job.results, inner)
        file = scratch / "job.json"
        file.write_text(json.dumps(replace(job, results=inner).as_json()))
        words = (sys.executable, "-m", "numamirror_build.bench.inside", str(file))
        said: list[str] = []

        def hear(data: bytes) -> None:
            said.append(data.decode(errors="replace"))
            progress.update(_SECONDS.sub("", "".join(said)[-2000:].rstrip().rpartition("\n")[2]))

        try:
            outcome = run_in_lab(
                layout,
                Command(words, _environment(os.environ), scratch, scratch),
                parts,
                timeout=SECONDS,
                on_stdout=hear,
                on_stderr=hear,
                progress=progress,
            )
        finally:
            if inner.exists():
                write_atomic(job.results, inner.read_bytes())
    if outcome.exit_status:
        again = outcome.exit_status not in (ConfigError.exit_code, StateError.exit_code)
        raise LabError(
            "The measurement in the lab failed",
            where=str(job.results),
            why="\n".join("".join(said).strip().splitlines()[-_LAST:]),
            hint="what was measured before is kept; the same command goes on" if again else None,
        )


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    package = Path(numamirror_build.__file__).resolve().parents[1]
    return {**passed_environment(own, ()), "PYTHONPATH": str(package), **_ENV}
