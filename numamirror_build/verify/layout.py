"""Does the binding declare structures as the library was compiled? Asked before any of its calls is trusted.

A binding that was written by hand for another commit has undefined symbols at best, shifted fields at worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.errors import BuildError

Structures = Mapping[str, Mapping[str, Any]]

_HEAD = """\
#include <cstddef>
#include <cstdio>
#include "llama.h"
template <class T, class = void> struct known { static constexpr size_t size = 0; };
template <class T> struct known<T, decltype(void(sizeof(T)))> { static constexpr size_t size = sizeof(T); };
"""
_STRUCTURE = """\
struct {structure};
"""
_FIELD = """\
template <class T> auto at_{structure}_{field}(int) -> decltype(void(sizeof(T::{field}))) {{
    printf("{structure} {field} %zu %zu\\n", offsetof(T, {field}), sizeof(T::{field}));
}}
template <class T> void at_{structure}_{field}(long) {{}}
"""


def compiled_layout(
    structures: Structures, includes: Sequence[Path], folder: Path, *, compiler: str = "c++"
) -> dict[str, dict[str, Any]]:
    """Sizes and offsets of structures as a compiler sees them.

    Args:
        structures: those that the binding declares, with their fields.
        includes: folders with ``llama.h`` and ``ggml.h``.
        folder: where the small program that prints them is put.
        compiler: the C++ compiler.

    Returns:
        the same shape as ``structures``, without those, and without fields, that the headers do not have.

    Raises:
        BuildError: the program cannot be compiled.
        ToolMissingError: there is no compiler.
    """
    source, program = folder / "layout.cpp", folder / "layout"
    source.write_text(layout_program(structures))
    tool = proc.find_tool(compiler, hint="install a C++ compiler (Debian, Ubuntu: apt install g++)")
    flags = [f"-I{include}" for include in includes]
    done = proc.run([tool, "-std=c++17", "-w", *flags, source, "-o", program], log=folder / "layout.log")
    if done.returncode:
        raise BuildError(
            "The program that prints the library's structures does not compile",
            where=str(source),
            why=next((line for line in done.output.splitlines() if "error" in line), done.output[-500:]),
        )
    compiled: dict[str, dict[str, Any]] = {}
    for line in proc.run([program]).output.splitlines():
        structure, field, *numbers = line.split()
        if field == "-":
            compiled[structure] = {"size": int(numbers[0]), "fields": {}}
        else:
            compiled[structure]["fields"][field] = [int(number) for number in numbers]
    return compiled


def layout_program(structures: Structures) -> str:
    """A C++ program that prints ``structure - size`` and ``structure field offset size`` lines."""
    parts, calls = [_HEAD], []
    for structure, declared in sorted(structures.items()):
        parts.append(_STRUCTURE.format(structure=structure))
        calls.append(
            f'if (known<{structure}>::size) printf("{structure} - %zu\\n", known<{structure}>::size);'
        )
        for field in declared["fields"]:
            parts.append(_FIELD.format(structure=structure, field=field))
            calls.append(f"at_{structure}_{field}<{structure}>(0);")
    return "".join(parts) + "int main() {\n    " + "\n    ".join(calls) + "\n}\n"


def layout_differences(binding: Structures, compiled: Structures) -> Iterator[str]:
    """What the binding says otherwise than the compiler, a sentence each; of structures that both know."""
    for name, declared in sorted(binding.items()):
        if name not in compiled:
            continue
        real = compiled[name]
        if declared["size"] != real["size"]:
            yield f"{name} has {real['size']} bytes, the binding says {declared['size']}"
        for field, place in declared["fields"].items():
            if field not in real["fields"]:
                yield f"{name} has no field {field}, the binding has one"
            elif list(place) != list(real["fields"][field]):
                offset, size = real["fields"][field]
                yield f"{name}.{field} is {size} bytes at {offset}, the binding says {place[1]} at {place[0]}"
