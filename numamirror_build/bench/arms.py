"""Arms: the ways to run a model that are compared, each as a command line of ``llama-bench``."""

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


@dataclass(frozen=True)
class Arm:
    """A way to run a model.

    Attributes:
        name: its name.
        tree: which build runs.
        options: of the program.
        mapped: whether the model file is mapped; otherwise it is read into memory.
        prefix: what is put before the program.
        mirror: what is replicated; empty for nothing.
        pretend: how many nodes to pretend; 0 for none.
        settles: whether it becomes faster as pages find their places.
    """

    name: str
    tree: Tree
    options: tuple[str, ...] = ()
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
        if self.mirror:
            env |= {"GGML_NUMA_MIRROR": self.mirror, "GGML_NUMA_MIRROR_STATUS": str(status)}
        if self.pretend:
            env["GGML_NUMA_MIRROR_NODES"] = str(self.pretend)
        return env


@dataclass(frozen=True)
class Task:
    """What is measured: ``pp`` (a prompt) or ``tg`` (generating), of so many tokens, with so many before."""

    kind: Literal["pp", "tg"]
    tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """As ``llama-bench`` writes it."""
        return f"{self.kind}{self.tokens}" + (f"@d{self.depth}" if self.depth else "")


@dataclass(frozen=True)
class Program:
    """A ``llama-bench`` and what it can, as its help says: options differ between commits and upstreams."""

    path: Path
    load_mode: bool
    depth: bool

    def command(self, arm: Arm, model: Path, threads: int, test: Task) -> list[str]:
        """The command line of one measurement; its output is JSON."""
        loading = {True: ["--load-mode", "mmap"], False: ["--load-mode", "none"]}
        if not self.load_mode:
            loading = {True: ["-mmp", "1"], False: ["-mmp", "0"]}
        prompt, generated = (test.tokens, 0) if test.kind == "pp" else (0, test.tokens)
        words = ["-m", str(model), "-p", str(prompt), "-n", str(generated), "-t", str(threads), "-r", "1"]
        words += [*loading[arm.mapped], *arm.options, "-o", "json"]
        if test.depth:
            words += ["-d", str(test.depth)]
        return [*arm.prefix, str(self.path), *words]


def ask_program(path: Path) -> Program:
    """What a ``llama-bench`` can."""
    said = proc.run([path, "--help"]).output
    return Program(path, "--load-mode" in said, "--n-depth" in said)


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
                ("--numa", "numactl"),
                prefix=_launcher(as_list(node.usable), f"bind:{node.id}"),
            )
            for node in nodes
        ]
        arms.append(
            Arm("interleave", "pristine", ("--numa", "numactl"), prefix=_launcher(every, f"interleave:{ids}"))
        )
        arms.append(Arm("distribute", "pristine", ("--numa", "distribute"), mapped=True, settles=True))
    if len(nodes) > 1 or pretend:
        asked = ("--numa", "mirror")
        arms.append(Arm("mirror-weights", "patched", asked, mirror="weights", pretend=pretend))
        arms.append(Arm("mirror", "patched", asked, mirror="all", pretend=pretend))
    return tuple(arms)


def _launcher(cpus: str, policy: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "numamirror_build.bench.launch", cpus, policy)


def threads_of(arm: Arm, nodes: Mapping[int, Node], wanted: Sequence[int]) -> list[int]:
    """The thread counts that an arm is measured with: an isolated one has only the CPUs of its node."""
    if not arm.name.startswith("isolate-"):
        return list(wanted)
    most = len(nodes[int(arm.name.removeprefix("isolate-"))].usable)
    return sorted({min(count, most) for count in wanted})
