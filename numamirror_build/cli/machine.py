"""``doctor``: what is asked of the machine, and what it answers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from numamirror_build.cli.answers import Answer, table
from numamirror_build.machine import bandwidth
from numamirror_build.machine.bandwidth import Bandwidth, make_program, measure
from numamirror_build.machine.doctor import Diagnosis, diagnose
from numamirror_build.machine.files import as_list
from numamirror_build.machine.policy import refused_policy
from numamirror_build.machine.state import State, read_state

if TYPE_CHECKING:
    from numamirror_build.progress import Progress
    from numamirror_build.store import Store

UNHEALTHY = 60

# what is looked for, and the package of Debian that has it
NEEDED = {"cc": "gcc", "c++": "g++", "git": "git"}
GIB = 1 << 30


def doctor(store: Store, *, measured: bool, progress: Progress) -> Answer:
    """Judge this machine.

    Args:
        store: the cache.
        measured: whether to measure the bandwidth of memory.
        progress: what is told how far it is.
    """
    state = read_state()
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    # without CPUs and memory there is nothing to measure, and without a compiler nothing to measure with
    possible = measured and state.mirrored and "gcc" not in missing
    progress.step("Measuring bandwidth" if possible else "Looking at the machine")
    flows = measure(state.mirrored, make_program(store), progress) if possible else None
    node = state.mirrored[0].id if state.mirrored else 0
    made = diagnose(state, flows, refused=refused_policy(node), missing=missing)
    return Answer(made.as_json(), _text(made), 0 if made.healthy else UNHEALTHY)


def _text(made: Diagnosis) -> str:
    found = [
        line
        for finding in made.findings
        for line in (f"{finding.severity}: {finding.what}", f"  {finding.advice}")
    ]
    parts = [_machine(made.state), _flows(made.bandwidth), found or ["nothing found"]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _machine(state: State) -> list[str]:
    rows = [
        [
            str(node.id),
            as_list(node.usable),
            str(node.cores),
            f"{node.total / GIB:.1f}",
            f"{node.free / GIB:.1f}",
            f"{node.reclaimable / GIB:.1f}",
            " ".join(map(str, node.distances)),
        ]
        for node in state.nodes
    ]
    head = ["node", "usable CPUs", "cores", "GiB", "free", "reclaimable", "distances"]
    return [
        f"{state.processor}, {state.kernel}",
        f"numa_balancing {_said(state.numa_balancing)}, huge pages {_said(state.huge_pages)}, "
        f"governor {_said(', '.join(state.governors))}, memory policy {_said(state.policy)}",
        "",
        *table(head, rows, right=(0, 2, 3, 4, 5)),
    ]


def _flows(measured: Bandwidth | None) -> list[str]:
    if measured is None:
        return []
    flows = [*measured.flows, *measured.single]
    rows = [
        [str(flow.cpus), str(flow.threads), str(flow.memory), bandwidth.as_text(flow.rate)] for flow in flows
    ]
    return table(["CPUs of node", "threads", "read node", "at"], rows, right=(0, 1, 2, 3))


def _said(value: object) -> str:
    return "unknown" if value in (None, "") else str(value)
