"""The data that the package carries: ``patches/`` and ``templates/``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numamirror_build.errors import OutputError

_HERE = Path(__file__).resolve().parent


def clone() -> Path | None:
    """The folder of our sources that the package runs from; None when it was installed."""
    return None if (_HERE / "_data").is_dir() else _HERE.parent


def _root() -> Path:
    return clone() or _HERE / "_data"


def patches(upstream: str) -> Path:
    """The folder of declarative data for one upstream: facts, pins, hooks, locks."""
    return _root() / "patches" / upstream


def binding(upstream: str) -> Path:
    """The folder of hooks and files of ours for one upstream's binding, where it has any."""
    return patches(upstream) / "binding"


def supplied(upstream: str) -> Path:
    """The folder of files that sources of one upstream may lack and its build needs, where there are any."""
    return patches(upstream) / "supplied"


def templates() -> Path:
    """The folder of Jinja2 templates."""
    return _root() / "templates"


def licences() -> tuple[Path, ...]:
    """Our own licence, and the text that names whose code else is in what we make."""
    return _root() / "LICENSE", _root() / "NOTICE"


@contextmanager
def writing() -> Iterator[None]:
    """What is written is this data: an error about the place does not ask for another one."""
    try:
        yield
    except OutputError as error:
        error.hint = (
            "it belongs to the program: let it be writable, or use a copy of the program that is yours"
        )
        raise


def upstream_names() -> list[str]:
    """The upstreams that there is data for."""
    return sorted(path.name for path in (_root() / "patches").iterdir() if (path / "upstream.toml").is_file())
