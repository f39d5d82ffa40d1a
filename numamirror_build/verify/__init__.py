"""Verification: are the answers unchanged, and were the replicas really used?"""

from __future__ import annotations

from numamirror_build.verify.document import Check, Verification
from numamirror_build.verify.verification import verify

__all__ = ["Check", "Verification", "verify"]
