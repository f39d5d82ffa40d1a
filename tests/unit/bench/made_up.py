"""A program in the place of ``llama-bench``, and results that nobody measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numamirror_build.bench.results import Measured, Point, Results

# says how fast it is by its arguments; the mirror's status is written as the runtime does
BENCH = r"""#!/bin/sh
if [ "$1" = --help ]; then
    echo "-lm, --load-mode -d, --n-depth"
    exit
fi
echo "$*" >>"{log}"
echo "["
echo "numa mirror: a line of the standard error" >&2
rate=$(echo "$*" | sed 's/.* -t \([0-9]*\).*/\1/')
if [ "$GGML_NUMA_MIRROR_STATUS" ]; then
    if [ ! "$GGML_NUMA_MIRROR_NODES" ]; then
        echo "error: numa mirror: there is only one NUMA node" >&2
        exit 1
    fi
    echo '{{"active": true, "replicas": 2}}' >"$GGML_NUMA_MIRROR_STATUS"
    rate=$((2 * rate))
fi
echo "  {{\"avg_ns\": 1, \"avg_ts\": $rate.0, \"samples_ts\": [ 1 ]}}"
echo "]"
"""


def write_program(folder: Path) -> Path:
    """Write the program; what it is called with is added to ``calls`` in the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "llama-bench"
    path.write_text(BENCH.format(log=folder / "calls"))
    path.chmod(0o755)
    return path


def results(rates: Mapping[tuple[str, int], Sequence[float | None]], **subject: Any) -> Results:
    """Results of generating 8 tokens, by arm and threads; None for a run that failed."""
    measured = [
        Measured(
            Point(arm, threads, "tg8", repetition),
            "failed" if rate is None else "done",
            rate,
            "numa mirror: one node" if rate is None else None,
        )
        for (arm, threads), samples in rates.items()
        for repetition, rate in enumerate(samples)
    ]
    state = {"nodes": [{"usable": "0-3"}]}
    return Results({"state": state, "model": {"name": "m"}, "pretend": 0, **subject}, tuple(measured))
