"""Findings: what on a machine would prevent the mirror, spoil what it brings, or is good to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numamirror_build.machine import bandwidth
from numamirror_build.machine.bandwidth import Bandwidth
from numamirror_build.machine.files import as_list
from numamirror_build.machine.state import State
from numamirror_build.machine.topology import Node

Severity = Literal["prevents", "spoils", "note"]

GIB = 1 << 30
UPSTREAM_NODES, UPSTREAM_CPUS = 8, 512  # what upstream's own strategies can count
ALIKE = 0.9  # a remote stream that gets so much of a local one is no slower
UNEVEN = 0.75  # of the largest node's memory


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        id: stable name.
        severity: ``prevents``: no mirror, or no build of it; ``spoils``: it brings less, or measurements
            say less; ``note``: good to know.
        what: the fact.
        advice: what to do about it.
    """

    id: str
    severity: Severity
    what: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """A machine and what was found on it. ``bandwidth`` is None when it was not measured."""

    state: State
    bandwidth: Bandwidth | None
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing prevents or spoils the mirror."""
        return all(finding.severity == "note" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The diagnosis for machines."""
        return {
            "healthy": self.healthy,
            "findings": [vars(finding) for finding in self.findings],
            "machine": self.state.as_json(),
            "bandwidth": self.bandwidth.as_json() if self.bandwidth else None,
        }


def diagnose(
    state: State, measured: Bandwidth | None, *, refused: str | None, missing: Sequence[str]
) -> Diagnosis:
    """Judge a machine.

    Args:
        state: the machine.
        measured: what its memory gives, if that was measured.
        refused: the error with which the kernel refuses a memory policy, if it does.
        missing: packages that building needs and that are not installed.
    """
    found = [
        *_nodes(state),
        *_memory(state),
        *_kernel(state, refused),
        *_processors(state),
        *_flows(state, measured),
        *_tools(missing),
    ]
    order = ("prevents", "spoils", "note")
    return Diagnosis(state, measured, tuple(sorted(found, key=lambda finding: order.index(finding.severity))))


def _nodes(state: State) -> Iterator[Finding]:
    mirrored = state.mirrored
    others = [node for node in state.nodes if node.skipped]
    if len(mirrored) < 2:
        several = len(state.nodes) > 1
        yield Finding(
            "one-node",
            "prevents",
            "Only one node has memory and CPUs that this process may use" + _reasons(others),
            "Widen the affinity mask or the cpuset."
            if several
            else "The mirror has no use here. GGML_NUMA_MIRROR_NODES pretends nodes, for tests.",
        )
    else:
        for node in others:
            yield Finding(
                "node-left-out",
                "note" if not node.cpus or not node.total else "spoils",
                f"Node {node.id} gets no replica: {node.skipped}",
                "Memory without CPUs (CXL) is not used by the mirror."
                if node.total and not node.cpus
                else "Widen the affinity mask or the cpuset, or leave it as it is on purpose.",
            )
    if len(mirrored) > 1 and len({node.packages for node in mirrored}) == 1 and mirrored[0].packages:
        yield Finding(
            "one-package",
            "spoils",
            f"{len(mirrored)} nodes are parts of one processor (NPS, SNC)",
            "Nodes of one package are close to each other: reports say that the mirror gained nothing there. "
            "Set NPS1, or SNC off, unless a benchmark says otherwise.",
        )
    numbers = [node.id for node in state.nodes]
    cpus = sum(len(node.cpus) for node in state.nodes)
    if numbers != list(range(len(numbers))):
        yield Finding(
            "gap",
            "note",
            f"The nodes' numbers have a gap: {as_list(numbers)}",
            "The mirror knows that; upstream's own strategies see only the nodes before the gap.",
        )
    if len(numbers) > UPSTREAM_NODES or cpus > UPSTREAM_CPUS:
        yield Finding(
            "many",
            "note",
            f"There are {len(numbers)} nodes and {cpus} CPUs",
            f"Upstream's own strategies count up to {UPSTREAM_NODES} nodes and {UPSTREAM_CPUS} CPUs.",
        )


def _reasons(others: Sequence[Node]) -> str:
    return "".join(f"; node {node.id}: {node.skipped}" for node in others)


def _memory(state: State) -> Iterator[Finding]:
    mirrored = state.mirrored
    if len(mirrored) > 1:
        least = min(mirrored, key=lambda node: node.room)
        yield Finding(
            "room",
            "note",
            f"A replica may take {_size(least.room)}: what can be had on node {least.id}",
            "Weights and cache of a model must fit into it; advise --model says what they take.",
        )
        largest = max(node.total for node in mirrored)
        for node in mirrored:
            if node.total < UNEVEN * largest:
                yield Finding(
                    "uneven-memory",
                    "spoils",
                    f"Node {node.id} has {_size(node.total)}, another one {_size(largest)}",
                    "The smallest node limits every replica, and unevenly filled channels slow a node down.",
                )
    if state.memory_limit is not None:
        short = len(mirrored) > 1 and state.memory_limit < sum(node.room for node in mirrored)
        yield Finding(
            "memory-limit",
            "spoils" if short else "note",
            f"The control group leaves {_size(state.memory_limit)}",
            "All replicas together must fit under it: raise the limit if they do not.",
        )
    for node, size in zip(state.nodes, state.pools, strict=True):
        if size:
            yield Finding(
                "huge-page-pool",
                "note",
                f"{_size(size)} of node {node.id} are set aside as huge pages",
                "Only GGML_NUMA_MIRROR_PAGES=2M or 1G uses them; otherwise give them back.",
            )


def _kernel(state: State, refused: str | None) -> Iterator[Finding]:
    several = len(state.mirrored) > 1
    if refused:
        yield Finding(
            "policy-refused",
            "spoils" if several else "note",
            f"The kernel refuses memory policies ({refused}), as in many containers",
            "Replicas are then placed by who writes first, which leaves some pages on other nodes. "
            "Allow mbind: with Docker --cap-add SYS_NICE, or a seccomp profile that has it.",
        )
    if state.numa_balancing:
        yield Finding(
            "numa-balancing",
            "spoils" if several else "note",
            "Automatic NUMA balancing is on",
            "It moves pages while you measure, and falsifies baselines. "
            "Turn it off: sysctl kernel.numa_balancing=0.",
        )
    if state.policy and state.policy != "default":
        yield Finding(
            "policy",
            "spoils" if several else "note",
            f"This process has inherited the memory policy {state.policy}",
            "The mirror binds its replicas all the same; baselines do not. Start without numactl.",
        )
    if state.huge_pages == "never":
        yield Finding(
            "no-huge-pages",
            "spoils",
            "Transparent huge pages are off",
            "Reading gigabytes through small pages costs some per cent: "
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled.",
        )


def _processors(state: State) -> Iterator[Finding]:
    slow = [governor for governor in state.governors if governor != "performance"]
    if slow:
        yield Finding(
            "governor",
            "spoils",
            f"The frequency governor is {', '.join(slow)}",
            "Clocks that change make measurements vary: cpupower frequency-set -g performance.",
        )
    cpus = sum(len(node.usable) for node in state.nodes)
    cores = sum(node.cores for node in state.nodes)
    if cores and cpus > cores:
        yield Finding(
            "threads-of-a-core",
            "note",
            f"{cpus} CPUs are {cores} cores with several threads each",
            f"Begin with {cores} threads: more seldom help when memory is the limit.",
        )
    every = sum(len(node.cpus) for node in state.nodes)
    if cpus < every:
        yield Finding(
            "affinity",
            "note",
            f"This process may run on {cpus} of {every} CPUs",
            "The affinity mask or a cpuset says so; give threads (-t) accordingly.",
        )
    counts = {len(node.usable) for node in state.mirrored}
    if len(counts) > 1:
        yield Finding(
            "uneven-cpus",
            "note",
            f"The nodes have unlike numbers of usable CPUs: {', '.join(map(str, sorted(counts)))}",
            "Threads are shared out accordingly; the weakest node may still keep the others waiting.",
        )
    if state.virtual:
        yield Finding(
            "virtual",
            "note",
            "This is a virtual machine",
            "Its nodes are what the host says, and may not be what the memory is: trust the bandwidths.",
        )


def _flows(state: State, measured: Bandwidth | None) -> Iterator[Finding]:
    if measured is None:
        return
    share = measured.remote_share()
    if share is not None and share >= ALIKE:
        yield Finding(
            "remote-as-local",
            "spoils",
            f"Remote memory gives {share:.0%} of what local memory gives",
            "There is little for the mirror to gain: compare with --numa distribute before you pay for it.",
        )
    elif share is not None:
        yield Finding(
            "link",
            "note",
            f"Remote memory gives {share:.0%} of what local memory gives",
            "Every byte that is read from another node costs that much more; advise --model counts with it.",
        )
    local = {flow.cpus: flow.rate for flow in measured.flows if flow.cpus == flow.memory}
    if len(local) > 1 and min(local.values()) < UNEVEN * max(local.values()):
        node = min(local, key=lambda number: local[number])
        yield Finding(
            "slow-node",
            "spoils",
            f"Node {node} reads {bandwidth.as_text(local[node])} of its own memory, "
            f"another one {bandwidth.as_text(max(local.values()))}",
            "All nodes wait for the slowest. Look for empty memory channels, or for other programs there.",
        )
    strays = [flow for flow in measured.flows if flow.on_node is not None and flow.on_node < 0.99]
    for flow in strays[:1]:
        yield Finding(
            "stray-pages",
            "note",
            f"Only {flow.on_node:.0%} of the pages that were to be on node {flow.memory} were there",
            "The bandwidths are then not those of that node.",
        )


def _tools(missing: Sequence[str]) -> Iterator[Finding]:
    if missing:
        yield Finding(
            "packages",
            "prevents",
            f"Programs that building needs are not installed: {', '.join(missing)}",
            f"On Debian or Ubuntu: sudo apt-get install {' '.join(missing)}",
        )


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
