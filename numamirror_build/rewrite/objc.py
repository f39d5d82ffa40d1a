"""Objective-C as C++: message sends become calls, blocks become lambdas, directives go away. Lengths stay."""

from __future__ import annotations

import re
from itertools import pairwise

from numamirror_build.rewrite.text import Token, tokens

_DROPPED = re.compile(
    rb"@(?:autoreleasepool|interface|implementation|end|property|class|protocol|public|private)\b"
    rb"|__bridge\w*|__weak\b|__strong\b|__block\b|__unsafe_unretained\b|@"
)
_AVAILABLE = re.compile(rb"@available\s*\([^()]*\)")
_IN = re.compile(rb"(?<=\s)in(?=\s)")
_LOOP = re.compile(rb"\bfor\s*\([^;{}]*?\sin\s")
_OPERANDS = frozenset({"name", "literal", "number"})
_KEYWORDS = {b"new": b"neW", b"class": b"clasS", b"delete": b"deletE", b"default": b"defaulT"}


def tame(result: bytearray, code: bytes) -> None:
    """Change a text in place into what the grammar of C++ can take.

    Args:
        result: the text, without comments and directives.
        code: the same with the insides of literals blanked.
    """
    for match in _AVAILABLE.finditer(code):
        result[match.start() : match.end()] = b"1".ljust(match.end() - match.start())
    for match in _DROPPED.finditer(code):
        result[match.start() : match.end()] = b" " * (match.end() - match.start())
    for match in _LOOP.finditer(code):
        place = _IN.search(code, match.end() - 4)
        if place:
            result[place.start() : place.end()] = b": "
    for match in re.finditer(rb"\^(?=\s*[({])", code):
        _open_lambda(result, match.start())
    stack: list[list[Token]] = [[]]
    for token in tokens(bytes(result)):
        if token.text in (b"[", b"(", b"{"):
            stack[-1].append(token)
            stack.append([token])
        elif token.text in (b"]", b")", b"}") and len(stack) > 1:
            inner = stack.pop()
            if token.text == b"]" and inner[0].text == b"[" and _is_message(stack[-1], inner[1:]):
                result[inner[0].start] = ord("(")
                result[token.start] = ord(")")
                _separate(result, inner[1:])
            stack[-1].append(token)
        else:
            stack[-1].append(token)


def _open_lambda(result: bytearray, place: int) -> None:
    """Turn ``^`` into ``[]``, at the cost of the character on its left."""
    if place > 1 and result[place - 1 : place] == b":":
        result[place - 2 : place + 1] = b":[]"
    elif result[place - 1 : place].isspace():
        result[place - 1 : place + 1] = b"[]"
    elif result[place + 1 : place + 2].isspace():
        result[place : place + 2] = b"[]"


def _is_message(before: list[Token], inside: list[Token]) -> bool:
    """Whether brackets are a message send and not an index or a lambda's captures."""
    if not inside:
        return False
    last = before[-2] if len(before) > 1 else None
    if last is not None and (last.text == b"]" or (last.kind in _OPERANDS and last.text != b"return")):
        return False
    pairs = pairwise(inside)
    named = any(_ends(a) and b.kind == "name" for a, b in pairs)
    return named or (last is None or last.text != b")")


def _ends(token: Token) -> bool:
    return token.kind in _OPERANDS or token.text == b"]"


def _separate(result: bytearray, inside: list[Token]) -> None:
    """Put commas between the receiver, the selector's parts and the arguments."""
    for first, second in pairwise(inside):
        if second.kind == "name" and (_ends(first) or first.text in (b")", b"}")) and second.start > 0:
            if result[second.start - 1 : second.start].isspace():
                result[second.start - 1] = ord(",")
            if second.text in _KEYWORDS:
                result[second.start : second.start + len(second.text)] = _KEYWORDS[second.text]
        if second.text == b":" and first.kind == "name" and b"?" not in [t.text for t in inside]:
            result[second.start] = ord(",")
