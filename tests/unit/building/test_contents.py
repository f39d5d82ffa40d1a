"""What a wheel must be: each thing that may be wrong is found, and all of them at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.building.contents import Expected, check_contents
from numamirror_build.errors import WheelError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

NAME = "tiny_python-1.5-py3-none-linux_x86_64.whl"
ARENA = "void * ggml_numa_mirror_arena; void ggml_numa_mirror_status(void) {}"
USER = "void ggml_numa_mirror_status(void); void use(void) { ggml_numa_mirror_status(); }"
BASE, LLAMA = "tiny/lib/libbase.so", "tiny/lib/libllama.so.1"
EXPECTED = Expected(
    package="tiny-python",
    version="1.5",
    files=(LLAMA,),
    record=("tiny/numamirror.json", {"commit": "c", "settings": {"A": "1"}}),
    licences=("tiny/LICENSE", "numamirror-build/NOTICE"),
    exports={BASE: ("ggml_numa_mirror_arena", "ggml_numa_mirror_status")},
)


class Compiler:
    """Makes libraries in a folder, where others are found by the linker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, text: str, *options: str) -> bytes:
        """The bytes of a library of that name."""
        path = self.folder / name
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-L", str(self.folder), "-o", str(path)]
        subprocess.run([*command, *options], input=text + "\n", text=True, check=True)
        return path.read_bytes()


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    """A compiler with a folder of its own."""
    (tmp_path / "made").mkdir()
    return Compiler(tmp_path / "made")


@pytest.fixture
def content(compiler: Compiler) -> dict[str, bytes]:
    """The files of a wheel that is as it should be."""
    return {
        BASE: compiler("libbase.so", ARENA, "-Wl,-rpath,$ORIGIN"),
        LLAMA: compiler("libllama.so.1", USER, "-lbase", "-lm", "-Wl,-rpath,$ORIGIN:$ORIGIN/../../tiny.libs"),
        "tiny/__init__.py": b"",
        "tiny/numamirror.json": json.dumps({"commit": "c", "settings": {"A": "1"}, "tools": 1}).encode(),
        "tiny-1.5.dist-info/licenses/licences/tiny/LICENSE": b"",
        "tiny-1.5.dist-info/licenses/licences/numamirror-build/NOTICE": b"",
    }


def wrong(folder: Path, content: Mapping[str, bytes], expected: Expected = EXPECTED, name: str = NAME) -> str:
    """What is wrong with a wheel; the empty string if nothing is."""
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    try:
        check_contents(folder / name, expected)
    except WheelError as error:
        return str(error.why)
    return ""


def test_nothing_is_wrong(tmp_path: Path, content: dict[str, bytes]) -> None:
    """Libraries find each other by the name of the file or their own; the record may say more."""
    assert wrong(tmp_path, content) == ""
    assert wrong(tmp_path, {**content, "lib/copy.so": content[BASE]}) == ""


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (LLAMA, f"it lacks {LLAMA}"),
        ("tiny/numamirror.json", "it lacks tiny/numamirror.json"),
        ("tiny-1.5.dist-info/licenses/licences/tiny/LICENSE", "it lacks the licence tiny/LICENSE"),
    ],
)
def test_a_file_that_is_not_there(tmp_path: Path, content: dict[str, bytes], path: str, what: str) -> None:
    """It is named."""
    del content[path]
    assert wrong(tmp_path, content) == what


def test_everything_is_told_at_once(tmp_path: Path, content: dict[str, bytes]) -> None:
    """Without the library that exports our symbols, who asks for them is told, too."""
    del content[BASE]
    assert wrong(tmp_path, content).splitlines() == [
        f"it lacks {BASE}",
        f"{LLAMA} asks for ggml_numa_mirror_status, which nothing in the wheel exports",
        f"{LLAMA} needs libbase.so, which neither the wheel nor every system has",
    ]


def test_a_library_that_exports_less(tmp_path: Path, content: dict[str, bytes], compiler: Compiler) -> None:
    """A hidden symbol is no exported one."""
    text = ARENA.replace("void *", '__attribute__((visibility("hidden"))) void *', 1)
    content[BASE] = compiler("libbase.so", text)
    assert wrong(tmp_path, content) == f"{BASE} does not export ggml_numa_mirror_arena"


def test_a_record_of_something_else(tmp_path: Path, content: dict[str, bytes]) -> None:
    """The record must say what went in."""
    content["tiny/numamirror.json"] = b'{"commit": "d", "settings": {"A": "1"}}'
    assert wrong(tmp_path, content) == "tiny/numamirror.json has another commit"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("/usr/local/lib", "/usr/local/lib"),
        ("$ORIGIN:", "the current folder"),
        ("lib", "lib"),
        ("$ORIGIN/../../..", "$ORIGIN/../../.."),
        ("$ORIGIN/../..", None),
        ("$ORIGINAL", "$ORIGINAL"),
    ],
)
def test_where_libraries_are_looked_for(
    tmp_path: Path, content: dict[str, bytes], compiler: Compiler, place: str, told: str | None
) -> None:
    """Only in folders of the wheel; with arguments of the user's it is theirs to know."""
    content[BASE] = compiler("libbase.so", ARENA, f"-Wl,-rpath,{place}")
    assert wrong(tmp_path, content) == (f"{BASE} looks for libraries in {told}" if told else "")
    assert wrong(tmp_path, content, replace(EXPECTED, linked=False)) == ""


def test_openmp_belongs_into_a_portable_wheel(
    tmp_path: Path, content: dict[str, bytes], compiler: Compiler
) -> None:
    """A wheel for this machine may use the system's OpenMP library; one for others must bring its own."""
    openmp = compiler("libgomp.so.1", "void start(void) {}", "-Wl,-soname,libgomp.so.1")
    content[BASE] = compiler(
        "libbase.so", ARENA, "-Wl,--no-as-needed", "-l:libgomp.so.1", "-Wl,-rpath,$ORIGIN"
    )
    assert wrong(tmp_path, content) == ""
    portable, name = replace(EXPECTED, portable=True), NAME.replace("linux", "manylinux_2_35")
    lacks = f"{BASE} needs libgomp.so.1, which neither the wheel nor every system has"
    assert wrong(tmp_path, content, portable, name) == lacks
    assert wrong(tmp_path, {**content, "tiny.libs/libgomp-1.so": openmp}, portable, name) == ""
    del content[BASE], content[LLAMA]
    bare = replace(portable, files=(), exports={})
    assert wrong(tmp_path, content, bare) == "its name is that of a wheel for this system alone"


@pytest.mark.parametrize("name", ["other-1.5-py3-none-any.whl", "tiny_python-1.6-py3-none-any.whl"])
def test_another_name(tmp_path: Path, content: dict[str, bytes], name: str) -> None:
    """The wheel's name says which package and version it is."""
    assert wrong(tmp_path, content, name=name).endswith("not tiny-python 1.5")


def test_a_name_that_says_nothing(tmp_path: Path) -> None:
    """A file that pip would not take is an error of its own."""
    with pytest.raises(WheelError, match="no valid name"):
        check_contents(tmp_path / "tiny.whl", EXPECTED)
