"""Whether a plan for a changed source is right: the compiler says so.

Of a source that compiles, the rewritten text must compile with the field hidden:
then no access is left, and none of another struct was rewritten, as the accessors take tensors only.
It must also compile to the same machine code when the accessors are the plain field:
then nothing else has changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numamirror_build.errors import AccessError
from numamirror_build.proc import run
from numamirror_build.rewrite import ACCESSOR_HEADER, Edit, apply_edits, find_accesses, invert_edits
from numamirror_build.store import digest
from tests.mutants.subject import Subject

HIDDEN = b"numa_mirror_hidden"
ACCESSORS = b"""\
#pragma once
#include "ggml.h"
#ifdef FZ_HIDDEN
static inline void * tensor_data(const struct ggml_tensor * t) { return t->numa_mirror_hidden; }
static inline void * tensor_data_in_loop(const struct ggml_tensor * t) { return t->numa_mirror_hidden; }
static inline void tensor_set_data(struct ggml_tensor * t, void * p) { t->numa_mirror_hidden = p; }
#else
#define tensor_data(...) (__VA_ARGS__)->data
#define tensor_data_in_loop(...) (__VA_ARGS__)->data
#define tensor_set_data(t, ...) ((t)->data = (__VA_ARGS__))
#endif
"""
CHECKING = ("-fsyntax-only",)
CODING = ("-fkeep-static-functions", "-D__LINE__=0")
STANDARD = ("cstring", "functional", "map", "memory", "optional", "string", "tuple", "utility", "vector")
STRICT = ("-Werror=int-conversion", "-Werror=incompatible-pointer-types")
CONST = ("-Werror=discarded-qualifiers",)
PLACE = re.compile(r"^[^\n:]+:\d+:\d+$")
SECONDS = 120

REFUSED = "refused"
BROKEN = "does not compile before"
COMPILES = "compiles, field hidden"
SAME = "compiles, field hidden; same machine code"
UNJUDGED = "planned, not compiled"
FAULTS = (
    "crash",
    "unclear error",
    "not taken back",
    "planned again",
    "wrong edit or missed access",
    "other machine code",
    "broken code compiles",
)
OUTCOMES = (REFUSED, BROKEN, UNJUDGED, COMPILES, SAME, *FAULTS)


@dataclass(frozen=True)
class Verdict:
    """What came of a changed source; ``detail`` is for people."""

    outcome: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong with the plan."""
        return self.outcome in FAULTS


class Judge:
    """Plans and compiles changed sources in a folder of its own.

    Args:
        folder: an empty folder.
        codes: whether machine code is compared.
    """

    def __init__(self, folder: Path, *, codes: bool = True) -> None:
        self._folder = folder
        self._codes = codes
        self._written: dict[tuple[str, str], bytes] = {}

    def verdict(self, subject: Subject, *, compiles: bool = True) -> Verdict:
        """Plan a source, and judge the plan."""
        content = subject.whole()
        files = {**subject.others, subject.path: content}
        try:
            report = find_accesses(files)
        except AccessError as error:
            return _refusal(error, content)
        except Exception as error:
            return Verdict("crash", f"{type(error).__name__}: {error}")
        edits = report.edits_by_file()
        after = {path: apply_edits(text, edits.get(path, ())) for path, text in files.items()}
        if not is_taken_back(files, edits, after):
            return Verdict("not taken back")
        if not compiles:
            return Verdict(UNJUDGED)
        return self._compiled(subject, files, after, include_only(files, edits))

    def _compiled(
        self,
        subject: Subject,
        before: Mapping[str, bytes],
        after: Mapping[str, bytes],
        included: Mapping[str, bytes],
    ) -> Verdict:
        switches = [(), ("-DFZ_X",)] if b"FZ_X" in before[subject.path] else [()]
        outcome = Verdict(BROKEN)
        for switch in switches:
            plain = self._check("before", subject, before, switch)
            hidden = self._check("after", subject, hide(after), (*switch, "-DFZ_HIDDEN"))
            if plain:
                # the include that the plan adds may be what the source lacked,
                # and of a store to a constant tensor C makes a call with a warning
                if (
                    not hidden
                    and self._check("included", subject, included, switch)
                    and not self._check(
                        "after",
                        subject,
                        hide(after),
                        (*switch, "-DFZ_HIDDEN", *(() if subject.cpp else CONST)),
                    )
                ):
                    return Verdict("broken code compiles", plain)
                continue
            if hidden:
                return Verdict("wrong edit or missed access", hidden)
            outcome = Verdict(COMPILES)
            if self._codes:
                one, other = self._codes_of(subject, included, after, switch)
                if one != other:
                    return Verdict("other machine code", first_difference(one, other))
                if one:
                    outcome = Verdict(SAME)
        return outcome

    def _codes_of(
        self,
        subject: Subject,
        included: Mapping[str, bytes],
        after: Mapping[str, bytes],
        switch: tuple[str, ...],
    ) -> tuple[str, str]:
        """The machine code of both, or nothing of both if one of them has none.

        What reads twice, or takes a smart pointer's other operator, shows in code that is not optimised.
        """
        found = ("", "")
        for options in (("-O0", *CODING), ("-O2", *CODING)):
            found = (
                self._code("included", subject, included, switch, options),
                self._code("shown", subject, after, switch, options),
            )
            if not all(found):
                return "", ""
            if found[0] == found[1]:
                break
        return found

    def _command(self, name: str, subject: Subject, files: Mapping[str, bytes]) -> list[str | Path]:
        tree = self._folder / name
        header = next(path for path in files if Path(path).name == "ggml.h")
        accessors = str(Path(header).with_name(ACCESSOR_HEADER))
        for path, text in {**files, accessors: ACCESSORS}.items():
            if path == subject.path and b"tensor_data" in text:
                text = text.replace(b"::tensor_data", b"tensor_data") if name == "shown" else text
            if self._written.get((name, path)) != text:
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes(text)
                self._written[name, path] = text
        folders = sorted({str((tree / path).parent) for path in files})
        return [*_compiler(subject), *(f"-I{folder}" for folder in folders), tree / subject.path]

    def _check(self, name: str, subject: Subject, files: Mapping[str, bytes], switch: tuple[str, ...]) -> str:
        """The compiler's first complaint; empty if there is none."""
        command = [
            *self._command(name, subject, files),
            *switch,
            *CHECKING,
            *self._headers(subject, CHECKING),
        ]
        done = run([*command, "-fmax-errors=3"], timeout=SECONDS)
        return "" if done.returncode == 0 else done.output[:600] or f"status {done.returncode}"

    def _headers(self, subject: Subject, options: tuple[str, ...]) -> tuple[str | Path, ...]:
        """What makes a C++ compiler read the standard headers once for all mutants."""
        if not subject.cpp:
            return ()
        header = self._folder / f"std{digest([*subject.flags, *options])[:10]}.h"
        if not header.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            header.write_text("".join(f"#include <{name}>\n" for name in STANDARD))
            run([*_compiler(subject), *options, "-x", "c++-header", header], timeout=SECONDS)
        return ("-include", header)

    def _code(
        self,
        name: str,
        subject: Subject,
        files: Mapping[str, bytes],
        switch: tuple[str, ...],
        options: tuple[str, ...],
    ) -> str:
        """The machine code as text, without what texts and line numbers make of it; empty if it has none."""
        out = self._folder / f"{name}.s"
        out.unlink(missing_ok=True)
        command = [*self._command(name, subject, files), *switch, *options, *self._headers(subject, options)]
        done = run([*command, "-S", "-o", out], timeout=SECONDS)
        if done.returncode or not out.exists():
            return ""
        return normal_code(out.read_text(errors="replace"))


def is_taken_back(
    files: Mapping[str, bytes], edits: Mapping[str, tuple[Edit, ...]], after: Mapping[str, bytes]
) -> bool:
    """Whether the edits, taken back, leave the files as they were."""
    return all(apply_edits(after[path], invert_edits(edits.get(path, ()))) == files[path] for path in files)


def _compiler(subject: Subject) -> tuple[str, ...]:
    language = ("g++", "-std=gnu++17", "-w") if subject.cpp else ("gcc", "-std=gnu11", *STRICT)
    return (*language, *subject.flags)


def normal_code(text: str) -> str:
    """An assembler's text without what is in strings, labels and functions in an order of their own."""
    lines = [line for line in text.splitlines() if not _TEXTS.match(line)]
    blocks: dict[str, list[str]] = {"": []}
    name = ""
    for line in lines:
        if found := _BEGIN.match(line):
            name = found[1]
        blocks.setdefault(name, []).append(line)
        if line.lstrip().startswith(".size\t"):
            name = ""
    blocks[""] = [line for line in blocks[""] if not line.lstrip().startswith(".section")]
    return "\n".join("\n".join(_renumbered(block)) for _, block in sorted(blocks.items()))


_TEXTS = re.compile(r"\s*\.(file|string|ascii|ident|base64)\b")
_BEGIN = re.compile(r"\s*\.type\s+(\S+), @function")
_LABEL = re.compile(r"\.L[A-Z]*\d+")


def _renumbered(lines: list[str]) -> list[str]:
    numbers: dict[str, str] = {}
    return [_LABEL.sub(lambda m: numbers.setdefault(m[0], f".L{len(numbers)}"), line) for line in lines]


def hide(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with the field of the struct renamed."""
    renamed = dict(files)
    for path, text in files.items():
        if Path(path).name == "ggml.h":
            start = text.index(b"struct ggml_tensor {")
            place = re.compile(rb"\bvoid \* data;").search(text, start)
            assert place
            renamed[path] = text[: place.start()] + b"void * " + HIDDEN + b";" + text[place.end() :]
    return renamed


def include_only(files: Mapping[str, bytes], edits: Mapping[str, tuple[Edit, ...]]) -> dict[str, bytes]:
    """The files with those edits alone that include the accessors."""
    return {
        path: apply_edits(text, [edit for edit in edits.get(path, ()) if edit.rule == "include"])
        for path, text in files.items()
    }


def first_difference(one: str, other: str) -> str:
    """The first lines that differ, with what is before them."""
    lines, others = one.splitlines(), other.splitlines()
    at = next(
        (i for i, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b),
        min(len(lines), len(others)),
    )
    return "\n".join(
        [
            *lines[max(0, at - 3) : at],
            "-" + "\n-".join(lines[at : at + 3]),
            "+" + "\n+".join(others[at : at + 3]),
        ]
    )


def _refusal(error: AccessError, content: bytes) -> Verdict:
    lines = content.count(b"\n") + 1
    listed = error.details.get("accesses", [])
    clear = (
        bool(listed)
        and error.exit_code == 15
        and PLACE.match(error.where or "") is not None
        and all(entry["reason"] and 1 <= entry["line"] <= lines for entry in listed)
    )
    reasons = "; ".join(f"{entry['line']}:{entry['column']}: {entry['reason']}" for entry in listed[:3])
    return Verdict(REFUSED if clear else "unclear error", reasons or str(error))
