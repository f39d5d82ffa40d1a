"""What is expected of arms, and what is advised."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from numamirror_build.advise.platform import Node, Platform
from numamirror_build.advise.speed import Parameters, advise
from numamirror_build.advise.traffic import Traffic

GIB = 1 << 30
NODE = Node(cores=16, memory=64 * GIB, package=0, bandwidth=100e9, core_bandwidth=None)
TWO = Platform("two", "made up", (NODE, replace(NODE, package=1)), 0.4, 3e9, None, ())
MODEL = Traffic(
    arch="llama",
    weights=20 * 10**9,
    weights_read=18 * 10**9,
    elements_read=30 * 10**9,
    products=450,
    cache=10**9,
    cache_read=2 * 10**8,
    cache_writes=64,
    context=4096,
    depth=512,
    cache_type="f16",
    experts=None,
    assumptions=(),
)
IDEAL = Parameters(
    product_share=1, together_share=1, product_seconds=0, link_seconds=0, elements_per_cycle=1e9
)


def test_ideal_arms() -> None:
    """Without losses: twice for the mirror and a settled distribute, the link's toll for the others."""
    made = advise(MODEL, TWO, IDEAL)
    alone = made.expectation("isolate").rate
    ratios = {one.arm: one.rate / alone for one in made.expectations}
    assert alone == pytest.approx(100e9 / 18.2e9)
    assert ratios["mirror"] == pytest.approx(2)
    assert ratios["distribute"] == pytest.approx(2)
    assert ratios["none"] == pytest.approx(0.8), "half of it comes over a link of 0.4"
    assert ratios["interleave"] == pytest.approx(2 / (0.5 + 0.5 / 0.4))
    assert 1.9 < ratios["mirror-weights"] < 2
    assert made.gain == pytest.approx(ratios["mirror"] / ratios["interleave"])


def test_memory() -> None:
    """Each arm's memory on each node; one copy is spread, the mirror has it on both."""
    both = MODEL.weights + MODEL.cache
    memory = {one.arm: one.memory for one in advise(MODEL, TWO).expectations}
    assert memory == {
        "isolate": (both, 0),
        "none": (both, 0),
        "interleave": (both // 2, both // 2),
        "distribute": (both // 2, both // 2),
        "mirror-weights": (both, MODEL.weights),
        "mirror": (both, both),
    }


def test_a_mirror_that_pays() -> None:
    """The advice names the factor, what it is compared with, threads, and that distribute may do as well."""
    made = advise(MODEL, TWO)
    first, second = made.words()
    assert first.startswith("Mirror: expect 1.") and "isolate" in first and "32 threads" in first
    assert "distribute" in second
    assert json.loads(json.dumps(made.as_json()))["use"] == {"arm": "mirror", "threads": 32}


def test_no_gain() -> None:
    """Nodes whose link is as fast as memory gain nothing, and small models lose by waiting."""
    near = advise(MODEL, replace(TWO, remote_share=0.95, nodes=(NODE,) * 4))
    assert near.words()[0].startswith("No gain expected")
    assert near.others and f"use {near.others.threads} threads and " in near.words()[0]
    assert near.as_json()["use"] == {"arm": near.others.arm, "threads": near.others.threads}
    small = replace(MODEL, weights=10**8, weights_read=10**8, elements_read=10**8, cache_read=0)
    assert advise(small, TWO).words()[0].startswith("No gain expected")
    assert advise(small, TWO).expectation("mirror").bound == "waiting"


def test_one_node() -> None:
    """There is one arm, and nothing to mirror."""
    made = advise(MODEL, replace(TWO, nodes=(NODE,)))
    assert [one.arm for one in made.expectations] == ["isolate"]
    assert made.gain is None
    assert "nothing to mirror. Use 16 threads" in made.words()[0]


def test_what_does_not_fit() -> None:
    """A replica must fit on each node, all of them under the limit; what fits is advised instead."""
    small = replace(NODE, memory=15 * GIB)
    made = advise(MODEL, replace(TWO, nodes=(NODE, small)))
    assert not made.expectation("mirror").fits
    assert made.words()[0].startswith("The mirror does not fit: use 16 threads and --numa isolate")
    assert made.as_json()["use"] == {"arm": "isolate", "threads": 16}
    assert made.expectation("isolate").memory == (MODEL.weights + MODEL.cache, 0)
    limited = advise(MODEL, replace(TWO, limit=30 * GIB))
    assert [one.arm for one in limited.expectations if not one.fits] == ["mirror-weights", "mirror"]
    tiny = advise(MODEL, replace(TWO, nodes=(replace(NODE, memory=GIB),) * 2))
    assert tiny.words()[0].startswith("The model does not fit")
    assert tiny.as_json()["use"] is None
    one = advise(MODEL, replace(TWO, nodes=(replace(NODE, memory=GIB),)))
    assert one.words()[0].startswith("The model does not fit")


def test_unlike_nodes() -> None:
    """Threads are shared out by cores: many of them with little bandwidth keep others waiting."""
    slow = replace(NODE, cores=48, bandwidth=50e9)
    made = advise(MODEL, replace(TWO, nodes=(slow, NODE)), IDEAL)
    assert made.expectation("isolate").rate == pytest.approx(100e9 / 18.2e9), "the faster one"
    assert made.expectation("mirror").seconds == pytest.approx(18.2e9 * 0.75 / 50e9)


def test_ceilings() -> None:
    """Few cycles, or cores that cannot take what the memory gives, set the limit."""
    slow = advise(MODEL, replace(TWO, clock=1e8))
    assert {one.bound for one in slow.expectations} == {"computing"}
    assert slow.expectation("mirror").rate == pytest.approx(2 * slow.expectation("isolate").rate, rel=0.02)
    weak = replace(NODE, core_bandwidth=2e9)
    made = advise(MODEL, replace(TWO, nodes=(weak, weak)), IDEAL)
    assert made.expectation("isolate").rate == pytest.approx(32e9 / 18.2e9)
