"""A machine as the prediction sees it: as a TOML file describes it, or as it was measured here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import ConfigError
from numamirror_build.lab.layout import parse_memory
from numamirror_build.machine.bandwidth import Bandwidth
from numamirror_build.machine.state import State
from numamirror_build.toml import read_toml

DESCRIPTIONS = Path(__file__).with_name("machines")

# where nobody has measured: what a stream gets of what the channels could, and a remote one of a local one
STREAM_SHARE = 0.87
REMOTE_SHARE = 0.43
ONE_PACKAGE_SHARE = 0.95  # between the nodes of one processor

_KEYS = {"name", "source", "clock", "remote_share", "node"}
_NODE_KEYS = {"cores", "memory", "package", "channels", "transfers", "bandwidth", "core_bandwidth"}
_BYTES_OF_A_TRANSFER = 8


@dataclass(frozen=True)
class Node:
    """A node: cores, bytes that a model may take, and bytes per second that all its cores, or one, read."""

    cores: int
    memory: int
    package: int
    bandwidth: float
    core_bandwidth: float | None


@dataclass(frozen=True)
class Platform:
    """A machine.

    Attributes:
        name: what it is.
        source: where the figures come from.
        nodes: its nodes.
        remote_share: what a remote stream gets of a local one.
        clock: cycles per second of a core with all of them at work; None if unknown.
        limit: bytes that all nodes together may give (a control group's limit); None without one.
        assumptions: what of this was not known.
    """

    name: str
    source: str
    nodes: tuple[Node, ...]
    remote_share: float
    clock: float | None
    limit: int | None
    assumptions: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The machine for machines."""
        return {
            **vars(self),
            "nodes": [vars(node) for node in self.nodes],
            "assumptions": list(self.assumptions),
        }


def known_platforms() -> list[str]:
    """Names of the descriptions that the package has."""
    return sorted(path.stem for path in DESCRIPTIONS.glob("*.toml"))


def load_platform(name: str) -> Platform:
    """The machine of a description: a file, or the name of one that the package has.

    Raises:
        ConfigError: it is not there, is no TOML, or describes no machine.
    """
    path = DESCRIPTIONS / f"{name}.toml" if name in known_platforms() else Path(name)
    hint = f"a file, or one of: {', '.join(known_platforms())}"
    table = read_toml(path, "The description of a machine", hint=hint)
    try:
        return _parsed(table, path.name)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "The description of a machine is not complete",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            hint="docs/machine.md says what it needs",
        ) from error


def measured_platform(state: State, measured: Bandwidth) -> Platform:
    """The machine as it was found and measured."""
    single = {flow.cpus: flow.rate for flow in measured.single}
    nodes = [
        Node(
            cores=node.cores,
            memory=node.room,
            package=min(node.packages, default=node.id),
            bandwidth=measured.rate(node.id, node.id),
            core_bandwidth=single.get(node.id),
        )
        for node in state.mirrored
    ]
    return Platform(
        name=state.processor,
        source="measured by doctor",
        nodes=tuple(nodes),
        remote_share=measured.remote_share() or 1.0,
        clock=None,
        limit=state.memory_limit,
        assumptions=("The clock is not known: no ceiling of computing is counted with.",),
    )


def _parsed(table: Mapping[str, Any], where: str) -> Platform:
    _known(table, _KEYS, where)
    nodes = tuple(_node(entry, number, where) for number, entry in enumerate(table["node"]))
    assumptions = []
    if "remote_share" in table:
        remote = float(table["remote_share"])
    else:
        remote = REMOTE_SHARE if len({node.package for node in nodes}) > 1 else ONE_PACKAGE_SHARE
        assumptions.append(f"A remote stream gets {remote:.0%} of a local one: not measured.")
    if any("bandwidth" not in entry for entry in table["node"]):
        assumptions.append(f"A stream gets {STREAM_SHARE:.0%} of what the channels could: not measured.")
    return Platform(
        name=str(table["name"]),
        source=str(table["source"]),
        nodes=nodes,
        remote_share=remote,
        clock=float(table["clock"]) * 1e9 if "clock" in table else None,
        limit=None,
        assumptions=tuple(assumptions),
    )


def _node(entry: Mapping[str, Any], number: int, where: str) -> Node:
    _known(entry, _NODE_KEYS, f"{where}, node {number}")
    if "bandwidth" in entry:
        bandwidth = float(entry["bandwidth"]) * 1e9
    else:
        bandwidth = (
            int(entry["channels"]) * int(entry["transfers"]) * 1e6 * _BYTES_OF_A_TRANSFER * STREAM_SHARE
        )
    core = entry.get("core_bandwidth")
    return Node(
        cores=int(entry["cores"]),
        memory=parse_memory(entry["memory"], f"{where}, node {number}"),
        package=int(entry.get("package", number)),
        bandwidth=bandwidth,
        core_bandwidth=float(core) * 1e9 if core is not None else None,
    )


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    if unknown := sorted(set(table) - keys):
        raise ConfigError(f"Unknown keys: {', '.join(unknown)}", where=where)
