"""A plan as a series of mails that ``git am`` puts on top of the pin, for people with a tree of their own.

The same plan gives the same bytes on every machine: author and date are fixed, no user's settings count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from numamirror_build import __version__, data
from numamirror_build.errors import ConfigError, output_as_error
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.lock import hook_of
from numamirror_build.patching.plan import NewFile, Plan
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.store import write_together
from numamirror_build.toml import read_toml
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.git import Repository

DOCUMENT = "docs/numa-mirror.md"
"""The file that only the series has: a description for those who have the tree, but not this project."""

_AUTHOR = "numamirror-build <numamirror-build@localhost>"
_FROM = f"\nFrom: {_AUTHOR}\n"
_FORMAT = (
    "--full-index",
    "--no-renames",
    "--no-signature",
    "--no-stat",
    "--no-numbered",
    "--text",
    "--zero-commit",
)
_SOURCES, _REWRITE, _DOCUMENT = "our sources", "the rewrite", "the document"


@dataclass(frozen=True)
class _Patch:
    """What one patch of the series has, and its message.

    ``parts`` are those of the table below, or names of files of hooks without their numbers.
    """

    parts: tuple[str, ...]
    subject: str
    body: str


# In this order every tree can be built, and none offers what is not there yet.
_SERIES = (
    _Patch(
        (_SOURCES,),
        "ggml : add the sources of the NUMA mirror",
        "On a machine with several NUMA nodes, threads that read weights from another node's\n"
        "memory get less than half of the bandwidth. The mirror holds one replica of the weights\n"
        "and of the KV cache per node, in one range of addresses at a fixed stride.\n\n"
        "These are its own files. Nothing builds them yet.",
    ),
    _Patch(
        (_REWRITE,),
        "ggml : reach the data of tensors through accessors",
        "A thread must read the replica of its node, so that no code may use the pointer in\n"
        "a tensor as it is: tensor_data() and tensor_set_data() take the place of the field.\n\n"
        "Without GGML_NUMA_MIRROR they only read and write the field. No change in what is computed.",
    ),
    _Patch(
        ("cmake", "buffers", "compute", "rpc"),
        "ggml : allocate, write and compute with the NUMA mirror",
        "Buffers for weights and caches come from the mirror, what is written to them reaches\n"
        "every replica, and each worker thread is bound to a node and reads its replica.\n"
        "RPC servers are told by their clients what a buffer is for.\n\n"
        "The CMake option GGML_NUMA_MIRROR builds it. It is OFF by default: then nothing changes.",
    ),
    _Patch(
        ("loader", "cache"),
        "llama : load models and make caches with the NUMA mirror",
        "Only here it is known which buffers are weights, and which are caches: buffers that are\n"
        "allocated while a model is loaded or a cache is made get replicas. A loaded model is\n"
        "copied to all of them, and its file is not mapped, since mapped pages exist once.",
    ),
    _Patch(
        ("options",),
        "common : add --numa mirror and its companions",
        "Programs that have --numa get the value mirror, --numa-mirror to choose what is\n"
        "replicated, and --numa-mirror-fallback to go on without what cannot be had.",
    ),
    _Patch(
        (_DOCUMENT,),
        "docs : describe the NUMA mirror",
        "What it is, how to build and use it, what it costs, and what it does not do.",
    ),
)


def export_series(checkout: Checkout, plan: Plan, out: Path) -> list[Path]:
    """Write a plan as patches for ``git am``: our files, the rewrite, the hooks by what they do, a document.

    After each patch the tree can be built; without GGML_NUMA_MIRROR it then is as upstream.

    Args:
        checkout: what the plan was made for.
        plan: the plan.
        out: folder for the patches; those of an earlier export are removed: ``*.patch`` is the series.

    Returns:
        the patches, in order.

    Raises:
        ApplyError: the plan does not fit the checkout, or the checkout has a file of the document's name.
        ConfigError: no patch is for one of the files of hooks.
        OutputError: the patches cannot be written; then none of them is.
        ToolMissingError: git is not installed.
    """
    series = {out / name: content for name, content in _format(checkout.path, plan).items()}
    with output_as_error(str(out)):
        others = set(out.glob("0*.patch")) - set(series)
        earlier = [path for path in others if _FROM.encode() in path.read_bytes()]
        write_together(series)
        for path in earlier:
            path.unlink()
    return list(series)


def _steps(files: Mapping[str, bytes], plan: Plan) -> Iterator[tuple[_Patch, dict[str, bytes]]]:
    """Each patch, and the files that it and those before it change, as it leaves them."""
    part_of = {
        hook["id"]: path.stem.partition("-")[2]
        for path in (data.patches(plan.upstream) / "hooks").glob("*.toml")
        for hook in read_toml(path, "A file of hooks")["hook"]
    }
    document = NewFile(DOCUMENT, (data.templates() / "export/numa-mirror.md").read_bytes())
    new_files = [*((_SOURCES, new) for new in plan.new_files), (_DOCUMENT, document)]
    edits = [(part_of[hook] if (hook := hook_of(edit)) else _REWRITE, edit) for edit in plan.edits]
    if lost := {part for part, _ in edits} - {part for patch in _SERIES for part in patch.parts}:
        raise ConfigError(
            "No patch of the series takes these hooks",
            where=f"patches/{plan.upstream}/hooks",
            why=f"files of hooks that it does not know: {', '.join(sorted(lost))}",
            hint="name them in the table of patching/export.py",
        )
    taken: set[str] = set()
    for patch in _SERIES:
        taken.update(patch.parts)
        part_of_plan = replace(
            plan,
            edits=tuple(edit for part, edit in edits if part in taken),
            new_files=tuple(new for part, new in new_files if part in taken),
        )
        yield patch, patch_files(files, part_of_plan)


def _format(tree: Path, plan: Plan) -> dict[str, bytes]:
    """The patches by name.

    The files that the plan touches are committed, and no others: a patch depends on nothing else.
    """
    files = TreeFiles(tree)
    touched = sorted({edit.path for edit in plan.edits})
    modes = {path: "100755" if (tree / path).stat().st_mode & 0o100 else "100644" for path in touched}
    before = {path: files[path] for path in touched}
    stream = [*_commit(plan, "base", before, modes)]
    for patch, after in _steps(files, plan):
        changed = {path: content for path, content in after.items() if before.get(path) != content}
        if changed:
            stream += _commit(plan, f"{patch.subject}\n\n{patch.body}", changed, modes)
            before |= changed
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository.create(Path(folder) / "series.git")
        repository.run("fast-import", "--quiet", stdin=b"".join(stream))
        first = repository.text("rev-list", "--max-parents=0", "series")
        repository.run("format-patch", *_FORMAT, "--output-directory", folder, f"{first}..series")
        return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.patch"))}


def _commit(
    plan: Plan, message: str, files: Mapping[str, bytes], modes: Mapping[str, str]
) -> Iterable[bytes]:
    """A commit in the language of ``git fast-import``."""
    date = datetime.fromisoformat(plan.pin.date or "1970-01-01T00:00:00+00:00")
    whole = (
        f"{message}\n\n"
        f"Generated by numamirror-build {__version__} for {plan.upstream} {plan.pin.commit}\n"
        f"(plan {plan.digest[:12]}, scope {plan.scope}).\n"
    )
    yield b"commit refs/heads/series\n"
    yield f"committer {_AUTHOR} {int(date.timestamp())} {date:%z}\n".encode()
    yield _data(whole.encode())
    for path, content in files.items():
        yield f"M {modes.get(path, '100644')} inline {path}\n".encode()
        yield _data(content)


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)
