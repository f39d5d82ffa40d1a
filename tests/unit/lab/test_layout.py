from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from numamirror_build.errors import ConfigError
from numamirror_build.lab.layout import MIB, Layout, Node, even_layout, load_layout, parse_layout

ODD = """
distance = 30

[[node]]
id = 3
memory = "512M"

[[node]]
id = 0
cpus = 2
memory = "1G"

[[node]]
id = 5
cpus = 1

[[distances]]
from = 3
to = 0
distance = 40

[[distances]]
from = 5
to = 0
distance = 50

[[distances]]
from = 0
to = 5
distance = 60
"""


def test_nodes_that_are_alike() -> None:
    """The options make nodes 0, 1, ... with the same CPUs, memory and distances."""
    assert even_layout(3, 2, "512M", 17) == Layout(
        tuple(Node(number, 2, 512 * MIB) for number in range(3)),
        ((10, 17, 17), (17, 10, 17), (17, 17, 10)),
    )


def test_a_file_describes_nodes_and_distances(tmp_path: Path) -> None:
    """Nodes may leave gaps, lack CPUs or memory; a distance counts both ways unless both are named."""
    path = tmp_path / "odd.toml"
    path.write_text(ODD)
    layout = load_layout(path)
    assert layout.nodes == (Node(0, 2, 1024 * MIB), Node(3, 0, 512 * MIB), Node(5, 1, 0))
    assert layout.distances == ((10, 40, 60), (40, 10, 30), (50, 30, 10))
    assert (layout.cpus, layout.memory) == (3, 1536 * MIB)


def test_numbers_and_memory_may_be_left_out() -> None:
    """A node without a number has that of its place; one without memory or CPUs has none."""
    layout = parse_layout({"node": [{"cpus": 1, "memory": "1G"}, {"memory": "64M"}]}, "file")
    assert layout.nodes == (Node(0, 1, 1024 * MIB), Node(1, 0, 64 * MIB))


GOOD = {"id": 0, "cpus": 1, "memory": "1G"}


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({}, "There are no nodes"),
        ({"node": {}}, "node is not a list of tables"),
        ({"node": [GOOD], "nodes": 1}, "Unknown key nodes"),
        ({"node": [{**GOOD, "cpu": 1}]}, "Unknown key cpu"),
        ({"node": [{**GOOD, "cpus": "1"}]}, "cpus must be a number"),
        ({"node": [{**GOOD, "cpus": -1}]}, "cpus must be a number"),
        ({"node": [{**GOOD, "cpus": True}]}, "cpus must be a number"),
        ({"node": [{**GOOD, "memory": 512}]}, "Not a size of memory: 512"),
        ({"node": [{**GOOD, "memory": "1 GB"}]}, "Not a size of memory: '1 GB'"),
        ({"node": [{**GOOD, "memory": "127M"}, {**GOOD, "id": 1}]}, "Node 0 has memory that is no multiple"),
        ({"node": [GOOD, {"id": 1, "cpus": 1, "memory": "32M"}]}, "Node 1 has memory that is no multiple"),
        ({"node": [{**GOOD, "memory": "128M"}]}, "The nodes have less than 384M of memory"),
        ({"node": [GOOD, GOOD]}, "Two nodes have the same number"),
        ({"node": [{**GOOD, "id": 1}]}, "There must be a node 0, and it must have a CPU"),
        ({"node": [{"memory": "1G"}, {**GOOD, "id": 1}]}, "There must be a node 0, and it must have a CPU"),
        ({"node": [GOOD, {"id": 2}]}, "Node 2 has neither CPUs nor memory"),
        ({"node": [GOOD, {**GOOD, "id": 16}]}, "Nodes have numbers from 0 to 15"),
        ({"node": [{**GOOD, "cpus": 65}]}, "There are more than 64 CPUs"),
        (
            {"node": [{**GOOD, "cpus": 16}, {"id": 15, "cpus": 1}]},
            "Beside a node 15 no node can have more than 15 ",
        ),
        ({"node": [GOOD, {**GOOD, "id": 1}], "distance": 10}, "A distance to another node is from 11 to 254"),
        (
            {"node": [GOOD, {**GOOD, "id": 1}], "distance": 255},
            "A distance to another node is from 11 to 254",
        ),
        (
            {"node": [GOOD], "distances": [{"from": 0, "to": 0, "distance": 20}]},
            "A distance is from one node",
        ),
        (
            {"node": [GOOD], "distances": [{"from": 0, "to": 1, "distance": 20}]},
            "A distance is from one node",
        ),
        ({"node": [GOOD], "distances": [{"from": 0, "distance": 20}]}, "to is missing"),
    ],
)
def test_what_cannot_be_is_refused(table: dict[str, Any], what: str) -> None:
    """Each mistake has its message, and the message names the file."""
    with pytest.raises(ConfigError, match=what) as caught:
        parse_layout(table, "odd.toml")
    assert str(caught.value.where).startswith("odd.toml")


@pytest.mark.parametrize(
    ("highest", "most"), [(0, 64), (2, 64), (3, 63), (4, 32), (6, 32), (7, 31), (8, 16), (14, 16), (15, 15)]
)
def test_the_most_cpus_of_a_node_beside_the_highest_number(highest: int, most: int) -> None:
    """QEMU starts with just these, and not with one more."""
    others = [{"id": highest, "memory": "64M"}] if highest else []
    assert parse_layout({"node": [{**GOOD, "cpus": most}, *others]}, "file").nodes[0].cpus == most
    with pytest.raises(ConfigError, match=r"no node can have more than \d+ CPUs|more than 64 CPUs"):
        parse_layout({"node": [{**GOOD, "cpus": most + 1}, *others]}, "file")


def test_a_file_that_is_no_layout(tmp_path: Path) -> None:
    """A missing file, and one that is no TOML, are errors with the file's name."""
    with pytest.raises(ConfigError, match="cannot be read") as missing:
        load_layout(tmp_path / "none.toml")
    assert str(tmp_path) in str(missing.value.where)
    (tmp_path / "bad.toml").write_text("[[node")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_layout(tmp_path / "bad.toml")


def test_sizes_on_the_command_line_are_checked() -> None:
    """The message names the option."""
    with pytest.raises(ConfigError) as caught:
        even_layout(2, 2, "1T", 21)
    assert caught.value.where == "option --mem-per-node"
