"""``doctor`` and ``advise`` on a kernel with two nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from numamirror_build import proc
from numamirror_build.cli.machine import UNHEALTHY
from numamirror_build.store import Store
from numamirror_build.verify.models import find_recipe, make_model

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from numamirror_build.cli.main import main; main()"


def in_lab(words: list[str], *, status: int) -> Any:
    """Run a command in the lab; the document that it prints."""
    size = ["--nodes", "2", "--cpus-per-node", "2", "--mem-per-node", "512M", "--timeout", "900"]
    lab = ["lab", "run", "--quiet", *size, "--env", f"PYTHONPATH={ROOT}", "--"]
    done = proc.run([sys.executable, "-c", PROGRAM, *lab, *words], cwd=ROOT, timeout=1000)
    assert done.returncode == status, done.output
    return json.loads(done.output)


def test_two_nodes() -> None:
    """Both nodes are found and measured, with their pages where they belong, and balancing is told of."""
    document = in_lab([sys.executable, "-c", PROGRAM, "doctor", "--quiet", "--json"], status=UNHEALTHY)
    flows = {(flow["cpus"], flow["memory"]): flow for flow in document["bandwidth"]["flows"]}
    assert set(flows) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all(flow["bound"] and flow["on_node"] == 1 and flow["rate"] > 0 for flow in flows.values())
    assert [node["distances"] for node in document["machine"]["nodes"]] == [[10, 21], [21, 10]]
    findings = {finding["id"]: finding["severity"] for finding in document["findings"]}
    assert findings["numa-balancing"] == "spoils"
    assert "one-node" not in findings


def test_advice_on_two_nodes(store: Store) -> None:
    """What advise measures is the two nodes, and every arm is expected something of."""
    model = make_model(store, find_recipe("dense-q8_0")).path
    words = [sys.executable, "-c", PROGRAM, "advise", "--quiet", "--json", "--model", str(model)]
    document = in_lab(words, status=0)
    assert [node["cores"] for node in document["machine"]["nodes"]] == [2, 2]
    assert [arm["arm"] for arm in document["arms"]][-1] == "mirror"
    assert all(arm["fits"] and arm["tokens_per_second"] > 0 for arm in document["arms"])
