"""What is concluded from what was seen on machines with several nodes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numamirror_build.lab.trace import Count, Trace
from numamirror_build.lab.verify import checks
from numamirror_build.lab.verify.arms import FOUR_NODES, MIRROR, NO_MMAP, OTHERS, TWO_NODES
from numamirror_build.lab.verify.observe import Observation
from numamirror_build.verify.document import Check
from numamirror_build.verify.models import Contents, Model

MODEL = Model("m", Path("m.gguf"), "identity")
CONTENTS = Contents("llama", 3, 4096)
STATUS: dict[str, Any] = {
    "active": True,
    "pretend": False,
    "nodes": [
        {"id": 0, "replica": 0, "cpus": "0-1", "threads": 2, "pages": {"0": 2}},
        {"id": 1, "replica": 1, "cpus": "2-3", "threads": 2, "pages": {"1": 2}},
    ],
    "tensors": {"eligible_bytes": 4096, "replicated_bytes": 4096},
    "threads": {"bound": True},
}
RANGES = [
    {"class": what, "replica": replica, "bytes": 4096, "pages": {str(replica): 1}}
    for what in ("weights", "kv")
    for replica in (0, 1)
]
FACTS = {"status": STATUS, "threads": ["0-1", "0-3", "2-3", "2-3"], "ranges": RANGES, "balancing": 1}
LOCAL = Trace(
    tuple(Count("generation", what, node, node, 1000, 0) for what in ("weights", "kv") for node in (0, 1))
)
SEEN = Observation(None, FACTS, LOCAL)
DEAD = Observation("the program ended with status 1: no such thing")


def changed(**facts: Any) -> Observation:
    """What was seen, with other facts; ``path__to__entry`` names one in the status record."""
    copy = deepcopy(FACTS)
    for name, value in facts.items():
        *path, last = name.split("__")
        place: Any = copy
        for part in path:
            place = place[int(part) if part.isdigit() else part]
        place[last] = value
    return replace(SEEN, facts=copy)


def with_pages(index: int, pages: dict[str, int]) -> Observation:
    """What was seen, with pages of one range elsewhere."""
    ranges = deepcopy(RANGES)
    ranges[index]["pages"] = pages
    return changed(ranges=ranges)


def traced(*counts: Count) -> Observation:
    """What was seen, with more counted."""
    return replace(SEEN, trace=Trace((*LOCAL.counts, *counts)))


def saved(path: Path, values: list[float]) -> Observation:
    """A run with these logits."""
    np.array(values, dtype=np.float32).tofile(path)
    return replace(SEEN, logits=path)


def pages(seen: Observation) -> Check:
    """The check of pages of a mirror on two nodes."""
    return checks.pages(TWO_NODES, MIRROR, MODEL, seen, CONTENTS)


def threads(seen: Observation) -> Check:
    """The check of threads of a mirror on two nodes."""
    return checks.threads(TWO_NODES, MIRROR, MODEL, seen)


def remote(seen: Observation, pristine: Observation | None = None) -> Check:
    """The check of remote reads of a mirror on two nodes."""
    return checks.remote(TWO_NODES, MIRROR, MODEL, seen, pristine)


def test_all_is_well() -> None:
    """What should be so passes, under names of its own."""
    passed = [pages(SEEN), threads(SEEN), remote(SEEN, SEEN), checks.other(TWO_NODES, NO_MMAP, MODEL, SEEN)]
    assert [check.reason for check in passed] == [None] * 4
    assert [check.id for check in passed] == [
        "lab-pages/2-nodes/mirror/m",
        "lab-threads/2-nodes/mirror/m",
        "lab-remote/2-nodes/mirror/m",
        "lab-arms/2-nodes/no-mmap/m",
    ]


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (with_pages(1, {"1": 5, "0": 1}), "replica 1 of the weights"),
        (with_pages(2, {"0": 5, "-1": 1}), "absent"),
        (with_pages(3, {}), "replica 1 of the kv"),
        (changed(status__active=False), "not active"),
        (changed(status__pretend=True), "not active on real nodes"),
        (changed(status__nodes=STATUS["nodes"][:1]), "nodes [0] instead of [0, 1]"),
        (changed(status__nodes__1__pages={"0": 2}), "status record has replica 1"),
        (changed(status__tensors={"eligible_bytes": 4096, "replicated_bytes": 4095}), "replicated"),
        (changed(status__tensors={"eligible_bytes": 4000, "replicated_bytes": 4000}), "of 4096 bytes"),
        (changed(status=None), "not active"),
        (DEAD, "no such thing"),
    ],
)
def test_misplaced_pages(seen: Observation, word: str) -> None:
    """A page elsewhere, or nowhere, fails; so does a mirror that is not what it should be."""
    check = pages(seen)
    assert check.status == "fail" and word in (check.reason or "")


@pytest.mark.parametrize(
    "seen",
    [
        changed(threads=["0-3"] * 4),
        changed(threads=["0-1", "0-3", "0-3", "2-3"]),
        changed(threads=["0-1", "0-1", "0-1", "0-3"]),
        changed(status__threads={"bound": False}),
        changed(status__nodes__0__threads=4, status__nodes__1__threads=0),
        changed(status__nodes__0__threads=1),
        changed(status=None),
        DEAD,
    ],
)
def test_threads_elsewhere(seen: Observation) -> None:
    """Threads that are not bound, or shared out otherwise, fail."""
    assert threads(seen).status == "fail"


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (traced(Count("generation", "weights", 0, 1, 3, 0)), "0.15% of the weights were read remotely"),
        (traced(Count("generation", "kv", 1, None, 3, 0)), "of the kv were read remotely"),
        (replace(SEEN, trace=Trace(())), "nothing was read of the weights"),
        (changed(balancing=0), "automatic balancing is 0"),
        (replace(SEEN, trace=Trace(LOCAL.counts[::2])), "only the CPUs of the nodes [0]"),
        (DEAD, "no such thing"),
    ],
)
def test_remote_reads(seen: Observation, word: str) -> None:
    """More than a thousandth from elsewhere fails, and so does what was not counted."""
    check = remote(seen)
    assert check.status == "fail" and word in (check.reason or "")


def test_what_does_not_count_as_remote() -> None:
    """A thousandth is allowed; other phases, other addresses and stores do not count."""
    few = Count("generation", "weights", 0, 1, 2, 0)
    others = (Count("prompt", "kv", 0, 1, 99, 0), Count("generation", "other", 0, 1, 99, 0))
    assert remote(traced(few, *others, Count("generation", "kv", 0, 1, 0, 99))).status == "pass"


def test_less_than_pristine_reads() -> None:
    """A mirror whose weights were not counted as a whole fails: pristine tells how much there is."""
    more = traced(Count("generation", "weights", 0, 1, 100, 0))
    assert "were read, by pristine" in (remote(SEEN, more).reason or "")


def test_answers(tmp_path: Path) -> None:
    """Bit for bit: -0 is not 0; nothing, other sizes and numbers that say nothing fail, too."""
    good = saved(tmp_path / "good", [0.0, 1.5])

    def reason(seen: Observation, reference: Observation = good) -> str | None:
        return checks.answers(TWO_NODES, MIRROR, MODEL, seen, reference).reason

    assert reason(good) is None
    assert "1 of 2 logits differ" in (reason(saved(tmp_path / "a", [-0.0, 1.5])) or "")
    assert "1 logits instead of 2" in (reason(saved(tmp_path / "b", [0.0])) or "")
    same = saved(tmp_path / "c", [1.0, 1.0])
    assert "all the same" in (reason(same, same) or "")
    assert "outside: the program ended" in (reason(good, DEAD) or "")
    assert "in the lab: the program ended" in (reason(DEAD) or "")


def test_other_arms_must_be_counted() -> None:
    """What upstream's options read remotely is no failure; not to have counted anything is one."""
    half = traced(Count("generation", "weights", 0, 1, 2000, 0))
    check = checks.other(TWO_NODES, NO_MMAP, MODEL, half)
    assert check.status == "pass"
    assert check.facts["generation"]["weights"]["remote_share"] == 0.5
    assert checks.other(TWO_NODES, NO_MMAP, MODEL, replace(SEEN, trace=Trace(()))).status == "fail"
    assert checks.other(TWO_NODES, NO_MMAP, MODEL, DEAD).status == "fail"


def test_the_table() -> None:
    """An arm a line, three columns a machine; a run that failed has no shares."""
    half = traced(Count("generation", "weights", 0, 1, 2000, 0))
    seen = {
        (TWO_NODES.name, NO_MMAP.name): half,
        (TWO_NODES.name, MIRROR.name): SEEN,
        (FOUR_NODES.name, NO_MMAP.name): DEAD,
        (FOUR_NODES.name, MIRROR.name): SEEN,
    }
    table = checks.arms_table((TWO_NODES, FOUR_NODES), (NO_MMAP, MIRROR), seen, MODEL)
    assert table.head[:3] == ("arm", "2 nodes: weights", "KV")
    assert table.rows == (
        (NO_MMAP.title, "50.0%", "0.0%", "0: 50%, 1: 50%", "-", "-", ""),
        (MIRROR.title, "0.0%", "0.0%", "0: 50%, 1: 50%", "0.0%", "0.0%", "0: 50%, 1: 50%"),
    )


def test_threads_of_arms() -> None:
    """A thread per CPU; isolate has those of one node."""
    one_node = [arm.name for arm in OTHERS if arm.threads(TWO_NODES) != 4]
    assert one_node == ["isolate"]
    assert [arm.threads(TWO_NODES) for arm in OTHERS if arm.one_node] == [2]
    assert MIRROR.threads(FOUR_NODES) == 4
