"""The real upstream from the real package index."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from numamirror_build.errors import ContentMismatchError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store, file_sha256
from numamirror_build.upstreams import folder as plain
from numamirror_build.upstreams.checkout import Checkout, fetch_sdist, make_checkout, unpack_sdist
from numamirror_build.upstreams.git import Repository
from numamirror_build.upstreams.pins import Pin, find_pin, load_pins, load_upstream, manifest, submodules

pytestmark = pytest.mark.sources

EVERY_PIN = pytest.mark.parametrize("pin", load_pins("llama.cpp"), ids=lambda pin: pin.name)


def from_sdist(store: Store, pin: Pin) -> Checkout:
    """The checkout of a pin out of its sdist, or from the cache."""
    return make_checkout(store, pin, source="sdist", progress=Quiet())


@EVERY_PIN
def test_listed_pins_are_what_their_sdists_carry(store: Store, pin: Pin) -> None:
    """Commit, tree, date and submodules in the list are those that the binding's sdist carries."""
    checkout = from_sdist(store, pin)
    repository = Repository(checkout.path.with_name("git"), checkout.path)
    facts = repository.text("log", "-1", "--format=%H %T %cI")
    assert facts == f"{pin.commit} {pin.tree} {pin.date}"
    links = [
        line.split() for line in repository.text("ls-tree", "-r", "HEAD").splitlines() if line[:6] == "160000"
    ]
    assert {path: commit for _, _, commit, path in links} == submodules(pin)


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(pin, marks=() if pin.name in ("0.3.9", "0.3.36") else pytest.mark.slow)
        for pin in load_pins("llama.cpp")
    ],
    ids=lambda pin: pin.name,
)
def test_files_on_disk_are_the_pins(store: Store, pin: Pin) -> None:
    """The ids of the files as they lie there give the pin's tree id, and nothing else lies there."""
    checkout = from_sdist(store, pin)
    blobs = plain.scan(checkout.path)
    blobs |= {path: plain.Blob(plain.SUBMODULE, commit) for path, commit in submodules(pin).items()}
    assert plain.tree_id(blobs) == pin.tree == checkout.tree


def test_the_listed_files_are_what_the_sdist_carries(store: Store) -> None:
    """The default pin's sdist of ik_llama.cpp has no git data, but each file that the manifest lists."""
    pin = find_pin("ik_llama.cpp", None)
    checkout = from_sdist(store, pin)
    assert (checkout.source, checkout.verified, checkout.tree) == ("sdist", True, pin.tree)
    assert plain.scan(checkout.path) == manifest(pin)


@pytest.mark.slow
@pytest.mark.parametrize("pin", load_pins("ik_llama.cpp"), ids=lambda pin: pin.name)
def test_all_releases_vendor_the_same_files(tmp_path: Path, store: Store, pin: Pin) -> None:
    """Each release's sdist, whose sha256 is listed, carries the manifest's files."""
    archive = fetch_sdist(store, pin, progress=Quiet())
    place = load_upstream(pin.upstream).sdist_folder or ""
    listed = manifest(pin)
    assert listed and plain.differences(unpack_sdist(archive, tmp_path, only=place) / place, listed) == {}


def test_a_new_cache_is_filled_from_the_index(tmp_path: Path, default_pin: Pin) -> None:
    """With an empty cache, the default pin comes from the index, with sha256 and ids as listed."""
    cache = Store(tmp_path)
    checkout = from_sdist(cache, default_pin)
    assert (checkout.fresh, checkout.source, checkout.verified) == (True, "sdist", True)
    assert checkout.tree == default_pin.tree
    archive = fetch_sdist(cache, default_pin, progress=Quiet())
    assert default_pin.binding and file_sha256(archive) == default_pin.binding.sha256


def test_a_cached_checkout_is_found_at_once(store: Store, default_pin: Pin) -> None:
    """Looking whether the checkout in the cache is whole takes a fraction of a second."""
    from_sdist(store, default_pin)
    seconds = []
    for _ in range(5):
        start = time.monotonic()
        assert from_sdist(store, default_pin).fresh is False
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 0.2


@pytest.fixture
def copy(checkout: Checkout, tmp_path: Path) -> Path:
    """A plain folder with the default pin's files."""
    return Path(shutil.copytree(checkout.path, tmp_path / "copy", symlinks=True))


def test_a_plain_folder_is_verified_without_network(tmp_path: Path, default_pin: Pin, copy: Path) -> None:
    """With an empty cache, a plain copy of upstream's files is recognised as the pin by its tree id."""
    checkout = make_checkout(Store(tmp_path / "cache"), default_pin, source=str(copy), progress=Quiet())
    assert (checkout.source, checkout.verified, checkout.tree) == ("path", True, default_pin.tree)
    assert plain.tree_id(plain.scan(checkout.path)) == default_pin.tree


def test_one_changed_byte_in_upstreams_files(store: Store, default_pin: Pin, copy: Path) -> None:
    """One byte changed in one of thousands of files is found, and the file is named."""
    path = copy / "ggml/src/ggml.c"
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    with pytest.raises(ContentMismatchError, match=r"ggml/src/ggml\.c: changed"):
        make_checkout(store, default_pin, source=str(copy), progress=Quiet())
