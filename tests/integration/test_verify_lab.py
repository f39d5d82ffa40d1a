"""``verify --lab``: the mirror on real nodes beside what upstream's own options do there."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest

from numamirror_build.lab.verify import verify_in_lab
from numamirror_build.lab.verify.arms import SMALLEST
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify import Verification

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sources,
    pytest.mark.build,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed"),
]

SECONDS = 15 * 60


def shares(verification: Verification, arm: str) -> list[tuple[float, float]]:
    """What an arm reads from other nodes: weights and KV, for each machine."""
    found: list[dict[str, Any]] = [
        check.facts["generation"]
        for check in verification.checks
        if check.id.split("/")[0] in ("lab-arms", "lab-remote") and check.id.split("/")[2] == arm
    ]
    return [(each["weights"]["remote_share"], each["kv"]["remote_share"]) for each in found]


UPSTREAMS = pytest.mark.parametrize("which", ["pipeline", "ik_pipeline"], ids=["llama.cpp", "ik_llama.cpp"])


@UPSTREAMS
def test_the_smallest_size(store: Store, which: str, request: pytest.FixtureRequest) -> None:
    """On two nodes the mirror reads nothing remotely; pristine without mmap reads about half of it."""
    pipeline: Pipeline = request.getfixturevalue(which)
    pristine, patched = pipeline.portable_builds
    made = verify_in_lab(store, pristine=pristine, patched=patched, scope=SMALLEST, progress=Quiet())
    assert made.passed and len(made.checks) == 6
    assert shares(made, "mirror") == [(0, 0)]
    [(weights, caches)] = shares(made, "no-mmap")
    assert 0.2 < weights < 0.8 and caches > 0.1
    assert [row[1] for row in made.tables[0].rows] == [f"{weights:.1%}", "0.0%"]


@pytest.mark.slow
@UPSTREAMS
def test_the_whole(which: str, request: pytest.FixtureRequest) -> None:
    """Both machines, all arms, three models, in the time that is promised."""
    pipeline: Pipeline = request.getfixturevalue(which)
    assert pipeline.portable_builds
    start = time.monotonic()
    made = pipeline.verify_in_lab()
    assert time.monotonic() - start < SECONDS
    assert made.passed
    assert max(max(pair) for pair in shares(made, "mirror")) <= 0.001
    assert all(weights > 0.2 for weights, _ in shares(made, "no-mmap"))
