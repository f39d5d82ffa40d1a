"""Runs, records and GGUF files that tests make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numamirror_build.verify.matrix import Case
from numamirror_build.verify.models import Contents, Model
from numamirror_build.verify.profile import load_profile
from numamirror_build.verify.runs import Run

PROFILE = load_profile("llama.cpp")
MODEL = Model("tiny", Path("tiny.gguf"), "id", own=True)
CONTENTS = Contents("llama", tensors=2, tensor_bytes=1000)
KV = {"buffers": 1, "bytes": 1 << 20}
WEIGHTS = {"eligible": 1000, "replicated": 1000, "left": []}
CACHES = {"caches": {"buffers": 1, "mib": 0.5}, "kv": KV, "adapted": 0, "weights": WEIGHTS}


def logits_run(cases: Sequence[Case], *, sha: str = "aa", **facts: Any) -> Run:
    """A run that ended well and gave the same digest for every case."""
    answers = {
        case.id: {
            "sha256": sha + (case.action or ""),
            "shape": [2, 3],
            "finite": True,
            "spread": 1.0,
            "difference": None,
            **CACHES,
        }
        for case in cases
    }
    return Run("done", {"cases": answers, **facts}, None, Path("run"))


def status_record(count: int, **changes: Any) -> dict[str, Any]:
    """A status record of a mirror that does everything right."""
    return {
        "active": True,
        "error": None,
        "pretend": True,
        "replicas": count,
        "nodes": [{"id": node, "bytes": 4096} for node in range(count)],
        "tensors": {
            "eligible_bytes": 1000,
            "replicated": 2,
            "replicated_bytes": 1000,
            "not_replicated": [],
        },
        "graphs": {"mirrored": 5, "home": 0},
        "policy": "weights,kv",
        "kv": KV,
        "checks": 7,
        **changes,
    }


def done(**facts: Any) -> Run:
    """A run that ended well."""
    return Run("done", facts, None, Path("run"))


def died(reason: str = "the process died of signal 11") -> Run:
    """A run whose process failed."""
    return Run("died", {}, reason, Path("run"))


def refused(facts: Mapping[str, Any]) -> Run:
    """A run whose model was not loaded."""
    return Run("refused", facts, "last lines", Path("run"))
