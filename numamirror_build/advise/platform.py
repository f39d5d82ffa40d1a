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
from numamirror_build.toml import read_toml, unknown

DESCRIPTIONS = Path(__file__).with_name("machines")

# where nobody has measured: what a stream gets of what the channels could, and a remote one of a local one
STREAM_SHARE = 0.87
REMOTE_SHARE = 0.43
ONE_PACKAGE_SHARE = 0.95  # between the nodes of one processor

_BYTES_OF_A_TRANSFER = 8
_HINT = "docs/machine.md says how a machine is described"


@dataclass(frozen=True)
class _Number:
    """What a number in a description can be; the bounds are far beyond what there is."""

    least: float
    most: float
    whole: bool = False

    def __str__(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.least:,} to {self.most:,}"

    def holds(self, value: object) -> bool:
        kinds = (int,) if self.whole else (int, float)
        return isinstance(value, kinds) and type(value) is not bool and self.least <= value <= self.most


_NUMBERS = {"clock": _Number(0.01, 100), "remote_share": _Number(0.001, 1)}
_NODE_NUMBERS = {
    "cores": _Number(1, 100_000, whole=True),
    "package": _Number(0, 100_000, whole=True),
    "channels": _Number(1, 1000, whole=True),
    "transfers": _Number(1, 1_000_000, whole=True),
    "bandwidth": _Number(0.01, 1_000_000),
    "core_bandwidth": _Number(0.01, 1_000_000),
}


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
    return _parsed(read_toml(path, "The description of a machine", hint=hint), str(path))


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
    _check(table, {"name", "source", "node"}, _NUMBERS, where)
    for key in ("name", "source"):
        if not isinstance(table[key], str) or not table[key]:
            raise _wrong(table, key, "a text", where)
    entries = table["node"]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise _wrong(table, "node", "tables, with [[node]] above each", where)
    nodes = tuple(_node(entry, number, f"{where}, node {number}") for number, entry in enumerate(entries))
    assumptions = []
    if "remote_share" in table:
        remote = float(table["remote_share"])
    else:
        remote = REMOTE_SHARE if len({node.package for node in nodes}) > 1 else ONE_PACKAGE_SHARE
        assumptions.append(f"A remote stream gets {remote:.0%} of a local one: not measured.")
    if any("bandwidth" not in entry for entry in entries):
        assumptions.append(f"A stream gets {STREAM_SHARE:.0%} of what the channels could: not measured.")
    return Platform(
        name=table["name"],
        source=table["source"],
        nodes=nodes,
        remote_share=remote,
        clock=table["clock"] * 1e9 if "clock" in table else None,
        limit=None,
        assumptions=tuple(assumptions),
    )


def _node(entry: Mapping[str, Any], number: int, where: str) -> Node:
    _check(entry, {"cores", "memory"}, _NODE_NUMBERS, where)
    memory = parse_memory(entry["memory"], f"{where}, key memory")
    if not memory:
        raise _wrong(entry, "memory", "more than nothing", where)
    if "bandwidth" in entry:
        bandwidth = entry["bandwidth"] * 1e9
    elif {"channels", "transfers"} <= entry.keys():
        bandwidth = entry["channels"] * entry["transfers"] * 1e6 * _BYTES_OF_A_TRANSFER * STREAM_SHARE
    else:
        raise _lacks("bandwidth, or channels and transfers", where)
    core = entry.get("core_bandwidth")
    return Node(
        cores=entry["cores"],
        memory=memory,
        package=entry.get("package", number),
        bandwidth=bandwidth,
        core_bandwidth=core * 1e9 if core is not None else None,
    )


def _check(table: Mapping[str, Any], needed: set[str], numbers: Mapping[str, _Number], where: str) -> None:
    """See that a table has what is needed and nothing that is unknown, and that its numbers can be."""
    for key in table:
        if key not in needed | numbers.keys():
            raise unknown("key", key, where, needed | numbers.keys())
    if missing := sorted(needed - table.keys()):
        raise _lacks(", ".join(missing), where)
    for key, number in numbers.items():
        if key in table and not number.holds(table[key]):
            raise _wrong(table, key, str(number), where)


def _lacks(what: str, where: str) -> ConfigError:
    return ConfigError(f"The description of a machine lacks {what}", where=where, hint=_HINT)


def _wrong(table: Mapping[str, Any], key: str, wanted: str, where: str) -> ConfigError:
    what = f"{key} must be {wanted}, not {repr(table[key])[:60]}"
    return ConfigError(what, where=f"{where}, key {key}", hint=_HINT)
