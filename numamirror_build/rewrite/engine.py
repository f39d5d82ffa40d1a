"""Find every access to ``ggml_tensor::data`` and say how to edit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from numamirror_build.rewrite.sites import AccessReport, TypeException


def find_accesses(
    files: Mapping[str, bytes],
    targets: Iterable[str] | None = None,
    exceptions: Iterable[TypeException] = (),
    *,
    jobs: int = 1,
) -> AccessReport:
    """Every access to the data of a tensor in the target files, and the edits for them.

    Args:
        files: all sources and headers of the tree: path (relative, with ``/``) to content.
            Types of one file are looked up in others, so give all, not only the targets.
        targets: the files to rewrite; None for all of ``files``.
        exceptions: what a person says about accesses that cannot be typed.
        jobs: number of processes to use.

    Raises:
        AccessError: accesses of unknown type or without a rule; all of them, in ``details["accesses"]``.
    """
    raise NotImplementedError
