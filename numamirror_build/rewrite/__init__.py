"""Text to plan, without disk or git: find every access to a tensor's data and say how to edit it.

Import from here::

    from numamirror_build.rewrite import AccessReport, Edit, Site, apply_edits, find_accesses
"""

from __future__ import annotations

from numamirror_build.rewrite.edits import apply_edits, invert_edits
from numamirror_build.rewrite.engine import find_accesses
from numamirror_build.rewrite.sites import (
    ACCESSOR_HEADER,
    AccessReport,
    Edit,
    Site,
    TypeException,
    load_exceptions,
)

__all__ = [
    "ACCESSOR_HEADER",
    "AccessReport",
    "Edit",
    "Site",
    "TypeException",
    "apply_edits",
    "find_accesses",
    "invert_edits",
    "load_exceptions",
]
