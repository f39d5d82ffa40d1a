"""Directives of one file: includes, macro definitions, conditionals, and which text to parse together.

A conditional whose branches are whole statements or declarations stays in the parse with all its branches.
Of any other, a parse can hold one branch at a time, so such a file is parsed in several *variants*.
Every branch is in at least one variant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from numamirror_build.rewrite.text import Text

_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*([a-z_]*)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_DEFINE = re.compile(rb"\s*([A-Za-z_]\w*)(\(([^)]*)\))?")
_INCLUDE = re.compile(rb"\s*(?:\"([^\"\n]+)\"|<([^>\n]+)>)")
_SPLICE = re.compile(rb"\\\r?\n")
_ATOM = re.compile(rb"(!?)(?:defined)?\(?([A-Za-z_]\w*)\)?")


@dataclass(frozen=True)
class Define:
    """A macro definition; ``params`` is None for one without parentheses."""

    name: bytes
    params: tuple[bytes, ...] | None
    variadic: bool
    start: int
    body: int
    end: int


@dataclass(frozen=True)
class Include:
    """An include directive: the name as written, and whether it stands in quotes."""

    name: str
    quoted: bool
    start: int
    end: int


@dataclass
class Group:
    """A conditional: ``#if`` ... ``#endif``, or a file's include guard.

    Attributes:
        start: offset of the first directive.
        end: offset after the last one.
        conditions: one per branch, without white space; empty for ``#else``.
        branches: the text ranges between the directives.
        parent: the group and branch that it stands in.
        whole: all branches can be parsed together.
    """

    start: int
    conditions: list[bytes]
    branches: list[tuple[int, int]]
    parent: tuple[Group, int] | None
    end: int = -1
    guard: bool = False
    whole: bool = True

    def branch_at(self, offset: int) -> int | None:
        """Index of the branch around an offset."""
        for index, (start, end) in enumerate(self.branches):
            if start <= offset < end:
                return index
        return None


@dataclass
class Directives:
    """All directives of a file."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    defines: list[Define] = field(default_factory=list)
    includes: list[Include] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def depth(self, offset: int) -> int:
        """How many conditionals are around an offset; an include guard does not count."""
        return sum(group.start <= offset < group.end for group in self.groups if not group.guard)

    def branches_at(self, offset: int) -> tuple[tuple[int, int], ...]:
        """The conditionals around an offset, by where each begins, and the branch of each that it is in."""
        return tuple(
            (group.start, branch)
            for group in self.groups
            if not group.guard and (branch := group.branch_at(offset)) is not None
        )

    def define_at(self, offset: int) -> Define | None:
        """The macro definition whose body holds an offset."""
        for define in self.defines:
            if define.start <= offset < define.end:
                return define
        return None

    def compatible(self, first: int, second: int) -> bool:
        """Whether two places can be compiled together: not in different branches of one conditional."""
        for group in self.groups:
            if group.start <= first < group.end and group.start <= second < group.end:
                one, other = group.branch_at(first), group.branch_at(second)
                if one is not None and other is not None and one != other:
                    return False
        return True


def scan(text: Text) -> Directives:
    """Read the directives of a file."""
    found = Directives()
    stack: list[Group] = []
    for match in _DIRECTIVE.finditer(text.code):
        start, end = match.span()
        name = match[1]
        found.ranges.append((start, end))
        rest = text.plain[match.start(2) : end]
        if name == b"define" and (head := _DEFINE.match(text.code, match.start(2), end)):
            names = [p.strip() for p in _SPLICE.sub(b"", head[3]).split(b",")] if head[2] else []
            variadic = bool(names) and names[-1].endswith(b"...")
            if variadic:
                names[-1] = names[-1][:-3].strip() or b"__VA_ARGS__"
            params = tuple(p for p in names if p) if head[2] else None
            found.defines.append(Define(head[1], params, variadic, start, head.end(), end))
        elif name in (b"include", b"include_next", b"import") and (head := _INCLUDE.match(rest)):
            target = (head[1] or head[2]).decode("utf-8", "surrogateescape")
            found.includes.append(Include(target, head[1] is not None, start, end))
        elif name in (b"if", b"ifdef", b"ifndef"):
            parent = (stack[-1], len(stack[-1].conditions) - 1) if stack else None
            stack.append(Group(start, [_condition(name, rest)], [(end, end)], parent))
            found.groups.append(stack[-1])
        elif name in (b"elif", b"else", b"elifdef", b"elifndef") and stack:
            _close_branch(stack[-1], start)
            stack[-1].conditions.append(_condition(name, rest))
            stack[-1].branches.append((end, end))
        elif name == b"endif" and stack:
            group = stack.pop()
            _close_branch(group, start)
            group.end = end
    for group in stack:
        _close_branch(group, len(text.code))
        group.end = len(text.code)
    _mark_guard(text, found)
    bare = bytearray(text.code)
    for start, end in found.ranges:
        bare[start:end] = b" " * (end - start)
    code = bytes(bare)
    for group in reversed(found.groups):
        group.whole = group.guard or _is_whole(code, found.groups, group)
    return found


def variants(
    directives: Directives, offsets: Iterable[int], known: Mapping[bytes, bool]
) -> list[tuple[tuple[int, int], ...]]:
    """Ranges to leave out of the parse, one tuple per variant.

    Args:
        directives: the file's directives.
        offsets: places that at least one variant must hold.
        known: macros that are surely defined, or surely not.
    """
    if all(group.whole for group in directives.groups):
        return [()]
    result = [_select(directives, {}, known, default) for default in (True, False)]
    for offset in offsets:
        if not any(is_active(inactive, offset) for inactive in result):
            forced: dict[int, int] = {}
            assumed = dict(known)
            for group in directives.groups:
                index = group.branch_at(offset)
                if index is not None and not group.whole:
                    forced[group.start] = index
                    for earlier in group.conditions[:index]:
                        _assume(earlier, False, assumed)
                    _assume(group.conditions[index], True, assumed)
            result.append(_select(directives, forced, assumed, True))
    return list(dict.fromkeys(result))


def is_active(inactive: Iterable[tuple[int, int]], offset: int) -> bool:
    """Whether a variant holds an offset."""
    return not any(start <= offset < end for start, end in inactive)


def _condition(name: bytes, rest: bytes) -> bytes:
    text = b"".join(_SPLICE.sub(b" ", rest).replace(b"defined ", b"defined@").split()).replace(b"@", b" ")
    text = re.sub(rb"defined ?\(?([A-Za-z_]\w*)\)?", rb"\1", text)
    if name in (b"ifndef", b"elifndef"):
        return b"!" + text
    return b"" if name == b"else" else text


def _close_branch(group: Group, end: int) -> None:
    group.branches[-1] = (group.branches[-1][0], end)


def _mark_guard(text: Text, found: Directives) -> None:
    """The first conditional is an include guard if it defines its own condition and ends the file."""
    for group in found.groups[:1]:
        start, end = group.branches[0]
        names = [define.name for define in found.defines if start <= define.start < end][:1]
        first = not text.code[: group.start].strip() or found.ranges[0][0] == group.start
        group.guard = (
            len(group.branches) == 1
            and first
            and names == [group.conditions[0][1:]]
            and group.conditions[0][:1] == b"!"
            and not text.code[group.end :].strip()
        )


def _is_whole(code: bytes, groups: list[Group], group: Group) -> bool:
    """Whether the branches are lists of statements, declarations or list elements.

    Args:
        code: the file's code without directives.
        groups: those that are inside of this one are judged already.
        group: the conditional.
    """
    before = _last_byte(code, group.start)
    if before not in b";{}:," or b"0" in group.conditions:
        return False
    for start, end in group.branches:
        branch = _remaining(code, groups, start, end)
        if not branch:
            continue
        last = branch[-1:]
        if last not in b";}:," or re.match(rb"(?:else|catch)\b|[^\w{~\[(*:&]", branch):
            return False
        if (before == b",") != (last == b",") and not (before == b"{" and last == b","):
            return False
        if not _is_balanced(branch):
            return False
    return True


def _last_byte(code: bytes, offset: int) -> bytes:
    """The last byte of code before an offset; ``;`` at the start of the file."""
    for start in range(offset - 256, -256, -256):
        part = code[max(0, start) : start + 256].rstrip()
        if part:
            return part[-1:]
    return b";"


def _remaining(code: bytes, groups: list[Group], start: int, end: int) -> bytes:
    """The code of a range, with one branch of each inner conditional to select from."""
    parts = []
    for inner in groups:
        if start <= inner.start < end and not inner.whole:
            for first, last in inner.branches[1:]:
                parts.append(code[start:first])
                start = max(start, last)
    return b" ".join([*parts, code[start:end]]).strip()


def _is_balanced(code: bytes) -> bool:
    stack = []
    for bracket in re.findall(rb"[()\[\]{}]", code):
        if bracket in b"([{":
            stack.append(bracket)
        elif not stack or b"([{".index(stack.pop()) != b")]}".index(bracket):
            return False
    return not stack


def _select(
    found: Directives, forced: dict[int, int], assumed: Mapping[bytes, bool], default: bool
) -> tuple[tuple[int, int], ...]:
    inactive: list[tuple[int, int]] = []
    for group in found.groups:
        if group.whole or not is_active(inactive, group.start):
            continue
        chosen = forced.get(group.start)
        if chosen is None:
            truths = (_truth(condition, assumed, default) for condition in group.conditions)
            chosen = next((index for index, truth in enumerate(truths) if truth), -1)
        inactive += [branch for index, branch in enumerate(group.branches) if index != chosen]
    return tuple(inactive)


def _truth(condition: bytes, assumed: Mapping[bytes, bool], default: bool) -> bool:
    """The value of a condition; what it does not say about names is ``default``."""
    if condition in (b"", b"1"):
        return True
    if condition == b"0":
        return False
    for operator, combine in ((b"||", any), (b"&&", all)):
        parts = list(_split(condition, operator))
        if len(parts) > 1:
            return combine(_truth(part, assumed, default) for part in parts)
    if condition[:1] == b"(" and condition[-1:] == b")" and _is_balanced(condition[1:-1]):
        return _truth(condition[1:-1], assumed, default)
    if condition[:1] == b"!":
        return not _truth(condition[1:], assumed, default)
    return assumed.get(condition, default)


def _split(condition: bytes, operator: bytes) -> Iterator[bytes]:
    part = b""
    for piece in condition.split(operator):
        part = piece if not part else part + operator + piece
        if part.count(b"(") == part.count(b")"):
            yield part
            part = b""
    if part:
        yield part


def _assume(condition: bytes, value: bool, assumed: dict[bytes, bool]) -> None:
    parts = list(_split(condition, b"&&" if value else b"||"))
    for part in parts:
        if match := _ATOM.fullmatch(part):
            assumed[match[2]] = value != bool(match[1])
        elif part:
            assumed[part] = value
