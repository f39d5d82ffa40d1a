"""Measuring bandwidth: which runs are made, and a run of the real program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.errors import MeasurementError
from numamirror_build.machine.bandwidth import MIB, make_program, measure
from numamirror_build.machine.topology import mirror_nodes, read_nodes
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.machines import Machine, Node


def test_every_pair_is_measured(tmp_path: Path) -> None:
    """All CPUs of each node read from each node, and one CPU from its own; the memory comes from its node."""
    nodes = read_nodes(Machine({0: Node("0-1"), 3: Node("4-5", free=200 * MIB, cache=0)}).write(tmp_path))
    asked: list[tuple[str, ...]] = []

    def run(arguments: Sequence[str]) -> Mapping[str, Any]:
        asked.append(tuple(arguments))
        local = (arguments[0] == "0") == (arguments[2][0] == "0")
        return {"bytes_per_second": 100.0 if local else 40.0, "bound": True, "on_node": 1.0}

    made = measure(nodes, run, Quiet())
    assert [words[:4] for words in asked] == [
        ("0", "0", "0,1", str(128 * MIB)),
        ("3", "4", "0,1", str(50 * MIB)),
        ("0", "0", "4,5", str(128 * MIB)),
        ("3", "4", "4,5", str(50 * MIB)),
        ("0", "0", "0", str(128 * MIB)),
        ("3", "4", "4", str(50 * MIB)),
    ]
    assert made.rate(0, 3) == 40
    assert made.remote_share() == 0.4
    assert [flow.cpus for flow in made.single] == [0, 3]
    json.dumps(made.as_json())


def test_one_node_has_no_remote_share(tmp_path: Path) -> None:
    """On a machine with one node there is only the local figure."""
    nodes = read_nodes(Machine({0: Node("0-1")}).write(tmp_path))
    made = measure(nodes, lambda _: {"bytes_per_second": 1.0, "bound": True, "on_node": None}, Quiet())
    assert len(made.flows) == 1
    assert made.remote_share() is None


@pytest.mark.build
def test_the_program_reads_memory(store: Store) -> None:
    """On this machine it finds a rate that memory can have, with pages on their node."""
    made = measure(mirror_nodes(read_nodes())[:1], make_program(store), Quiet())
    (flow,) = made.flows
    assert 1e8 < flow.rate < 1e13
    assert flow.on_node is None or math.isclose(flow.on_node, 1.0)


@pytest.mark.build
def test_a_measurement_that_fails(store: Store) -> None:
    """A CPU that is not there ends in an error that quotes the program."""
    with pytest.raises(MeasurementError, match="bandwidth") as caught:
        make_program(store)(["0", "0", "99999", str(MIB), "0.1", "1"])
    assert "cannot run on CPU 99999" in str(caught.value.why)
