"""Translation units of a build, and the mirrored build."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.building.build import BuildOptions, make_build
from numamirror_build.building.units import configured_units, included, mirror_build
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.unit.building import made_up


@pytest.mark.build
def test_mirrored_build(tmp_path: Path, cache: Store) -> None:
    """Every unit is there, with its flags, and refers to the copy alone; the build stays as it is."""
    build = make_build(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    units = mirror_build(build, tmp_path / "copy")
    assert sorted(unit.file.name for unit in units) == ["lib.c", "main.c", "main.c", "more.cpp"]
    for unit in units:
        assert unit.file.is_relative_to(tmp_path / "copy")
        assert not any(str(build.path) in word for word in unit.command)
        assert "-c" not in unit.command and "-o" not in unit.command
    (lib,) = (unit for unit in units if unit.file.name == "lib.c")
    assert "-DTINY_MIRROR" in lib.command
    lib.file.write_text("broken")
    assert lib.check_syntax([], tmp_path / "d").returncode != 0
    assert "broken" not in (build.path / "source/vendor/tiny/lib.c").read_text()


GENERATING = """
add_executable(maker maker.c)
foreach (name made.h made.c)
    add_custom_command(OUTPUT ${name} COMMAND maker > ${name})
endforeach()
set(here ${CMAKE_CURRENT_SOURCE_DIR}/here.c)
add_custom_command(OUTPUT ${here} COMMAND maker > ${here})
add_custom_command(OUTPUT never.c COMMAND false)
target_sources(tiny PRIVATE ${CMAKE_BINARY_DIR}/made.c made.h here.c)
target_include_directories(tiny PRIVATE ${CMAKE_BINARY_DIR})
add_executable(unwanted never.c)
"""


@pytest.mark.build
def test_units_without_a_build(tmp_path: Path) -> None:
    """The sources that wanted targets generate are there, wherever they are; nothing of ours is compiled."""
    changed = {
        "CMakeLists.txt": made_up.TREE["CMakeLists.txt"] + GENERATING,
        "maker.c": '#include <stdio.h>\nint main(void) { return puts("int made(void);") < 0; }\n',
        "lib.c": made_up.TREE["lib.c"] + '#include "made.h"\n',
    }
    tree = made_up.patched(tmp_path / "tree", changed=changed)
    units = configured_units(tree, BuildOptions(), tmp_path, tmp_path / "log", Quiet())
    by_name = {unit.file.name: unit for unit in units}
    for name in ("made.c", "here.c", "lib.c"):
        assert by_name[name].check_syntax([], tmp_path / "d").returncode == 0
    assert "-DTINY_MIRROR" in by_name["lib.c"].command
    assert not by_name["never.c"].file.exists()
    assert [path.stem for path in (tmp_path / "build").rglob("*.o")] == ["maker.c"]


@pytest.mark.build
def test_syntax_check_makes_nothing_but_the_list(tmp_path: Path, cache: Store) -> None:
    """Checking a unit says which files it includes, and leaves no object."""
    build = make_build(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    units = mirror_build(build, tmp_path / "copy")
    (lib,) = (unit for unit in units if unit.file.name == "lib.c")
    assert lib.check_syntax([], tmp_path / "lib.d").returncode == 0
    source = tmp_path / "copy/source/vendor/tiny"
    assert {source / "lib.c", source / "accessor.h", source / "tensor.h"} <= included(tmp_path / "lib.d")
    assert not list((tmp_path / "copy").rglob("*.o"))


def test_list_of_included_files(tmp_path: Path) -> None:
    """Continued lines, escaped spaces and dots in paths are understood."""
    (tmp_path / "x.d").write_text("x.o: /a/x.c \\\n /a/b/../y.h \\\n  /a/with\\ space.h\n")
    assert included(tmp_path / "x.d") == {Path("/a/x.c"), Path("/a/y.h"), Path("/a/with space.h")}
