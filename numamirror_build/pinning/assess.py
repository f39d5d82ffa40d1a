"""What a release of the binding would change, compared with the pin before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from packaging.version import Version

from numamirror_build import data
from numamirror_build.errors import (
    AccessError,
    AnchorError,
    ContentMismatchError,
    EditConflictError,
    NumaMirrorError,
    SourceError,
)
from numamirror_build.patching.lock import LockPart, compare_counts, lock_part, read_lock, write_lock
from numamirror_build.patching.plan import Plan, find_problems, make_plan
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.pinning.watch import new_names
from numamirror_build.progress import Progress
from numamirror_build.store import Store, locked
from numamirror_build.upstreams.checkout import make_checkout
from numamirror_build.upstreams.pins import Pin, load_pins
from numamirror_build.upstreams.releases import Release, commit_as_pin, list_pin, release_as_pin, version_of

SCOPES = ("cpu", "all")


@dataclass(frozen=True)
class Assessment:
    """A release or commit, and what moving to it takes.

    Attributes:
        version: the release, or the commit as it was asked for.
        release: the pin that it would be; None where not even its files could be had.
        before: name of the pin that it is compared with: the newest of the older ones.
        same_commit: whether that one has the same commit.
        problems: what keeps it from being planned in scope ``all``; none: it can be listed without hand work.
        sites: by file and kind, how many accesses more (or, negative, fewer) there are in scope ``cpu``.
        hooks: by hook, where its edits are now and where they were, if that is another file, or none.
        names: by sort, names that are new in upstream's headers.
        plans: by scope, those that could be made.
    """

    version: str
    release: Release | None
    before: str | None
    same_commit: bool = False
    problems: tuple[NumaMirrorError, ...] = ()
    sites: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plans: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether it can be listed without hand work."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The assessment for machines."""
        return {
            "version": self.version,
            "pin": asdict(self.release.pin) if self.release else None,
            "before": self.before,
            "same_commit": self.same_commit,
            "fits": self.fits,
            "problems": [problem.as_json() for problem in self.problems],
            "sites": self.sites,
            "hooks": self.hooks,
            "new_names": self.names,
            "plans": {scope: plan.digest for scope, plan in self.plans.items()},
        }


def assess(store: Store, upstream: str, version: str, *, progress: Progress) -> Assessment:
    """See what listing a release would change. Nothing is written but to the cache."""
    get = partial(release_as_pin, store, upstream, version, progress=progress)
    return _assess(store, version, get, _pin_before(upstream, version), progress)


def assess_commit(
    store: Store, upstream: str, commit: str, *, git_url: str | None = None, progress: Progress
) -> Assessment:
    """See what a commit changes that need not belong to a release, compared with the newest pin.

    Args:
        store: the cache.
        upstream: the upstream's name.
        commit: a full id, or what the remote calls one, such as ``HEAD``.
        git_url: remote to fetch from instead of upstream's own.
        progress: told what goes on.
    """
    get = partial(commit_as_pin, store, upstream, commit, git_url=git_url, progress=progress)
    return _assess(store, commit, get, load_pins(upstream)[-1], progress)


def _assess(
    store: Store, version: str, get: Callable[[], Release], older: Pin | None, progress: Progress
) -> Assessment:
    before = older.name if older else None
    try:
        release = get()
    except (SourceError, ContentMismatchError) as error:
        return Assessment(version, None, before, problems=(error,))
    files = TreeFiles(release.checkout.path)
    names: Mapping[str, tuple[str, ...]] = {}
    if older is not None and older.commit != release.pin.commit:
        old = TreeFiles(make_checkout(store, older, progress=progress).path)
        names = new_names(older.upstream, old, files)
    same = older is not None and older.commit == release.pin.commit
    plans: dict[str, Plan] = {}
    try:
        for scope in SCOPES:
            plans[scope] = make_plan(store, release.checkout, scope=scope, locked=False, progress=progress)
    except (AnchorError, AccessError, EditConflictError) as error:
        problems = find_problems(files, release.pin, scope=SCOPES[-1]) or (error,)
        return Assessment(version, release, before, same, problems, names=names, plans=plans)
    lock = read_lock(older, SCOPES[0]) if older else None
    found = lock_part(plans[SCOPES[0]])
    sites = compare_counts(lock.sites, found.sites) if lock else {}
    hooks = _moved_hooks(lock, found) if lock else {}
    return Assessment(version, release, before, same, (), sites, hooks, names, plans)


def adopt(store: Store, assessment: Assessment) -> list[Path]:
    """Lock the plans of a release that needs no hand work, and list it; the files written.

    It is listed last: a pin that is listed has its locks, wherever this is stopped.
    """
    assert assessment.release is not None and assessment.fits
    with locked(store.root / "locks" / "pins"), data.writing():
        locks = [write_lock(plan) for plan in assessment.plans.values()]
        return [*dict.fromkeys(locks), list_pin(assessment.release)]


def _pin_before(upstream: str, version: str) -> Pin | None:
    older = [
        (known, pin) for pin in load_pins(upstream) if (known := version_of(pin)) and known < Version(version)
    ]
    return max(older, key=lambda one: one[0])[1] if older else None


def _moved_hooks(before: LockPart, after: LockPart) -> dict[str, str]:
    moved = {}
    for hook in sorted({*before.hooks, *after.hooks}):
        old, new = (
            sorted({place.rpartition(":")[0] for place in part.hooks.get(hook, ())})
            for part in (before, after)
        )
        if old != new:
            moved[hook] = f"{' '.join(new) or 'not wanted'}; before: {' '.join(old) or 'not wanted'}"
    return moved
