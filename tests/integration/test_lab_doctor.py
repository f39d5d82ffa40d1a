"""``doctor`` on a kernel with two nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from numamirror_build import proc
from numamirror_build.cli.machine import UNHEALTHY

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from numamirror_build.cli.main import main; main()"


def test_two_nodes() -> None:
    """Both nodes are found and measured, with their pages where they belong, and balancing is told of."""
    here = [sys.executable, "-c", PROGRAM]
    size = ["--nodes", "2", "--cpus-per-node", "2", "--mem-per-node", "512M"]
    words = ["lab", "run", "--quiet", *size, "--env", f"PYTHONPATH={ROOT}", "--"]
    done = proc.run([*here, *words, *here, "doctor", "--quiet", "--json"], cwd=ROOT, timeout=500)
    assert done.returncode == UNHEALTHY, done.output
    document = json.loads(done.output)
    flows = {(flow["cpus"], flow["memory"]): flow for flow in document["bandwidth"]["flows"]}
    assert set(flows) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all(flow["bound"] and flow["on_node"] == 1 and flow["rate"] > 0 for flow in flows.values())
    assert [node["distances"] for node in document["machine"]["nodes"]] == [[10, 21], [21, 10]]
    findings = {finding["id"]: finding["severity"] for finding in document["findings"]}
    assert findings["numa-balancing"] == "spoils"
    assert "one-node" not in findings
