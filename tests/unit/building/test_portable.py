"""What a level of x86-64 allows, seen in what the assembler made."""

from __future__ import annotations

import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from numamirror_build.building.portable import check_files, check_wheel, first_excess
from numamirror_build.building.recipe import Asked
from numamirror_build.errors import PortabilityError

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembler is another machine's"),
]


def assemble(folder: Path, *instructions: str, name: str = "libone.so") -> Path:
    """A library with one function of these instructions."""
    text = "\n".join(
        [".globl one", ".type one, @function", "one:", *instructions, "ret", ".section .note.GNU-stack"]
    )
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-nostdlib", "-x", "assembler", "-", "-o", str(path)]
    subprocess.run(command, input=text + "\n", text=True, check=True)
    return path


@pytest.mark.parametrize(
    ("instruction", "refused"),
    [
        ("addps %xmm1, %xmm0", 0),
        ("endbr64", 0),
        ("pause", 0),
        ("tzcnt %eax, %ebx", 0),
        ("popcnt %eax, %ebx", 0),
        ("pshufb %xmm1, %xmm0", 0),
        ("vaddps %xmm1, %xmm0, %xmm0", 1),
        ("vpaddd %ymm1, %ymm0, %ymm0", 1),
        ("vfmadd231ps %ymm1, %ymm0, %ymm0", 1),
        ("vcvtph2ps %xmm0, %ymm0", 1),
        ("shlx %rax, %rbx, %rcx", 1),
        ("lzcnt %eax, %ebx", 1),
        ("vaddps %zmm1, %zmm0, %zmm0", 2),
        ("vaddps %ymm17, %ymm0, %ymm0", 2),
        ("vpaddb %zmm1, %zmm0, %zmm0", 2),
        ("vpdpbusd %zmm1, %zmm0, %zmm0", 3),
        ("{vex} vpdpbusd %ymm1, %ymm0, %ymm0", 3),
        ("aesenc %xmm1, %xmm0", 3),
        ("vdpbf16ps %zmm1, %zmm0, %zmm0", 3),
    ],
)
def test_each_level_has_what_the_psabi_says(instruction: str, refused: int, tmp_path: Path) -> None:
    """So many of the levels do not have the instruction, the lower ones."""
    path = assemble(tmp_path, instruction)
    found = []
    for level in LEVELS:
        with path.open("rb") as stream:
            found.append(first_excess(path.name, stream, level) is not None)
    assert found == [True] * refused + [False] * (len(LEVELS) - refused)


def test_the_error_names_library_function_and_instruction(tmp_path: Path) -> None:
    """The first instruction of each file that asks for more is told; scripts are not read."""
    fine = assemble(tmp_path, "nop", name="libfine.so")
    bad = assemble(
        tmp_path, "nop", "vaddps %zmm1, %zmm0, %zmm0", "vaddpd %zmm1, %zmm0, %zmm0", name="libbad.so.1"
    )
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    check_files([fine, script], "x86-64-v3")
    with pytest.raises(PortabilityError) as caught:
        check_files([fine, bad, script], "x86-64-v3")
    assert caught.value.where == "libbad.so.1"
    assert str(caught.value.why).startswith("libbad.so.1, one at 0x")
    assert str(caught.value.why).endswith(": vaddps %zmm1,%zmm0,%zmm0 needs AVX512F")


def test_what_asks_the_cpu_first_may_have_more(tmp_path: Path) -> None:
    """A listed library may have the listed features and no other ones, whatever its version is called."""
    asked = [Asked("libone", ("LZCNT",), "it asks")]
    path = assemble(tmp_path, "lzcnt %eax, %ebx", name="libone.so.1.2")
    check_files([path], "x86-64-v2", asked)
    for name, instruction in (("libother.so", "lzcnt %eax, %ebx"), ("libone.so", "shlx %rax, %rbx, %rcx")):
        with pytest.raises(PortabilityError):
            check_files([assemble(tmp_path, instruction, name=name)], "x86-64-v2", asked)


@pytest.mark.parametrize(
    ("instruction", "haswell", "shared"),
    [
        ("addps %xmm1, %xmm0", True, True),
        ("popcnt %eax, %ebx", True, False),
        ("vfmadd231ps %ymm1, %ymm0, %ymm0", True, False),
        ("{vex} vpdpbusd %ymm1, %ymm0, %ymm0", True, False),
        ("vaddps %zmm1, %zmm0, %zmm0", False, False),
    ],
)
def test_a_library_for_each_kind_of_cpu(
    instruction: str, haswell: bool, shared: bool, tmp_path: Path
) -> None:
    """Each may have what its kind has, a level's name stands for all of it; the rest what any x86-64 has."""
    asked = [Asked("libhaswell", ("x86-64-v3", "AVX_VNNI"), "loaded where the CPU has these")]
    for name, allowed in (("libhaswell.so", haswell), ("libshared.so", shared)):
        path = assemble(tmp_path, instruction, name=name)
        with path.open("rb") as stream:
            assert (first_excess(name, stream, "x86-64-all", asked) is None) is allowed


def test_a_wheel_is_read_as_it_is(tmp_path: Path) -> None:
    """Libraries are found in a wheel by their content, at any place."""
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(assemble(tmp_path, "vaddps %xmm1, %xmm0, %xmm0"), "package/odd_name")
        archive.writestr("package/__init__.py", "")
    check_wheel(wheel, "x86-64-v3")
    with pytest.raises(PortabilityError) as caught:
        check_wheel(wheel, "x86-64-v2")
    assert caught.value.where == "package/odd_name"
