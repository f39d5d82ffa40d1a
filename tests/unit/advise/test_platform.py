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
        (b"\xff", "not valid TOML"),
        (HEAD, "lacks node"),
        ('name = "m"\n' + NODE, "lacks source"),
        (NODE, "lacks name, source"),
        (HEAD + NODE, "lacks bandwidth, or channels and transfers"),
        (HEAD + NODE + "channels = 2\n", "lacks bandwidth, or channels and transfers"),
        (HEAD + "[[node]]\nbandwidth = 5\n", "lacks cores, memory"),
        (HEAD + "nodes = 2\n[[node]]\n", "Unknown key nodes"),
        (HEAD + NODE + "bandwith = 5\n", "Unknown key bandwith"),
        (HEAD + "[node]\ncores = 2\n", r"with \[\[node\]\] above each"),
        (HEAD + "node = []\n", r"with \[\[node\]\] above each"),
        (HEAD + "node = [2]\n", r"with \[\[node\]\] above each"),
        ('name = ""\nsource = "s"\n' + NODE, "name must be a text"),
        ('name = "m"\nsource = 1\n' + NODE, "source must be a text"),
        (HEAD + '[[node]]\ncores = 4\nmemory = "8"\nbandwidth = 5\n', "Not a size"),
        (HEAD + '[[node]]\ncores = 4\nmemory = "0G"\nbandwidth = 5\n', "more than nothing"),
    ],
)
def test_bad_descriptions(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    """What is wrong is said with the file and the next step; a wrong name is not guessed."""
    path = tmp_path / "m.toml"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_platform(str(path))
    assert str(caught.value.where).startswith(str(path)) and caught.value.hint


@pytest.mark.parametrize("key", ["cores", "package", "channels", "transfers", "bandwidth", "core_bandwidth"])
@pytest.mark.parametrize("value", ["-4", "true", '"4"', "nan", "-inf", "1e400", "1e30", "[]", "2.5", "0"])
def test_numbers_of_a_node_that_cannot_be(tmp_path: Path, key: str, value: str) -> None:
    """The node and the key are named, and what it can be; nothing is taken for a number that is none."""
    figures = {"cores": "4", "memory": '"8G"', "bandwidth": "50", key: value}
    path = tmp_path / "m.toml"
    path.write_text(HEAD + NODE + "bandwidth = 50\n[[node]]\n" + table(figures))
    if (key.endswith("bandwidth") and value == "2.5") or (key, value) == ("package", "0"):
        load_platform(str(path))
        return
    with pytest.raises(ConfigError, match=rf"^{key} must be a (whole )?number from .*, not ") as caught:
        load_platform(str(path))
    assert caught.value.where == f"{path}, node 1, key {key}"


@pytest.mark.parametrize("key", ["clock", "remote_share"])
@pytest.mark.parametrize("value", ["-1", "0", "true", '"1"', "nan", "inf", "1e400", "400", "1e-320"])
def test_numbers_of_a_machine_that_cannot_be(tmp_path: Path, key: str, value: str) -> None:
    """The key is named, and what it can be."""
    path = tmp_path / "m.toml"
    path.write_text(HEAD + table({key: value}) + NODE + "bandwidth = 50\n")
    with pytest.raises(ConfigError, match=f"^{key} must be a number from .*, not ") as caught:
        load_platform(str(path))
    assert caught.value.where == f"{path}, key {key}"


def table(figures: dict[str, str]) -> str:
    """Lines of TOML."""
    return "".join(f"{key} = {value}\n" for key, value in figures.items())


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
