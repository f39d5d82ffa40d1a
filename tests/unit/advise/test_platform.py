"""Machines: described and measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.advise.platform import known_platforms, load_platform, measured_platform
from numamirror_build.errors import ConfigError
from numamirror_build.machine.bandwidth import measure
from numamirror_build.machine.state import read_state
from numamirror_build.progress import Quiet
from tests.machines import GIB, Machine, Node

NODE = '[[node]]\ncores = 4\nmemory = "8G"\n'
HEAD = 'name = "m"\nsource = "s"\n'


def test_known_machines() -> None:
    """The machines of the published figures are there: 6 channels of DDR4-2400, 12 of DDR5-6000."""
    assert known_platforms() == ["2x-epyc-9275f", "2x-xeon-6248r"]
    xeon, epyc = load_platform("2x-xeon-6248r"), load_platform("2x-epyc-9275f")
    assert [node.bandwidth for node in xeon.nodes] == [pytest.approx(0.87 * 115.2e9)] * 2
    assert [node.bandwidth for node in epyc.nodes] == [pytest.approx(0.87 * 576e9)] * 2
    assert [node.cores for node in xeon.nodes] == [24, 24]
    assert len(xeon.assumptions) == 2


def test_a_file(tmp_path: Path) -> None:
    """What is measured is taken as it is, and then nothing is assumed."""
    path = tmp_path / "m.toml"
    node = NODE + "bandwidth = 50\ncore_bandwidth = 10\n"
    path.write_text(HEAD + "clock = 2.5\nremote_share = 0.4\n" + node + node)
    made = load_platform(str(path))
    assert made.assumptions == ()
    assert (made.clock, made.remote_share, made.limit) == (2.5e9, 0.4, None)
    assert [(n.bandwidth, n.core_bandwidth, n.memory) for n in made.nodes] == [(50e9, 10e9, 8 * GIB)] * 2


def test_nodes_of_one_package(tmp_path: Path) -> None:
    """Between nodes of one processor little is lost, unless somebody has measured it."""
    path = tmp_path / "m.toml"
    node = NODE + "package = 0\nbandwidth = 50\n"
    path.write_text(HEAD + node + node)
    assert load_platform(str(path)).remote_share == 0.95


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("= 1", "not valid TOML"),
        (HEAD, "not complete"),
        (HEAD + NODE, "not complete"),
        (HEAD + "nodes = 2\n[[node]]\n", "Unknown keys: nodes"),
        (HEAD + NODE + "bandwith = 5\n", "Unknown keys: bandwith"),
        (HEAD + '[[node]]\ncores = 4\nmemory = "8"\nbandwidth = 5\n', "Not a size"),
    ],
)
def test_bad_descriptions(tmp_path: Path, content: str | None, message: str) -> None:
    """What is wrong with a description is said, and a wrong name is not guessed."""
    path = tmp_path / "m.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_platform(str(path))


def test_this_machine(tmp_path: Path) -> None:
    """A machine that doctor measured: its rates, its room, its limit."""
    nodes = {0: Node("0-1"), 2: Node("2-5"), 3: Node("")}
    files = {"sys/fs/cgroup/a/memory.max": str(9 * GIB)}
    state = read_state(Machine(nodes, cgroup="0::/a\n", files=files).write(tmp_path))

    def run(arguments: object) -> dict[str, object]:
        assert isinstance(arguments, list)
        local = (arguments[0] == "0") == (arguments[2][0] == "0")
        return {"bytes_per_second": 8e9 if local else 4e9, "bound": True, "on_node": 1.0}

    made = measured_platform(state, measure(state.mirrored, run, Quiet()))
    assert [(n.cores, n.bandwidth, n.core_bandwidth) for n in made.nodes] == [(2, 8e9, 8e9), (4, 8e9, 8e9)]
    assert made.nodes[0].memory == 48 * GIB
    assert (made.remote_share, made.limit, made.clock) == (0.5, 9 * GIB, None)
