"""Every expected failure: one class per kind, each with an exit code of its own.

A message has four parts: what failed, where, why, and what to do next.
The command line prints them and exits with the class's code; nothing else in the package calls ``sys.exit``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar


class NumaMirrorError(Exception):
    """Base of all expected failures.

    Args:
        what: what failed, one sentence without a final full stop.
        where: file, line, command or option that is concerned.
        why: the cause, as far as it is known.
        hint: what the user can do next.
        details: machine-readable facts for ``--json``.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint
        self.details = details or {}

    def lines(self) -> list[str]:
        """The message as labelled lines, the first without a label."""
        labelled = [("  where: ", self.where), ("  why:   ", self.why), ("  next:  ", self.hint)]
        rest = [label + text.replace("\n", "\n         ") for label, text in labelled if text]
        return [self.what, *rest]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_json(self) -> dict[str, Any]:
        """The message for machines."""
        return {
            "error": self.kind,
            "exit_code": self.exit_code,
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "next": self.hint,
            "details": self.details,
        }


class ConfigError(NumaMirrorError):
    """A setting, a file or a path that was given cannot be used."""

    exit_code = 3
    kind = "config"


class UnknownUpstreamError(NumaMirrorError):
    """There is no upstream of that name."""

    exit_code = 10
    kind = "unknown-upstream"


class UnknownPinError(NumaMirrorError):
    """No pin has that name, and it is no full commit id."""

    exit_code = 11
    kind = "unknown-pin"


class SourceError(NumaMirrorError):
    """The source of a pin could not be had."""

    exit_code = 12
    kind = "source"


class ContentMismatchError(NumaMirrorError):
    """Content that was got differs from what the pin says."""

    exit_code = 13
    kind = "content-mismatch"


class AnchorError(NumaMirrorError):
    """A hook's anchor is missing, or there more than once."""

    exit_code = 14
    kind = "anchor"


class AccessError(NumaMirrorError):
    """An access to tensor data whose type cannot be established, or whose form has no rule."""

    exit_code = 15
    kind = "access"


class LockMismatchError(NumaMirrorError):
    """A plan has other sites than its lock file says."""

    exit_code = 16
    kind = "lock-mismatch"


class ApplyError(NumaMirrorError):
    """A plan does not fit the tree it should be applied to."""

    exit_code = 17
    kind = "apply"


class AuditError(NumaMirrorError):
    """A compiled access to tensor data bypasses the accessors."""

    exit_code = 18
    kind = "audit"


class EditConflictError(NumaMirrorError):
    """Two edits of a plan change the same text."""

    exit_code = 19
    kind = "edit-conflict"


class ToolMissingError(NumaMirrorError):
    """A program that is needed is not installed."""

    exit_code = 20
    kind = "tool-missing"


class BuildError(NumaMirrorError):
    """Configuring or compiling failed."""

    exit_code = 21
    kind = "build"


class WheelError(NumaMirrorError):
    """The wheel could not be made, or is not what it should be."""

    exit_code = 22
    kind = "wheel"


class DiskFullError(NumaMirrorError):
    """No space left on the device."""

    exit_code = 23
    kind = "disk-full"


class OutputError(NumaMirrorError):
    """The output folder cannot take what was made."""

    exit_code = 24
    kind = "output"


class PortabilityError(NumaMirrorError):
    """What was built asks more of a CPU than the level that it was built for."""

    exit_code = 25
    kind = "portability"


class ModelError(NumaMirrorError):
    """A model file is missing or is not a GGUF file."""

    exit_code = 30
    kind = "model"


class MirrorUnavailableError(NumaMirrorError):
    """The runtime refused to mirror: one node, or not enough memory."""

    exit_code = 31
    kind = "mirror-unavailable"


class VerificationError(NumaMirrorError):
    """At least one check of a verification failed."""

    exit_code = 32
    kind = "verification"


class MeasurementError(NumaMirrorError):
    """Something could not be measured on this machine."""

    exit_code = 50
    kind = "measurement"


class StateError(NumaMirrorError):
    """Results of different machines, or of different states of one, are not compared."""

    exit_code = 51
    kind = "state"


class LabError(NumaMirrorError):
    """The lab's machine could not be started, is not what was asked for, or broke down."""

    exit_code = 40
    kind = "lab"


class LabTimeoutError(NumaMirrorError):
    """The command in the lab did not end within the time limit."""

    exit_code = 41
    kind = "lab-timeout"


DISK_FULL_HINT = "free some space, or choose another folder with --cache-dir; then run the same command again"


@contextmanager
def disk_full_as_error(where: str) -> Iterator[None]:
    """Turn the operating system's "no space left" into :class:`DiskFullError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                "No space left on the device",
                where=where,
                hint=DISK_FULL_HINT,
            ) from error
        raise


@contextmanager
def path_as_error() -> Iterator[None]:
    """Turn what the operating system says of a path that it does not look at into :class:`ConfigError`.

    Such a path is too long, or below a folder that is closed to us.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EACCES) and error.filename:
            raise ConfigError(
                "A path cannot be used",
                where=os.fsdecode(error.filename),
                why=error.strerror,
                hint="name another place",
            ) from error
        raise


@contextmanager
def output_as_error(where: str, *, hint: str = "name another place") -> Iterator[None]:
    """Turn what the operating system says where something cannot be written into :class:`OutputError`.

    "No space left" becomes :class:`DiskFullError`.
    """
    try:
        with disk_full_as_error(where):
            yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            "The output cannot be written",
            where=where,
            why=f"{reason}: {error.filename}" if error.filename else reason,
            hint=hint,
        ) from error


@contextmanager
def naming(*files: Path, hint: str | None = None) -> Iterator[None]:
    """An error of the package that names no place names these files, and one without a next step gets it."""
    try:
        yield
    except NumaMirrorError as error:
        error.where = error.where or ", ".join(map(str, files))
        error.hint = error.hint or hint
        raise


@contextmanager
def content_as_error(*files: Path) -> Iterator[None]:
    """Turn what goes wrong where files have other content than they should into :class:`ConfigError`.

    An error of the package stays what it is, but names the files if it names nothing.
    """
    hint = "give a file as the program wrote it"
    with naming(*files, hint=hint):
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ConfigError("There is something else than there should be", why=cause_of(error)) from error


def cause_of(error: Exception) -> str:
    """Why what was read is not as it should be, from the exception that it led to."""
    return f"it lacks {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
