"""TOML files that a person wrote, and names in them that nobody knows."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numamirror_build.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path, what: str, *, hint: str | None = None) -> dict[str, Any]:
    """The content of a file.

    Args:
        path: the file.
        what: it is, for messages: ``A layout``.
        hint: what to do when it cannot be read.

    Raises:
        ConfigError: the file cannot be read, or is no TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{what} is not valid TOML", where=str(path), why=str(error), hint="mend the file at that place"
        ) from error
    except OSError as error:
        raise ConfigError(f"{what} cannot be read", where=str(path), why=error.strerror, hint=hint) from error
    return table


def unknown(what: str, name: str, where: str, known: Iterable[str]) -> ConfigError:
    """The error about a name that is none of those that are known: which is meant, or which there are.

    Args:
        what: the name is, for messages: ``setting``.
        name: the name.
        where: it stands.
        known: all that there are.
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(sorted(known))}"
    return ConfigError(f"Unknown {what} {name}", where=where, hint=hint)
