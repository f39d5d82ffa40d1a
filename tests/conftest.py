"""Products that are dear to make, made once per session and kept in the cache between sessions.

Everything is lazy: a test that asks for ``wheel`` makes what the wheel needs, and nothing else is made.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest

from numamirror_build.config import default_cache_dir
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.store import Store

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.building.wheel import Wheel
    from numamirror_build.patching.apply import PatchedTree, PristineTree
    from numamirror_build.patching.plan import Plan
    from numamirror_build.upstreams.checkout import Checkout
    from numamirror_build.upstreams.pins import Pin


def pytest_configure() -> None:
    """Hear Ctrl-C, which what a shell starts in the background ignores; no example is timed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def store() -> Store:
    """The user's own cache, so that what was downloaded or built before is used again."""
    return Store(default_cache_dir())


@pytest.fixture(scope="session")
def pipeline(store: Store) -> Pipeline:
    """The main job on the default pin of llama.cpp; every product below is one of its values."""
    return Pipeline(store, Request("llama.cpp", jobs=os.cpu_count() or 1), Quiet())


@pytest.fixture(scope="session")
def ik_pipeline(store: Store) -> Pipeline:
    """The main job on the default pin of ik_llama.cpp."""
    return Pipeline(store, Request("ik_llama.cpp", jobs=os.cpu_count() or 1), Quiet())


@pytest.fixture(scope="session")
def default_pin(pipeline: Pipeline) -> Pin:
    """The default pin."""
    return pipeline.pin


@pytest.fixture(scope="session")
def checkout(pipeline: Pipeline) -> Checkout:
    """Upstream's tree at the default pin (mark: sources)."""
    return pipeline.checkout


@pytest.fixture(scope="session")
def plan(pipeline: Pipeline) -> Plan:
    """The plan for the default pin (mark: sources)."""
    return pipeline.plan


@pytest.fixture(scope="session")
def pristine_tree(pipeline: Pipeline) -> PristineTree:
    """The tree of the default pin as it is (mark: sources)."""
    return pipeline.pristine_tree


@pytest.fixture(scope="session")
def patched_tree(pipeline: Pipeline) -> PatchedTree:
    """The patched tree of the default pin (mark: sources)."""
    return pipeline.patched_tree


@pytest.fixture(scope="session")
def pristine_build(pipeline: Pipeline) -> Build:
    """The build of the unpatched tree (marks: sources, build)."""
    return pipeline.pristine_build


@pytest.fixture(scope="session")
def patched_build(pipeline: Pipeline) -> Build:
    """The build of the patched tree (marks: sources, build)."""
    return pipeline.patched_build


@pytest.fixture(scope="session")
def wheel(pipeline: Pipeline) -> Wheel:
    """The wheel (marks: sources, build)."""
    return pipeline.wheel
