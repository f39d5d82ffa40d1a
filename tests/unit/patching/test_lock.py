from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError, ContentMismatchError, LockMismatchError
from numamirror_build.patching.lock import check_lock, write_lock
from numamirror_build.patching.plan import NewFile, Plan
from numamirror_build.rewrite import Site
from tests.unit.patching import made_up

MOVED = "src/a.c: as many sites, but other places or edits"
WRITE = Site("src/b.c", 2, 1, "write", "arrow", in_macro=False)


def test_plan_fits_its_own_lock(tmp_path: Path) -> None:
    """A plan agrees with the lock that was written from it."""
    write_lock(made_up.make(), tmp_path)
    report = check_lock(made_up.make(), tmp_path)
    assert (report.lock, report.locked, report.differences) == ("1.0", True, ())


def test_lock_is_the_same_text_each_time(tmp_path: Path) -> None:
    """Writing a lock again changes no byte, and it holds no text of upstream's."""
    path = write_lock(made_up.make(), tmp_path)
    before = path.read_text()
    assert write_lock(made_up.make(), tmp_path).read_text() == before
    assert "return" not in before and "t->data" not in before


def test_pins_of_one_commit_share_a_lock(tmp_path: Path) -> None:
    """A plan for another release that vendors the same commit fits the same lock, and updates it."""
    path = write_lock(made_up.make(), tmp_path)
    twin = replace(made_up.PIN, name="1.1")
    assert check_lock(made_up.make(pin=twin), tmp_path).lock == "1.0"
    before = path.read_text()
    assert write_lock(made_up.make(pin=twin), tmp_path) == path
    assert write_lock(replace(made_up.make(pin=twin), scope="all"), tmp_path) == path
    assert path.read_text().endswith(before[before.index("[scope.cpu]") :])


def test_other_scopes_of_a_lock_stay(tmp_path: Path) -> None:
    """Writing the lock of one scope leaves the other scope's part as it was."""
    everything = replace(made_up.make(sites=(made_up.SITE, WRITE)), scope="all")
    write_lock(everything, tmp_path)
    write_lock(made_up.make(), tmp_path)
    assert check_lock(everything, tmp_path).locked
    assert check_lock(made_up.make(), tmp_path).locked


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (made_up.make(sites=()), "src/a.c: read 0 instead of 1"),
        (made_up.make(sites=(made_up.SITE, made_up.SITE)), "src/a.c: read 2 instead of 1"),
        (made_up.make(sites=(made_up.SITE, WRITE)), "src/b.c (new): write 1 instead of 0"),
        (made_up.make(sites=(), edits=()), "src/a.c (gone): read 0 instead of 1"),
        (
            made_up.make(sites=(replace(made_up.SITE, line=3),)),
            "src/a.c: as many sites, but other places or edits",
        ),
        (made_up.make(edits=(made_up.READ,)), MOVED),
        (made_up.make(hooks=(made_up.HOOK_ONE,)), "hook two: nowhere instead of src/b.c:26"),
        (
            made_up.make(
                hooks=(made_up.HOOK_ONE, made_up.insertion("src/b.c", "void", "    two();\n", "hook:two"))
            ),
            "hook two: src/b.c:11 instead of src/b.c:26",
        ),
    ],
    ids=["fewer", "more", "new-file", "gone-file", "moved", "other-edit", "no-hook", "hook-moved"],
)
def test_deviation_is_an_error_that_shows_it(tmp_path: Path, plan: Plan, line: str) -> None:
    """A plan that finds something else than its lock is an error; its reason names file, kind and numbers."""
    write_lock(made_up.make(), tmp_path)
    with pytest.raises(LockMismatchError) as caught:
        check_lock(plan, tmp_path)
    assert caught.value.exit_code == 16
    assert caught.value.why == line
    assert caught.value.details == {"differences": [line]}
    assert caught.value.where == "patches/tiny/locks/1.0.toml, scope cpu"


def test_long_differences_are_cut_for_people(tmp_path: Path) -> None:
    """The message shows twenty differences and how many more there are; the details for machines hold all."""
    write_lock(made_up.make(), tmp_path)
    many = tuple(replace(made_up.SITE, path=f"src/{number:02}.c") for number in range(30))
    with pytest.raises(LockMismatchError) as caught:
        check_lock(made_up.make(sites=(made_up.SITE, *many)), tmp_path)
    assert str(caught.value.why).endswith("\nand 10 more")
    assert len(caught.value.details["differences"]) == 30


def test_own_text_is_not_locked(tmp_path: Path) -> None:
    """Our own files and the hooks' texts may change without a change of any lock."""
    write_lock(made_up.make(), tmp_path)
    other = made_up.make(
        hooks=(made_up.HOOK_ONE, made_up.insertion("src/b.c", "}", "    other();\n", "hook:two")),
        new_files=(NewFile("src/other.h", b""),),
    )
    assert check_lock(other, tmp_path).locked


def test_unlocked_commit_is_compared_with_the_nearest_lock(tmp_path: Path) -> None:
    """A commit without a lock is no error: the lock with the fewest differences tells what is new."""
    old_pin = replace(made_up.other_pin("0.9", "e"), tree=made_up.PIN.tree)
    far = made_up.make(pin=old_pin, sites=(WRITE,), edits=(), hooks=())
    write_lock(far, tmp_path)
    write_lock(made_up.make(), tmp_path)
    new = made_up.make(pin=made_up.other_pin("ffffffffffff", "f"), sites=(made_up.SITE, WRITE))
    report = check_lock(new, tmp_path)
    assert (report.lock, report.locked) == ("1.0", False)
    assert report.differences == ("src/b.c (new): write 1 instead of 0",)


@pytest.mark.parametrize("tree", [None, "b" * 40], ids=["unknown", "other"])
def test_unverified_content_is_not_held_against_the_lock(tmp_path: Path, tree: str | None) -> None:
    """Content that is not the pin's is compared with the lock, but a difference is no error."""
    write_lock(made_up.make(), tmp_path)
    report = check_lock(made_up.make(tree=tree, sites=(made_up.SITE, WRITE)), tmp_path)
    assert (report.lock, report.locked) == ("1.0", False)
    assert report.differences == ("src/b.c (new): write 1 instead of 0",)


@pytest.mark.parametrize(
    "plan",
    [made_up.make(tree=None), made_up.make(pin=made_up.other_pin("f" * 12, "f"))],
    ids=["unverified", "unlisted"],
)
def test_only_a_pins_own_content_can_be_locked(tmp_path: Path, plan: Plan) -> None:
    """No lock is written from content that is not known to be that of a listed pin."""
    with pytest.raises(ContentMismatchError):
        write_lock(plan, tmp_path)
    assert not list(tmp_path.iterdir())


CONFLICT = ('upstream = "tiny"\n', '<<<<<<< HEAD\nupstream = "tiny"\n=======\n')


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (*CONFLICT, "at line 2"),
        ("commit =", "commits =", "lacks 'commit'"),
        ("hooks]", "hook]", "lacks 'hooks'"),
        ("read = 1", 'read = "many"', "ValueError"),
        ("files]", "files]\nx = 3", "TypeError"),
    ],
)
def test_a_damaged_lock_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    """File, and line or key; nothing is written over it."""
    path = write_lock(made_up.make(), tmp_path)
    path.write_text(text := path.read_text().replace(old, new))
    for use in (check_lock, write_lock):
        with pytest.raises(ConfigError, match=rf"1\.0\.toml\n.*{says}"):
            use(made_up.make(), tmp_path)
    assert path.read_text() == text


def test_another_pins_damaged_lock_does_not_matter(tmp_path: Path) -> None:
    """Where the pin's own lock is found, the others are not read."""
    write_lock(made_up.make(), tmp_path)
    (tmp_path / "0.9.toml").write_text("<<<<<<< HEAD\n")
    assert check_lock(made_up.make(), tmp_path).locked
    with pytest.raises(ConfigError, match=r"0\.9\.toml"):
        check_lock(made_up.make(pin=made_up.other_pin("2.0", "f")), tmp_path)


def test_no_locks_at_all(tmp_path: Path) -> None:
    """Without any lock there is nothing to compare with, and no error."""
    report = check_lock(made_up.make(), tmp_path)
    assert (report.lock, report.locked, report.differences) == (None, False, ())
