"""The made-up upstream as the package's only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.store import Store
from tests.unit.building import made_up


@pytest.fixture(autouse=True)
def tiny_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's data; the user's compiler flags and compiler cache are out of the way."""
    root = made_up.data_root(tmp_path / "data")
    monkeypatch.setattr(data, "_root", lambda: root)
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    """An empty cache."""
    return Store(tmp_path / "cache")


class Heard:
    """Progress that a test can read."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.updates: list[str] = []

    def step(self, text: str) -> None:
        """Kept."""
        self.steps.append(text)

    def update(self, text: str) -> None:
        """Kept."""
        self.updates.append(text)

    def done(self) -> None:
        """Ignored."""


@pytest.fixture
def heard() -> Heard:
    """What a test's steps said."""
    return Heard()
