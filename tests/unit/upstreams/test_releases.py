"""Releases of the binding that are no pins yet."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError, SourceError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams import releases
from numamirror_build.upstreams.checkout import make_checkout
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import find_pin, load_pins, submodules
from numamirror_build.upstreams.releases import commit_as_pin, list_pin, newer_releases, release_as_pin
from numamirror_build.upstreams.sdist import list_releases
from tests.unit.upstreams import made_up
from tests.unit.upstreams.made_up import NAME, Tiny


def pins_file(tiny: Tiny) -> Path:
    """The list of pins."""
    return tiny.data / "patches" / NAME / "pins.toml"


def forget_pin(tiny: Tiny, version: str = "0.9") -> None:
    """Make the only pin that of another release: the index's is then one that nobody knows."""
    text = pins_file(tiny).read_text().replace('"1.0"', f'"{version}"').replace(tiny.pin.commit, "f" * 40)
    pins_file(tiny).write_text(text)


def test_a_release_is_the_pin_that_a_person_would_write(tiny: Tiny, cache: Store) -> None:
    """Commit, tree, date and the sdist's sha256 are those of the listed pin, found without it."""
    forget_pin(tiny)
    release = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    assert release.pin == tiny.pin
    assert made_up.content(release.checkout.path) == made_up.expected_content()


@pytest.mark.parametrize("name", ["HEAD", "full id"])
def test_a_commit_without_a_release(tiny: Tiny, cache: Store, name: str) -> None:
    """A commit that nobody has listed is named by its id, or as the remote calls it; its files are there."""
    file = pins_file(tiny)
    file.write_text(file.read_text().replace(tiny.pin.commit, "f" * 40))
    commit = tiny.pin.commit if name == "full id" else name
    made = commit_as_pin(cache, NAME, commit, git_url=str(tiny.repository), progress=Quiet())
    assert (made.pin.commit, made.pin.listed) == (tiny.pin.commit, False)
    assert made_up.content(made.checkout.path) == made_up.expected_content()


def test_a_name_that_others_end_with(tiny: Tiny, cache: Store) -> None:
    """Of branches whose names end alike the one of that name is meant, and of a tag the commit it is on."""
    git = ("git", "-C", str(tiny.repository), "-c", "user.name=x", "-c", "user.email=x")
    subprocess.run([*git, "branch", "named", "HEAD"], check=True)
    subprocess.run([*git, "tag", "-a", "-m", "x", "marked", "HEAD"], check=True)
    tree = subprocess.run([*git, "write-tree"], check=True, capture_output=True, text=True).stdout.strip()
    other = subprocess.run(
        [*git, "commit-tree", "-m", "x", tree], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run([*git, "branch", "a/named", other], check=True)
    subprocess.run([*git, "branch", "a/marked", other], check=True)
    for name in ("named", "marked"):
        made = commit_as_pin(cache, NAME, name, git_url=str(tiny.repository), progress=Quiet())
        assert made.pin.commit == tiny.pin.commit
    with pytest.raises(SourceError, match="no such commit"):
        commit_as_pin(cache, NAME, "tags/marked", git_url=str(tiny.repository), progress=Quiet())


@pytest.mark.parametrize("name", ["no-such-branch", "--upload-pack=touch-here", "abcdef1"])
def test_a_commit_that_the_remote_does_not_have(
    tiny: Tiny, cache: Store, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error that says what would do; what looks like an option is none."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="There is no such commit") as caught:
        commit_as_pin(cache, NAME, name, git_url=str(tiny.repository), progress=Quiet())
    assert "a full id" in str(caught.value.hint)
    assert not (tmp_path / "here").exists()


def test_listing_it_makes_the_pin(tiny: Tiny, cache: Store) -> None:
    """What is written is read as the same pin, in the order of versions, and changes no other one."""
    forget_pin(tiny, "2.0")
    (newer,) = load_pins(NAME)
    list_pin(release_as_pin(cache, NAME, "1.0", progress=Quiet()))
    assert load_pins(NAME) == (tiny.pin, newer)


def test_listing_it_again_changes_nothing(tiny: Tiny, cache: Store) -> None:
    """The list has the same bytes after the second time."""
    forget_pin(tiny)
    release = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    texts = [list_pin(release).read_text() for _ in range(2)]
    assert texts[0] == texts[1] and texts[0].count("[[pin]]") == 2


MINE = f"""
# What follows is mine.
  [[ pin ]] # my fork
name = "mine"
commit = "{"a" * 40}"
tree = "{"b" * 40}"
date = 2026-03-01

# Read this, too.
"""
BOUND = """
[pin.binding]
package = "tiny-python"
version = "1.0"
sdist = "mine.tar.gz"
sha256 = "0"
"""


def with_mine(place: str, mine: str, known: str) -> str:
    """A list with a pin that a person wrote, and a known one."""
    return f"{mine}\n{known}\n" if place == "before" else f"{known}{mine}\n# The end.\n"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("mine", [MINE, MINE + BOUND], ids=["no-binding", "same-release"])
@pytest.mark.parametrize("known", ["0.9", "1.0", "2.0"])
def test_a_pin_that_a_person_wrote_stays(
    tiny: Tiny, cache: Store, known: str, mine: str, place: str, ends: str
) -> None:
    """All text but that of the pin of the same name is there afterwards, byte for byte, in its order."""
    forget_pin(tiny, known)
    entry = pins_file(tiny).read_text()
    before = with_mine(place, mine, entry).replace("\n", ends)
    pins_file(tiny).write_bytes(before.encode())
    list_pin(release_as_pin(cache, NAME, "1.0", progress=Quiet()))
    after = pins_file(tiny).read_bytes().decode()
    assert tiny.pin in load_pins(NAME)
    (new,) = re.findall(
        rf'\[\[pin\]\]\nname = "1.0"\ncommit = "{tiny.pin.commit}".*?sha256 = "\w+"', after, re.S
    )
    if known == "1.0":
        assert after.replace(new, entry.rstrip().replace("\n", ends)) == before
    else:
        assert before in (after.replace(f"\n\n{new}", ""), after.replace(f"{new}\n\n", ""))
    names = [pin.name for pin in load_pins(NAME) if pin.name != "mine"]
    assert names == sorted({known, "1.0"})


def test_a_list_that_is_written_in_another_way_is_not_touched(tiny: Tiny, cache: Store) -> None:
    """What cannot be told apart is left to a person."""
    release = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    file = pins_file(tiny)
    file.write_text(file.read_text().replace("[[pin]]", "[['pin']]"))
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="by hand"):
        list_pin(release)
    assert file.read_bytes() == before


def test_a_release_that_is_no_version_is_told(tiny: Tiny) -> None:
    """A person may have written anything."""
    pins_file(tiny).write_text(pins_file(tiny).read_text().replace('version = "1.0"', 'version = "mine"'))
    with pytest.raises(ConfigError, match="no version"):
        newer_releases(NAME)


def test_what_the_file_says_at_its_head_stays(tiny: Tiny, cache: Store) -> None:
    """Comments before the first pin are kept."""
    forget_pin(tiny)
    pins_file(tiny).write_text("# Read this.\n\n" + pins_file(tiny).read_text())
    path = list_pin(release_as_pin(cache, NAME, "1.0", progress=Quiet()))
    assert path.read_text().startswith("# Read this.\n\n[[pin]]\n")


def test_links_to_other_repositories_are_listed(tiny: Tiny, cache: Store) -> None:
    """Paths and commits of submodules are written, and read as such."""
    forget_pin(tiny)
    release = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    linked = releases.Release(release.pin, release.checkout, {"third/party": "d" * 40})
    list_pin(linked)
    assert submodules(find_pin(NAME, tiny.pin.commit)) == {"third/party": "d" * 40}


def test_the_index_is_asked_once(tiny: Tiny, cache: Store) -> None:
    """The second time, and the checkout as a listed pin, come from the cache."""
    forget_pin(tiny)
    first = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    shutil.rmtree(tiny.index)
    again = release_as_pin(cache, NAME, "1.0", progress=Quiet())
    assert again.pin == first.pin and not again.checkout.fresh
    list_pin(first)
    assert make_checkout(cache, find_pin(NAME, "1.0"), progress=Quiet()).path == first.checkout.path


def test_newer_is_newer_than_all_pins(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases between pins, and older ones, are not offered; versions are compared as versions."""
    monkeypatch.setattr(releases, "list_releases", lambda package: ["1.10", "1.2", "1.0", "0.9"])
    assert newer_releases(NAME) == ["1.2", "1.10"]


def test_pip_says_what_there_is(tiny: Tiny) -> None:
    """The versions are those of the index that pip is set up for."""
    assert list_releases("tiny-python") == ["1.0"]
    with pytest.raises(SourceError, match="the versions of no-such-package"):
        list_releases("no-such-package")


def test_a_release_that_is_not_there(tiny: Tiny, cache: Store) -> None:
    """The error names it, with pip's reason, and the cache has nothing of it."""
    with pytest.raises(SourceError, match=r"an sdist of tiny-python 7\.0") as caught:
        release_as_pin(cache, NAME, "7.0", progress=Quiet())
    assert "No matching distribution found" in str(caught.value.why)
    assert not list(cache.root.glob("releases/*.json"))


def test_a_branch_in_the_place_of_a_commit(tiny: Tiny, cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository whose HEAD is a branch does not say what was vendored: an error, no guess."""
    forget_pin(tiny)
    carried = tiny.data.parent / "carried"
    fetch = run_git

    def without_head(*words: object, **named: object) -> bytes:
        if words[0] == "update-ref":
            (carried / "HEAD").write_text("ref: refs/heads/master\n")
            return b""
        return fetch(*words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(made_up, "run_git", without_head)
    made_up.make_sdist(tiny)
    with pytest.raises(SourceError, match="does not say which commit") as caught:
        release_as_pin(cache, NAME, "1.0", progress=Quiet())
    assert "refs/heads/master" in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_a_head_that_is_no_file(tiny: Tiny, cache: Store, kind: str) -> None:
    """What says which commit it is can be anything in an sdist: an error, no breakdown."""
    forget_pin(tiny)
    with tarfile.open(tiny.archive) as old:
        members = [(member, old.extractfile(member)) for member in old]
        texts = [(member, stream.read() if stream else b"") for member, stream in members]
    with tarfile.open(tiny.archive, "w:gz") as new:
        for member, text in texts:
            if (
                member.name.endswith("/HEAD")
                and member.name.count("/HEAD") == 1
                and "logs" not in member.name
            ):
                member.type, member.linkname = (
                    (tarfile.DIRTYPE, "") if kind == "folder" else (tarfile.SYMTYPE, "missing")
                )
                text = b""
                member.size = 0
            new.addfile(member, io.BytesIO(text))
    with pytest.raises(SourceError, match="does not say which commit"):
        release_as_pin(cache, NAME, "1.0", progress=Quiet())
