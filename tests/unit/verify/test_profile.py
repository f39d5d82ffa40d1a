"""What verification knows of each upstream: the data names things that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.verify import matrix
from numamirror_build.verify.models import FURTHER, RECIPES, find_recipe
from numamirror_build.verify.profile import Profile, Rule, load_profile
from world import TYPES

EVERY_UPSTREAM = pytest.mark.parametrize("upstream", data.upstream_names())


@EVERY_UPSTREAM
def test_models_have_recipes(upstream: str) -> None:
    """The pair is among the models, and nothing is both a model and left out."""
    profile = load_profile(upstream)
    assert all(find_recipe(name).name == name for name in profile.models)
    assert set(profile.pair) <= set(profile.models)
    assert len(set(profile.pair)) == 2
    assert not set(profile.models) & set(profile.left_out)


@EVERY_UPSTREAM
def test_a_reason_for_each_recipe_that_is_left_out(upstream: str) -> None:
    """Of every architecture that any upstream is verified with, there is a model, or a reason why not."""
    profile = load_profile(upstream)
    archs = {find_recipe(name).arch.name for name in (*profile.models, *profile.left_out)}
    assert archs >= {recipe.arch.name for recipe in RECIPES}
    assert all(profile.left_out.values())


@EVERY_UPSTREAM
def test_rules_and_options_name_what_there_is(upstream: str) -> None:
    """A misspelled name would leave nothing out, and so would a rule without a reason."""
    profile = load_profile(upstream)
    options = {option.name for option in profile.options}
    assert len(options) == len(profile.options)
    for rule in (*profile.rules, *profile.too_damaged):
        assert rule.reason
        assert set(rule.actions) <= set(matrix.ACTIONS)
        assert {*rule.options, *rule.unless} <= options
        assert set(rule.prompts) <= set(matrix.PROMPTS) and set(rule.batches) <= set(matrix.BATCHES)
        assert any(rule.is_for(name, find_recipe(name).arch.name) for name in profile.models)
        assert not rule.instead or set(rule.instead.options) <= options
    archs = {find_recipe(name).arch.name for name in profile.models}
    assert all(not option.archs or archs & set(option.archs) for option in profile.options)


def test_the_runner_knows_the_types_of_caches() -> None:
    """Those that some upstream is verified with, and no others."""
    assert set(TYPES) == {kv for name in data.upstream_names() for kv in load_profile(name).caches}


def test_ik_llama_cpp_has_types_of_its_own() -> None:
    """Among its models are types that only its own program makes, one of them repacked."""
    quantised = {find_recipe(name).quantised for name in load_profile("ik_llama.cpp").models}
    assert {"IQ4_KS", "IQ5_K"} < quantised
    assert any(str(kind).endswith("_R4") for kind in quantised)


def test_recipes_of_other_upstreams_are_used() -> None:
    """No recipe lies about that no upstream is verified with."""
    used = {name for upstream in data.upstream_names() for name in load_profile(upstream).models}
    assert used == {recipe.name for recipe in (*RECIPES, *FURTHER)}


def test_rules_for_a_model_and_a_commit(tmp_path: Path) -> None:
    """A rule holds for the models that it names, where upstream's file has the text."""
    always, some, there = (
        Rule("always"),
        Rule("some", models=("moe-*",), archs=("qwen2moe",)),
        Rule("there", path="a.c", text="static int x"),
    )
    profile = _with((always, some, there))
    assert profile.rules_for(tmp_path, "dense-f16", "llama") == (always,)
    (tmp_path / "a.c").write_text("static int x;\n")
    assert profile.rules_for(tmp_path, "moe-q4_0", "qwen2moe") == (always, some, there)


def _with(rules: tuple[Rule, ...]) -> Profile:
    profile = load_profile("llama.cpp")
    return Profile(**{**vars(profile), "rules": rules})
