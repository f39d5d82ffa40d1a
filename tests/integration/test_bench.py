"""``bench`` with real programs: on this machine with pretended nodes, and in the lab on two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.bench.results import load_results
from numamirror_build.cli import bench
from numamirror_build.pipeline import Pipeline
from numamirror_build.store import Store
from numamirror_build.verify.models import find_recipe, make_model
from tests.unit.bench.test_placement import has_numa_maps

pytestmark = [pytest.mark.sources, pytest.mark.build]

ARMS = ["none", "off", "isolate-0", "isolate-1", "interleave", "distribute", "mirror-weights", "mirror"]
NOTHING: dict[str, Any] = {
    "arms": (),
    "threads": (),
    "generate": (),
    "prompt": (),
    "token_times": (),
    "slots": (),
    "depth": (0,),
    "repetitions": 1,
    "pretend": 0,
    "lab": False,
}


def bench_with(
    pipeline: Pipeline, store: Store, results: Path, model: str = "dense-q8_0", **given: Any
) -> dict[str, Any]:
    """Measure a model that verification makes; the document, with each point's facts by its test and arm."""
    path = make_model(store, find_recipe(model)).path
    answer = bench.run(pipeline, str(path), **{**NOTHING, **given}, results=results)
    json.dumps(answer.document)
    measured = load_results(results).measured
    assert [one.reason for one in measured if one.outcome == "failed"] == []
    points = {(one.point.test, one.point.arm): one.facts for one in measured}
    return {**answer.document, "points": points}


@pytest.mark.parametrize("which", ["pipeline", "ik_pipeline"])
def test_pretended_nodes(which: str, store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each upstream's program and binding measure all arms; with tokens before, and several requests."""
    made = bench_with(
        request.getfixturevalue(which),
        store,
        tmp_path / "r.jsonl",
        threads=(1,),
        generate=(4,),
        token_times=(4,),
        slots=(1, 3),
        depth=(0, 20),
        pretend=2,
    )
    arms = ["none", "off", "mirror-weights", "mirror"]
    tests = ["tg4", "tg4@d20", "tok4", "tok4@d20", "tok4x3", "tok4x3@d20"]
    assert [(row["test"], row["arm"]) for row in made["rows"]] == [
        (test, arm) for test in tests for arm in arms
    ]
    assert all(row["summary"]["median"] > 1 for row in made["rows"])
    for (test, arm), facts in made["points"].items():
        if arm in arms[2:]:
            assert facts["mirror"]["replicas"] == 2 and len(facts["mirror"]["nodes"]) == 2
        if test.startswith("tok"):
            assert len(facts["token_times"]) == 4 and min(facts["token_times"]) > 0
            assert not has_numa_maps() or sum(facts["placement"]["whole"].values()) > 3 << 20
    assert "pretended" in " ".join(made["advice"])


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
def test_in_the_lab(pipeline: Pipeline, store: Store, tmp_path: Path) -> None:
    """On two nodes every arm runs, and its memory is where it should be; distribute settles first."""
    made = bench_with(pipeline, store, tmp_path / "r.jsonl", threads=(4,), generate=(4,), lab=True)
    assert [row["arm"] for row in made["rows"]] == ARMS
    assert [row["threads"] for row in made["rows"]] == [4, 4, 2, 2, 4, 4, 4, 4]
    facts = {arm: made["points"]["tg4", arm] for arm in ARMS}
    settling = facts["distribute"]["settling"]
    assert settling["settled"] and len(settling["rates"]) > 1
    # the model's pages lie where they are read: on both nodes
    assert min(settling["places"][-1].values()) > sum(settling["places"][-1].values()) / 10
    model = made["subject"]["model"]["bytes"]
    for arm in ("mirror-weights", "mirror"):
        nodes = facts[arm]["mirror"]["nodes"]
        assert facts[arm]["mirror"]["active"] and not facts[arm]["mirror"]["pretend"]
        assert [(node["id"], set(node["pages"])) for node in nodes] == [(0, {"0"}), (1, {"1"})]
        assert all(node["bytes"] >= 0.9 * model for node in nodes)
    memory = {arm: facts[arm]["placement"]["whole"] for arm in ARMS if "placement" in facts[arm]}
    if "interleave" in memory:
        assert min(memory["interleave"].get(node, 0) for node in "01") > model / 3
    for node in "01":
        if f"isolate-{node}" in memory:
            assert memory[f"isolate-{node}"].get(node, 0) > model / 2
    assert "emulated" in " ".join(made["advice"])
