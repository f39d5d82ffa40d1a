"""Verification of real builds and a real wheel of the default pin."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from numamirror_build.building.build import Build
from numamirror_build.building.wheel import Wheel
from numamirror_build.errors import VerificationError
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify import Verification, matrix, verification, verify
from numamirror_build.verify.architectures import EMBEDDING
from numamirror_build.verify.models import RECIPES, SMOLLM2
from numamirror_build.verify.profile import load_profile

pytestmark = [pytest.mark.sources, pytest.mark.build]

MODELS = {recipe.name for recipe in RECIPES}
MIRRORED = ("mirror-1", "mirror-2", "mirror-3", "mirror-2-env", "mirror-2-checked")


@pytest.fixture(scope="module")
def verified(store: Store, pristine_build: Build, patched_build: Build, wheel: Wheel) -> Verification:
    """The verification of the default pin, with the real model."""
    return verify(
        store,
        pristine=pristine_build,
        patched=patched_build,
        wheel=wheel,
        model=SMOLLM2,
        progress=Quiet(),
    )


def test_everything_passes(verified: Verification) -> None:
    """No check fails, and none is skipped but those of a processor that does not repack."""
    assert verified.passed
    assert {check.id.split("/")[0] for check in verified.checks if check.status == "skip"} <= {"repacked"}


def test_what_is_not_possible_is_what_upstream_cannot_do(verified: Verification) -> None:
    """Every action is evaluated with every model but these; none is left out by mistake."""
    left_out = {
        check.id.split("/")[1]: {name.partition("-t")[2][2:] for name in check.facts["not_possible"]}
        for check in verified.checks
        if check.id.startswith("same-answers/") and check.id.endswith("/mirror-2")
    }
    unquantised = {"nofa-q8_0", "nofa-q4_0"}  # K and V are one, so V cannot have another type
    assert left_out == {
        **{model: {"defragment"} for model in MODELS},
        SMOLLM2: set(),
        "mla-q8_0": {"defragment"} | unquantised,
        "compressor-q8_0": {"defragment", "shift"} | unquantised,
        "mamba-q8_0": {"defragment", "trim"},
        "hybrid-q4_0": {"defragment", "trim"},
        "delta-q8_0": {"defragment", "shift"},
    }
    evaluated = {
        check.id.split("/")[1]: set(check.facts["actions"])
        for check in verified.checks
        if check.id.startswith("same-answers/") and check.id.endswith("/mirror-2")
    }
    assert {model: set(matrix.ACTIONS) - evaluated[model] for model in MODELS} == {
        model: left_out[model] - unquantised for model in MODELS
    }


def test_every_model_and_variant_is_there(verified: Verification) -> None:
    """Bit-identity, engagement and mutation are checked for each model, also the real one."""
    ids = {check.id for check in verified.checks}
    for model in (*MODELS, SMOLLM2):
        for variant in ("pristine-again", "off", *MIRRORED):
            assert f"same-answers/{model}/{variant}" in ids
        for variant in MIRRORED:
            assert f"engaged/{model}/{variant}" in ids
        assert f"mutation/{model}/damaged" in ids
    for model in MODELS - {"mamba-q8_0"}:  # which has no K and V
        assert {f"mutation/{model}/damaged-cache", f"mutation/{model}/damaged-checked"} <= ids
    assert {"refused/one-node", "refused/no-memory", "idle/off", "wheel/record", "wheel/import"} <= ids


def test_replicas_hold_exactly_the_models_bytes(verified: Verification) -> None:
    """What the runtime counts as weights is what the file has, for models made here.

    Where the embeddings serve as output matrix, upstream loads them a second time, to be repacked.
    """
    for check in verified.checks:
        if check.id.startswith("engaged/") and (model := check.id.split("/")[1]) in MODELS:
            twice = 320 * EMBEDDING * 18 // 32 if model == "window-q4_0" else 0
            assert check.facts["eligible_bytes"] == check.facts["file_bytes"] + twice


def test_again_takes_no_time(
    verified: Verification, store: Store, pristine_build: Build, patched_build: Build, wheel: Wheel
) -> None:
    """Nothing changed: the report comes from the cache in less than a second."""
    start = time.monotonic()
    again = verify(
        store,
        pristine=pristine_build,
        patched=patched_build,
        wheel=wheel,
        model=SMOLLM2,
        progress=Quiet(),
    )
    assert time.monotonic() - start < 1
    assert not again.fresh
    assert again.checks == verified.checks


@pytest.mark.parametrize("upstream", ["llama.cpp", "ik_llama.cpp"])
def test_a_build_without_the_mirror_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pipeline: Pipeline,
    ik_pipeline: Pipeline,
    upstream: str,
) -> None:
    """Pristine libraries in the patched build's place give the same answers, and fail all the same."""
    profile = dataclasses.replace(load_profile(upstream), models=("dense-q8_0",), left_out={})
    monkeypatch.setattr(verification, "load_profile", lambda _: profile)
    made = {"llama.cpp": pipeline, "ik_llama.cpp": ik_pipeline}[upstream]
    pristine, patched = made.pristine_build, made.patched_build
    false = dataclasses.replace(patched, libraries=pristine.libraries, path=pristine.path, key="false")
    with pytest.raises(VerificationError) as caught:
        verify(Store(tmp_path), pristine=pristine, patched=false, wheel=made.wheel, progress=Quiet())
    assert caught.value.exit_code == 32
    report = json.loads(Path(caught.value.details["report"]).read_text())
    failed = {check["id"] for check in report["checks"] if check["status"] == "fail"}
    assert failed >= {
        "libraries/patched",
        "engaged/dense-q8_0/mirror-2",
        "mutation/dense-q8_0/damaged",
        "mutation/dense-q8_0/damaged-cache",
        "mutation/dense-q8_0/damaged-checked",
        "refused/one-node",
        "refused/no-memory",
    }
    assert not any(name.startswith("same-answers/") for name in failed)


def test_a_tree_is_not_compared_with_itself(store: Store, pristine_build: Build, wheel: Wheel) -> None:
    """Two pristine builds are a mistake of the caller."""
    with pytest.raises(TypeError):
        verify(store, pristine=pristine_build, patched=pristine_build, wheel=wheel, progress=Quiet())


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_the_whole_matrix(pipeline: Pipeline) -> None:
    """Every pair of settings, with 1 to 4 nodes, is bit-identical at the default pin."""
    assert pipeline.verify(level="full").passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pin", "unknown"),
    [
        ("0.3.30", {"compressor-q8_0"}),
        ("0.3.20", {"compressor-q8_0"}),
        ("0.3.9", {"compressor-q8_0", "hybrid-q4_0", "delta-q8_0"}),
    ],
)
def test_other_pins(store: Store, pin: str, unknown: set[str]) -> None:
    """The other pins pass as well; what is skipped is what they do not know."""
    request = Request("llama.cpp", pin=pin, jobs=os.cpu_count() or 1)
    verified = Pipeline(store, request, Quiet()).verify()
    assert verified.passed
    skipped = {check.id for check in verified.checks if check.status == "skip"}
    assert {name for name in skipped if not name.startswith("repacked/")} == {
        f"same-answers/{model}" for model in unknown
    }
