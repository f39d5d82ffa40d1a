"""Which nodes a machine has: CPUs, memory, distances."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import ConfigError
from numamirror_build.toml import read_toml

MIB = 1 << 20
LOCAL = 10
DISTANCE = 21
MOST_NODES = 16
MOST_CPUS = 64
LAST_ADDRESS = 254  # of a CPU; 255 is all of them
LEAST_NODE_MEMORY = 64 * MIB
LEAST_MEMORY = 384 * MIB

_SET_OF_CPUS = 8
_UNITS = {"M": MIB, "G": MIB << 10}


@dataclass(frozen=True)
class Node:
    """A node: its number, how many CPUs it has, and bytes of memory."""

    id: int
    cpus: int
    memory: int


@dataclass(frozen=True)
class Layout:
    """The nodes of a machine, by ascending number, and the distance from each to each.

    ``distances[i][j]`` is that from the i-th to the j-th node.
    """

    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]

    @property
    def cpus(self) -> int:
        """CPUs of all nodes."""
        return sum(node.cpus for node in self.nodes)

    @property
    def memory(self) -> int:
        """Bytes of memory of all nodes."""
        return sum(node.memory for node in self.nodes)

    @property
    def places_per_node(self) -> int:
        """How many places for CPUs each number up to the highest has; QEMU numbers those of node 0 first.

        A machine with at most eight places addresses several CPUs at once by a set of their numbers,
        and QEMU loses what goes to a CPU behind an empty place: the kernel hangs.
        So there are always more.
        """
        return max([_SET_OF_CPUS // (self.nodes[-1].id + 1) + 1, *(node.cpus for node in self.nodes)])

    def as_json(self) -> dict[str, Any]:
        """The layout for machines."""
        return {
            "nodes": [vars(node) for node in self.nodes],
            "distances": [list(row) for row in self.distances],
        }


def even_layout(nodes: int, cpus: int, memory: str, distance: int) -> Layout:
    """A machine whose nodes are alike.

    Args:
        nodes: how many.
        cpus: CPUs of each.
        memory: memory of each, for example ``1G``.
        distance: from each to each other.

    Raises:
        ConfigError: there can be no such machine.
    """
    size = parse_memory(memory, "option --mem-per-node")
    made = tuple(Node(number, cpus, size) for number in range(nodes))
    return _checked(made, _distances(made, distance, {}), "the options of the machine")


def load_layout(path: Path) -> Layout:
    """The layout that a TOML file describes.

    Raises:
        ConfigError: the file cannot be read, is no TOML, has unknown keys, or describes no possible machine.
    """
    return parse_layout(read_toml(path, "A layout"), str(path))


def parse_layout(table: Mapping[str, Any], where: str) -> Layout:
    """The layout that the content of a file describes; ``where`` names the file in messages."""
    _known(table, {"distance", "node", "distances"}, where)
    entries = _tables(table, "node", where)
    nodes = []
    for number, entry in enumerate(entries, 1):
        here = f"{where}, node {number}"
        _known(entry, {"id", "cpus", "memory"}, here)
        nodes.append(
            Node(
                _number(entry, "id", here, default=number - 1),
                _number(entry, "cpus", here, default=0),
                parse_memory(entry.get("memory", "0M"), here),
            )
        )
    nodes.sort(key=lambda node: node.id)
    named = {}
    for number, entry in enumerate(_tables(table, "distances", where), 1):
        here = f"{where}, distances {number}"
        _known(entry, {"from", "to", "distance"}, here)
        pair = _number(entry, "from", here), _number(entry, "to", here)
        if pair[0] == pair[1] or not set(pair) <= {node.id for node in nodes}:
            raise ConfigError("A distance is from one node to another", where=here)
        named[pair] = _number(entry, "distance", here)
    usual = _number(table, "distance", where, default=DISTANCE)
    return _checked(tuple(nodes), _distances(tuple(nodes), usual, named), where)


def parse_memory(value: object, where: str) -> int:
    """Bytes of a text such as ``512M`` or ``2G``."""
    found = re.fullmatch(r"([0-9]+)([MG])", value) if isinstance(value, str) else None
    if not found:
        raise ConfigError(
            f"Not a size of memory: {value!r}",
            where=where,
            hint="write a number and M or G, for example 512M",
        )
    return int(found[1]) * _UNITS[found[2]]


def _distances(
    nodes: tuple[Node, ...], usual: int, named: Mapping[tuple[int, int], int]
) -> tuple[tuple[int, ...], ...]:
    """What is named, there and back; the usual distance elsewhere."""

    def distance(one: int, other: int) -> int:
        if one == other:
            return LOCAL
        return named.get((one, other), named.get((other, one), usual))

    return tuple(tuple(distance(one.id, other.id) for other in nodes) for one in nodes)


def _checked(nodes: tuple[Node, ...], distances: tuple[tuple[int, ...], ...], where: str) -> Layout:
    """A layout of which a machine can be made."""
    layout = Layout(nodes, distances)
    numbers = [node.id for node in nodes]
    empty = [node.id for node in nodes if not node.cpus and not node.memory]
    small = [node.id for node in nodes if 0 < node.memory < LEAST_NODE_MEMORY or node.memory % (2 * MIB)]
    highest = max([0, *(number for number in numbers if number < MOST_NODES)])
    largest = max([0, *(node.cpus for node in nodes)])
    most = most_cpus(highest)
    problems = {
        "There are no nodes": not nodes,
        "Two nodes have the same number": len(set(numbers)) < len(numbers),
        f"Nodes have numbers from 0 to {MOST_NODES - 1}": any(not 0 <= n < MOST_NODES for n in numbers),
        f"Node {', '.join(map(str, empty))} has neither CPUs nor memory: leave it out": empty,
        # the kernel gives the number 0 to the node of the CPU that it starts on
        "There must be a node 0, and it must have a CPU": not any(n.id == 0 and n.cpus for n in nodes),
        f"There are more than {MOST_CPUS} CPUs": layout.cpus > MOST_CPUS,
        f"Beside a node {highest} no node can have more than {most} CPUs": layout.nodes and largest > most,
        f"Node {', '.join(map(str, small))} has memory that is no multiple of 2M of at least 64M": small,
        f"The nodes have less than {LEAST_MEMORY // MIB}M of memory in all": layout.memory < LEAST_MEMORY,
        "A distance to another node is from 11 to 254": any(
            not LOCAL < value < 255
            for i, row in enumerate(distances)
            for j, value in enumerate(row)
            if i != j
        ),
    }
    for problem, found in problems.items():
        if found:
            raise ConfigError(problem, where=where, hint="docs/lab.md describes layouts")
    return layout


def most_cpus(highest: int) -> int:
    """How many CPUs a node can have beside one of that number.

    Each CPU has an address of a byte, made of the node's number and the CPU's place in the node,
    for which there are as many bits in each node as the largest one needs.
    """
    fitting = (
        cpus
        for cpus in range(1, MOST_CPUS + 1)
        if (highest << (cpus - 1).bit_length()) + cpus - 1 <= LAST_ADDRESS
    )
    return max(fitting)


def _tables(table: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigError(f"{key} is not a list of tables", where=where, hint=f"write [[{key}]]")
    return value


def _number(table: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = table.get(key, default)
    if type(value) is not int or value < 0:
        what = "is missing" if value is None else f"must be a number that is not negative, not {value!r}"
        raise ConfigError(f"{key} {what}", where=where)
    return value


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"Unknown key {key}", where=where, hint=f"known are: {', '.join(sorted(keys))}")
