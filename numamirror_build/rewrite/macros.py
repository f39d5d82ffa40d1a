"""Macros: what kind of text one stands for, and its expansion with the origin of every token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from numamirror_build.rewrite.text import Token, tokens

Origin = tuple[str, int]

_WORDS = frozenset(
    b"extern static inline __inline __inline__ volatile restrict __restrict __restrict__ const constexpr "
    b"consteval constinit register noexcept thread_local _Thread_local __thread _Noreturn __extension__ "
    b"__forceinline __cdecl __stdcall __fastcall __vectorcall __weak weak "
    b"__global__ __device__ __host__ __shared__ __constant__ __managed__ __forceinline__ __noinline__ "
    b"__grid_constant__ __kernel SYCL_EXTERNAL".split()
)
_CALLS = frozenset(
    b"__attribute__ __attribute __declspec _Pragma __pragma alignas _Alignas __launch_bounds__ "
    b"__maxnreg__ __cluster_dims__ __block_size__ __asm__ asm".split()
) - {b"asm", b"__asm__"}

DECORATIONS = _WORDS - frozenset(
    b"extern static inline volatile restrict const constexpr consteval constinit register noexcept "
    b"thread_local _Noreturn weak".split()
)
DECORATION_CALLS = _CALLS


@dataclass(frozen=True)
class Macro:
    """A macro definition and the file that holds it.

    Attributes:
        name: its name.
        params: parameter names, or None for a macro without parentheses.
        variadic: whether the last parameter takes all remaining arguments.
        body: the tokens of its replacement text, at their offsets in the file.
        path: the file.
        start: offset of the definition.
        end: offset after it.
    """

    name: bytes
    params: tuple[bytes, ...] | None
    variadic: bool
    body: tuple[Token, ...]
    path: str
    start: int
    end: int

    def shape(self) -> tuple[bytes | tuple[str, int], ...]:
        """The body with parameters numbered, to compare definitions."""
        params = self.params or ()
        return tuple(("p", params.index(t.text)) if t.text in params else t.text for t in self.body)


@dataclass(frozen=True)
class Piece:
    """One token of an expansion; ``origin`` is None where pasting or stringifying made it."""

    text: bytes
    kind: str
    origin: Origin | None
    hidden: frozenset[bytes] = frozenset()


Finder = Callable[[bytes], Macro | None]


def pieces(found: Iterable[Token], path: str) -> list[Piece]:
    """Tokens of a file as pieces of an expansion."""
    return [Piece(token.text, token.kind, (path, token.start)) for token in found]


def expand(sequence: list[Piece], find: Finder, limit: int = 200_000) -> list[Piece]:
    """The sequence with all macros that ``find`` knows expanded.

    Args:
        sequence: the tokens.
        find: the definition of a name, or None.
        limit: largest number of tokens handled before the rest is left as it is.
    """
    result: list[Piece] = []
    pending = list(reversed(sequence))
    steps = 0
    while pending:
        piece = pending.pop()
        steps += 1
        macro = None
        if piece.kind == "name" and piece.text not in piece.hidden and steps < limit:
            macro = find(piece.text)
        if macro is None:
            result.append(piece)
            continue
        arguments: list[list[Piece]] = []
        if macro.params is not None:
            if not pending or pending[-1].text != b"(":
                result.append(piece)
                continue
            collected = _collect(pending, macro)
            if collected is None:
                result.append(piece)
                continue
            arguments = collected
        hidden = piece.hidden | {macro.name}
        replaced = _substitute(macro, arguments, find)
        pending += [Piece(p.text, p.kind, p.origin, p.hidden | hidden) for p in reversed(replaced)]
    return result


def _collect(pending: list[Piece], macro: Macro) -> list[list[Piece]] | None:
    """Take the arguments of an invocation off the pending tokens."""
    arguments: list[list[Piece]] = [[]]
    depth = 0
    wanted = len(macro.params or ())
    for index in range(len(pending) - 1, -1, -1):
        piece = pending[index]
        if piece.text in (b"(", b"[", b"{"):
            depth += piece.text == b"("
            if piece.text == b"(" and depth == 1:
                continue
        elif piece.text == b")":
            depth -= 1
            if depth == 0:
                del pending[index:]
                return arguments + [[] for _ in range(wanted - len(arguments))]
        elif piece.text == b"," and depth == 1 and not (macro.variadic and len(arguments) == wanted):
            arguments.append([])
            continue
        arguments[-1].append(piece)
    return None


def _substitute(macro: Macro, arguments: list[list[Piece]], find: Finder) -> list[Piece]:
    params = {name: index for index, name in enumerate(macro.params or ())}
    result: list[Piece] = []
    body = macro.body
    index = 0
    while index < len(body):
        token = body[index]
        following = body[index + 1].text if index + 1 < len(body) else b""
        if token.text == b"#" and params and following in params:
            words = b" ".join(p.text for p in arguments[params[following]])
            quoted = words.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            result.append(Piece(b'"' + quoted + b'"', "literal", None))
            index += 2
            continue
        if token.text == b"##" and index + 1 < len(body):
            right = _operand(body[index + 1], params, arguments, macro.path)
            if result and right:
                joined = result.pop().text + right[0].text
                kind = tokens(joined)[0].kind if tokens(joined) else "punct"
                result.append(Piece(joined, kind, None))
                result += right[1:]
            else:
                result += right
            index += 2
            continue
        if token.text in params:
            argument = arguments[params[token.text]]
            result += argument if following == b"##" else expand(argument, find)
        else:
            result.append(Piece(token.text, token.kind, (macro.path, token.start)))
        index += 1
    return result


def _operand(token: Token, params: dict[bytes, int], arguments: list[list[Piece]], path: str) -> list[Piece]:
    if token.text in params:
        return arguments[params[token.text]]
    return [Piece(token.text, token.kind, (path, token.start))]


def without_decorations(
    body: Iterable[Token], params: Iterable[bytes], is_blank: Callable[[bytes], bool]
) -> list[Token]:
    """The tokens of a macro's body less storage classes, qualifiers and attributes."""
    rest: list[Token] = []
    sequence = list(body)
    index = 0
    while index < len(sequence):
        token = sequence[index]
        following = sequence[index + 1].text if index + 1 < len(sequence) else b""
        if token.text in _CALLS or (token.text == b"[" and following == b"["):
            index = _after_brackets(sequence, index + (token.text in _CALLS))
            continue
        if token.text in _WORDS:
            index += 1 + (token.text == b"extern" and following == b'"C"')
            continue
        if token.kind == "name" and token.text not in params and is_blank(token.text):
            index = _after_brackets(sequence, index + 1) if following == b"(" else index + 1
            continue
        rest.append(token)
        index += 1
    return rest


def _after_brackets(sequence: list[Token], index: int) -> int:
    depth = 0
    while index < len(sequence):
        if sequence[index].text in (b"(", b"["):
            depth += 1
        elif sequence[index].text in (b")", b"]"):
            depth -= 1
            if depth == 0:
                return index + 1
        elif depth == 0:
            return index
        index += 1
    return index
