"""The texts that changes put in the place of code: ``forms.txt``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("forms.txt")
_SECTION = re.compile(r"\[([a-z_.]+)\]")


@cache
def _sections() -> dict[str, tuple[bytes, ...]]:
    found: dict[str, list[bytes]] = {}
    name = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if section := _SECTION.fullmatch(line):
            name = section[1]
        elif line and not line.startswith("# "):
            found.setdefault(name, []).append(line.replace("\u00b6", "\n").encode())
    return {name: tuple(lines) for name, lines in found.items()}


def forms(section: str, cpp: bool) -> tuple[bytes, ...]:
    """The forms of a section for a language."""
    return _sections()[section] + _sections().get(f"{section}.{'cpp' if cpp else 'c'}", ())


def filled(form: bytes, **values: bytes) -> bytes:
    """A form with its marks replaced: ``%b`` base, ``%w`` whole access, ``%n`` name, ``%s`` statement."""
    return re.sub(rb"%([bwns])", lambda match: values[match[1].decode()], form)


def needed(text: bytes) -> tuple[bytes, ...]:
    """What a text needs in front of the functions."""
    pairs = (line.split(b"\t", 1) for line in _sections()["needs"])
    return tuple(need for name, need in pairs if name in text)
