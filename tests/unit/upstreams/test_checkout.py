from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.errors import ContentMismatchError, NumaMirrorError, SourceError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout, make_checkout
from numamirror_build.upstreams.git import Repository, run_git
from numamirror_build.upstreams.pins import find_pin
from tests.unit.upstreams import hostile
from tests.unit.upstreams.conftest import Heard
from tests.unit.upstreams.made_up import (
    LINK,
    NAME,
    PROGRAM,
    Tiny,
    commit_all,
    content,
    expected_content,
    make_sdist,
    unlisted,
)

SOURCES = ("auto", "sdist", "git", "clone", "folder")


def source_of(tiny: Tiny, name: str) -> str:
    """The value of ``source`` for a sort of source."""
    if name == "clone":
        return str(tiny.repository)
    if name == "folder":
        return str(tiny.plain_folder("plain"))
    return name


def get(cache: Store, tiny: Tiny, source: str = "git") -> Checkout:
    """The checkout of the made-up pin."""
    return make_checkout(cache, tiny.pin, source=source, progress=Quiet())


def repository_of(checkout: Checkout) -> Repository:
    """The repository beside a checkout's files."""
    return Repository(checkout.path.with_name("git"), checkout.path)


# --- what every source gives ---


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_exactly_the_pins_files(tiny: Tiny, cache: Store, source: str) -> None:
    """Content, modes and links are the commit's, nothing else is there, and it counts as verified."""
    checkout = get(cache, tiny, source_of(tiny, source))
    assert content(checkout.path) == expected_content()
    assert (checkout.tree, checkout.verified, checkout.fresh) == (tiny.pin.tree, True, True)
    assert checkout.source == {"auto": "sdist", "clone": "path", "folder": "path"}.get(source, source)


@pytest.mark.parametrize("source", SOURCES)
def test_no_source_minds_the_users_git(
    tiny: Tiny, cache: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """With a git configuration and GIT_* variables that spoil everything, sources give the same."""
    value = source_of(tiny, source)
    (tmp_path / "hostile").mkdir()
    hostile.make(tmp_path / "hostile", monkeypatch)
    assert content(get(cache, tiny, value).path) == expected_content()
    assert get(cache, tiny, value).fresh is False


@pytest.mark.parametrize("source", ["sdist", "git", "clone"])
def test_a_real_checkout_of_exactly_one_commit(tiny: Tiny, cache: Store, source: str) -> None:
    """The repository beside the files has the pin's commit as HEAD, nothing from before it, and no refs."""
    run_git("tag", "b1", tiny.pin.commit, cwd=tiny.repository)
    repository = repository_of(get(cache, tiny, source_of(tiny, source)))
    assert repository.text("rev-parse", "HEAD") == tiny.pin.commit
    assert repository.text("rev-list", "--all", "HEAD") == tiny.pin.commit
    assert repository.text("for-each-ref") == ""
    assert repository.text("fsck", "--full") == ""


@pytest.mark.parametrize("first", SOURCES)
@pytest.mark.parametrize("second", ["auto", "clone", "folder"])
def test_the_same_content_is_kept_once(tiny: Tiny, cache: Store, first: str, second: str) -> None:
    """Whichever source a pin came from, the next run with any source finds it under the same key."""
    made = get(cache, tiny, source_of(tiny, first))
    found = make_checkout(cache, tiny.pin, source=source_of(tiny, second), progress=Quiet())
    assert (found.key, found.path, found.source, found.fresh) == (made.key, made.path, made.source, False)


def test_a_cached_checkout_needs_no_source(tiny: Tiny, cache: Store, heard: Heard) -> None:
    """When the checkout is in the cache, neither index nor remote is asked, and nothing is said."""
    get(cache, tiny)
    tiny.archive.unlink()
    tiny.repository.rename(tiny.repository.with_name("gone"))
    assert make_checkout(cache, tiny.pin, progress=heard).fresh is False
    assert heard.steps == []


# --- auto ---


def test_auto_takes_the_remote_when_the_index_has_nothing(tiny: Tiny, cache: Store) -> None:
    """Without the sdist, auto fetches the commit from the remote."""
    tiny.archive.unlink()
    assert get(cache, tiny, "auto").source == "git"


def test_nothing_can_be_had(tiny: Tiny, cache: Store) -> None:
    """When all fails, the error (exit code 12) says what was tried, in order, why not, and what helps."""
    tiny.archive.unlink()
    tiny.repository.rename(tiny.repository.with_name("gone"))
    with pytest.raises(SourceError) as caught:
        get(cache, tiny, "auto")
    error = caught.value
    why = str(error.why)
    assert error.exit_code == 12
    assert (
        0
        == why.index("1. pip could not get")
        < why.index("No matching distribution")
        < why.index("2. Git failed")
    )
    assert tiny.repository.as_uri() in why
    assert "--source PATH" in str(error.hint) and "--git-url" in str(error.hint)
    assert [tried["error"] for tried in error.details["tried"]] == ["source", "source"]


def test_auto_stops_at_content_that_is_not_the_pins(tiny: Tiny, cache: Store) -> None:
    """A truncated sdist is an error (exit code 13) even though the remote has the commit."""
    tiny.archive.write_bytes(tiny.archive.read_bytes()[:-5])
    with pytest.raises(ContentMismatchError, match="sha256 expected") as caught:
        get(cache, tiny, "auto")
    assert caught.value.exit_code == 13


def test_auto_asks_the_remote_alone_for_an_unlisted_commit(tiny: Tiny, cache: Store, heard: Heard) -> None:
    """No sdist is known to carry a commit that no list has: it comes from the remote, verified by its id."""
    (tiny.repository / "README").write_text("third\n")
    commit = commit_all(tiny.repository, "third")
    checkout = make_checkout(cache, find_pin(NAME, commit), progress=heard)
    assert (checkout.source, checkout.verified, checkout.pin.listed) == ("git", True, False)
    assert (checkout.path / "README").read_bytes() == b"third\n"
    assert checkout.tree == run_git("rev-parse", "HEAD^{tree}", cwd=tiny.repository).decode().strip()
    assert len(heard.steps) == 1 and "Fetching" in heard.steps[0]
    assert checkout.key != get(cache, tiny).key


# --- sdist and git ---


def test_no_sdist_for_an_unlisted_commit(tiny: Tiny, cache: Store) -> None:
    """Asking for the sdist of a commit that no list has is a source error that says so."""
    with pytest.raises(SourceError, match="No source distribution is known to carry"):
        make_checkout(cache, unlisted(tiny.pin, "a" * 40), source="sdist", progress=Quiet())


def test_sdist_that_carries_another_commit(tiny: Tiny, cache: Store) -> None:
    """A sdist with the right sha256 and without the pin's commit is a content mismatch."""
    pin = tiny.write_pins(commit="a" * 40)
    with pytest.raises(ContentMismatchError, match="does not carry the pin's commit"):
        make_checkout(cache, pin, source="sdist", progress=Quiet())


@pytest.mark.parametrize("source", ["sdist", "git", "clone"])
def test_commit_with_another_tree_than_the_pin_says(tiny: Tiny, cache: Store, source: str) -> None:
    """A commit whose tree is not the pin's is a content mismatch with both ids."""
    pin = tiny.write_pins(tree="b" * 40)
    with pytest.raises(ContentMismatchError, match=f"expected {'b' * 40}\n *got *{tiny.pin.tree}"):
        make_checkout(cache, pin, source=source_of(tiny, source), progress=Quiet())


def test_sdist_is_not_trusted_with_its_configuration(tiny: Tiny, cache: Store) -> None:
    """The configuration in the repository that the sdist carries plays no part."""
    make_sdist(tiny, config="[core]\n\trepositoryformatversion = 99\n")
    checkout = make_checkout(cache, tiny.write_pins(), source="sdist", progress=Quiet())
    assert content(checkout.path) == expected_content()


@pytest.mark.parametrize("form", ["url", "path", "relative path"])
def test_git_url_takes_the_place_of_upstreams(
    tiny: Tiny, cache: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Another remote can be given, as a URL or as the path of a mirror."""
    mirror = tiny.repository.rename(tiny.repository.with_name("mir ror %41\u00e9"))
    monkeypatch.chdir(mirror.parent)
    url = {"url": mirror.as_uri(), "path": str(mirror), "relative path": mirror.name}[form]
    assert make_checkout(cache, tiny.pin, source="git", git_url=url, progress=Quiet()).tree == tiny.pin.tree


def test_remote_without_the_commit(tiny: Tiny, cache: Store) -> None:
    """A commit that the remote does not have is a source error with the remote's words."""
    with pytest.raises(SourceError, match="not our ref"):
        make_checkout(cache, unlisted(tiny.pin, "a" * 40), source="git", progress=Quiet())


@pytest.mark.parametrize(
    "url", ["--upload-pack=touch evil", "ext::sh -c touch% evil", "https://127.0.0.1:1/x"]
)
def test_remotes_that_are_none(tiny: Tiny, cache: Store, tmp_path: Path, url: str) -> None:
    """What looks like an option or a command is not run, and nobody at the other end is a source error."""
    with pytest.raises(SourceError):
        make_checkout(cache, tiny.pin, source="git", git_url=url, progress=Quiet())
    assert not list(tmp_path.rglob("evil"))


# --- a clone ---


def test_work_tree_of_a_clone_does_not_matter(tiny: Tiny, cache: Store, heard: Heard) -> None:
    """A clone gives its commit's files, not what lies around in its work tree or index; it says so."""
    (tiny.repository / "README").write_text("changed\n")
    (tiny.repository / "src/a.c").unlink()
    (tiny.repository / "more").write_text("more\n")
    run_git("add", "more", cwd=tiny.repository)
    before = content(tiny.repository)
    checkout = make_checkout(cache, tiny.pin, source=str(tiny.repository), progress=heard)
    assert content(checkout.path) == expected_content()
    assert "changes in its work tree do not count" in heard.steps[-1]
    assert content(tiny.repository) == before


@pytest.mark.parametrize("sort", ["bare", "shallow", "worktree", "linked", "odd name"])
def test_sorts_of_clones(tiny: Tiny, cache: Store, tmp_path: Path, sort: str) -> None:
    """Bare and shallow clones, further work trees, links to clones and odd names work as well."""
    place = tmp_path / ("other %41 \u00e9\n" if sort == "odd name" else "other")
    if sort == "worktree":
        run_git("worktree", "add", "--quiet", "--detach", place, "HEAD^", cwd=tiny.repository)
    elif sort == "linked":
        place.symlink_to(tiny.repository)
    else:
        options = {"bare": ["--bare"], "shallow": ["--depth=1"]}.get(sort, [])
        run_git("clone", "--quiet", *options, tiny.repository.as_uri(), place)
    checkout = get(cache, tiny, str(place))
    assert content(checkout.path) == expected_content()
    assert checkout.source == "path"


def test_clone_without_the_commit(tiny: Tiny, cache: Store) -> None:
    """A clone that lacks the commit is a source error with the command that gets it, in the cache or not."""
    get(cache, tiny)
    pin = unlisted(tiny.pin, "a" * 40)
    with pytest.raises(SourceError, match=f"git -C {tiny.repository} fetch .* {'a' * 40}") as caught:
        make_checkout(cache, pin, source=str(tiny.repository), progress=Quiet())
    assert caught.value.exit_code == 12


def test_unlisted_commit_of_a_clone(tiny: Tiny, cache: Store) -> None:
    """A commit of one's own in a clone is verified by its id, although nobody listed it."""
    commit = run_git("rev-parse", "HEAD^", cwd=tiny.repository).decode().strip()
    checkout = make_checkout(cache, find_pin(NAME, commit), source=str(tiny.repository), progress=Quiet())
    assert content(checkout.path) == {"README": ("file", b"before\n")}
    assert (checkout.verified, checkout.source) == (True, "path")


# --- a plain folder ---


def test_one_changed_byte_is_named(tiny: Tiny, cache: Store) -> None:
    """With the pin's checkout in the cache, the file that differs is named; exit code 13."""
    get(cache, tiny)
    folder = tiny.plain_folder("plain")
    (folder / "src/a.c").write_bytes(b"int b;\n")
    with pytest.raises(ContentMismatchError) as caught:
        get(cache, tiny, str(folder))
    assert caught.value.exit_code == 13
    assert (caught.value.why, caught.value.where) == ("src/a.c: changed", str(folder))
    assert caught.value.details == {"differences": {"src/a.c": "changed"}}


def test_one_changed_byte_without_a_checkout_in_the_cache(tiny: Tiny, cache: Store) -> None:
    """With nothing in the cache, the tree ids differ; the error gives both and says how to learn the name."""
    folder = tiny.plain_folder("plain")
    (folder / "src/a.c").write_bytes(b"int b;\n")
    with pytest.raises(ContentMismatchError, match=f"expected {tiny.pin.tree}") as caught:
        get(cache, tiny, str(folder))
    assert caught.value.exit_code == 13
    assert "--source auto" in str(caught.value.hint)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("change", ["missing", "program", "link"])
def test_modes_links_and_missing_files_count(tiny: Tiny, cache: Store, change: str, cached: bool) -> None:
    """A lost executable bit, a file in a link's place and a missing file are mismatches, too."""
    if cached:
        get(cache, tiny)
    folder = tiny.plain_folder("plain")
    if change == "program":
        (folder / PROGRAM).chmod(0o644)
    elif change == "link":
        (folder / LINK).unlink()
        (folder / LINK).write_bytes((folder / "src/a.c").read_bytes())
    else:
        (folder / "tracked.log").unlink()
    with pytest.raises(ContentMismatchError):
        get(cache, tiny, str(folder))


def test_many_differences_are_counted(tiny: Tiny, cache: Store) -> None:
    """The message names five files at most and counts the rest; the details have all."""
    get(cache, tiny)
    empty = tiny.data.parent / "empty folder"
    empty.mkdir()
    with pytest.raises(ContentMismatchError, match=f"and {len(expected_content()) - 5} more") as caught:
        get(cache, tiny, str(empty))
    assert caught.value.details["differences"] == dict.fromkeys(expected_content(), "missing")


def test_build_output_in_a_folder_does_not_matter(tiny: Tiny, cache: Store) -> None:
    """Files that the folder's own .gitignore names, and its .git entries, are not content."""
    folder = tiny.plain_folder("plain")
    (folder / "tracked.log").rename(folder / "kept")  # a file that is content although it is named, too
    with pytest.raises(ContentMismatchError):
        get(cache, tiny, str(folder))
    (folder / "kept").rename(folder / "tracked.log")
    (folder / ".git").write_text("gitdir: ../nowhere\n")
    assert get(cache, tiny, str(folder)).verified


@pytest.mark.parametrize("cached", [True, False])
def test_other_files_in_a_folder(tiny: Tiny, cache: Store, cached: bool) -> None:
    """Files besides the pin's may be there if the cache tells which are the pin's; else only ignored ones."""
    pin = tiny.pin
    if cached:
        get(cache, tiny)
    folder = tiny.plain_folder("plain")
    (folder / "more.c").write_text("more\n")
    if cached:
        assert make_checkout(cache, pin, source=str(folder), progress=Quiet()).verified
        return
    with pytest.raises(ContentMismatchError, match="tree id expected"):
        make_checkout(cache, pin, source=str(folder), progress=Quiet())


def test_ignored_files_are_left_out(tiny: Tiny, cache: Store, tmp_path: Path) -> None:
    """Without the cache's help, a folder in which something was built is the pin's, minus what was built."""
    (tiny.repository / "tracked.log").unlink()
    commit = commit_all(tiny.repository, "nothing tracked is ignored")
    tree = run_git("rev-parse", "HEAD^{tree}", cwd=tiny.repository).decode().strip()
    pin = replace(tiny.pin, commit=commit, tree=tree)
    folder = tiny.plain_folder("plain")
    (folder / "tracked.log").write_text("now it is a log\n")
    (folder / "build/deep").mkdir(parents=True)
    (folder / "build/deep/a.o").write_text("object\n")
    checkout = make_checkout(cache, pin, source=str(folder), progress=Quiet())
    assert checkout.verified
    assert set(content(checkout.path)) == set(expected_content()) - {"tracked.log"}


def test_a_folder_that_changes_meanwhile(tiny: Tiny, cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that change between the look at them and the copy are an error, not a verified checkout."""
    copyfile = shutil.copyfile

    def changing(source: Path, target: Path) -> None:
        if source.name == "README":
            source.write_text("changed meanwhile\n")
        copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", changing)
    with pytest.raises(SourceError, match="changed while it was being copied"):
        get(cache, tiny, str(tiny.plain_folder("plain")))


def test_folder_of_an_unlisted_pin_is_unverified(tiny: Tiny, cache: Store) -> None:
    """When nobody knows what a commit contains, a folder is taken as it is and called unverified."""
    pin = unlisted(tiny.pin, "a" * 40)
    folder = tiny.plain_folder("plain")
    (folder / "build").mkdir()
    (folder / "build/a.o").write_text("object\n")
    checkout = make_checkout(cache, pin, source=str(folder), progress=Quiet())
    assert (checkout.verified, checkout.source, checkout.pin) == (False, "path", pin)
    assert content(checkout.path) == content(folder)
    assert repository_of(checkout).text("rev-parse", "HEAD^{tree}") == checkout.tree
    again = make_checkout(cache, pin, source=str(folder), progress=Quiet())
    assert (again.key, again.fresh) == (checkout.key, False)
    (folder / "README").write_text("other\n")
    other = make_checkout(cache, pin, source=str(folder), progress=Quiet())
    assert other.fresh and other.key != checkout.key and (other.path / "README").read_text() == "other\n"


def test_folder_of_an_unlisted_pin_is_verified_by_a_checkout_in_the_cache(tiny: Tiny, cache: Store) -> None:
    """Once a commit was checked out from a remote its ids are known, listed or not."""
    pin = unlisted(tiny.pin, tiny.pin.commit)
    make_checkout(cache, pin, source="git", progress=Quiet())
    folder = tiny.plain_folder("plain")
    assert make_checkout(cache, pin, source=str(folder), progress=Quiet()).verified
    (folder / "README").write_text("other\n")
    with pytest.raises(ContentMismatchError, match="README: changed"):
        make_checkout(cache, pin, source=str(folder), progress=Quiet())


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_inside_somebodys_clone_is_a_plain_folder(tiny: Tiny, cache: Store, linked: bool) -> None:
    """A folder is a clone only if it is one itself: one further up, or around a link's target, is none."""
    folder = tiny.plain_folder("plain").rename(tiny.repository / "vendored")
    if linked:
        link = tiny.data.parent / "link to a folder"
        link.symlink_to(folder)
        folder = link
    assert get(cache, tiny, str(folder)).verified
    (folder / "README").write_text("other\n")
    with pytest.raises(ContentMismatchError, match="README: changed"):
        get(cache, tiny, str(folder))


def test_submodules_of_a_folder(tiny: Tiny, cache: Store) -> None:
    """What the pin's tree only links to need not be there, and does not matter if it is."""
    linked = "4565194ed7c32d1d2efa32ceab4d3c6cae006306"
    run_git("update-index", "--add", "--cacheinfo", f"160000,{linked},lib/sub", cwd=tiny.repository)
    tree = run_git("write-tree", cwd=tiny.repository).decode().strip()
    pin = tiny.write_pins(tree=tree, submodules=f'{{ "lib/sub" = "{linked}" }}')
    folder = tiny.plain_folder("plain")
    (folder / "lib/sub").mkdir(parents=True)
    (folder / "lib/sub/x.c").write_text("somebody else's\n")
    checkout = make_checkout(cache, pin, source=str(folder), progress=Quiet())
    assert (checkout.tree, checkout.verified) == (tree, True)
    assert content(checkout.path) == expected_content()
    assert make_checkout(cache, pin, source=str(folder), progress=Quiet()).fresh is False


@pytest.mark.parametrize("name", ["nowhere", "README", "loop"])
def test_no_such_folder(tiny: Tiny, cache: Store, name: str) -> None:
    """A source path that is not there, is a file, or a link to itself, is a source error."""
    (tiny.repository / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match="no such source folder"):
        get(cache, tiny, str(tiny.repository / name))


# --- the cache is looked after ---


@pytest.mark.parametrize("damage", ["deleted", "changed", "added", "mode", "all", "repository"])
def test_a_touched_checkout_is_made_again(tiny: Tiny, cache: Store, heard: Heard, damage: str) -> None:
    """A checkout in which somebody deleted, changed or added a file is noticed, named and made again."""
    checkout = get(cache, tiny)
    place = checkout.path / "src/a.c"
    if damage == "deleted":
        place.unlink()
    elif damage == "changed":
        place.write_bytes(b"int x;\n")  # of the same size
    elif damage == "added":
        (checkout.path / "src/more.c").write_text("more\n")
    elif damage == "mode":
        place.chmod(0o755)
    elif damage == "all":
        for path in content(checkout.path):
            (checkout.path / path).unlink()
    else:
        (checkout.path.with_name("git") / "HEAD").unlink()
    again = make_checkout(cache, tiny.pin, progress=heard)
    assert again.fresh and again.path == checkout.path
    assert content(again.path) == expected_content()
    assert "was changed" in heard.steps[0]
    assert get(cache, tiny).fresh is False


def test_what_upstream_ignores_may_lie_in_a_checkout(tiny: Tiny, cache: Store) -> None:
    """Files that upstream's own .gitignore names do not make a checkout a changed one."""
    checkout = get(cache, tiny)
    (checkout.path / "note.log").write_text("x")
    assert get(cache, tiny).fresh is False


def test_git_need_not_read_files_to_see_that_none_changed(tiny: Tiny, cache: Store) -> None:
    """All files look older than the index, to the second: git believes their times and sizes."""
    checkout = get(cache, tiny)
    index = int((checkout.path.with_name("git") / "index").stat().st_mtime)
    assert all(int((checkout.path / path).lstat().st_mtime) < index for path in content(checkout.path))


RUN = """
import os, sys
from pathlib import Path
from numamirror_build import data
data._root = lambda: Path(sys.argv[1])
os.environ["TINY_PID"] = str(os.getpid())
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import make_checkout
from numamirror_build.upstreams.pins import find_pin
store = Store(Path(sys.argv[2]))
print(make_checkout(store, find_pin("tiny", None), source=sys.argv[3], progress=Quiet()).fresh)
"""
COUNTING_GIT = """#!/bin/sh
count=$(($(cat {folder}/count) + 1))
echo $count > {folder}/count
[ $count = "$TINY_LIMIT" ] && kill -$TINY_SIGNAL $TINY_PID && sleep 0.1
exec {git} "$@"
"""


def start(tiny: Tiny, cache: Store, source: str, **variables: str) -> subprocess.Popen[str]:
    """Make the checkout in another process, with further environment variables."""
    command = [sys.executable, "-c", RUN, str(tiny.data), str(cache.root), source]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("source", ["sdist", "git", "folder"])
@pytest.mark.parametrize("end", ["KILL", "INT"])
def test_ended_at_any_git_command_the_next_run_continues(
    tiny: Tiny, cache: Store, tmp_path: Path, source: str, end: str
) -> None:
    """Killed or interrupted at the first git command, the second, and so on: nothing half-made is used."""
    value = source_of(tiny, source)
    (tmp_path / "bin").mkdir()
    counting = tmp_path / "bin/git"
    counting.write_text(COUNTING_GIT.format(folder=tmp_path, git=shutil.which("git")))
    counting.chmod(0o755)
    path = f"{counting.parent}{os.pathsep}{os.environ['PATH']}"
    for ended in range(50):
        (tmp_path / "count").write_text("0")
        process = start(tiny, cache, value, PATH=path, TINY_LIMIT=str(ended + 1), TINY_SIGNAL=end)
        process.communicate(timeout=60)
        if process.returncode == 0:
            break
    assert 5 <= ended < 49
    checkout = get(cache, tiny, value)
    assert content(checkout.path) == expected_content() and checkout.verified
    assert repository_of(checkout).text("rev-parse", "HEAD^{tree}") == tiny.pin.tree


def test_killed_while_pip_is_at_work(tiny: Tiny, cache: Store) -> None:
    """An sdist that pip was still busy with when this program was killed is not taken for a whole one."""
    process = start(tiny, cache, "sdist", TINY_KILL="1")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not list((cache.root / "sdists").glob("*.json"))
    assert content(get(cache, tiny, "sdist").path) == expected_content()


def test_two_runs_at_once_make_one_checkout(tiny: Tiny, cache: Store) -> None:
    """Of several runs that start at once, one makes the checkout and the others wait for it."""
    processes = [start(tiny, cache, "git") for _ in range(3)]
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
    assert answers == ["False", "False", "True"]
    assert content(get(cache, tiny).path) == expected_content()


def test_a_failed_attempt_is_not_taken_for_a_checkout(tiny: Tiny, cache: Store) -> None:
    """After an error, the next run starts over."""
    pin = tiny.write_pins(tree="b" * 40)
    for _ in range(2):
        with pytest.raises(NumaMirrorError):
            make_checkout(cache, pin, source="git", progress=Quiet())
    assert get(cache, tiny, "git").fresh
