"""Find every access to ``ggml_tensor::data`` and say how to edit it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context

from tree_sitter import Node

from numamirror_build.errors import AccessError
from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite import initialisers
from numamirror_build.rewrite.accesses import (
    STRUCT,
    Finder,
    Problem,
    Word,
    function_around,
    operator_before,
    words,
)
from numamirror_build.rewrite.bodies import Bodies, Invocations
from numamirror_build.rewrite.contexts import COMPOUND, NoRule, use_of
from numamirror_build.rewrite.includes import hosts, include_edit
from numamirror_build.rewrite.kinds import Record, Unresolved, bare
from numamirror_build.rewrite.preprocessor import Directives, is_active
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.resolver import Resolver
from numamirror_build.rewrite.rules import Access, accessor_for, edits_for
from numamirror_build.rewrite.sites import (
    ACCESSOR_HEADER,
    GETTER,
    SETTER,
    AccessReport,
    Edit,
    Site,
    TypeException,
    in_order,
)
from numamirror_build.rewrite.text import FIELD, Text, code_after, code_before, occurrences, split_accesses
from numamirror_build.rewrite.units import Unit, is_cpp

# A tensor as a value with braces behind it: it may be initialised without the field being named.
_DIRECTIVE_INSIDE = "a directive of the preprocessor stands inside of the access"
_BRACED = re.compile(STRUCT.encode() + rb"\s*(?:\)|\w+\s*(?:\[[^\]]*\]\s*)*=?)?\s*\{")


def find_accesses(
    files: Mapping[str, bytes],
    targets: Iterable[str] | None = None,
    exceptions: Iterable[TypeException] = (),
    *,
    jobs: int = 1,
) -> AccessReport:
    """Every access to the data of a tensor in the target files, and the edits for them.

    Args:
        files: all sources and headers of the tree: path (relative, with ``/``) to content.
            Types of one file are looked up in others, so give all, not only the targets.
        targets: the files to rewrite; None for all of ``files``.
        exceptions: what a person says about accesses that cannot be typed.
        jobs: number of processes to use.

    Raises:
        AccessError: accesses of unknown type or without a rule; all of them, in ``details["accesses"]``.
    """
    search = _Search(files, tuple(exceptions))
    wanted = search.candidates(files if targets is None else targets)
    outcomes = search.run(wanted, jobs)
    problems = sorted({problem for outcome in outcomes for problem in outcome.problems})
    if problems:
        raise _error(problems)
    edits = [edit for outcome in outcomes for edit in outcome.edits]
    edits += search.include_edits(edits)
    sites = sorted(site for outcome in outcomes for site in outcome.sites)
    return AccessReport(tuple(sites), in_order(edits))


def _error(problems: list[Problem]) -> AccessError:
    lines = [f"{p.path}:{p.line}:{p.column}: {p.reason}: {p.source}" for p in problems]
    shown = lines[:20] + ([f"and {len(lines) - 20} more"] if len(lines) > 20 else [])
    return AccessError(
        f"{len(problems)} accesses to the data of a tensor cannot be rewritten safely"
        if len(problems) > 1
        else "An access to the data of a tensor cannot be rewritten safely",
        where=f"{problems[0].path}:{problems[0].line}:{problems[0].column}",
        why="\n".join(shown),
        hint="give the engine a rule, or say in exceptions.toml what the base of the access is",
        details={
            "accesses": [
                {"path": p.path, "line": p.line, "column": p.column, "reason": p.reason, "source": p.source}
                for p in problems
            ]
        },
    )


@dataclass
class _Outcome:
    """What was found in one file."""

    sites: list[Site] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class _Found:
    """One access with its edits; the same from every variant of a file that has it."""

    kind: str
    form: str
    edits: tuple[Edit, ...]


class _Search:
    """A search of one tree, and what all its files share."""

    def __init__(self, files: Mapping[str, bytes], exceptions: tuple[TypeException, ...]) -> None:
        self.project = Project(files)
        self.resolver = Resolver(self.project)
        self.finder = Finder(self.project, self.resolver, exceptions)
        self.bodies = Bodies(self.finder)
        self.invocations = Invocations(self.finder)
        if not self.finder.headers:
            raise AccessError(
                f"The definition of struct {STRUCT} was not found",
                why="no file called ggml.h defines it",
                hint="give the engine the whole tree",
            )

    def candidates(self, targets: Iterable[str]) -> list[str]:
        """The targets that can hold an access."""
        return [
            path
            for path in sorted(set(targets))
            if path in self.project.files
            and posixpath.basename(path) != ACCESSOR_HEADER
            and self.finder.can_reach(path)
        ]

    def run(self, paths: list[str], jobs: int) -> list[_Outcome]:
        """Search the files, in several processes if asked to."""
        if jobs < 2 or len(paths) < 8:
            return [self.search(path) for path in paths]
        _shared.append(self)
        try:
            with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
                return list(pool.map(_search_shared, paths, chunksize=-(-len(paths) // jobs)))
        finally:
            _shared.clear()

    def include_edits(self, edits: list[Edit]) -> list[Edit]:
        """The edits that include the accessors' header where they are used."""
        first: dict[str, int | None] = {}
        for edit in sorted(edits, reverse=True):
            in_macro = self.project.directives(edit.path).define_at(edit.start)
            first[edit.path] = first.get(edit.path) if in_macro else edit.start
        for path in list(first):
            inside = hosts(self.project, path)
            if inside and not self.project.directives(path).includes:
                del first[path]
                first.update({host: first.get(host) for host in inside})
        found = (include_edit(self.project, path, use) for path, use in sorted(first.items()))
        return [edit for edit in found if edit]

    def search(self, path: str) -> _Outcome:
        """All accesses of one file."""
        return _FileSearch(self, path).outcome()


_shared: list[_Search] = []


def _search_shared(path: str) -> _Outcome:
    return _shared[0].search(path)


class _FileSearch:
    """The search of one file."""

    def __init__(self, search: _Search, path: str) -> None:
        self.search = search
        self.path = path
        self.result = _Outcome()

    def outcome(self) -> _Outcome:
        """Everything that the file holds."""
        self.search.resolver.look_from(self.path)
        self._behind_macros()
        for offset in split_accesses(self.text.code):
            self._problem(offset, "a continued line splits the field's name, or the operator before it")
        if FIELD not in self.search.project.names(self.path):
            if _BRACED.search(self.text.code):
                self._positional()
            return self.result
        for word in words(self.text):
            try:
                self._look_at(word)
            except (Unresolved, NoRule) as error:
                self._problem(word.offset, str(error))
        self._positional()
        return self.result

    @cached_property
    def text(self) -> Text:
        """The file, scanned."""
        return self.search.project.text(self.path)

    @cached_property
    def directives(self) -> Directives:
        """Its directives."""
        return self.search.project.directives(self.path)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Its trees."""
        return self.search.resolver.scopes.units(self.path)

    def _look_at(self, word: Word) -> None:
        define = self.directives.define_at(word.offset)
        if define is not None:
            if word.operator in (b".", b"->") and word.offset >= define.body:
                access = self.search.bodies.access(self.path, define, word.offset)
                if access:
                    self._add(word.offset, self._access(access), in_macro=True)
            return
        for start, end in self.directives.ranges:
            if start <= word.offset < end:
                if word.operator and b"pragma" in self.text.code[start : word.offset]:
                    raise NoRule("a #pragma names a member of that name")
                return
        if not word.operator and self._is_behind_directive(word.offset):
            raise NoRule(_DIRECTIVE_INSIDE)
        if not word.operator and not self._may_be_meant(word.offset):
            return
        found: set[_Found | None] = set()
        reasons: list[Exception] = []
        self.search.resolver.look_from(self.path)
        for unit in self._units_with(word.offset):
            try:
                found.add(self._in_unit(unit, word))
            except Unresolved as error:
                reasons.append(error)
        if not found:
            if self._never_compiled(word.offset):
                return
            raise reasons[0] if reasons else Unresolved("no variant of the file holds it")
        if len(found) > 1:
            raise Unresolved("it is a tensor's in one configuration and another's in a different one")
        result = found.pop()
        if result:
            self._add(word.offset, result, in_macro=False)

    def _is_behind_directive(self, offset: int) -> bool:
        """Whether directives stand between a name and the operator before it."""
        end = code_before(self.text.code, offset)
        while inside := [start for start, stop in self.directives.ranges if start < end <= stop]:
            end = code_before(self.text.code, inside[0])
            if operator_before(self.text.code, end):
                return True
        return False

    def _units_with(self, offset: int) -> list[Unit]:
        """The variants to judge a place in: the usual two, or one that was made for it."""
        active = [index for index, unit in enumerate(self.units) if is_active(unit.inactive, offset)]
        return [self.units[index] for index in active if index < 2 or index == active[0]]

    def _may_be_meant(self, offset: int) -> bool:
        """Whether the bare name can be the field: as a whole argument, or in a class that inherits it."""
        code = self.text.code
        before, after = code_before(code, offset), code_after(code, offset + len(FIELD))
        argument = code[before - 1 : before] in (b"(", b",") and code[after : after + 1] in (b")", b",")
        return self.search.finder.has_heirs or argument

    def _in_unit(self, unit: Unit, word: Word) -> _Found | None:
        node = unit.at(word.offset, word.offset + len(FIELD))
        parent = node.parent
        if word.operator == b"." and parent is not None and parent.type == "field_designator":
            init = initialisers.designated(self.search.finder, unit, parent)
            return self._initialiser(init) if init else None
        if word.operator in (b".", b"->"):
            access = self.search.finder.access(unit, word.offset)
            return self._access(access) if access else None
        if word.operator == b"::":
            self._qualified(unit, word.offset)
        elif parent is not None and parent.type == "offsetof_expression":
            self._offset(unit, word.offset)
        else:
            self.search.invocations.check(unit, word.offset)
            self._implicit(unit, word.offset)
        return None

    def _access(self, access: Access) -> _Found:
        unit, node = access.unit, access.node
        use = use_of(self.search.resolver, unit, node)
        names = (GETTER, SETTER) if use.kind == COMPOUND else (accessor_for(access, use),)
        edits = edits_for(self.path, self.text, access, use, self._prefix(unit, node, names))
        self._check_directives(edits)
        return _Found(use.kind, "arrow" if access.arrow else "dot", tuple(edits))

    def _initialiser(self, found: initialisers.Initialiser) -> _Found:
        edits = initialisers.edits_for(self.path, self.text, found, b"")
        if any(edit.new for edit in edits):
            prefix = self._prefix(found.unit, found.list, (GETTER, SETTER))
            edits = initialisers.edits_for(self.path, self.text, found, prefix)
        self._check_directives(edits)
        return _Found(initialisers.INIT, "brace", tuple(edits))

    def _check_directives(self, edits: Iterable[Edit]) -> None:
        """Refuse edits of which a branch of a conditional would have only some."""
        places = {place for edit in edits for place in (edit.start, edit.end)}
        if len({self.directives.branches_at(place) for place in places}) > 1:
            raise NoRule(_DIRECTIVE_INSIDE)

    def _behind_macros(self) -> None:
        """Refuse accesses that name the field with a macro that stands for it."""
        resolver, project = self.search.resolver, self.search.project
        for name in sorted(project.names(self.path) & project.field_macros):
            if not any(macro.params is None for macro in project.macros(name, self.path)):
                continue
            resolver.look_from(self.path)
            for offset in occurrences(self.text.code, name):
                if operator_before(self.text.code, offset) not in (b".", b"->"):
                    continue
                for unit in self._units_with(offset):
                    try:
                        if self.search.finder.access(unit, offset, name):
                            self._problem(offset, f"the macro {name.decode()} names the field")
                    except Unresolved as error:
                        self._problem(offset, str(error))

    def _positional(self) -> None:
        if STRUCT.encode() not in self.text.code:
            return
        seen: set[int] = set()
        for unit in self.units:
            try:
                for found in initialisers.positional(self.search.finder, unit):
                    if found.entry.start_byte not in seen:
                        seen.add(found.entry.start_byte)
                        self._add(found.entry.start_byte, self._initialiser(found), in_macro=False)
            except (NoRule, Unresolved) as error:
                self._problem(0, str(error))

    def _prefix(self, unit: Unit, node: Node, names: Iterable[str]) -> bytes:
        """What must stand before the accessors' names at a place.

        Raises:
            NoRule: a name is taken, and no prefix helps.
        """
        return max(self._prefix_of(unit, node, name.encode()) for name in names)

    def _prefix_of(self, unit: Unit, node: Node, name: bytes) -> bytes:
        holders = self.search.project.holders(name)
        closure = self.search.project.context(self.path)
        if not any(path in closure and posixpath.basename(path) != ACCESSOR_HEADER for path in holders):
            return b""
        found = self.search.resolver.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
        found = [d for d in found if posixpath.basename(d.unit.path) != ACCESSOR_HEADER]
        if self.search.project.macros(name, self.path):
            raise NoRule(f"{name.decode()} is a macro here")
        if not found:
            return b""
        if any(_is_global(declared) for declared in found):
            raise NoRule(f"the file already has a {name.decode()} of its own")
        users = [self.path, *self.search.project.includers(self.path)]
        if any(not is_cpp(user) for user in users):
            raise NoRule(f"a local {name.decode()} hides the accessor, and C has no :: to reach it")
        return b"::"

    def _qualified(self, unit: Unit, offset: int) -> None:
        node = unit.at(offset, offset + len(FIELD))
        while node.parent is not None and node.parent.type == "qualified_identifier":
            node = node.parent
        if node.type != "qualified_identifier":
            raise Unresolved("the code around it cannot be parsed")
        for kind in self.search.resolver.names.scope_types(unit, node):
            if isinstance(bare(kind), Record) and self.search.finder.holds_field(bare(kind)):
                raise NoRule("the field is named without an object")

    def _offset(self, unit: Unit, offset: int) -> None:
        node = unit.at(offset, offset + len(FIELD)).parent
        descriptor = node.child_by_field_name("type") if node else None
        if descriptor is None:
            raise Unresolved("the code around it cannot be parsed")
        if any(
            self.search.finder.holds_field(bare(kind))
            for kind in self.search.resolver.types.named_by(unit, descriptor)
        ):
            raise NoRule("the offset of the field is taken")

    def _implicit(self, unit: Unit, offset: int) -> None:
        """Refuse the bare name in a member function of a class that inherits the field."""
        if not self.search.finder.has_heirs:
            return
        node = unit.at(offset, offset + len(FIELD))
        if node.type != "identifier" or not function_around(unit, node):
            return
        found = self.search.resolver.scopes.lookup(unit, node, FIELD, decl.VALUES)
        if any(
            d.unit.path in self.search.finder.headers and d.node.type == "field_declaration" for d in found
        ):
            raise NoRule("the field of a base class is named without this->")

    def _never_compiled(self, offset: int) -> bool:
        return any(
            group.conditions[0] == b"0" and group.branch_at(offset) == 0 for group in self.directives.groups
        )

    def _add(self, offset: int, found: _Found, *, in_macro: bool) -> None:
        place = self._operator_before(offset)
        line, column = self.text.line(place), self.text.column(place)
        self.result.sites.append(Site(self.path, line, column, found.kind, found.form, in_macro))
        self.result.edits += found.edits
        if found.edits and self.path in self.search.finder.headers:
            raise NoRule("the header that defines the struct is read before the accessors are declared")

    def _operator_before(self, offset: int) -> int:
        operator = operator_before(self.text.code, offset)
        return code_before(self.text.code, offset) - len(operator) if operator else offset

    def _problem(self, offset: int, reason: str) -> None:
        content = self.text.content
        start = content.rfind(b"\n", 0, offset) + 1
        end = content.find(b"\n", offset)
        source = content[start : end if end >= 0 else len(content)].strip().decode("utf-8", "replace")
        line, column = self.text.line(offset), self.text.column(offset)
        self.result.problems.append(Problem(self.path, line, column, reason, source[:160]))


def _is_global(declared: decl.Declared) -> bool:
    """Whether a declaration is outside of functions, classes and named namespaces."""
    scope = declared.node.parent
    while scope is not None:
        if scope.type in ("compound_statement", "namespace_definition", "parameter_list", *decl.CLASS_NODES):
            return False
        scope = scope.parent
    return declared.node.type not in ("parameter_declaration", "lambda_capture_initializer")
