"""Checkouts: upstream's files at a pin, proven by git's object ids, in a folder that nobody edits afterwards.

A checkout is a folder of the cache with two parts:
``tree`` holds the files and nothing else, ``git`` is the repository they were checked out from;
its HEAD is the pin's commit, or a commit made here of the same files if the source was a plain folder
or the pin has a manifest.
A pin whose sources carry no git data has a manifest of ids; its checkout holds what that lists.
A verified checkout is named after its commit, whichever source it came from, because the content is the same.
A plain folder whose ids are not known is named after the tree id of its content.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build.errors import ContentMismatchError, SourceError
from numamirror_build.progress import Progress
from numamirror_build.store import Entry, Store, digest
from numamirror_build.upstreams import folder as plain
from numamirror_build.upstreams.git import Repository, run_git
from numamirror_build.upstreams.pins import Pin, load_upstream, manifest, submodules
from numamirror_build.upstreams.sdist import fetch_sdist as fetch_sdist
from numamirror_build.upstreams.sdist import unpack_sdist as unpack_sdist

_LAYOUT = 1
_LONG_AGO = 946_684_800  # the year 2000
_HINT = (
    "give a clone or a folder with --source PATH, or a mirror with --git-url; then run the same command again"
)


@dataclass(frozen=True)
class Checkout:
    """Upstream's files at a pin.

    Attributes:
        pin: the pin.
        path: folder with the files, and nothing else; never to be changed.
        tree: git's tree id of the files.
        source: where they came from: ``sdist``, ``git`` or ``path``.
        verified: whether they are proven to be the pin's; otherwise they are what a folder happened to hold.
        key: digest of what decides the content, for keys of what is made from it.
        seconds: how long it took to make, when it was made.
        fresh: whether this run made it.
    """

    pin: Pin
    path: Path
    tree: str | None
    source: str
    verified: bool
    key: str
    seconds: float
    fresh: bool


Fill = Callable[[Repository], str]
"""Fetches the commit and checks it out; returns the source's name."""


def make_checkout(
    store: Store, pin: Pin, *, source: str = "auto", git_url: str | None = None, progress: Progress
) -> Checkout:
    """The files of a pin, from the cache when they are there and nobody touched them.

    Args:
        store: the cache.
        pin: what to get.
        source: where from.
            ``sdist``: the git repository, or the plain files, that the binding's sdist carries.
            ``git``: that one commit from a remote.
            ``auto``: the first, and if it cannot be had the second.
            A path of a clone: it must contain the commit; its work tree does not matter.
            A path of a plain folder: it must hold the pin's files, if their ids are known.
            Whatever else it holds does not matter if the pin's checkout is in the cache, or the pin has a
            manifest; otherwise it may hold nothing else except what its .gitignore names.
        git_url: remote to fetch from instead of upstream's own.
        progress: told what goes on.

    Raises:
        SourceError: no source could be had; ``why`` says what was tried, in order.
        ContentMismatchError: a source has other content than the pin says.
        ToolMissingError: git is not installed.
        DiskFullError: the disk is full.
    """

    def from_sdist(repository: Repository) -> str:
        _fetch_from_sdist(store, pin, repository, progress)
        return "sdist"

    def from_git(repository: Repository) -> str:
        url = git_url or load_upstream(pin.upstream).git_url
        progress.step(f"Fetching {pin.upstream} {pin.name} from {url}")
        _fetch(repository, local_url(url), pin)
        return "git"

    fills: dict[str, list[Fill]] = {
        "auto": [from_sdist, from_git],
        "sdist": [from_sdist],
        "git": [from_git],
    }
    if source in fills:
        return _make_verified(store, pin, fills[source], progress)
    if not Path(source).is_dir():
        raise SourceError("There is no such source folder", where=source, hint=_HINT)
    path = Path(source).resolve()
    if _is_clone(path):
        return _from_clone(store, pin, path, progress)
    return _from_folder(store, pin, path, progress)


def _first(fills: list[Fill], repository: Repository) -> str:
    failures: list[SourceError] = []
    for fill in fills:
        try:
            return fill(repository)
        except SourceError as error:
            failures.append(error)
    tried = [
        f"{number}. " + "\n".join(text for text in (error.what, error.where, error.why) if text)
        for number, error in enumerate(failures, start=1)
    ]
    raise SourceError(
        "No source of the pin could be had",
        why="\n".join(tried),
        hint=_HINT,
        details={"tried": [error.as_json() for error in failures]},
    )


def _make_verified(store: Store, pin: Pin, fills: list[Fill], progress: Progress) -> Checkout:
    def maker(folder: Path) -> dict[str, Any]:
        repository = Repository.create(folder / "git", folder / "tree")
        source = _first(fills, repository)
        tree = repository.text("rev-parse", "HEAD^{tree}")
        if tree != (pin.tree or tree):
            raise ContentMismatchError(
                f"The content of pin {pin.name} is not what the pin says",
                why=f"tree id expected {pin.tree}\n        got      {tree}",
            )
        _seal(repository)
        return {"source": source, "tree": tree, "verified": True}

    return _make(store, pin, _commit_key(pin), maker, progress)


def _make(
    store: Store, pin: Pin, key: str, maker: Callable[[Path], Mapping[str, Any]], progress: Progress
) -> Checkout:
    def intact(entry: Entry) -> bool:
        changed = _changes(_repository(entry.path))
        if changed:
            progress.step(f"The checkout in the cache was changed ({changed}): making it again")
        return not changed

    return _checkout(pin, key, store.make("checkouts", key, maker, intact=intact))


def _checkout(pin: Pin, key: str, entry: Entry) -> Checkout:
    made = entry.made
    return Checkout(
        pin=pin,
        path=entry.path / "tree",
        tree=made["tree"],
        source=made["source"],
        verified=made["verified"],
        key=key,
        seconds=entry.seconds,
        fresh=entry.fresh,
    )


def _repository(folder: Path) -> Repository:
    return Repository(folder / "git", folder / "tree")


def _commit_key(pin: Pin) -> str:
    listed = {"tree": pin.tree} if pin.manifest else {}
    return digest({"layout": _LAYOUT, "commit": pin.commit, **listed})[:20]


# --- git remotes: an sdist's repository, upstream's, a clone ---


def _fetch(repository: Repository, url: str, pin: Pin) -> None:
    """Fetch one commit, nothing before it, and check it out. Git computes the ids of what it receives."""
    options = ["--quiet", "--depth=1", "--no-recurse-submodules"]
    repository.run("fetch", *options, "--", url, pin.commit)
    repository.run("checkout", "--quiet", "--detach", "--force", pin.commit)
    if blobs := manifest(pin):
        _keep(pin, blobs, repository)


def _keep(pin: Pin, blobs: Mapping[str, plain.Blob], repository: Repository) -> None:
    """Of the commit that is checked out, keep what the pin's manifest lists."""
    there = _listing(repository)
    if different := {path: "not the commit's" for path, blob in blobs.items() if there.get(path) != blob}:
        raise _mismatch(f"The manifest of pin {pin.name} is not of its commit", pin.commit, different, None)
    dropped = [path for path in there if path not in blobs]
    # `git rm` would edit .gitmodules
    names = b"".join(os.fsencode(path) + b"\0" for path in dropped)
    repository.run("update-index", "--force-remove", "-z", "--stdin", stdin=names)
    assert repository.work_tree is not None
    for path in dropped:
        place = repository.work_tree / path
        place.rmdir() if there[path].mode == plain.SUBMODULE else place.unlink()
        while not any((place := place.parent).iterdir()):
            place.rmdir()
    _commit(pin, repository, repository.text("write-tree"))


def _fetch_from_sdist(store: Store, pin: Pin, repository: Repository, progress: Progress) -> None:
    upstream, blobs = load_upstream(pin.upstream), manifest(pin)
    carried = upstream.sdist_folder if blobs else upstream.sdist_repository
    if carried is None or not pin.listed:
        raise SourceError(f"No source distribution is known to carry {pin.upstream} {pin.name}")
    archive = fetch_sdist(store, pin, progress=progress)
    progress.step(f"Checking out {pin.upstream} {pin.name} from {archive.name}")
    with tempfile.TemporaryDirectory(dir=repository.folder.parent) as scratch:
        if blobs:
            folder = unpack_sdist(archive, Path(scratch), only=carried) / carried
            if different := plain.differences(folder, blobs):
                what = f"{archive.name} does not carry the files of pin {pin.name}"
                raise _mismatch(what, str(archive), different, None)
            _copy(folder, blobs, repository)
            _commit(pin, repository, repository.text("write-tree"))
            return
        remote = unpack_sdist(archive, Path(scratch), only=carried) / carried
        (remote / "config").unlink(missing_ok=True)  # of the machine that made the sdist
        try:
            _fetch(repository, remote.as_uri(), pin)
        except SourceError as error:
            raise ContentMismatchError(
                f"{archive.name} does not carry the pin's commit", where=str(archive), why=error.why
            ) from error


def local_url(url: str) -> str:
    """A remote as git is to be told of it: a folder here is a URL, so that git treats it as one."""
    return Path(url).absolute().as_uri() if Path(url).exists() else url


def _is_clone(path: Path) -> bool:
    """Whether git takes this very folder, not one above it, for a repository or its work tree."""
    try:
        run_git("rev-parse", "--git-dir", cwd=path, env={"GIT_CEILING_DIRECTORIES": str(path.parent)})
    except SourceError:
        return False
    return True


def _from_clone(store: Store, pin: Pin, path: Path, progress: Progress) -> Checkout:
    try:
        run_git("cat-file", "-e", f"{pin.commit}^{{commit}}", cwd=path)
    except SourceError as error:
        url = load_upstream(pin.upstream).git_url
        raise SourceError(
            f"The clone does not contain the commit of pin {pin.name}",
            where=str(path),
            why=f"no commit {pin.commit}",
            hint=f"fetch it: git -C {path} fetch --depth=1 {url} {pin.commit}",
        ) from error

    def fill(repository: Repository) -> str:
        progress.step(
            f"Fetching {pin.upstream} {pin.name} from {path}; changes in its work tree do not count"
        )
        _fetch(repository, path.as_uri(), pin)
        return "path"

    return _make_verified(store, pin, [fill], progress)


# --- plain folders ---


def _from_folder(store: Store, pin: Pin, path: Path, progress: Progress) -> Checkout:
    progress.step(f"Comparing {path} with {pin.upstream} {pin.name}")
    known = store.finished("checkouts", _commit_key(pin))
    if known and not _changes(repository := _repository(known.path)):
        if different := plain.differences(path, _listing(repository)):
            raise _folder_mismatch(pin, path, different)
        return _checkout(pin, _commit_key(pin), known)
    if blobs := manifest(pin):
        if different := plain.differences(path, blobs):
            raise _folder_mismatch(pin, path, different)
        tree, key = plain.tree_id(blobs), _commit_key(pin)
    else:
        linked = submodules(pin)
        everything = plain.scan(path, without=linked)
        everything |= {name: plain.Blob(plain.SUBMODULE, commit) for name, commit in linked.items()}
        if pin.tree is None:
            tree, blobs = plain.tree_id(everything), everything
            key = digest({"layout": _LAYOUT, "tree": tree})[:20]
        else:
            tree, blobs = pin.tree, _content_with_id(pin, path, everything)
            key = _commit_key(pin)

    def maker(folder: Path) -> dict[str, Any]:
        repository = Repository.create(folder / "git", folder / "tree")
        _copy(path, blobs, repository)
        got = repository.text("write-tree")
        if got != tree:
            raise SourceError("A source folder changed while it was being copied", where=str(path))
        _commit(pin, repository, tree)
        _seal(repository)
        return {"source": "path", "tree": tree, "verified": pin.tree is not None}

    return _make(store, pin, key, maker, progress)


def _commit(pin: Pin, repository: Repository, tree: str) -> None:
    """Make HEAD a commit of our own, which is the same on every machine."""
    ours = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _NOBODY.items()}
    commit = repository.text("commit-tree", "-m", f"Files of {pin.upstream} {pin.commit}", tree, env=ours)
    repository.run("update-ref", "--no-deref", "HEAD", commit)


_NOBODY = {"NAME": "numamirror-build", "EMAIL": "numamirror-build@localhost", "DATE": "2000-01-01T00:00:00Z"}


def _content_with_id(pin: Pin, path: Path, everything: dict[str, plain.Blob]) -> dict[str, plain.Blob]:
    """The files that make up the pin's tree: all, or all that the folder's .gitignore does not name."""
    ignored = _ignored(path, everything)
    candidates = [everything, {name: blob for name, blob in everything.items() if name not in ignored}]
    ids = [plain.tree_id(blobs) for blobs in candidates]
    if pin.tree not in ids:
        raise ContentMismatchError(
            f"The folder does not hold the files of pin {pin.name}",
            where=str(path),
            why=f"tree id expected {pin.tree}\n        got      {ids[0]}",
            hint="with the pin's checkout in the cache (--source auto) files are named, and others allowed",
            details={"expected": pin.tree, "got": ids[0]},
        )
    return candidates[ids.index(pin.tree)]


def _ignored(path: Path, names: Mapping[str, plain.Blob]) -> set[str]:
    with tempfile.TemporaryDirectory() as scratch:
        repository = Repository.create(Path(scratch), path)
        # With ./ no name looks like one of git's patterns.
        question = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
        try:
            answer = repository.run("check-ignore", "-z", "--stdin", stdin=question)
        except SourceError as error:
            if error.why:
                raise
            return set()  # git's status says that none is
    return {os.fsdecode(name.removeprefix(b"./")) for name in answer.split(b"\0") if name}


def _folder_mismatch(pin: Pin, path: Path, different: Mapping[str, str]) -> ContentMismatchError:
    return _mismatch(
        f"The folder does not hold the files of pin {pin.name}",
        str(path),
        different,
        "to build a tree of your own, commit it in a clone and name that commit with --pin",
    )


def _mismatch(what: str, where: str, different: Mapping[str, str], hint: str | None) -> ContentMismatchError:
    named = [f"{name}: {how}" for name, how in list(different.items())[:5]]
    more = [f"and {len(different) - len(named)} more"] if len(different) > len(named) else []
    return ContentMismatchError(
        what, where=where, why="\n".join(named + more), hint=hint, details={"differences": dict(different)}
    )


def _copy(path: Path, blobs: Mapping[str, plain.Blob], repository: Repository) -> None:
    tree = repository.work_tree
    assert tree is not None
    for name, blob in blobs.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if blob.mode == plain.SUBMODULE:
            target.mkdir()
            repository.run("update-index", "--add", "--cacheinfo", f"{blob.mode},{blob.id},{name}")
        elif blob.mode == plain.LINK:
            target.symlink_to((path / name).readlink())
        else:
            shutil.copyfile(path / name, target)
            target.chmod(0o755 if blob.mode == plain.PROGRAM else 0o644)
    names = b"".join(
        os.fsencode(name) + b"\0" for name, blob in blobs.items() if blob.mode != plain.SUBMODULE
    )
    options = ["--force", "--pathspec-from-file=-", "--pathspec-file-nul"]
    repository.run("-c", "core.looseCompression=0", "--literal-pathspecs", "add", *options, stdin=names)


# --- what a finished checkout must look like ---


def _listing(repository: Repository) -> dict[str, plain.Blob]:
    listing = repository.run("ls-tree", "-r", "-z", "--full-tree", "HEAD")
    blobs = {}
    for line in listing.split(b"\0")[:-1]:
        facts, _, name = line.partition(b"\t")
        mode, _, object_id = facts.decode().split(" ")
        blobs[os.fsdecode(name)] = plain.Blob(mode, object_id)
    return blobs


def _seal(repository: Repository) -> None:
    """Check the files against HEAD, and let git notice later changes by a look at times and sizes alone."""
    if changed := _changes(repository):
        raise SourceError(
            "Files are not as they were checked out", where=str(repository.work_tree), why=changed
        )
    # Git reads a file again unless its time is before the index's, to the second.
    assert repository.work_tree is not None
    for name in _listing(repository):
        os.utime(repository.work_tree / name, (_LONG_AGO, _LONG_AGO), follow_symlinks=False)
    repository.run("update-index", "--refresh")


def _changes(repository: Repository) -> str | None:
    """The first difference between the files and HEAD, if any; what upstream's .gitignore names is none."""
    try:
        status = repository.run("status", "--porcelain", "-z", "--untracked-files=all")
    except SourceError as error:
        return error.why or "the repository is damaged"
    return os.fsdecode(status.split(b"\0")[0]).strip() or None
