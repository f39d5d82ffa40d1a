"""Verification of real builds and a real wheel of the default pin of ik_llama.cpp."""

from __future__ import annotations

import pytest

from numamirror_build.pipeline import Pipeline
from numamirror_build.verify import Verification, matrix
from numamirror_build.verify.models import find_recipe
from numamirror_build.verify.profile import load_profile

pytestmark = [pytest.mark.sources, pytest.mark.build]

PROFILE = load_profile("ik_llama.cpp")
UNKNOWN = (("hybrid-q4_0", "jamba"), ("compressor-q8_0", "deepseek4"))
MODELS = set(PROFILE.models) - {name for name, _ in UNKNOWN}
PRETENDED = ("mirror-1", "mirror-2", "mirror-3", "mirror-2-env", "mirror-2-checked")


@pytest.fixture(scope="module")
def verified(ik_pipeline: Pipeline) -> Verification:
    """The quick verification of the default pin."""
    return ik_pipeline.verify()


def test_everything_passes(verified: Verification) -> None:
    """No check fails; what is skipped are models that upstream cannot load, with the reasons."""
    assert verified.passed
    skipped = {check.id: check.reason for check in verified.checks if check.status == "skip"}
    reasons = {**PROFILE.left_out, **{name: f"this commit does not know {arch}" for name, arch in UNKNOWN}}
    assert skipped == {f"same-answers/{name}": reason for name, reason in reasons.items()}


def test_every_model_and_variant_is_there(verified: Verification) -> None:
    """Bit-identity, engagement, and what must change the answers, for each model."""
    ids = {check.id for check in verified.checks}
    for model in MODELS:
        for variant in ("pristine-again", "off", *PRETENDED):
            assert f"same-answers/{model}/{variant}" in ids
        for variant in PRETENDED:
            assert f"engaged/{model}/{variant}" in ids
        for variant in ("damaged", "damaged-cache", "damaged-checked"):
            assert f"mutation/{model}/{variant}" in ids
    assert {"layout/pristine", "layout/patched", "wheel/import", "wheel/record"} <= ids
    assert {"refused/one-node", "refused/no-memory", "idle/off"} <= ids


def test_what_is_not_possible_is_what_upstream_cannot_do(verified: Verification) -> None:
    """Every action and every option is evaluated with every model but these; none is left out by mistake.

    With an adapter other cases are evaluated than were wanted, with options that it needs.
    """
    evaluated = {
        check.id.split("/")[1]: check.facts
        for check in verified.checks
        if check.id.startswith("same-answers/") and check.id.endswith("/mirror-2")
    }
    assert set(evaluated) == MODELS
    for model, facts in evaluated.items():
        groups = PROFILE.options_for(find_recipe(model).arch.name)
        assert set(facts["options"]) == {option.name for group in groups for option in group}
        shift = {"shift"} if model in ("mla-old-q8_0", "delta-q8_0") else set()
        assert set(matrix.ACTIONS) - set(facts["actions"]) == {"checkpoint-device", *shift}
        assert set(matrix.ADAPTING) <= set(facts["actions"])
        assert facts["cases"] >= 38


def test_upstreams_own_types_are_in_the_files(verified: Verification) -> None:
    """The models that its program made are smaller than those that they were made from."""
    sizes = {
        check.id.split("/")[1]: check.facts["file_bytes"]
        for check in verified.checks
        if check.id.startswith("engaged/") and check.id.endswith("/mirror-2")
    }
    quantised = [name for name in MODELS if find_recipe(name).quantised]
    assert len(quantised) == 3
    assert all(sizes[name] < 0.5 * sizes["dense-f16"] for name in quantised if name.startswith("dense"))


def test_structures_were_compared(verified: Verification) -> None:
    """Of the binding's structures all those that are handed over are in the headers, and fit."""
    for side in ("pristine", "patched"):
        check = next(check for check in verified.checks if check.id == f"layout/{side}")
        assert {"llama_model_params", "llama_context_params", "llama_batch"} <= set(check.facts["structures"])


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_the_whole_matrix(ik_pipeline: Pipeline) -> None:
    """Every pair of settings, with 1 to 4 nodes, is bit-identical."""
    assert ik_pipeline.verify(level="full").passed
