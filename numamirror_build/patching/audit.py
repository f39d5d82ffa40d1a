"""The audit: the patched tree compiled with the field hidden, to prove that no compiled access escapes.

In a copy of the tree the field has another name, which only the accessor header knows.
Every translation unit that a build is configured for is compiled from it, syntax only, with its flags.
Nothing else is compiled, so an audit needs no build.
Code that is not compiled here, such as other architectures' and branches that the preprocessor leaves out,
rests on the rewrite engine alone.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from numamirror_build import data
from numamirror_build.building.build import BuildOptions, build_key
from numamirror_build.building.recipe import load_recipe
from numamirror_build.building.units import Unit, configured_units, in_parallel, included
from numamirror_build.errors import AnchorError, AuditError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.patching.plan import Plan
from numamirror_build.proc import Completed
from numamirror_build.progress import Progress
from numamirror_build.rewrite.text import Text, closing, tokens
from numamirror_build.store import Store, digest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LAYOUT = 1
_ERROR = re.compile(r"(?P<path>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<why>.*)")
_ERRORS_SHOWN = 20
_ENGINE = "not compiled here; the rewrite engine resolved the type of every access from its declarations"


@dataclass(frozen=True, order=True)
class Escaped:
    """A compile error of the audit: an access that bypasses the accessors, unless ``why`` says otherwise."""

    path: str
    line: int
    column: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.why}"


@dataclass(frozen=True)
class Excluded:
    """A translation unit that was not audited, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Uncompiled:
    """Rewritten accesses in a file that no audited unit includes, and what proves that none was left out."""

    path: str
    sites: int
    proof: str


@dataclass(frozen=True)
class Audit:
    """A passed audit.

    Attributes:
        key: digest of all inputs.
        compiled: the translation units that were compiled with the field hidden, without an error.
        excluded: those that are out of scope.
        uncompiled: rewritten files that nothing here compiles: other architectures, other backends.
        seconds: how long it took, when it was made.
        fresh: whether this run made it.
    """

    key: str
    compiled: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    uncompiled: tuple[Uncompiled, ...]
    seconds: float
    fresh: bool

    def as_json(self) -> dict[str, Any]:
        """The audit for machines."""
        return asdict(self)

    def summary(self) -> str:
        """The audit for people."""
        sites = sum(entry.sites for entry in self.uncompiled)
        lines = [
            "No compiled access to tensor data bypasses the accessors: "
            f"all {len(self.compiled)} translation units compile with the field hidden.",
            f"{sites} rewritten accesses in {len(self.uncompiled)} files are {_ENGINE}:",
            *(f"  {entry.path} ({entry.sites})" for entry in self.uncompiled),
            *(f"Not audited: {entry.path}: {entry.reason}" for entry in self.excluded),
        ]
        return "\n".join(lines)


def audit(store: Store, tree: PatchedTree, options: BuildOptions, *, progress: Progress) -> Audit:
    """Prove that no access to tensor data that a build compiles bypasses the accessors.

    Args:
        store: the cache.
        tree: the patched tree.
        options: those of the build.
        progress: told what goes on.

    Raises:
        AuditError: accesses bypass the accessors; the error lists them.
        AnchorError: the header does not declare the field as expected.
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        BuildError: the build cannot be configured, or a source that it generates not be made.
        DiskFullError: no space left.
    """

    facts = _load_facts(tree.plan.upstream)
    build = build_key(tree, options)
    key = digest({"kind": "audit", "layout": _LAYOUT, "build": build, "facts": asdict(facts)})[:20]

    def maker(folder: Path) -> Mapping[str, Any]:
        progress.step(f"Auditing {tree.plan.upstream} {tree.plan.pin.name}")
        folder = folder.resolve()
        log = store.root / "logs" / f"audit-{key}.log"
        units = configured_units(tree, options, folder, log, progress)
        made = compile_hidden(units, folder, tree.plan, progress=progress)
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return made

    entry = store.make("audits", key, maker)
    made = entry.made
    return Audit(
        key=key,
        compiled=tuple(made["compiled"]),
        excluded=tuple(Excluded(*words) for words in made["excluded"]),
        uncompiled=tuple(Uncompiled(path, sites, _ENGINE) for path, sites in made["uncompiled"]),
        seconds=entry.seconds,
        fresh=entry.fresh,
    )


def compile_hidden(
    units: Sequence[Unit], folder: Path, plan: Plan, *, progress: Progress
) -> dict[str, list[Any]]:
    """Hide the field in the patched tree in a folder, and compile units there.

    Args:
        units: those of the tree.
        folder: where it is, in ``source/<place of the tree>``.
        plan: what the tree was patched with.
        progress: told what goes on.

    Returns:
        the names of the units that were compiled; those that are out of scope, with reasons;
        the files with accesses that no unit includes, with how many there are.

    Raises:
        AuditError: accesses bypass the accessors; the error lists them.
        AnchorError: the header does not declare the field as expected.
    """
    facts = _load_facts(plan.upstream)
    place = Path("source") / load_recipe(plan.upstream).vendored
    hide_field(folder / place / facts.header, facts)
    compiling = _Compiling(folder, place, facts)
    reasons = {unit: _excluded(unit, compiling.name(unit.file), plan) for unit in units}
    inside = [unit for unit in units if reasons[unit] is None]
    for number, (unit, result) in enumerate(in_parallel(compiling.check, inside), 1):
        progress.update(f"{number}/{len(inside)} {unit.file.name}")
        compiling.note(unit, result)
    if facts.header not in compiling.seen:
        raise AuditError("The audit saw nothing", why=f"no translation unit includes {facts.header}")
    if compiling.errors:
        raise _audit_error(sorted(compiling.errors), facts)
    return {
        "compiled": sorted(compiling.name(unit.file) for unit in inside),
        "excluded": sorted([compiling.name(unit.file), why] for unit, why in reasons.items() if why),
        "uncompiled": _uncompiled(plan, compiling.seen),
    }


@dataclass(frozen=True)
class Facts:
    """What is hidden: the ``[audit]`` table of ``patches/<upstream>/upstream.toml``.

    Attributes:
        header: the file that declares the struct.
        struct: its name.
        field: the field's name.
        hidden: the name that only the accessor header knows.
        define: the macro that makes the accessor header use it.
    """

    header: str
    struct: str
    field: str
    hidden: str
    define: str


def hide_field(header: Path, facts: Facts) -> None:
    """Rename the field where the struct declares it, in place.

    Raises:
        AnchorError: the struct or the field is not there, or there more than once.
    """
    content = header.read_bytes()
    code = Text.of(content).code
    fields = [start for body in _bodies(code, facts.struct) for start in _declared(code, body, facts.field)]
    if len(fields) != 1:
        raise AnchorError(
            f"The field {facts.field} of struct {facts.struct} cannot be hidden",
            where=facts.header,
            why=f"it is declared {len(fields)} times",
        )
    start = fields[0]
    header.write_bytes(content[:start] + facts.hidden.encode() + content[start + len(facts.field) :])


class _Compiling:
    """Compiling units in the mirrored build: errors, and which files were included."""

    def __init__(self, folder: Path, place: Path, facts: Facts) -> None:
        self.errors: set[Escaped] = set()
        self.seen: set[str] = set()
        self._folder = folder
        self._tree = folder / place
        self._facts = facts

    def name(self, path: Path) -> str:
        """A path as people know it: from the tree's root, or from the build's folder for generated files."""
        root = self._tree if path.is_relative_to(self._tree) else self._folder
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

    def check(self, unit: Unit) -> Completed:
        """Compile a unit with the field hidden."""
        strict = ("-Werror=int-conversion", "-Werror=incompatible-pointer-types")
        return unit.check_syntax(
            [f"-D{self._facts.define}", *(strict if unit.file.suffix == ".c" else ())],
            self._dependencies(unit),
        )

    def note(self, unit: Unit, result: Completed) -> None:
        """Take down what compiling a unit has shown."""
        self.seen |= {self.name(path) for path in included(self._dependencies(unit))}
        found = [error for line in result.output.splitlines() if (error := _ERROR.match(line))]
        for error in found:
            path = self.name(Path(os.path.normpath(unit.folder / error["path"])))
            self.errors.add(Escaped(path, int(error["line"]), int(error["column"]), error["why"]))
        if result.returncode and not found:
            self.errors.add(Escaped(self.name(unit.file), 0, 0, result.output.strip()[-500:]))

    def _dependencies(self, unit: Unit) -> Path:
        return self._folder / f"{digest([str(unit.file), *unit.command])[:20]}.d"


def _load_facts(upstream: str) -> Facts:
    text = (data.patches(upstream) / "upstream.toml").read_text(encoding="utf-8")
    return Facts(**tomllib.loads(text)["audit"])


def _bodies(code: bytes, struct: str) -> list[tuple[int, int]]:
    """The braces of every definition of a struct."""
    found = []
    for match in re.finditer(rb"\bstruct\s+" + re.escape(struct.encode()) + rb"\s*(\{)", code):
        end = closing(code, match.start(1))
        if end is not None:
            found.append((match.start(1) + 1, end))
    return found


def _declared(code: bytes, body: tuple[int, int], field: str) -> list[int]:
    """Where a field is the last name of a declaration of its own, outside of inner braces."""
    found = []
    depth = 0
    words = tokens(code, *body)
    for word, following in pairwise(words):
        depth += {b"{": 1, b"}": -1}.get(word.text, 0)
        if depth == 0 and word.text == field.encode() and following.text == b";":
            found.append(word.start)
    return found


def _excluded(unit: Unit, path: str, plan: Plan) -> str | None:
    if not unit.file.exists():
        return "generated by a program's build, and this build lacks that program"
    return next((rule.reason for rule in plan.out_of_scope if fnmatchcase(path, rule.glob)), None)


def _uncompiled(plan: Plan, seen: set[str]) -> list[tuple[str, int]]:
    counts = {path: sum(kinds.values()) for path, kinds in plan.counts().items()}
    return sorted((path, count) for path, count in counts.items() if path not in seen)


def _audit_error(errors: list[Escaped], facts: Facts) -> AuditError:
    """The error that lists accesses first; other errors usually follow from them."""
    accesses = [error for error in errors if f"'{facts.field}'" in error.why.replace("\u2018", "'")]
    others = [error for error in errors if error not in accesses]
    listed = [str(error) for error in (*accesses, *others)]
    if len(listed) > _ERRORS_SHOWN:
        listed[_ERRORS_SHOWN:] = [f"... and {len(listed) - _ERRORS_SHOWN} more"]
    first = (accesses or others)[0]
    return AuditError(
        f"{len(accesses)} compiled accesses to tensor data bypass the accessors"
        if accesses
        else "The tree does not compile with the field hidden",
        where=f"{first.path}:{first.line}:{first.column}",
        why="\n".join(listed),
        hint="the plan lacks a rule or a hook for this tree",
        details={"accesses": [asdict(error) for error in accesses], "others": [asdict(e) for e in others]},
    )
