"""The compiler as judge of the rewrite engine: with the field renamed, only accesses that it missed fail."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from numamirror_build.proc import find_tool, run
from numamirror_build.rewrite import ACCESSOR_HEADER, AccessReport, apply_edits, find_accesses
from numamirror_build.upstreams.checkout import Checkout

pytestmark = [pytest.mark.sources, pytest.mark.build]

HEADER = "ggml/include/ggml.h"
STUB = f"""\
#pragma once
#include "{Path(HEADER).name}"
static inline void * tensor_data(const struct ggml_tensor * t) {{ return t->hidden; }}
static inline void * tensor_data_in_loop(const struct ggml_tensor * t) {{ return t->hidden; }}
static inline void tensor_set_data(struct ggml_tensor * t, void * p) {{ t->hidden = p; }}
"""
SETTINGS = (
    "GGML_RPC=ON",
    "LLAMA_CURL=OFF",
    "LLAMA_OPENSSL=OFF",
    "LLAMA_BUILD_TESTS=ON",
    "LLAMA_BUILD_EXAMPLES=ON",
)
ERROR = re.compile(r"^(?P<path>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
NO_MEMBER = re.compile("has no member named .data.")


@dataclass(frozen=True)
class Error:
    """An error of the compiler; the path is relative to the tree."""

    path: str
    line: int
    text: str


@dataclass(frozen=True)
class Judged:
    """Upstream's tree with the field renamed, and a way to compile a file of it."""

    tree: Path
    report: AccessReport
    commands: Mapping[str, tuple[Path, list[str]]]

    def write(self, *, patched: bool) -> None:
        """Write all files that have accesses, with or without the edits."""
        for path, edits in self.report.edits_by_file().items():
            target = self.tree / path
            original = target.with_name(f"{target.name}.orig")
            if not original.exists():
                shutil.copy(target, original)
            content = original.read_bytes()
            target.write_bytes(apply_edits(content, edits) if patched else content)

    def errors(self) -> list[Error]:
        """What the compiler says about every file with accesses that this machine compiles."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(self._compile, sorted(self.commands.keys() & self.report.edits_by_file().keys()))
            return sorted(
                {error for errors in found for error in errors}, key=lambda e: (e.path, e.line, e.text)
            )

    def _compile(self, path: str) -> list[Error]:
        folder, words = self.commands[path]
        options = ["-fsyntax-only", "-fmax-errors=0", "-w", "-O0", "-fdiagnostics-plain-output"]
        output = run([*words, *options], cwd=folder).output
        return list(self._parsed(output))

    def _parsed(self, output: str) -> Iterator[Error]:
        for match in ERROR.finditer(output):
            path = Path(match["path"])
            if path.is_relative_to(self.tree):
                yield Error(str(path.relative_to(self.tree)), int(match["line"]), match["text"])
            else:
                yield Error(str(path), int(match["line"]), match["text"])


@pytest.fixture(scope="module")
def judged(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A copy of upstream's tree, configured for this machine's compiler, with the field renamed."""
    files = {
        path.relative_to(checkout.path).as_posix(): path.read_bytes()
        for path in checkout.path.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    targets = [path for path in files if not path.startswith(("vendor/", "ggml/src/ggml-et/et-kernels/"))]
    report = find_accesses(files, targets, jobs=os.cpu_count() or 1)
    tree = tmp_path_factory.mktemp("judged") / "tree"
    shutil.copytree(checkout.path, tree, ignore=shutil.ignore_patterns(".git"))
    build = tree / "build"
    cmake = find_tool("cmake", hint="install cmake")
    settings = [
        f"-D{setting}" for setting in (*SETTINGS, "CMAKE_EXPORT_COMPILE_COMMANDS=ON", "GGML_CCACHE=OFF")
    ]
    configured = run([cmake, "-G", "Ninja", "-S", tree, "-B", build, *settings])
    assert configured.returncode == 0, configured.output
    header = tree / HEADER
    text = header.read_text()
    assert text.count("void * data;") == 1
    header.write_text(text.replace("void * data;", "void * hidden;"))
    header.with_name(ACCESSOR_HEADER).write_text(STUB)
    return Judged(tree, report, _commands(tree, build))


def _commands(tree: Path, build: Path) -> dict[str, tuple[Path, list[str]]]:
    """How each file is compiled: the folder, and the command without its output."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"]).resolve()
        if path.is_relative_to(tree):
            words = shlex.split(entry["command"])
            place = words.index("-o")
            words[place : place + 2] = []
            found[path.relative_to(tree).as_posix()] = (Path(entry["directory"]), words)
    return found


def test_no_access_is_missed(judged: Judged) -> None:
    """Without the edits, every line on which the compiler misses the field has at least as many sites."""
    judged.write(patched=False)
    missing = Counter((e.path, e.line) for e in judged.errors() if NO_MEMBER.search(e.text))
    sites = Counter((site.path, site.line) for site in judged.report.sites)
    assert missing, "the compiler found nothing: the field was not renamed"
    assert {place: number for place, number in missing.items() if sites[place] < number} == {}


def test_rewritten_code_compiles(judged: Judged) -> None:
    """With the edits, nothing that this machine compiles names the field, and nothing else broke."""
    judged.write(patched=True)
    assert judged.errors() == []
