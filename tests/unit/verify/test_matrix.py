"""What is run, as data."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

from numamirror_build.verify import matrix


def test_all_cases_are_the_whole_grid() -> None:
    """Every prompt meets every batch and every thread count; attention, cache and its changes vary."""
    cases = matrix.all_cases()
    grid = {
        (case.prompt, case.batch, case.threads)
        for case in cases
        if not (case.flash is not None or case.action)
    }
    assert grid == set(product((1, 33, 200), (1, 32, 512), (1, 2, 3)))
    assert {case.kv for case in cases} == {"f16", "q8_0"}
    assert {case.flash for case in cases} == {None, True, False}
    assert {case.action for case in cases} == {None, "shift", "copy", "state"}


def test_few_cases_have_every_pair() -> None:
    """The short list lacks no pair of values of two settings."""
    rows = [(case.prompt, case.batch, case.threads) for case in matrix.few_cases()]
    for left, right in combinations(range(3), 2):
        assert len({(row[left], row[right]) for row in rows}) == 9
    assert len(rows) == 9


def test_names_are_unique() -> None:
    """No case and no variant shadows another."""
    for names in (
        [case.id for case in matrix.all_cases()],
        [case.id for case in matrix.few_cases()],
        [variant.name for variant in (*matrix.variants(2), matrix.one_node(2), matrix.NO_MEMORY)],
    ):
        assert len(names) == len(set(names))


def test_variants_of_an_ordinary_machine() -> None:
    """One node: pristine twice, off, 1 to 3 pretend nodes, by environment alone, and a damaged replica."""
    by_name = {variant.name: variant for variant in matrix.variants(1)}
    assert next(iter(by_name)) == "pristine"
    assert {name: variant.replicas for name, variant in by_name.items() if variant.replicas} == {
        "mirror-1": 1,
        "mirror-2": 2,
        "mirror-3": 3,
        "mirror-2-env": 2,
        "mirror-2-checked": 2,
        "damaged": 2,
    }
    assert by_name["off"].env == {} and by_name["off"].strategy == 0
    assert by_name["mirror-2-env"].strategy == 0
    assert by_name["damaged"].expect == "different"


def test_variants_of_a_machine_with_nodes() -> None:
    """Several nodes: they are used as they are, too."""
    real = {variant.name: variant for variant in matrix.variants(4)}["mirror-real"]
    assert (real.replicas, real.env, real.strategy) == (4, {}, matrix.MIRROR)


def test_one_node_is_this_machine_or_a_described_one() -> None:
    """Where the machine itself has one node, nothing is made up."""
    assert matrix.one_node(1).env == {}
    assert matrix.one_node(2).env["GGML_NUMA_MIRROR_ROOT"].endswith("one-node")


def test_described_machines_are_shipped() -> None:
    """The machines that variants describe are in the package."""
    for variant in (matrix.one_node(2), matrix.NO_MEMORY):
        root = Path(variant.env["GGML_NUMA_MIRROR_ROOT"])
        assert (root / "proc/meminfo").read_text().startswith("MemTotal:")
