"""Reading what CMake, Ninja and compilers print."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.building.cmake import check, first_error, initial_cache, report_step
from numamirror_build.errors import BuildError
from numamirror_build.proc import Completed
from tests.unit.building.conftest import Heard

COMPILE = """\
[1/9] Building C object a.c.o
/cache/k/source/vendor/x.cpp/src/a.c:3:1: warning: unused variable
[2/9] Building C object b.c.o
FAILED: b.c.o
In file included from ../source/vendor/x.cpp/src/b.c:1:
../source/vendor/x.cpp/src/b.h: In function 'f':
../source/vendor/x.cpp/src/b.h:12:7: error: 'g' undeclared (first use in this function)
../source/vendor/x.cpp/src/b.h:12:7: note: each undeclared identifier is reported only once
../source/vendor/x.cpp/src/c.h:1:1: error: second
ninja: build stopped: subcommand failed.
"""
CONFIGURE = """\
-- The C compiler identification is GNU 12.2.0
CMake Warning at common/CMakeLists.txt:33 (message):
  Git repository not found

CMake Error at ggml/CMakeLists.txt:10 (message):
  Two lines of
  text.

-- Configuring incomplete, errors occurred!
"""


@pytest.mark.parametrize(
    ("output", "where", "why"),
    [
        (COMPILE, "src/b.h:12:7", "'g' undeclared (first use in this function)"),
        ("/t/x.cpp/a.c:1:10: fatal error: no.h: No such file or directory\n", "a.c:1:10", "no.h: No such"),
        ("\x1b[01m\x1b[K/t/x.cpp/a.c:1:2:\x1b[m\x1b[K \x1b[01;31merror: \x1b[m\x1b[Kodd\n", "a.c:1:2", "odd"),
        ("/usr/include/stdio.h:9:1: error: odd\n", "/usr/include/stdio.h:9:1", "odd"),
        (CONFIGURE, "ggml/CMakeLists.txt:10", "Two lines of text."),
        ("CMake Error: The source directory does not exist\n", None, "The source directory does not exist"),
        (
            "/usr/bin/ld: m.o: in function `main':\nm.c:(.text+0x5): undefined reference to `f'\n"
            "collect2: error: ld returned 1 exit status\n",
            None,
            "undefined reference to `f'",
        ),
        (
            "/usr/bin/ld: warning: x\n/usr/bin/ld: a.a(b.o): TLS transition failed\n"
            "/usr/bin/ld: final link failed: bad value\ncollect2: error: ld returned 1 exit status\n",
            None,
            "a.a(b.o): TLS transition failed",
        ),
        ("/usr/bin/ld: error: unable to find library -lx\n", None, "unable to find library -lx"),
        (
            "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
            None,
            "Killed signal terminated program cc1plus",
        ),
        ("ninja: error: unknown target 'x'\n", None, "unknown target 'x'"),
        ("[1/1] fine: no errors: 0\n", None, None),
    ],
)
def test_first_error(output: str, where: str | None, why: str | None) -> None:
    """The first error that is a cause is found, in the tree's own terms; warnings and notes are not."""
    found = first_error(output, "vendor/x.cpp" if "vendor" in output else "x.cpp")
    assert found[0] == where
    assert found[1] == why or (why and found[1] and found[1].startswith(why))


def test_successful_tool_is_no_error() -> None:
    """Only the exit status decides, whatever the output says."""
    check(Completed(("ninja",), 0, COMPILE), "The build failed", tree="vendor/x.cpp", log=Path("log"))


def test_failed_tool_without_a_word() -> None:
    """A tool that fails silently is an error that tells its status and where the log is."""
    with pytest.raises(BuildError) as caught:
        check(Completed(("ninja",), 3, ""), "The build failed", tree="t", log=Path("the.log"))
    assert "status 3" in str(caught.value)
    assert "the.log" in str(caught.value)


def test_progress_of_a_step(heard: Heard) -> None:
    """Ninja's step lines are shortened to number and file; other lines are nothing."""
    for line in ("[3/12] Building CXX object src/CMakeFiles/x.dir/a/b.cpp.o", "x.c: warning: [1/2]", ""):
        report_step(line, heard)
    assert heard.updates == ["3/12 b.cpp"]


def test_initial_cache_is_sorted_and_quoted() -> None:
    """The script sets variables in a fixed order, and values need no escaping."""
    text = initial_cache({"B": 'a "quoted" $value;', "A": "ON"})
    assert text.splitlines()[1:] == [
        'set(A [==[ON]==] CACHE STRING "")',
        'set(B [==[a "quoted" $value;]==] CACHE STRING "")',
    ]
