"""The made-up upstream as the package's only one, and a pip that knows only its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.store import Store
from tests.unit.upstreams import made_up
from tests.unit.upstreams.made_up import Tiny


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The made-up upstream."""
    made = made_up.make(tmp_path)
    monkeypatch.setattr(data, "_root", lambda: made.data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.index))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return Tiny(made.write_pins(), made.repository, made.data, made.index)


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    """An empty cache."""
    return Store(tmp_path / "cache")


class Heard:
    """Progress that a test can read."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        """Kept."""
        self.steps.append(text)

    def update(self, text: str) -> None:
        """Ignored."""

    def done(self) -> None:
        """Ignored."""


@pytest.fixture
def heard() -> Heard:
    """What the steps of a test said."""
    return Heard()
