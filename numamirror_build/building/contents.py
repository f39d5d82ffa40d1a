"""What a wheel must be, read from it: name, files, record, licences, and how its libraries link."""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from numamirror_build.errors import WheelError

_ELF = b"\x7fELF"
_OURS = b"ggml_numa_mirror"  # so begins what libraries get from each other of ours
_SYMBOL = "IBBHQQ"  # of 64-bit systems; pyelftools takes seconds for what struct reads at once
_NOWHERE = 0  # the section of a symbol that another library has
# tags of the dynamic section, and where pyelftools has their text
_TAGS = {"DT_SONAME": "soname", "DT_NEEDED": "needed", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}
# what every system with this C library has, and the OpenMP libraries of the compilers
_SYSTEM = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "ld-linux")
_COMPILERS = ("libstdc++.so.", "libgcc_s.so.", "libc++.so.", "libc++abi.so.", "libunwind.so.")
_OPENMP = ("libgomp.so.", "libomp.so", "libiomp5.so")


@dataclass(frozen=True)
class Expected:
    """What a wheel should be.

    Attributes:
        package: the distribution's name.
        version: its version.
        files: names of files that it must have.
        record: the name of the file with the build record, and what it says among other things.
        licences: how the names of its licence files end.
        exports: names of symbols by the library that exports them.
        portable: whether it is for other systems.
        linked: whether what its libraries link with, and where they look for it, is known beforehand:
            not with CMake arguments of the user's.
    """

    package: str
    version: str
    files: tuple[str, ...]
    record: tuple[str, Mapping[str, Any]]
    licences: tuple[str, ...]
    exports: Mapping[str, tuple[str, ...]]
    portable: bool = False
    linked: bool = True


@dataclass(frozen=True)
class Library:
    """A program or library as the dynamic linker sees it.

    Attributes:
        path: in the wheel.
        names: under which others find it: its file's, and the one that it says of itself.
        needs: names of the libraries that it asks for.
        places: folders that it looks for them in, as it says.
        exports: names of ours that it offers.
        imports: names of ours that it asks for.
    """

    path: str
    names: frozenset[str]
    needs: tuple[str, ...]
    places: tuple[str, ...]
    exports: frozenset[str]
    imports: frozenset[str]


def check_contents(wheel: Path, expected: Expected, *, hint: str | None = None) -> None:
    """See that a wheel is what it should be.

    Args:
        wheel: the file.
        expected: what it should be.
        hint: what to do if it is not.

    Raises:
        WheelError: it is not; the error lists everything that is wrong.
    """
    try:
        name, version, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise WheelError("The wheel has no valid name", where=wheel.name, why=str(error)) from error
    wrong: list[str] = []
    if (name, str(version)) != (expected.package, expected.version):
        wrong.append(f"it is {name} {version}, not {expected.package} {expected.version}")
    if expected.portable and not any("manylinux" in tag.platform for tag in tags):
        wrong.append("its name is that of a wheel for this system alone")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wrong += [f"it lacks {file}" for file in _lacking(names, expected)]
        record, facts = expected.record
        said = json.loads(archive.read(record)) if record in names else facts
        wrong += [f"{record} has another {name}" for name in facts if said.get(name) != facts[name]]
        libraries = list(_libraries(archive))
    wrong += _unresolved(libraries)
    for path, symbols in expected.exports.items():
        library = next((library for library in libraries if library.path == path), None)
        if library and (hidden := sorted(set(symbols) - library.exports)):
            wrong.append(f"{path} does not export {', '.join(hidden)}")
    if expected.linked:
        allowed = (*_SYSTEM, *_COMPILERS, *(() if expected.portable else _OPENMP))
        wrong += _foreign(libraries, allowed)
        wrong += [line for library in libraries for line in _misplaced(library)]
    if wrong:
        raise WheelError(
            "The wheel is not what it should be", where=wheel.name, why="\n".join(wrong), hint=hint
        )


def _lacking(names: Iterable[str], expected: Expected) -> Iterator[str]:
    listed = set(names)
    for file in (expected.record[0], *expected.files, *expected.exports):
        if file not in listed:
            yield file
    licences = [name for name in listed if ".dist-info/licenses/" in name]
    for ending in expected.licences:
        if not any(name.endswith(f"/{ending}") for name in licences):
            yield f"the licence {ending}"


def _libraries(archive: zipfile.ZipFile) -> Iterator[Library]:
    """Those of an archive. It may have the same one at several places, where links were."""
    known: dict[bytes, Library] = {}
    for name in archive.namelist():
        content = archive.read(name)
        if content.startswith(_ELF):
            key = hashlib.sha256(content).digest()
            if key not in known:
                known[key] = _library(ELFFile(io.BytesIO(content)))
            yield replace(known[key], path=name, names=known[key].names | {posixpath.basename(name)})


def _library(elf: ELFFile) -> Library:
    said: dict[str, list[str]] = {name: [] for name in _TAGS.values()}
    symbols: dict[bool, set[str]] = {True: set(), False: set()}
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if name := _TAGS.get(tag.entry.d_tag):
                    said[name].append(getattr(tag, name))
        elif section["sh_type"] == "SHT_DYNSYM":
            names = elf.get_section(section["sh_link"]).data()
            layout = f"{'<' if elf.little_endian else '>'}{_SYMBOL}"
            for start, _, _, place, _, _ in struct.iter_unpack(layout, section.data()):
                if names.startswith(_OURS, start):
                    symbols[place != _NOWHERE].add(names[start : names.index(b"\0", start)].decode())
    return Library(
        path="",
        names=frozenset(said["soname"]),
        needs=tuple(said["needed"]),
        places=tuple(place for text in (*said["rpath"], *said["runpath"]) for place in text.split(":")),
        exports=frozenset(symbols[True]),
        imports=frozenset(symbols[False]),
    )


def _unresolved(libraries: Iterable[Library]) -> Iterator[str]:
    libraries = tuple(libraries)
    offered = frozenset(name for library in libraries for name in library.exports)
    for library in libraries:
        if gone := sorted(library.imports - offered):
            yield f"{library.path} asks for {', '.join(gone)}, which nothing in the wheel exports"


def _foreign(libraries: Iterable[Library], allowed: tuple[str, ...]) -> Iterator[str]:
    libraries = tuple(libraries)
    own = frozenset(name for library in libraries for name in library.names)
    for library in libraries:
        for need in library.needs:
            if need not in own and not need.startswith(allowed):
                yield f"{library.path} needs {need}, which neither the wheel nor every system has"


def _misplaced(library: Library) -> Iterator[str]:
    """Places outside of the wheel, where anybody could put a library."""
    for place in library.places:
        origin, _, below = place.partition("/")
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(library.path), below))
        if origin != "$ORIGIN" or inside.split("/")[0] == "..":
            yield f"{library.path} looks for libraries in {place or 'the current folder'}"
