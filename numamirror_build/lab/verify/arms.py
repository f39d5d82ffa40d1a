"""What is compared: machines, and the ways of running upstream on them. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from numamirror_build.lab.layout import DISTANCE, Layout, even_layout


@dataclass(frozen=True)
class Setting:
    """A machine: its name for checks' names, and its layout."""

    name: str
    layout: Layout

    @property
    def title(self) -> str:
        """For people."""
        return f"{len(self.layout.nodes)} nodes"


@dataclass(frozen=True)
class Arm:
    """A way of running upstream on a machine with several nodes.

    Attributes:
        name: for checks' names.
        title: for people.
        library: which build's libraries.
        strategy: the number for ``llama_numa_init``; 0 for no call.
        loading: ``default``, which is memory mapping unless there is a mirror, or ``no-mmap``.
        policy: the memory policy of the process: ``default``, or ``interleave`` over all nodes.
        one_node: whether there are threads for one node only.
        balancing: whether the kernel moves pages to where they are read (automatic NUMA balancing).
            It needs seconds to do so, which are no measure on an emulated machine.
    """

    name: str
    title: str
    library: Literal["pristine", "patched"] = "pristine"
    strategy: int = 0
    loading: Literal["default", "no-mmap"] = "default"
    policy: Literal["default", "interleave"] = "default"
    one_node: bool = False
    balancing: bool = False

    def threads(self, setting: Setting) -> int:
        """How many threads compute: one on each CPU that the arm is meant to use."""
        cpus = setting.layout.cpus
        return cpus // len(setting.layout.nodes) if self.one_node else cpus


MIRROR = Arm("mirror", "--numa mirror", "patched", strategy=4, balancing=True)
NO_MMAP = Arm("no-mmap", "no option, model read without mmap", loading="no-mmap")
OTHERS = (
    NO_MMAP,
    Arm("none", "no option"),
    Arm("distribute", "--numa distribute", strategy=1),
    Arm("isolate", "--numa isolate, threads for one node", strategy=2, one_node=True),
    Arm("interleave", "numactl --interleave=all, --numa numactl", strategy=3, policy="interleave"),
)

TWO_NODES = Setting("2-nodes", even_layout(2, 2, "256M", DISTANCE))
FOUR_NODES = Setting("4-nodes", even_layout(4, 1, "192M", DISTANCE))


@dataclass(frozen=True)
class Scope:
    """How much is run.

    Attributes:
        name: for the report.
        settings: machines.
        others: arms beside the mirror; with the first one's loads the mirror's are compared.
        further_models: whether the mirror is run with more than one model.
    """

    name: str
    settings: tuple[Setting, ...]
    others: tuple[Arm, ...]
    further_models: bool


WHOLE = Scope("lab", (TWO_NODES, FOUR_NODES), OTHERS, further_models=True)
SMALLEST = Scope(
    "lab, smallest",
    (Setting("2-nodes", even_layout(2, 1, "192M", DISTANCE)),),
    (NO_MMAP,),
    further_models=False,
)
