"""Locks: what a plan for a pin is known to find, so that no change of ours or of a parser's passes unseen.

A lock is a small file per pin, ``patches/<upstream>/locks/<pin>.toml``, with one part per scope.
It holds, per file, the number of sites by kind and a digest of their places and edits,
and where each hook is anchored.
It holds no text of upstream's, and none of our own files and hooks' texts either:
those are in the repository as they are, and changing them moves no site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build import data
from numamirror_build.errors import ContentMismatchError, LockMismatchError, content_as_error
from numamirror_build.rewrite import Edit
from numamirror_build.store import digest, write_atomic
from numamirror_build.toml import read_toml

if TYPE_CHECKING:
    from numamirror_build.patching.plan import Plan
    from numamirror_build.upstreams.pins import Pin

_HOOK = "hook:"
_SHOWN = 20
_BANNER = "# Written by `numamirror-build plan --update-lock`. Read its diff before you commit it.\n"


@dataclass(frozen=True)
class LockPart:
    """What is locked of a plan in one scope.

    Attributes:
        digest: of everything below.
        sites: number of sites by file and kind.
        places: digest of places and edits by file.
        hooks: where each hook's edits are, as ``path:offset``.
    """

    digest: str
    sites: Mapping[str, Mapping[str, int]]
    places: Mapping[str, str]
    hooks: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Lock:
    """A lock as its file has it."""

    path: Path
    commit: str
    parts: Mapping[str, LockPart]


@dataclass(frozen=True)
class LockReport:
    """How a plan compares with a lock.

    Attributes:
        lock: name of the lock; None when the upstream has none for the plan's scope.
        locked: whether the lock is for the very content that was planned for; else it is the nearest one.
        differences: readable lines, one per difference.
    """

    lock: str | None
    locked: bool
    differences: tuple[str, ...]


def check_lock(plan: Plan, folder: Path | None = None) -> LockReport:
    """Compare a plan with the lock for its content or, when there is none, with the lock that is nearest.

    Args:
        plan: the plan.
        folder: of the locks; None for the upstream's own.

    Raises:
        LockMismatchError: the plan differs from the lock for its content.
        ConfigError: a lock that was read is damaged.
    """
    folder = folder or _folder(plan)
    part = lock_part(plan)
    own = _lock_of(plan.pin, folder) if _is_content_of_pin(plan) else None
    if own and plan.scope in own.parts:
        differences = tuple(_differences(own.parts[plan.scope], part, places=True))
        if differences:
            raise _mismatch(plan, own.path.stem, differences)
        return LockReport(own.path.stem, True, ())
    others = {
        lock.path.stem: tuple(_differences(lock.parts[plan.scope], part, places=False))
        for lock in _locks(folder)
        if plan.scope in lock.parts
    }
    if not others:
        return LockReport(None, False, ())
    nearest = min(others, key=lambda name: len(others[name]))
    return LockReport(nearest, False, others[nearest])


def read_lock(pin: Pin, scope: str) -> LockPart | None:
    """What is locked for a pin's commit in a scope, if it is.

    Raises:
        ConfigError: a lock that was read is damaged.
    """
    lock = _lock_of(pin, data.patches(pin.upstream) / "locks")
    return lock.parts.get(scope) if lock else None


def write_lock(plan: Plan, folder: Path | None = None) -> Path:
    """Make a plan's lock what the plan finds, and leave the lock's other scopes as they are.

    Pins of the same commit share a lock.

    Args:
        plan: the plan.
        folder: of the locks; None for the upstream's own.

    Returns:
        the lock's file.

    Raises:
        ContentMismatchError: the plan was not made for exactly the content of a listed pin.
        ConfigError: a lock that was read is damaged.
        OutputError: the lock cannot be written.
    """
    if not _is_content_of_pin(plan):
        raise ContentMismatchError(
            "Only a plan for exactly the content of a listed pin can be locked",
            where=f"{plan.upstream} {plan.pin.name}",
            why=f"tree id expected {plan.pin.tree}\n        got      {plan.tree}",
            hint=f"list the commit in patches/{plan.upstream}/pins.toml, and take --source auto",
        )
    folder = folder or _folder(plan)
    lock = _lock_of(plan.pin, folder) or _Lock(folder / f"{plan.pin.name}.toml", plan.pin.commit, {})
    path, parts = lock.path, {**lock.parts, plan.scope: lock_part(plan)}
    head = {"upstream": plan.upstream, "pin": path.stem, "commit": plan.pin.commit}
    lines = [_BANNER, *(f"{key} = {json.dumps(value)}\n" for key, value in head.items())]
    for name in sorted(parts):
        lines += _part_lines(name, parts[name])
    write_atomic(path, "".join(lines))
    return path


def lock_part(plan: Plan) -> LockPart:
    """What is locked of a plan."""
    facts: dict[str, list[Any]] = {}
    hooks: dict[str, list[str]] = {}
    for site in plan.sites:
        facts.setdefault(site.path, []).append([site.line, site.column, site.kind, site.form, site.in_macro])
    for edit in plan.edits:
        if name := hook_of(edit):
            hooks.setdefault(name, []).append(f"{edit.path}:{edit.start}")
        else:
            facts.setdefault(edit.path, []).append([edit.start, edit.end, edit.rule, edit.new.hex()])
    sites = plan.counts()
    places = {path: digest(facts[path])[:12] for path in sorted(facts)}
    anchors = {name: tuple(hooks[name]) for name in sorted(hooks)}
    return LockPart(digest([sites, places, anchors]), sites, places, anchors)


def hook_of(edit: Edit) -> str | None:
    """The id of the hook that an edit comes from; None when it comes from the rewrite."""
    return edit.rule[len(_HOOK) :] if edit.rule.startswith(_HOOK) else None


def compare_counts(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """By name and kind, how many more (or, negative, fewer) there are after; only what differs."""
    changes = {}
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        change = {kind: new.get(kind, 0) - old.get(kind, 0) for kind in sorted({*old, *new})}
        if change := {kind: number for kind, number in change.items() if number}:
            changes[name] = change
    return changes


def _folder(plan: Plan) -> Path:
    return data.patches(plan.upstream) / "locks"


def _is_content_of_pin(plan: Plan) -> bool:
    return plan.tree is not None and plan.tree == plan.pin.tree


def _lock_of(pin: Pin, folder: Path) -> _Lock | None:
    """The lock of a pin's commit."""
    return next((lock for lock in _locks(folder, first=pin.name) if lock.commit == pin.commit), None)


def _locks(folder: Path, *, first: str = "") -> Iterator[_Lock]:
    """All locks, the one of that name first: if it is the one that is looked for, no other is read."""
    for path in sorted(folder.glob("*.toml"), key=lambda path: (path.stem != first, path)):
        table = read_toml(path, "A lock")
        with content_as_error(path):
            parts = {name: _part_from_table(part) for name, part in table["scope"].items()}
            lock = _Lock(path, table["commit"], parts)
        yield lock


def _part_from_table(table: Mapping[str, Any]) -> LockPart:
    places = {path: entry["digest"] for path, entry in table["files"].items()}
    sites = {
        path: {kind: int(number) for kind, number in entry.items() if kind != "digest"}
        for path, entry in table["files"].items()
    }
    hooks = {name: tuple(where) for name, where in table["hooks"].items()}
    return LockPart(table["digest"], sites, places, hooks)


def _part_lines(name: str, part: LockPart) -> Iterator[str]:
    yield f"\n[scope.{name}]\ndigest = {json.dumps(part.digest)}\n"
    yield f"\n[scope.{name}.hooks]\n"
    for hook, where in part.hooks.items():
        yield f"{_toml_key(hook)} = {json.dumps(list(where))}\n"
    yield f"\n[scope.{name}.files]\n"
    for path, place in part.places.items():
        entries = [f"{_toml_key(kind)} = {number}" for kind, number in part.sites.get(path, {}).items()]
        entries.append(f"digest = {json.dumps(place)}")
        yield f"{_toml_key(path)} = {{ {', '.join(entries)} }}\n"


def _toml_key(text: str) -> str:
    return text if re.fullmatch(r"[\w-]+", text, re.ASCII) else json.dumps(text)


def _differences(locked: LockPart, found: LockPart, *, places: bool) -> Iterator[str]:
    """Readable lines; ``places``: whether other places of the same number of edits are a difference."""
    changes = compare_counts(locked.sites, found.sites)
    for path in sorted({*locked.places, *found.places}):
        if path in changes:
            note = " (new)" if path not in locked.places else " (gone)" if path not in found.places else ""
            counts = (
                f"{kind} {found.sites.get(path, {}).get(kind, 0)} instead of"
                f" {locked.sites.get(path, {}).get(kind, 0)}"
                for kind in changes[path]
            )
            yield f"{path}{note}: {', '.join(counts)}"
        elif places and locked.places.get(path) != found.places.get(path):
            yield f"{path}: as many sites, but other places or edits"
    for hook in sorted({*locked.hooks, *found.hooks}):
        before, after = locked.hooks.get(hook, ()), found.hooks.get(hook, ())
        if len(before) != len(after) or (places and before != after):
            yield f"hook {hook}: {' '.join(after) or 'nowhere'} instead of {' '.join(before) or 'nowhere'}"


def _mismatch(plan: Plan, lock: str, differences: tuple[str, ...]) -> LockMismatchError:
    shown = [*differences[:_SHOWN]]
    if len(differences) > _SHOWN:
        shown.append(f"and {len(differences) - _SHOWN} more")
    return LockMismatchError(
        "The plan differs from its lock",
        where=f"patches/{plan.upstream}/locks/{lock}.toml, scope {plan.scope}",
        why="\n".join(shown),
        hint="if this is wanted, run numamirror-build plan --update-lock and read the lock's diff",
        details={"differences": list(differences)},
    )
