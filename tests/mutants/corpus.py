"""What is changed: small sources of ours, and sources of upstream at a pin, which are only read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.subject import Subject

OURS = Path(__file__).with_name("sources")
GOLDEN = Path(__file__).parents[1] / "unit/rewrite/golden"
HEADER = {"ggml.h": (GOLDEN / "ggml.h").read_bytes()}

FLAGS = (
    "-D_GNU_SOURCE",
    '-DGGML_VERSION="x"',
    '-DGGML_COMMIT="x"',
    "-DGGML_USE_CPU",
    "-mavx2",
    "-mfma",
    "-mf16c",
)
UNITS = {
    "llama.cpp": (
        "ggml/src/ggml.c",
        "ggml/src/ggml-alloc.c",
        "ggml/src/ggml-backend.cpp",
        "ggml/src/ggml-opt.cpp",
        "ggml/src/gguf.cpp",
        "ggml/src/ggml-cpu/ggml-cpu.c",
        "ggml/src/ggml-cpu/unary-ops.cpp",
        "ggml/src/ggml-cpu/binary-ops.cpp",
        "ggml/src/ggml-cpu/repack.cpp",
        "ggml/src/ggml-cpu/amx/mmq.cpp",
        "src/llama-kv-cache.cpp",
    ),
    "ik_llama.cpp": ("ggml/src/ggml-backend.cpp", "ggml/src/ggml-alloc.c", "src/llama-model-loader.cpp"),
}
GENERATED = {"ggml-version.h": b"#pragma once\n"}
_INCLUDE = re.compile(rb'#[ \t]*include[ \t]*"([^"\n]+)"')
_SOURCES = (".c", ".cpp", ".h", ".hpp", ".inc", ".cuh")


def ours() -> tuple[Subject, ...]:
    """The sources of ours that compile by themselves."""
    paths = [*sorted(OURS.iterdir()), *sorted(GOLDEN.glob("*.before.c*"))]
    return tuple(
        Subject(path.name.replace(".before", ""), path.read_bytes(), HEADER)
        for path in paths
        if path.suffix in (".c", ".cpp")
    )


def upstream(name: str, tree: Path) -> Iterator[Subject]:
    """Some sources of a checkout."""
    files = {
        path.relative_to(tree).as_posix(): path
        for path in sorted(tree.rglob("*"))
        if path.suffix in _SOURCES and path.is_file() and not path.is_symlink()
    }
    for unit in UNITS[name]:
        if unit in files:
            closure = _closure(unit, files) | {f"ggml/src/{name}": text for name, text in GENERATED.items()}
            yield Subject(unit, closure.pop(unit), closure, FLAGS)


def _closure(unit: str, files: dict[str, Path]) -> dict[str, bytes]:
    """The file and everything that it includes, by the includes' last names."""
    found: dict[str, bytes] = {}
    queue = [unit]
    while queue:
        path = queue.pop()
        if path in found:
            continue
        found[path] = files[path].read_bytes()
        for include in _INCLUDE.findall(found[path]):
            name = include.decode(errors="replace")
            while name.startswith("../"):
                name = name[3:]
            beside = (Path(path).parent / name).as_posix()
            queue += [beside] if beside in files else [p for p in files if p.endswith("/" + name)]
    return found
