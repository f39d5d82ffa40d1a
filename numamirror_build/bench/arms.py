"""Arms: the ways to run a model that are compared; and tests: what is measured of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numamirror_build import proc
from numamirror_build.machine.files import as_list
from numamirror_build.machine.topology import Node

Tree = Literal["pristine", "patched"]
Kind = Literal["pp", "tg", "tok"]


@dataclass(frozen=True)
class Arm:
    """A way to run a model.

    Attributes:
        name: its name.
        tree: which build runs.
        numa: upstream's option ``--numa``; empty for none.
        mapped: whether the model file is mapped; otherwise it is read into memory.
        prefix: what is put before the program.
        mirror: what is replicated; empty for nothing.
        pretend: how many nodes to pretend; 0 for none.
        settles: whether it becomes faster as pages find their places.
    """

    name: str
    tree: Tree
    numa: str = ""
    mapped: bool = False
    prefix: tuple[str, ...] = ()
    mirror: str = ""
    pretend: int = 0
    settles: bool = False

    def environment(self, status: Path) -> dict[str, str]:
        """The whole environment of a run; settings of the mirror are the arm's own."""
        env = {
            name: value
            for name, value in proc.environment().items()
            if not name.startswith("GGML_NUMA_MIRROR")
        }
        env["GGML_NO_BACKTRACE"] = "1"  # a debugger's hides what a failed assertion says
        if self.mirror:
            env |= {"GGML_NUMA_MIRROR": self.mirror, "GGML_NUMA_MIRROR_STATUS": str(status)}
        if self.pretend:
            env["GGML_NUMA_MIRROR_NODES"] = str(self.pretend)
        return env


@dataclass(frozen=True)
class Files:
    """A model's files: the one that is named, and all that it consists of."""

    path: Path
    parts: tuple[Path, ...]

    @property
    def names(self) -> set[str]:
        """Those of all parts, without folders."""
        return {part.name for part in self.parts}


@dataclass(frozen=True)
class Task:
    """What is measured.

    Attributes:
        kind: ``pp`` (a prompt) and ``tg`` (generating) by ``llama-bench``;
            ``tok`` (generating, each token by itself) through the Python binding.
        tokens: how many.
        depth: tokens in the cache before.
        slots: sequences that are generated at once, so many tokens each.
    """

    kind: Kind
    tokens: int
    depth: int = 0
    slots: int = 1

    @property
    def name(self) -> str:
        """As ``llama-bench`` writes it."""
        slots = f"x{self.slots}" if self.slots > 1 else ""
        return f"{self.kind}{self.tokens}{slots}" + (f"@d{self.depth}" if self.depth else "")


def arms_for(nodes: Sequence[Node], pretend: int) -> tuple[Arm, ...]:
    """The arms that make sense with these nodes, the ones that are compared with first.

    Args:
        nodes: those that the mirror would use.
        pretend: how many nodes the mirror shall pretend; 0 for the machine's own.
    """
    arms = [Arm("none", "pristine"), Arm("off", "patched")]
    if len(nodes) > 1:
        every = as_list(cpu for node in nodes for cpu in node.usable)
        ids = as_list(node.id for node in nodes)
        arms += [
            Arm(
                f"isolate-{node.id}",
                "pristine",
                "numactl",
                prefix=_launcher(as_list(node.usable), f"bind:{node.id}"),
            )
            for node in nodes
        ]
        arms.append(Arm("interleave", "pristine", "numactl", prefix=_launcher(every, f"interleave:{ids}")))
        arms.append(Arm("distribute", "pristine", "distribute", mapped=True, settles=True))
    if len(nodes) > 1 or pretend:
        arms += [
            Arm("mirror-weights", "patched", "mirror", mirror="weights", pretend=pretend),
            Arm("mirror", "patched", "mirror", mirror="all", pretend=pretend),
        ]
    return tuple(arms)


def _launcher(cpus: str, policy: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "numamirror_build.bench.launch", cpus, policy)


def usual_threads(nodes: Sequence[Node]) -> tuple[int, ...]:
    """Half as many threads as the nodes have cores, and one per core."""
    cores = sum(node.cores for node in nodes) or 1
    return tuple(sorted({max(1, cores // 2), cores}))


def threads_of(arm: Arm, nodes: Mapping[int, Node], wanted: Sequence[int]) -> list[int]:
    """The thread counts that an arm is measured with: an isolated one has only the CPUs of its node."""
    if not arm.name.startswith("isolate-"):
        return list(wanted)
    most = len(nodes[int(arm.name.removeprefix("isolate-"))].usable)
    return sorted({min(count, most) for count in wanted})
