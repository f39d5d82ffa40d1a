"""A plan: every edit and every new file for one checkout, as a value. Nothing is written to the tree.

A plan is made once per checkout, scope and state of our data and code, and then comes from the cache.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from numamirror_build import data
from numamirror_build.errors import AccessError, ConfigError, EditConflictError, NumaMirrorError
from numamirror_build.patching.lock import check_lock, compare_counts, hook_of
from numamirror_build.patching.scope import OutOfScope, Sources, TreeFiles, scope_from_table, select_sources
from numamirror_build.progress import Progress
from numamirror_build.rewrite import AccessReport, Edit, Site, find_accesses, load_exceptions
from numamirror_build.store import Store, digest, file_sha256, write_json
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.pins import Binding, Pin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_FILE = "plan.json"
_PARSERS = ("tree-sitter", "tree-sitter-c", "tree-sitter-cpp", "jinja2")


@dataclass(frozen=True)
class NewFile:
    """A file of ours that the patched tree has and upstream's has not."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Plan:
    """What is to be changed in a tree.

    Attributes:
        upstream: name of the upstream.
        pin: the pin that was planned for.
        tree: git tree id of the checkout's content, when it is known.
        scope: ``cpu`` or ``all``.
        sites: the accesses to tensor data in scope.
        edits: of the rewrite and of the hooks, by path and position, none overlapping another;
            positions are those in upstream's file.
        new_files: by path.
        out_of_scope: what the scope leaves as it is, with reasons.
        digest: sha256 of all edits and new files.
    """

    upstream: str
    pin: Pin
    tree: str | None
    scope: str
    sites: tuple[Site, ...]
    edits: tuple[Edit, ...]
    new_files: tuple[NewFile, ...]
    out_of_scope: tuple[OutOfScope, ...]
    digest: str

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of sites by file and kind."""
        return AccessReport(self.sites, ()).counts()

    def hooks(self) -> dict[str, int]:
        """Number of edits by hook."""
        counts = Counter(name for edit in self.edits if (name := hook_of(edit)))
        return dict(sorted(counts.items()))

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-like data; :func:`plan_from_json` reads it."""
        value = asdict(self)
        value["edits"] = [
            {**asdict(edit), "old": _text(edit.old), "new": _text(edit.new)} for edit in self.edits
        ]
        value["new_files"] = [{"path": new.path, "content": _text(new.content)} for new in self.new_files]
        return {"version": 1, **value, "counts": self.counts(), "hooks": self.hooks()}

    def summary(self) -> str:
        """The plan for people: edits by file and kind, hooks, new files, what is out of scope."""
        counts, hooks = self.counts(), self.hooks()
        kinds = sorted({site.kind for site in self.sites})
        rows = [[path, *(str(of.get(kind, 0)) for kind in kinds)] for path, of in counts.items()]
        totals = [str(sum(of.get(kind, 0) for of in counts.values())) for kind in kinds]
        lines = [
            f"{self.upstream} {self.pin.name} ({self.pin.commit})",
            f"scope {self.scope}, plan {self.digest[:12]}",
            "",
            *_table([["file", *kinds], *rows, [f"{len(rows)} files", *totals]]),
            "",
            f"{len(hooks)} hooks: {', '.join(hooks) or 'none'}",
            f"{len(self.new_files)} new files: {', '.join(new.path for new in self.new_files) or 'none'}",
        ]
        if self.out_of_scope:
            lines += ["", "out of scope:"]
            lines += [
                f"  {left.glob} ({len(left.files)} files that name tensors): {left.reason}"
                for left in self.out_of_scope
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class PlanDiff:
    """What one plan has and another has not.

    Attributes:
        sites: by file and kind, how many more (or, negative, fewer) the second plan has.
        removed: edits (path, kind, old and new text) that only the first plan has.
        added: edits that only the second plan has.
    """

    sites: Mapping[str, Mapping[str, int]]
    removed: tuple[tuple[str, str, bytes, bytes], ...]
    added: tuple[tuple[str, str, bytes, bytes], ...]


def make_plan(
    store: Store, checkout: Checkout, *, scope: str = "cpu", locked: bool = True, progress: Progress
) -> Plan:
    """The plan for a checkout, from the cache when it is there.

    Args:
        store: the cache.
        checkout: upstream's files.
        scope: ``cpu`` or ``all``.
        locked: whether the plan must be what its lock says; False when the lock is to be written.
        progress: told what goes on.

    Raises:
        AccessError: an access to tensor data has no known type, or a form without a rule.
        AnchorError: a hook's anchor is missing or there more than once.
        EditConflictError: two edits change the same text.
        LockMismatchError: the plan differs from its lock.
        ConfigError: no such scope; a template or a file of hooks is not valid.
    """

    def maker(folder: Path) -> Mapping[str, Any]:
        progress.step(f"Planning the change of {checkout.pin.upstream} {checkout.pin.name}")
        plan = plan_files(TreeFiles(checkout.path), checkout.pin, tree=checkout.tree, scope=scope)
        write_json(folder / _FILE, plan.to_json())
        return {"digest": plan.digest, "edits": len(plan.edits)}

    entry = store.make("plans", _key(checkout, scope), maker)
    plan = plan_from_json(json.loads((entry.path / _FILE).read_text()))
    if locked:
        check_lock(plan)
    return plan


def plan_files(files: Mapping[str, bytes], pin: Pin, *, tree: str | None, scope: str) -> Plan:
    """Make a plan for a tree's files, by path; no cache, and no comparison with a lock.

    Raises:
        NumaMirrorError: as :func:`make_plan`.
    """
    # Imported here: what comes from the cache needs neither.
    from numamirror_build.patching.render import render_files
    from numamirror_build.rewrite.hooks import load_hooks, plan_hooks

    patches = data.patches(pin.upstream)
    facts = _read_toml(patches / "upstream.toml")
    sources, accesses = _accesses(files, facts, patches, scope)
    rendered = render_files(data.templates(), facts)
    return build_plan(
        pin,
        tree,
        scope,
        hook_edits=plan_hooks(files, load_hooks(patches / "hooks")),
        accesses=accesses(),
        new_files=[NewFile(path, content) for path, content in rendered.items()],
        out_of_scope=sources.out_of_scope,
    )


def find_problems(files: Mapping[str, bytes], pin: Pin, *, scope: str) -> tuple[NumaMirrorError, ...]:
    """All that our data does not fit in a tree, where :func:`plan_files` ends with the first of it.

    One error per hook and call, and one for all accesses. Edits that overlap are not looked for.
    """
    from numamirror_build.rewrite.hooks import load_hooks, try_hooks

    patches = data.patches(pin.upstream)
    problems: list[NumaMirrorError] = [*try_hooks(files, load_hooks(patches / "hooks")).problems]
    try:
        _accesses(files, _read_toml(patches / "upstream.toml"), patches, scope)[1]()
    except AccessError as error:
        problems.append(error)
    return tuple(problems)


def _accesses(
    files: Mapping[str, bytes], facts: Mapping[str, Any], patches: Path, scope: str
) -> tuple[Sources, Callable[[], AccessReport]]:
    """The sources of a scope, and the search of them."""
    doubtful = patches / "exceptions.toml"
    exceptions = load_exceptions(_read_toml(doubtful) if doubtful.exists() else {})
    sources = select_sources(files, scope_from_table(scope, facts.get("scope", {})))
    jobs = len(os.sched_getaffinity(0))
    return sources, lambda: find_accesses(sources.all, sources.targets, exceptions, jobs=jobs)


def build_plan(
    pin: Pin,
    tree: str | None,
    scope: str,
    *,
    hook_edits: Iterable[Edit],
    accesses: AccessReport,
    new_files: Iterable[NewFile],
    out_of_scope: Iterable[OutOfScope] = (),
) -> Plan:
    """Put a plan together; edits may come in any order.

    Insertions at the same place keep the order in which they came, hooks' before the rewrite's.

    Raises:
        EditConflictError: two edits overlap, or two new files have the same path.
    """
    edits = sorted([*hook_edits, *accesses.edits], key=lambda edit: (edit.path, edit.start, edit.end))
    for one, two in pairwise(edits):
        if one.path == two.path and one.end > two.start:
            raise EditConflictError(
                "Two edits change the same text",
                where=f"{one.path}: bytes {two.start} to {min(one.end, two.end)}",
                why=f"{one.rule} and {two.rule} overlap",
                hint="anchor the hook at another line, or insert instead of replacing",
            )
    new = sorted(new_files, key=lambda file: file.path)
    for first, second in pairwise(new):
        if first.path == second.path:
            raise EditConflictError("Two new files have the same path", where=first.path)
    changes = [
        [[edit.path, edit.start, edit.end, _text(edit.old), _text(edit.new), edit.rule] for edit in edits],
        [[file.path, _text(file.content)] for file in new],
    ]
    return Plan(
        pin.upstream,
        pin,
        tree,
        scope,
        accesses.sites,
        tuple(edits),
        tuple(new),
        tuple(out_of_scope),
        digest(changes),
    )


def plan_from_json(value: Mapping[str, Any]) -> Plan:
    """The plan that :meth:`Plan.to_json` made the data of."""
    pin = dict(value["pin"])
    pin["binding"] = Binding(**pin["binding"]) if pin["binding"] else None
    edits = ({**edit, "old": _bytes(edit["old"]), "new": _bytes(edit["new"])} for edit in value["edits"])
    return Plan(
        upstream=value["upstream"],
        pin=Pin(**pin),
        tree=value["tree"],
        scope=value["scope"],
        sites=tuple(Site(**site) for site in value["sites"]),
        edits=tuple(Edit(**edit) for edit in edits),
        new_files=tuple(NewFile(new["path"], _bytes(new["content"])) for new in value["new_files"]),
        out_of_scope=tuple(
            OutOfScope(left["glob"], left["reason"], tuple(left["files"])) for left in value["out_of_scope"]
        ),
        digest=value["digest"],
    )


def compare_plans(first: Plan, second: Plan) -> PlanDiff:
    """What the second plan has that the first has not, and the other way round; positions do not count."""
    before, after = (
        Counter((edit.path, edit.rule, edit.old, edit.new) for edit in plan.edits) for plan in (first, second)
    )
    return PlanDiff(
        compare_counts(first.counts(), second.counts()),
        tuple(sorted((before - after).elements())),
        tuple(sorted((after - before).elements())),
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("A data file is not valid", where=path.name, why=str(error)) from error
    return document


def _key(checkout: Checkout, scope: str) -> str:
    package = Path(__file__).parent.parent
    patches = data.patches(checkout.pin.upstream)
    inputs = [
        *((patches, path) for path in patches.rglob("*.toml") if path.parent.name != "locks"),
        *((data.templates(), path) for path in data.templates().rglob("*.j2")),
        *((package, path) for path in (package / "patching").rglob("*.py")),
        *((package, path) for path in (package / "rewrite").rglob("*.[ph]*") if path.suffix != ".pyc"),
    ]
    return digest(
        {
            "checkout": [checkout.key, checkout.tree, asdict(checkout.pin)],
            "scope": scope,
            "inputs": sorted([str(path.relative_to(root)), file_sha256(path)] for root, path in inputs),
            "parsers": [version(name) for name in _PARSERS],
        }
    )[:20]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
