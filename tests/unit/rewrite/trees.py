"""Small trees to plan, and what the plan makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from numamirror_build.errors import AccessError
from numamirror_build.rewrite import AccessReport, apply_edits, find_accesses

GOLDEN = Path(__file__).with_name("golden")
HEADER = (GOLDEN / "ggml.h").read_bytes()
INCLUDE = b'#include "ggml.h"\n'
OURS = b'#include "ggml-numa-mirror.h"\n'

_EXPECTED = re.compile(r"// error: ([^/]*?)(?= *(?://|$))")


@dataclass(frozen=True)
class Case:
    """One golden case: a file before, and either the file after or the errors that its comments announce."""

    before: Path

    @property
    def name(self) -> str:
        """The name the file has in its tree."""
        return self.before.name.replace(".before", "").replace(".error", "")

    @property
    def after(self) -> Path:
        """The file with the expected result."""
        return self.before.with_name(self.before.name.replace(".before", ".after"))

    def errors(self) -> list[tuple[int, str]]:
        """The line and a part of the reason of every expected error."""
        lines = self.before.read_text().splitlines()
        return [(n, text.strip()) for n, line in enumerate(lines, 1) for text in _EXPECTED.findall(line)]


def cases(kind: str) -> list[Case]:
    """The cases of one kind: ``before`` or ``error``."""
    return [Case(path) for path in sorted(GOLDEN.glob(f"*.{kind}.*"))]


def plan(*targets: str, **sources: bytes | str) -> AccessReport:
    """The plan for a tree of a header like ggml.h and other files; ``_`` in a name stands for its dot."""
    return find_accesses(tree(**sources), targets or None)


def tree(**sources: bytes | str) -> dict[str, bytes]:
    """The files of a tree; ``a_c`` is ``a.c``, ``sub__a_h`` is ``sub/a.h``."""
    files = {"ggml.h": HEADER}
    for name, source in sources.items():
        path = ".".join(name.replace("__", "/").rsplit("_", 1))
        files[path] = source.encode() if isinstance(source, str) else source
    return files


def rewritten(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with all edits made."""
    edits = find_accesses(files).edits_by_file()
    return {path: apply_edits(content, edits.get(path, ())) for path, content in files.items()}


def body(code: str, path: str = "a.cpp") -> str:
    """What the plan makes of some statements in a function with a tensor ``t`` and others around."""
    head = (
        '#include "ggml.h"\n'
        "struct other { void * data; };\n"
        "void f(struct ggml_tensor * t, struct ggml_tensor * u, struct other * o, void * p, int n) {\n"
    )
    files = rewritten({"ggml.h": HEADER, path: f"{head}{code}\n}}\n".encode()})
    text = files[path].decode().replace(OURS.decode(), "")
    return text.removeprefix(head).removesuffix("\n}\n")


def reasons(files: dict[str, bytes]) -> list[tuple[str, int, str]]:
    """Path, line and reason of everything that the engine refuses in a tree."""
    try:
        find_accesses(files)
    except AccessError as error:
        return [(a["path"], a["line"], a["reason"]) for a in error.details["accesses"]]
    return []
