"""Checkouts of a pin whose sources carry no git data: a manifest of ids stands for the commit."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.errors import ContentMismatchError, SourceError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout, make_checkout
from numamirror_build.upstreams.folder import LINK, Blob, scan, tree_id
from numamirror_build.upstreams.git import Repository, run_git
from numamirror_build.upstreams.manifest import format_manifest
from numamirror_build.upstreams.pins import Pin, find_pin
from numamirror_build.upstreams.releases import release_as_pin
from tests.unit.upstreams.made_up import FILES, NAME, PROGRAM, Tiny, content, unlisted

SOURCES = ("auto", "sdist", "git", "clone", "folder")
PLACE = "vendor/tiny"


@pytest.fixture
def bare(tiny: Tiny) -> Tiny:
    """The made-up upstream, with an sdist of files without git data, and without the ignored ones."""
    blobs = {
        path: blob
        for path, blob in scan(tiny.plain_folder("plain")).items()
        if blob.mode != LINK and path != "tracked.log"
    }
    write_manifest(tiny, blobs)
    facts = tiny.data / "patches" / NAME / "upstream.toml"
    lines = [line for line in facts.read_text().splitlines() if not line.startswith("sdist_repository")]
    facts.write_text("\n".join([*lines, f'sdist_folder = "{PLACE}"', ""]))
    write_sdist(tiny, {path: (tiny.plain_folder("plain") / path).read_bytes() for path in blobs})
    return replace(tiny, pin=write_pins(tiny, blobs))


def write_manifest(tiny: Tiny, blobs: Mapping[str, Blob]) -> None:
    """Make these ids stand for the pin's commit."""
    (tiny.data / "patches" / NAME / "commit.txt").write_text(format_manifest(blobs))


def write_pins(tiny: Tiny, blobs: Mapping[str, Blob]) -> Pin:
    """The pin with a manifest."""
    tiny.write_pins(tree=tree_id(blobs))
    pins = tiny.data / "patches" / NAME / "pins.toml"
    pins.write_text(pins.read_text().replace("date =", 'manifest = "commit.txt"\ndate ='))
    return find_pin(NAME, None)


def write_sdist(tiny: Tiny, files: Mapping[str, bytes]) -> None:
    """An sdist that carries files, and one that no manifest lists."""
    with tarfile.open(tiny.archive, "r:gz") as tar:
        others = {
            member.name: tar.extractfile(member)
            for member in tar
            if member.isfile() and ".git" not in member.name
        }
        kept = {name: stream.read() for name, stream in others.items() if stream and PLACE not in name}
    vendored = {f"tiny_python-1.0/{PLACE}/{path}": body for path, body in files.items()}
    vendored[f"tiny_python-1.0/{PLACE}/submodule/more.c"] = b"int more;\n"
    with tarfile.open(tiny.archive, "w:gz") as tar:
        for name, body in {**kept, **vendored}.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            member.mode = 0o755 if name.endswith(PROGRAM) else 0o644
            tar.addfile(member, io.BytesIO(body))


def get(cache: Store, tiny: Tiny, source: str) -> Checkout:
    """The checkout of the pin from a sort of source."""
    values = {"clone": str(tiny.repository), "folder": str(tiny.plain_folder("plain"))}
    return make_checkout(cache, tiny.pin, source=values.get(source, source), progress=Quiet())


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_what_the_manifest_lists(bare: Tiny, cache: Store, source: str) -> None:
    """Exactly the listed files are there, whatever else a source has; the checkout counts as verified."""
    checkout = get(cache, bare, source)
    listed = {**{path: ("file", body) for path, body in FILES.items()}, PROGRAM: ("program", b"#!/bin/sh\n")}
    del listed["tracked.log"]
    assert content(checkout.path) == listed
    assert (checkout.tree, checkout.verified, checkout.fresh) == (bare.pin.tree, True, True)
    repository = Repository(checkout.path.with_name("git"), checkout.path)
    assert repository.text("rev-parse", "HEAD^{tree}") == bare.pin.tree
    assert repository.text("status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("first", SOURCES)
@pytest.mark.parametrize("second", ["auto", "clone", "folder"])
def test_the_same_content_is_kept_once(bare: Tiny, cache: Store, first: str, second: str) -> None:
    """Whichever source a pin came from, the next run finds it under the same key."""
    made, found = get(cache, bare, first), get(cache, bare, second)
    assert (found.key, found.path, found.fresh) == (made.key, made.path, False)


def test_an_sdist_with_other_files_is_refused(bare: Tiny, cache: Store) -> None:
    """A changed, a missing and a file of another mode are named: exit code 13."""
    files = {path: body for path, body in FILES.items() if path not in ("tracked.log", "empty")}
    write_sdist(bare, {**files, "src/a.c": b"int b;\n", "src/run.sh": b""})
    with pytest.raises(ContentMismatchError) as caught:
        make_checkout(cache, write_pins(bare, scan(bare.repository)), source="sdist", progress=Quiet())
    assert caught.value.exit_code == 13
    assert caught.value.details["differences"] == {
        "empty": "missing",
        "run.sh": "missing",
        "src/a.c": "changed",
    }


def test_a_folder_with_other_files_is_refused(bare: Tiny, cache: Store) -> None:
    """With an empty cache, too, the file that differs is named."""
    folder = bare.plain_folder("changed")
    (folder / "src.c").write_bytes(b"int other;\n")
    with pytest.raises(ContentMismatchError, match=r"src\.c: changed"):
        make_checkout(cache, bare.pin, source=str(folder), progress=Quiet())


@pytest.mark.parametrize("source", ["git", "clone"])
def test_a_manifest_of_another_commit_is_refused(bare: Tiny, cache: Store, source: str) -> None:
    """When git has the commit, what the manifest says about it is checked, file by file."""
    blobs = scan(bare.plain_folder("plain"))
    write_manifest(bare, {**blobs, "src.c": Blob(blobs["src.c"].mode, "0" * 40)})
    with pytest.raises(ContentMismatchError, match=r"src\.c: not the commit's"):
        get(cache, bare, source)


@pytest.mark.parametrize("source", ["git", "clone"])
def test_a_submodule_of_the_commit_is_left_out(bare: Tiny, cache: Store, source: str) -> None:
    """What the commit only links to is not there, nor a folder for it; the file that names it stays."""
    (bare.repository / ".gitmodules").write_text('[submodule "x"]\n\tpath = deep/x\n\turl = ../x\n')
    link = f"160000,{bare.pin.commit},deep/x"
    run_git("update-index", "--add", "--cacheinfo", link, cwd=bare.repository)
    run_git("add", ".gitmodules", cwd=bare.repository)
    author = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    run_git("commit", "--quiet", "--message", "third", cwd=bare.repository, env=author)
    commit = run_git("rev-parse", "HEAD", cwd=bare.repository).decode().strip()
    blobs = {path: blob for path, blob in scan(bare.repository).items() if path in {".gitmodules", "src.c"}}
    write_manifest(bare, blobs)
    bare.write_pins(commit=commit)
    pin = write_pins(replace(bare, pin=replace(bare.pin, commit=commit)), blobs)
    checkout = get(cache, replace(bare, pin=pin), source)
    assert sorted(str(place.relative_to(checkout.path)) for place in checkout.path.rglob("*")) == [
        ".gitmodules",
        "src.c",
    ]
    assert (checkout.path / ".gitmodules").read_bytes() == (bare.repository / ".gitmodules").read_bytes()


def test_other_commits_are_whole(bare: Tiny, cache: Store) -> None:
    """A commit that is not listed has no manifest: git has all of its files, and the sdist is not asked."""
    pin = unlisted(replace(bare.pin, manifest=None), bare.pin.commit)
    with pytest.raises(SourceError, match="No source distribution is known"):
        make_checkout(cache, pin, source="sdist", progress=Quiet())
    shutil.rmtree(bare.index)
    checkout = make_checkout(cache, pin, source="git", progress=Quiet())
    assert Path(checkout.path / "tracked.log").exists()


def forget_release(tiny: Tiny) -> None:
    """Let the pin be that of a release before the one that the index has."""
    pins = tiny.data / "patches" / NAME / "pins.toml"
    pins.write_text(pins.read_text().replace('"1.0"', '"0.9"'))


def test_a_release_of_the_same_files_is_a_pin_of_the_same_commit(bare: Tiny, cache: Store) -> None:
    """A release that vendors what a manifest lists is recognised by its files."""
    forget_release(bare)
    assert release_as_pin(cache, NAME, "1.0", progress=Quiet()).pin == bare.pin


def test_a_release_of_other_files_needs_a_manifest(bare: Tiny, cache: Store) -> None:
    """Whose commit they are nobody can know: the error names files, and says what to do."""
    forget_release(bare)
    files = {
        path: (bare.plain_folder("plain") / path).read_bytes() for path in FILES if path != "tracked.log"
    }
    write_sdist(bare, {**files, "src/a.c": b"int changed;\n"})
    with pytest.raises(SourceError, match="does not say of which commit") as caught:
        release_as_pin(cache, NAME, "1.0", progress=Quiet())
    assert "src/a.c" in str(caught.value) and "manifest" in str(caught.value.hint)
