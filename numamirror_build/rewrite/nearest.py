"""What in a tree is most like an anchor that is not there, for whoever has to find the new one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 3
_ALIKE = 0.6


def nearest_names(wanted: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names most like one of the wanted ones, the nearest first."""
    return _nearest(wanted, names)


def nearest_lines(wanted: str, source: bytes) -> list[str]:
    """The lines of a source most like the wanted one, or that have it as a part, the nearest first."""
    lines = {line.strip() for line in source.decode(errors="replace").splitlines()} - {""}
    holding = sorted(line for line in lines if wanted in line)
    return [repr(line) for line in holding[:_SHOWN] or _nearest([wanted], lines)]


def nearest_paths(wanted: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The paths most like one of the wanted ones, those with the same file name first."""
    wanted, paths = list(wanted), list(paths)
    names = {path.rpartition("/")[2] for path in wanted}
    same = sorted(path for path in paths if path.rpartition("/")[2] in names)
    return same[:_SHOWN] or _nearest(wanted, paths)


def _nearest(wanted: Iterable[str], offered: Iterable[str]) -> list[str]:
    offered = sorted(offered)
    found = [name for one in wanted for name in difflib.get_close_matches(one, offered, _SHOWN, _ALIKE)]
    return list(dict.fromkeys(found))[:_SHOWN]
