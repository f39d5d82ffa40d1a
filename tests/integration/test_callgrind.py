"""Instructions per token of real builds."""

from __future__ import annotations

import dataclasses

import pytest

from numamirror_build.building.build import make_build
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.callgrind import LIMIT, PORTABLE, count_instructions
from numamirror_build.verify.models import RECIPES, make_model

pytestmark = [pytest.mark.sources, pytest.mark.build, pytest.mark.callgrind]


def test_no_cost_when_off(store: Store, pipeline: Pipeline) -> None:
    """A build with the mirror compiled in and not asked for needs at most 0.5 % more instructions a token."""
    options = dataclasses.replace(pipeline.build_options, cmake_args=PORTABLE, programs=())
    pristine, patched = (
        make_build(store, tree, options, progress=Quiet())
        for tree in (pipeline.pristine_tree, pipeline.patched_tree)
    )
    model = make_model(store, next(recipe for recipe in RECIPES if recipe.name == "dense-q8_0"))
    counted = count_instructions(store, pristine, patched, model, progress=Quiet())
    assert counted.pristine > 1_000_000
    assert counted.excess <= LIMIT, counted.as_json()
