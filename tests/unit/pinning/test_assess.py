"""What a release would change, and listing it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import AccessError, ContentMismatchError, OutputError
from numamirror_build.patching.plan import Plan
from numamirror_build.pinning import assess as module
from numamirror_build.pinning.assess import Assessment, adopt, assess
from numamirror_build.progress import Quiet
from numamirror_build.store import Store, locked
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.pins import Binding, load_pins
from numamirror_build.upstreams.releases import Release
from tests.unit.patching import made_up

PIN = replace(made_up.PIN, name="2.0", commit="d" * 40, binding=Binding("tiny-python", "2.0", "a", "0"))
LISTED = f"""[[pin]]
name = "1.0"
commit = "{made_up.PIN.commit}"
tree = "{made_up.PIN.tree}"
date = "2026-01-02"

[pin.binding]
package = "tiny-python"
version = "1.0"
sdist = "tiny_python-1.0.tar.gz"
sha256 = "0"
"""


@pytest.fixture
def patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of an upstream with one pin."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "pins.toml").write_text(LISTED)
    monkeypatch.setattr(data, "patches", lambda upstream: folder)
    monkeypatch.setattr(data, "upstream_names", lambda: ["tiny"])
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty cache."""
    return Store(tmp_path / "cache")


def release(tmp_path: Path) -> Release:
    """A release that nobody has listed."""
    checkout = Checkout(PIN, tmp_path, PIN.tree, "sdist", verified=True, key="k", seconds=0, fresh=True)
    return Release(PIN, checkout, {})


def fitting(tmp_path: Path) -> Assessment:
    """The same, seen to need no hand work."""
    plans = {scope: replace(made_up.make(pin=PIN), scope=scope) for scope in module.SCOPES}
    return Assessment("2.0", release(tmp_path), "1.0", plans=plans)


def test_what_is_listed_is_locked(patches: Path, store: Store, tmp_path: Path) -> None:
    """Both scopes have their lock, in one file."""
    files = adopt(store, fitting(tmp_path))
    assert files == [patches / "locks/2.0.toml", patches / "pins.toml"]
    assert [pin.name for pin in load_pins("tiny")] == ["1.0", "2.0"]
    assert all(f"[scope.{scope}]" in files[0].read_text() for scope in module.SCOPES)


def test_without_a_lock_nothing_is_listed(patches: Path, store: Store, tmp_path: Path) -> None:
    """Where locks cannot be written the list is as it was, and the error knows that this is our data."""
    (patches / "locks").write_text("")
    with pytest.raises(OutputError) as caught:
        adopt(store, fitting(tmp_path))
    assert (patches / "pins.toml").read_text() == LISTED
    assert "another place" not in str(caught.value.hint)


def test_two_at_once_wait_for_each_other(patches: Path, store: Store, tmp_path: Path) -> None:
    """While one writes, another one does not read what it will write over."""
    other = threading.Thread(target=adopt, args=(store, fitting(tmp_path)))
    with locked(store.root / "locks" / "pins"):
        other.start()
        other.join(0.3)
        assert other.is_alive() and not (patches / "locks").exists()
    other.join(30)
    assert len(load_pins("tiny")) == 2


def test_a_release_that_is_not_what_it_says(
    patches: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a problem of that release, not the end of the command."""

    def fail(*_: object, **__: object) -> Release:
        raise ContentMismatchError("It has other content")

    monkeypatch.setattr(module, "release_as_pin", fail)
    made = assess(store, "tiny", "2.0", progress=Quiet())
    assert (made.before, made.release, made.fits) == ("1.0", None, False)
    assert [problem.what for problem in made.problems] == ["It has other content"]


def test_a_release_that_fits_one_scope(
    patches: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan that could be made says so."""

    def plan(_store: Store, _checkout: Checkout, *, scope: str, **_: object) -> Plan:
        if scope == "all":
            raise AccessError("No rule")
        return made_up.make(pin=PIN)

    monkeypatch.setattr(module, "release_as_pin", lambda *_, **__: release(tmp_path))
    monkeypatch.setattr(module, "make_checkout", lambda *_, **__: release(tmp_path).checkout)
    monkeypatch.setattr(module, "new_names", lambda *_: {})
    monkeypatch.setattr(module, "make_plan", plan)
    monkeypatch.setattr(module, "find_problems", lambda *_, **__: ())
    made = assess(store, "tiny", "2.0", progress=Quiet())
    assert not made.fits and list(made.plans) == ["cpu"]
