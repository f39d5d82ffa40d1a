"""The lexical layer: what is comment, what is literal, what is code.

Everything here keeps lengths, so an offset means the same place in every form of a file's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LEX = re.compile(
    rb"""
    (?P<comment> //(?:\\.|[^\\\n])* | /\*.*?\*/ )
  | (?: \b(?:u8|[uUL])? R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?:(?<![0-9A-Za-z_])|(?<=\b[uUL])|(?<=\bu8)) '(?:\\.|[^'\\\n])+' )
    """,
    re.DOTALL | re.VERBOSE,
)
_TOKEN = re.compile(
    rb"""
    (?P<space> (?:\s|\\\r?\n)+ )
  | (?P<literal> (?:\b(?:u8|[uUL])? R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)")
      | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
  | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<number> \.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[0-9A-Za-z_.])* )
  | (?P<punct> \#\#|\#|->\*|->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|::|. )
    """,
    re.DOTALL | re.VERBOSE,
)

FIELD = b"data"
"""The name of the field that the engine is about."""
BOM = b"\xef\xbb\xbf"
"""What some editors put in front of a file in UTF-8."""
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_SPLIT = re.compile(
    rb"(?<![\w$])(?!data)d(?:S)*a(?:S)*t(?:S)*a(?![\w$])|-(?:S)+>(?:\s|S)*data(?![\w$])".replace(
        b"S", _SPLICE.pattern
    )
)
FIELD_WORD = re.compile(rb"(?<![\w$])data(?![\w$])")


@dataclass(frozen=True)
class Token:
    """One token: its text, its class (a group of the pattern) and where it came from."""

    text: bytes
    kind: str
    start: int


@dataclass(frozen=True)
class Text:
    """One file's content and two forms of it that are as long.

    Attributes:
        content: the bytes as they are.
        plain: comments turned into spaces.
        code: comments and the insides of literals turned into spaces.
    """

    content: bytes
    plain: bytes
    code: bytes

    @classmethod
    def of(cls, content: bytes) -> Text:
        """Scan a file."""
        plain = bytearray(content)
        code = bytearray(content)
        if content.startswith(BOM):
            plain[: len(BOM)] = code[: len(BOM)] = b" " * len(BOM)
        for match in _LEX.finditer(content):
            start, end = match.span()
            if match.lastgroup == "comment" or match["comment"] is not None:
                plain[start:end] = code[start:end] = b" " * (end - start)
            elif end - start > 2:
                code[start + 1 : end - 1] = b" " * (end - start - 2)
        return cls(content, bytes(plain), bytes(code))

    def line(self, offset: int) -> int:
        """The line (from 1) of an offset."""
        return self.content.count(b"\n", 0, offset) + 1

    def column(self, offset: int) -> int:
        """The column in bytes (from 1) of an offset."""
        return offset - self.content.rfind(b"\n", 0, offset)

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a range holds a comment, or a part of one."""
        return self.content[start:end] != self.plain[start:end]


def tokens(text: bytes, start: int = 0, end: int | None = None) -> list[Token]:
    """The tokens of a range of a text without comments; white space is left out."""
    return [
        Token(match[0], match.lastgroup or "punct", match.start())
        for match in _TOKEN.finditer(text, start, len(text) if end is None else end)
        if match.lastgroup != "space"
    ]


def closing(code: bytes, opening: int) -> int | None:
    """Offset of the bracket that closes the one at ``opening``, or None."""
    depth = 0
    for match in re.compile(rb"[()\[\]{}]").finditer(code, opening):
        depth += 1 if match[0] in b"([{" else -1
        if depth == 0:
            return match.start()
    return None


def code_before(code: bytes, offset: int) -> int:
    """The offset after the last byte before an offset that is no white space, nor continues a line."""
    while offset > 0 and _is_space(code, offset - 1):
        offset -= 1
    return offset


def code_after(code: bytes, offset: int) -> int:
    """The offset of the first byte from an offset on that is no white space, nor continues a line."""
    while offset < len(code) and _is_space(code, offset):
        offset += 1
    return offset


def _is_space(code: bytes, offset: int) -> bool:
    return code[offset : offset + 1].isspace() or _SPLICE.match(code, offset) is not None


def split_accesses(code: bytes) -> Iterator[int]:
    """Where a continued line splits the name of the field, or the operator before it."""
    for match in _SPLIT.finditer(code):
        yield match.start()


def occurrences(code: bytes, name: bytes, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The places where an identifier stands."""
    end = len(code) if end is None else end
    place = code.find(name, start, end)
    while place >= 0:
        if not is_name_byte(code, place - 1) and not is_name_byte(code, place + len(name)):
            yield place
        place = code.find(name, place + len(name), end)


def is_name_byte(text: bytes, offset: int) -> bool:
    """Whether the byte at an offset can be part of an identifier."""
    return 0 <= offset < len(text) and (text[offset : offset + 1].isalnum() or text[offset] in b"_$")
