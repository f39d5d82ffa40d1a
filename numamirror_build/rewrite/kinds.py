"""Types, as far as they decide whether something is a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from numamirror_build.rewrite.units import Unit

Key = tuple[str, int]
"""A file and an offset in it: what makes a definition or a template parameter itself."""


class Unresolved(Exception):
    """A type cannot be established; the message says why."""


class NoMember(Unresolved):
    """A class has no member of the name that is looked for."""


class Type:
    """Base of all types. Qualifiers are left out: they never decide anything here."""


@dataclass(frozen=True)
class Builtin(Type):
    """Numbers, booleans, enumerations, ``void``."""

    name: str


@dataclass(frozen=True)
class Pointer(Type):
    """A raw pointer."""

    to: Type


@dataclass(frozen=True)
class Array(Type):
    """An array, or a braced list of elements of one type."""

    to: Type


@dataclass(frozen=True)
class Ref(Type):
    """A reference; also what marks the result of a call as something with an address."""

    to: Type


@dataclass(frozen=True)
class Param(Type):
    """A template parameter, or the invented one of an ``auto`` parameter."""

    key: Key
    name: str = field(compare=False)


@dataclass(frozen=True)
class Definition:
    """The definition of a class in the tree."""

    key: Key
    unit: Unit = field(compare=False, repr=False)
    node: Node = field(compare=False, repr=False)


@dataclass(frozen=True)
class Record(Type):
    """A class that the tree defines or declares.

    Attributes:
        name: its name with namespaces and outer classes.
        definition: its definition, or None if only declared.
        bindings: what its template parameters, and those of templates around it, stand for;
            themselves where nothing is known.
    """

    name: str
    definition: Definition | None
    bindings: tuple[tuple[Key, Type], ...] = ()


@dataclass(frozen=True)
class External(Type):
    """A type that no file of the tree declares."""

    name: str
    args: tuple[Type, ...] = ()


@dataclass(frozen=True)
class Signature(Type):
    """A function type: what calling it gives."""

    result: Type


@dataclass(frozen=True)
class Closure(Type):
    """A lambda."""

    key: Key
    unit: Unit = field(compare=False, repr=False)
    node: Node = field(compare=False, repr=False)


Types = tuple[Type, ...]
"""What an expression can be, one entry per declaration that may be meant; never empty."""

VOID = Builtin("void")
INT = Builtin("int")
TEXT = Pointer(Builtin("char"))


def bare(kind: Type) -> Type:
    """The type without reference."""
    return kind.to if isinstance(kind, Ref) else kind


def each(function: Callable[[Type], Types | Type], kinds: Iterable[Type]) -> Types:
    """The function's results for all alternatives, each once."""
    found: list[Type] = []
    for kind in kinds:
        result = function(kind)
        found += (result,) if isinstance(result, Type) else result
    return unique(found)


def unique(kinds: Iterable[Type]) -> Types:
    """The alternatives, each once."""
    return tuple(dict.fromkeys(kinds))


def substitute(kind: Type, bindings: Mapping[Key, Type]) -> Type:
    """The type with template parameters replaced."""
    if not bindings:
        return kind
    if isinstance(kind, Param):
        return bindings.get(kind.key, kind)
    if isinstance(kind, (Pointer, Array, Ref)):
        inner = substitute(kind.to, bindings)
        return inner if isinstance(kind, Ref) and isinstance(inner, Ref) else type(kind)(inner)
    if isinstance(kind, Signature):
        return Signature(substitute(kind.result, bindings))
    if isinstance(kind, Record) and kind.bindings:
        bound = tuple((key, substitute(value, bindings)) for key, value in kind.bindings)
        return Record(kind.name, kind.definition, bound)
    if isinstance(kind, External):
        return External(kind.name, tuple(substitute(arg, bindings) for arg in kind.args))
    return kind


def is_clean(kind: Type) -> bool:
    """Whether a type surely has no tensor in it: made of external and built-in types only."""
    if isinstance(kind, Builtin):
        return True
    if isinstance(kind, (Pointer, Array, Ref)):
        return is_clean(kind.to)
    if isinstance(kind, Signature):
        return is_clean(kind.result)
    return isinstance(kind, External) and all(is_clean(arg) for arg in kind.args)


def unify(pattern: Type, actual: Type, bindings: dict[Key, Type], wanted: frozenset[Key]) -> None:
    """Deduce template parameters in ``pattern`` from the type of an argument."""
    pattern, actual = bare(pattern), bare(actual)
    if isinstance(pattern, Param):
        if pattern.key in wanted:
            bindings.setdefault(pattern.key, Pointer(actual.to) if isinstance(actual, Array) else actual)
    elif isinstance(pattern, (Pointer, Array)) and isinstance(actual, (Pointer, Array)):
        unify(pattern.to, actual.to, bindings, wanted)
    elif isinstance(pattern, Record) and isinstance(actual, Record):
        given = dict(actual.bindings)
        for key, value in pattern.bindings:
            if key in given:
                unify(value, given[key], bindings, wanted)
    elif isinstance(pattern, External) and isinstance(actual, External) and pattern.name == actual.name:
        for one, other in zip(pattern.args, actual.args, strict=False):
            unify(one, other, bindings, wanted)
    elif isinstance(pattern, Signature) and isinstance(actual, Signature):
        unify(pattern.result, actual.result, bindings, wanted)


def describe(kind: Type) -> str:
    """A type in words, for messages."""
    if isinstance(kind, (Pointer, Array, Ref)):
        return f"{describe(kind.to)} {dict(Pointer='*', Array='[]', Ref='&')[type(kind).__name__]}"
    if isinstance(kind, (Record, External, Builtin)):
        return kind.name
    if isinstance(kind, Param):
        return f"template parameter {kind.name}"
    return "a lambda" if isinstance(kind, Closure) else "a function"


def mentions(kind: Type, keys: frozenset[Key]) -> bool:
    """Whether any of some template parameters is in a type."""
    if isinstance(kind, Param):
        return kind.key in keys
    if isinstance(kind, (Pointer, Array, Ref)):
        return mentions(kind.to, keys)
    if isinstance(kind, Signature):
        return mentions(kind.result, keys)
    if isinstance(kind, Record):
        return any(mentions(value, keys) for _, value in kind.bindings)
    return isinstance(kind, External) and any(mentions(arg, keys) for arg in kind.args)


def result_of(kind: Type) -> Type:
    """What a function type returns; any other type itself."""
    return kind.result if isinstance(kind, Signature) else kind
