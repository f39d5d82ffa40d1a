"""How fast each node's CPUs read each node's memory: measured by a small program that is compiled once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.building.toolchain import find_toolchain
from numamirror_build.errors import BuildError, MeasurementError
from numamirror_build.machine.topology import Node
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256

SOURCE = Path(__file__).with_name("stream.c")
FLAGS = ("-O3", "-march=native", "-pthread")
MIB = 1 << 20
SECONDS = 0.25
ROUNDS = 3

_LEAST, _MOST = 128 * MIB, 2048 * MIB
_CACHES = 4  # so many times the largest cache is read, so that little comes from it
_PART_OF_FREE = 4
_PATIENCE = 120

Run = Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Flow:
    """Reading from one node to the CPUs of one.

    Attributes:
        cpus: the node whose CPUs read.
        memory: the node whose memory is read.
        threads: how many threads, each on a CPU of its own.
        rate: bytes per second.
        bound: whether the kernel took a memory policy.
        on_node: the share of pages that were where they should be; None if the kernel does not say.
    """

    cpus: int
    memory: int
    threads: int
    rate: float
    bound: bool
    on_node: float | None


@dataclass(frozen=True)
class Bandwidth:
    """What memory gives: all CPUs of each node from each node, and one CPU of each node from its own."""

    flows: tuple[Flow, ...]
    single: tuple[Flow, ...]

    def rate(self, cpus: int, memory: int) -> float:
        """Bytes per second that a node's CPUs read from a node's memory."""
        return next(flow.rate for flow in self.flows if (flow.cpus, flow.memory) == (cpus, memory))

    def remote_share(self) -> float | None:
        """What a remote stream gets of a local one, on average; None with one node."""
        shares = [
            flow.rate / self.rate(flow.memory, flow.memory) for flow in self.flows if flow.cpus != flow.memory
        ]
        return sum(shares) / len(shares) if shares else None

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        return {
            "flows": [vars(flow) for flow in self.flows],
            "single": [vars(flow) for flow in self.single],
            "remote_share": self.remote_share(),
        }


def measure(nodes: Sequence[Node], run: Run, progress: Progress) -> Bandwidth:
    """Measure every pair of nodes; about a second for each.

    Args:
        nodes: those with memory and CPUs that may be used.
        run: carries out the program with these arguments and returns what it printed.
        progress: what is told how far it is.
    """
    by_id = {node.id: node for node in nodes}

    def flow(cpus: Node, memory: Node, readers: Sequence[int]) -> Flow:
        progress.update(f"bandwidth: node {memory.id} to {len(readers)} CPUs of node {cpus.id}")
        threads = ",".join(map(str, readers))
        arguments = [str(memory.id), str(memory.usable[0]), threads, str(_bytes(memory)), str(SECONDS)]
        said = run([*arguments, str(ROUNDS)])
        return Flow(
            cpus.id, memory.id, len(readers), said["bytes_per_second"], said["bound"], said["on_node"]
        )

    return Bandwidth(
        tuple(flow(by_id[i], by_id[j], by_id[i].usable) for i in by_id for j in by_id),
        tuple(flow(node, node, node.usable[:1]) for node in nodes),
    )


def make_program(store: Store) -> Run:
    """The program, compiled when it is not in the cache, as a function for :func:`measure`.

    Raises:
        ToolMissingError: there is no C compiler.
        BuildError: it does not compile.
    """
    compiler = find_toolchain().c
    key = digest([file_sha256(SOURCE), compiler.name, list(compiler.command), compiler.native, FLAGS])

    def make(folder: Path) -> Mapping[str, Any]:
        done = proc.run([*compiler.command, *FLAGS, SOURCE, "-o", folder / "stream"])
        if done.returncode:
            raise BuildError(
                "The program that measures bandwidth does not compile",
                where=str(SOURCE),
                why=done.output[-500:],
                hint="leave it out with --no-bandwidth",
            )
        return {}

    program = store.make("tools", f"stream-{key[:20]}", make).path / "stream"

    def run(arguments: Sequence[str]) -> Mapping[str, Any]:
        done = proc.run([program, *arguments], timeout=_PATIENCE)
        try:
            return dict(json.loads(done.output))
        except ValueError:
            raise MeasurementError(
                "The bandwidth of memory could not be measured",
                where=" ".join(done.args[1:]),
                why=done.output.strip()[-500:] or f"the program ended with status {done.returncode}",
                hint="leave it out with --no-bandwidth",
            ) from None

    return run


def as_text(rate: float) -> str:
    """A rate for people."""
    return f"{rate / 1e9:.1f} GB/s"


def _bytes(node: Node) -> int:
    wanted = max(_LEAST, _CACHES * node.cache)
    return max(MIB, min(wanted, _MOST, node.room // _PART_OF_FREE) // MIB * MIB)
