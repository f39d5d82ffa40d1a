"""What is run, as data."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import click
import pytest

from numamirror_build.cli.commands import cli
from numamirror_build.verify import matrix
from numamirror_build.verify.matrix import Level

EVERY_LEVEL = pytest.mark.parametrize("level", matrix.LEVELS)


@EVERY_LEVEL
def test_every_value_of_every_setting_occurs(level: Level) -> None:
    """Prompts, batches, threads, caches and actions."""
    cases = matrix.cases(level, own=True)
    assert {case.prompt for case in cases} == {1, 33, 200}
    assert {case.batch for case in cases} == {1, 32, 512}
    assert {case.threads for case in cases} == set(matrix.THREADS[level])
    assert {(case.kv, case.flash) for case in cases} >= set(matrix.CACHES)
    assert {case.action for case in cases} == {None, *matrix.ACTIONS}


def test_the_settings_are_those_that_were_asked_for() -> None:
    """Four types of cache with and without flash attention, 1 to 5 threads, 1 to 4 nodes."""
    assert set(matrix.CACHES) == set(product(("f16", "bf16", "q8_0", "q4_0"), (True, False)))
    assert matrix.THREADS["full"] == (1, 2, 3, 4, 5)
    replicas = {variant.replicas for variant in matrix.variants("full", 1) if variant.expect == "same"}
    assert replicas == {0, 1, 2, 3, 4}


@EVERY_LEVEL
@pytest.mark.parametrize("own", [True, False])
def test_every_pair_of_prompt_batch_and_threads_occurs(level: Level, own: bool) -> None:
    """No two of them miss each other, in models of real size either."""
    plain = [case for case in matrix.cases(level, own=own) if not case.action and case.flash is None]
    rows = [(case.prompt, case.batch, case.threads) for case in plain]
    for left, right in combinations(range(3), 2):
        assert len({(row[left], row[right]) for row in rows}) == 9


def test_in_full_every_pair_occurs() -> None:
    """Any two settings meet with any of their values, an action or none among them."""
    rows = [
        (case.prompt, case.batch, case.threads, (case.kv, case.flash), case.action)
        for case in matrix.cases("full", own=True)
    ]
    values: list[tuple[object, ...]] = [
        matrix.PROMPTS,
        matrix.BATCHES,
        matrix.THREADS["full"],
        matrix.CACHES,
        (None, *matrix.ACTIONS),
    ]
    for left, right in combinations(range(len(values)), 2):
        assert set(product(values[left], values[right])) <= {(row[left], row[right]) for row in rows}


def test_full_has_what_quick_has() -> None:
    """A longer verification leaves nothing out that a short one has."""
    assert set(matrix.cases("quick", own=True)) < set(matrix.cases("full", own=True))
    full = matrix.variants("full", 2)
    assert all(variant in full for variant in matrix.variants("quick", 2))


def test_adapters_have_a_plain_twin() -> None:
    """What must change the answers is compared with the same case without it."""
    for own in (True, False):
        cases = matrix.cases("full", own=own)
        plain = {(case.prompt, case.batch, case.threads) for case in cases if not case.action}
        adapted = [case for case in cases if case.action in matrix.ADAPTING and case.flash is None]
        assert adapted
        assert all((case.prompt, case.batch, case.threads) in plain for case in adapted)


@EVERY_LEVEL
def test_names_are_unique(level: Level) -> None:
    """No case and no variant shadows another."""
    variants = (*matrix.variants(level, 2), matrix.one_node(2), matrix.NO_MEMORY)
    for names in (
        [case.id for case in matrix.cases(level, own=True)],
        [case.id for case in matrix.cases(level, own=False)],
        [variant.name for variant in variants],
    ):
        assert len(names) == len(set(names))


def test_variants_of_an_ordinary_machine() -> None:
    """One node: pristine twice, off, 1 to 3 pretend nodes, by environment alone, compared, and damaged."""
    by_name = {variant.name: variant for variant in matrix.variants("quick", 1)}
    assert next(iter(by_name)) == "pristine"
    assert {name: variant.replicas for name, variant in by_name.items() if variant.replicas} == {
        "mirror-1": 1,
        "mirror-2": 2,
        "mirror-3": 3,
        "mirror-2-env": 2,
        "mirror-2-checked": 2,
        "damaged": 2,
        "damaged-cache": 2,
        "damaged-checked": 2,
    }
    assert by_name["off"].env == {} and by_name["off"].strategy == 0
    assert by_name["mirror-2-env"].strategy == 0
    assert by_name["damaged"].expect == by_name["damaged-cache"].expect == "different"
    assert by_name["damaged-checked"].expect == "stopped"


def test_variants_of_a_machine_with_nodes() -> None:
    """Several nodes: they are used as they are, too."""
    real = {variant.name: variant for variant in matrix.variants("quick", 4)}["mirror-real"]
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


def test_upstreams_faults_are_found_in_its_files(tmp_path: Path) -> None:
    """A tree with the fault leaves cases out, one without it does not."""
    fault = matrix.FAULTS[0]
    path = tmp_path / fault.path
    assert matrix.faults(tmp_path) == {}
    path.parent.mkdir(parents=True)
    path.write_text(f"        {fault.text};\n")
    assert matrix.faults(tmp_path) == dict.fromkeys(fault.actions, fault.reason)
    path.write_text("std::atomic<int64_t> & current_chunk = params->chunk;\n")
    assert matrix.faults(tmp_path) == {}
    assert set(fault.actions) <= set(matrix.ACTIONS)


def test_without_flash_attention_only_k_is_quantised() -> None:
    """Two cases of each model have K and V of two types: q8_0 and q4_0, without flash attention."""
    cases = [case for case in matrix.cases("quick", own=True) if matrix.of_two_types(case)]
    assert {(case.kv, case.flash) for case in cases} == {("q8_0", False), ("q4_0", False)}


def test_a_quantised_k_is_shifted_in_the_full_matrix() -> None:
    """These cases are left out for models whose K and V are one, and no others are."""
    cases = [case for case in matrix.cases("full", own=True) if matrix.shifts_quantised(case)]
    assert {(case.kv, case.action) for case in cases} == {("q8_0", "shift"), ("q4_0", "shift")}


def test_the_command_has_these_levels() -> None:
    """The command line does not import them, and knows them all the same."""
    command = cli.commands["verify"]
    kind = next(option.type for option in command.params if option.name == "matrix")
    assert isinstance(kind, click.Choice)
    assert tuple(kind.choices) == matrix.LEVELS
