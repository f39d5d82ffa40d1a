"""TOML files that a person wrote."""

from __future__ import annotations

import sys
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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} is not valid TOML", where=str(path), why=str(error)) from error
    except OSError as error:
        raise ConfigError(f"{what} cannot be read", where=str(path), why=error.strerror, hint=hint) from error
    return table
