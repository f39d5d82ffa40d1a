"""What is run, as data."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path

import click
import pytest

from numamirror_build.cli.commands import cli
from numamirror_build.verify import matrix
from numamirror_build.verify.matrix import Case, Level
from numamirror_build.verify.profile import Instead, Profile, Rule, load_profile
from tests.unit.verify.made_up import PROFILE

IK = load_profile("ik_llama.cpp")


def cases(
    level: Level, *, own: bool = True, profile: Profile = PROFILE, arch: str = "llama"
) -> tuple[Case, ...]:
    """The cases of a level, without rules that leave some out."""
    return matrix.cases(level, profile, (), arch, own=own).chosen


KINDS = set(product(PROFILE.caches, (True, False)))
EVERY_LEVEL = pytest.mark.parametrize("level", matrix.LEVELS)


@EVERY_LEVEL
def test_every_value_of_every_setting_occurs(level: Level) -> None:
    """Prompts, batches, threads, caches and actions."""
    every = cases(level, own=True)
    assert {case.prompt for case in every} == {1, 33, 200}
    assert {case.batch for case in every} == {1, 32, 512}
    assert {case.threads for case in every} == set(matrix.THREADS[level])
    assert {(case.kv, case.flash) for case in every} >= KINDS
    assert {case.action for case in every} == {None, *matrix.ACTIONS}


def test_the_settings_are_those_that_were_asked_for() -> None:
    """Four types of cache with and without flash attention, 1 to 5 threads, 1 to 4 nodes."""
    assert PROFILE.caches == ("f16", "bf16", "q8_0", "q4_0")
    assert matrix.THREADS["full"] == (1, 2, 3, 4, 5)
    replicas = {variant.replicas for variant in matrix.variants("full", 1) if variant.expect == "same"}
    assert replicas == {0, 1, 2, 3, 4}


@EVERY_LEVEL
@pytest.mark.parametrize("own", [True, False])
def test_every_pair_of_prompt_batch_and_threads_occurs(level: Level, own: bool) -> None:
    """No two of them miss each other, in models of real size either."""
    plain = [case for case in cases(level, own=own) if not case.action and case.flash is None]
    rows = [(case.prompt, case.batch, case.threads) for case in plain]
    for left, right in combinations(range(3), 2):
        assert len({(row[left], row[right]) for row in rows}) == 9


def test_in_full_every_pair_occurs() -> None:
    """Any two settings meet with any of their values, an action or none among them."""
    rows = [
        (case.prompt, case.batch, case.threads, (case.kv, case.flash), case.action)
        for case in cases("full", own=True)
    ]
    values: list[tuple[object, ...]] = [
        matrix.PROMPTS,
        matrix.BATCHES,
        matrix.THREADS["full"],
        tuple(KINDS),
        (None, *matrix.ACTIONS),
    ]
    for left, right in combinations(range(len(values)), 2):
        assert set(product(values[left], values[right])) <= {(row[left], row[right]) for row in rows}


def test_full_has_what_quick_has() -> None:
    """A longer verification leaves nothing out that a short one has."""
    assert set(cases("quick", own=True)) < set(cases("full", own=True))
    full = matrix.variants("full", 2)
    assert all(variant in full for variant in matrix.variants("quick", 2))


def test_adapters_have_a_plain_twin() -> None:
    """What must change the answers is compared with the same case without it."""
    for own in (True, False):
        every = cases("full", own=own)
        plain = {(case.prompt, case.batch, case.threads) for case in every if not case.action}
        adapted = [case for case in every if case.action in matrix.ADAPTING and case.flash is None]
        assert adapted
        assert all((case.prompt, case.batch, case.threads) in plain for case in adapted)


@EVERY_LEVEL
def test_names_are_unique(level: Level) -> None:
    """No case and no variant shadows another."""
    variants = (*matrix.variants(level, 2), matrix.one_node(2), matrix.NO_MEMORY)
    for names in (
        [case.id for case in cases(level, own=True)],
        [case.id for case in cases(level, own=False)],
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
    fault = next(rule for rule in PROFILE.rules if rule.path)
    path = tmp_path / str(fault.path)
    assert fault not in PROFILE.rules_for(tmp_path, "dense-q8_0", "llama")
    path.parent.mkdir(parents=True)
    path.write_text(f"        {fault.text};\n")
    rules = PROFILE.rules_for(tmp_path, "dense-q8_0", "llama")
    assert fault in rules
    found = matrix.cases("quick", PROFILE, rules, "llama", own=True)
    assert {name.partition("-t3-")[2]: reason for name, reason in found.left_out.items()} == dict.fromkeys(
        fault.actions, fault.reason
    )
    path.write_text("std::atomic<int64_t> & current_chunk = params->chunk;\n")
    assert fault not in PROFILE.rules_for(tmp_path, "dense-q8_0", "llama")
    assert set(fault.actions) <= set(matrix.ACTIONS)


@pytest.mark.parametrize("arch", ["deepseek2", "deepseek4"])
def test_where_k_and_v_are_one(tmp_path: Path, arch: str) -> None:
    """Without flash attention nothing is quantised, and what is quantised is not shifted; all else is run."""
    rules = PROFILE.rules_for(tmp_path, "x", arch)
    quick, full = (matrix.cases(level, PROFILE, rules, "x", own=True) for level in matrix.LEVELS)
    assert set(quick.left_out) == {"p33-b32-t2-nofa-q8_0", "p33-b32-t2-nofa-q4_0"}
    lacking = set(cases("full")) - set(full.chosen)
    assert all(case.kv.startswith("q") for case in lacking if case.kv != "bf16")
    assert all(case.action == "shift" for case in lacking if case.flash or case.kv == "bf16")
    assert {case.id for case in lacking if case.action} <= set(full.left_out)


def test_only_a_shift_of_bf16_is_left_out_otherwise(tmp_path: Path) -> None:
    """Of models with K and V every other case is run."""
    found = matrix.cases(
        "full", PROFILE, PROFILE.rules_for(tmp_path, "dense-q8_0", "llama"), "llama", own=True
    )
    assert found.left_out
    assert all("bf16-shift" in name for name in found.left_out)
    assert len(found.chosen) + len(found.left_out) == len(cases("full"))


@pytest.mark.parametrize("arch", ["llama", "qwen2moe", "bailingmoe2", "deepseek2", "qwen35"])
def test_every_option_occurs(arch: str) -> None:
    """What ik_llama.cpp can do otherwise is done, each with each, and only where it means something."""
    groups = IK.options_for(arch)
    for level in matrix.LEVELS:
        rows = [case.options for case in cases(level, profile=IK, arch=arch)]
        assert {option for row in rows for option in row} == {option for group in groups for option in group}
        for left, right in combinations(groups, 2):
            for pair in product(left, right):
                assert any(set(pair) <= set(row) for row in rows)
    names = {option.name for group in groups for option in group}
    assert {"rtr", "merged-qkv"} <= names
    assert ("ger" in names) == (arch == "bailingmoe2")
    assert ("mla-1" in names) == (arch == "deepseek2")


def test_options_reach_the_library() -> None:
    """The runner is told parameters of the model and of the context, those of usual options among them."""
    case = next(case for case in cases("quick", profile=IK, arch="deepseek2") if "-mla-1" in case.id)
    assert case.as_json()["model"]["mla"] == case.as_json()["context"]["mla_attn"] == 1
    usual = next(case for case in cases("quick", profile=IK, arch="deepseek2") if case.action == "copy")
    assert usual.id == "p33-b32-t3-copy"
    assert usual.as_json()["model"] == {"mla": 3}
    assert cases("quick", profile=IK)[0].as_json()["model"] == {}


def test_cases_of_one_model_come_together() -> None:
    """A model is not loaded again and again with the same settings."""
    models = [tuple(case.model.items()) for case in cases("full", profile=IK, arch="bailingmoe2")]
    changes = sum(left != right for left, right in pairwise(models))
    assert changes + 1 == len(set(models))


def test_what_takes_a_cases_place(tmp_path: Path) -> None:
    """A LoRA adapter is applied without flash attention, to new graphs; its twin is run, too."""
    rules = IK.rules_for(tmp_path, "dense-q8_0", "llama")
    found = matrix.cases("quick", IK, rules, "llama", own=True)
    lora = [case for case in found.chosen if case.action == "lora"]
    assert [case.id for case in lora] == ["p33-b32-t3-nofa-lora-new-graphs"]
    assert replace(lora[0], action=None) in found.chosen
    assert {"p33-b32-t3-lora", "p33-b32-t3-nofa-lora"} <= set(found.left_out)


def test_a_rule_that_changes_nothing_leaves_out() -> None:
    """What takes a case's place may be a case that cannot be done either."""
    rules = (
        Rule("no copy", actions=("copy",), instead=Instead(flash=False)),
        Rule("neither", actions=("copy",), flash=False),
    )
    for some in (rules, rules[:1]):
        found = matrix.cases("quick", PROFILE, some, "llama", own=True)
        assert "copy" not in {case.action for case in found.chosen}
        assert set(found.left_out) == {"p33-b32-t3-copy", "p33-b32-t3-nofa-copy"}


def test_a_restored_cache_is_read_by_all_threads() -> None:
    """Where not every number of threads reads K and V, what is restored is evaluated with one that does."""
    for profile in (PROFILE, IK):
        restoring = [case for case in cases("quick", profile=profile) if case.action in matrix.RESTORING]
        assert {case.threads for case in restoring} == {2}
        assert all(matrix.telling(case, profile) for case in restoring)
        assert not matrix.telling(matrix.Case(33, 32, 3), profile)
    assert matrix.telling(matrix.Case(33, 32, 3), replace(PROFILE, readers=()))


def test_the_command_has_these_levels() -> None:
    """The command line does not import them, and knows them all the same."""
    command = cli.commands["verify"]
    kind = next(option.type for option in command.params if option.name == "matrix")
    assert isinstance(kind, click.Choice)
    assert tuple(kind.choices) == matrix.LEVELS
