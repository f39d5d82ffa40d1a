from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data


def test_upstreams_are_the_folders_with_facts() -> None:
    """llama.cpp is there, and every upstream has facts and pins."""
    assert "llama.cpp" in data.upstream_names()
    for name in data.upstream_names():
        assert {"upstream.toml", "pins.toml"} <= {path.name for path in data.patches(name).iterdir()}


def test_templates_are_there() -> None:
    """The folder of templates exists."""
    assert data.templates().is_dir()


def test_an_installed_package_uses_what_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ``_data`` folder beside the code, data comes from there, whatever lies around the package."""
    for root in (tmp_path, tmp_path / "package/_data"):
        (root / "patches" / root.name).mkdir(parents=True)
        (root / "patches" / root.name / "upstream.toml").touch()
    monkeypatch.setattr(data, "_HERE", tmp_path / "package")
    assert data.upstream_names() == ["_data"]
    assert data.templates() == tmp_path / "package/_data/templates"
