"""Verification in the lab: a mirror on several real nodes, beside what upstream's own options do there."""

from __future__ import annotations

from numamirror_build.lab.verify.verification import verify_in_lab

__all__ = ["verify_in_lab"]
