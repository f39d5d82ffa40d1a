"""Measure the runtime's switches: tokens per second with each value, side by side.

    python ci/switches.py LLAMA_BENCH MODEL [--nodes N] [--threads N] [--rounds N]

Each round runs llama-bench once per value, in alternating order; a figure is the median over the rounds
of the second value's speed divided by the first's, for generation and for prompts. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

SWITCHES = {"GGML_NUMA_MIRROR_BARRIER": ("flat", "teams"), "GGML_NUMA_MIRROR_STEALING": ("on", "off")}
TESTS = {"generation": "n_gen", "prompt": "n_prompt"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("model")
    parser.add_argument("--nodes", help="pretend so many nodes; without it, the machine's own")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--rounds", type=int, default=9)
    wanted = parser.parse_args()
    for switch, values in SWITCHES.items():
        ratios: dict[str, list[float]] = {name: [] for name in TESTS}
        for turn in range(wanted.rounds):
            speeds = {value: measure(wanted, switch, value) for value in values[:: 1 if turn % 2 else -1]}
            for name in TESTS:
                ratios[name].append(speeds[values[1]][name] / speeds[values[0]][name])
        figures = {name: described(found) for name, found in ratios.items()}
        print(json.dumps({"switch": switch, "ratio": f"{values[1]}/{values[0]}", **figures}), flush=True)


def measure(wanted: argparse.Namespace, switch: str, value: str) -> dict[str, float]:
    """Tokens per second of one run of llama-bench."""
    env = {**os.environ, switch: value}
    if wanted.nodes:
        env["GGML_NUMA_MIRROR_NODES"] = wanted.nodes
    command = [wanted.bench, "-m", wanted.model, "-t", wanted.threads, "--numa", "mirror"]
    command += ["-p", "128", "-n", "64", "-r", "3", "-o", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return {name: next(float(row["avg_ts"]) for row in rows if row[count]) for name, count in TESTS.items()}


def described(ratios: Sequence[float]) -> list[float]:
    """Median, least and greatest."""
    return [round(ratio, 3) for ratio in (statistics.median(ratios), min(ratios), max(ratios))]


if __name__ == "__main__":
    main()
