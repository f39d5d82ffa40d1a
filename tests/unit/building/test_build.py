"""Builds: what is made, what decides that it is made anew, how it goes on and how it fails."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numamirror_build.building.build import Build, BuildOptions, build_key, make_build
from numamirror_build.building.install import install_programs
from numamirror_build.errors import BuildError, DiskFullError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.unit.building import made_up
from tests.unit.building.conftest import Heard

pytestmark = pytest.mark.build

CLI = BuildOptions(programs=("tiny-cli",))


def says(program: Path) -> list[str]:
    """Commit, file name and whether the mirror is on, as a program says them."""
    return subprocess.run([program], capture_output=True, text=True, check=True, env={}).stdout.split()


def test_programs_run_from_the_build(tmp_path: Path, cache: Store, heard: Heard) -> None:
    """A build has the upstream's programs that the tree has, and says which it has not."""
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), BuildOptions(jobs=2), progress=heard)
    assert set(build.programs) == {"tiny-cli", "tiny-extra"}
    assert build.missing == ("tiny-absent",)
    assert says(build.programs["tiny-cli"]) == ["c0ffee000", "lib.c", "0"]
    assert build.libraries == build.programs["tiny-cli"].parent, "where the recipe wants them"
    assert (build.libraries / "libtiny.so").exists()
    assert build.settings["CMAKE_LIBRARY_OUTPUT_DIRECTORY"] == "{build}/bin", "no folder of this machine"
    assert "lib.c" in build.compile_commands.read_text()
    assert build.log.read_text().count("Building C object") == 3
    assert heard.steps == ["Building tiny 1.0, pristine"]
    assert any(re.fullmatch(r"\d/\d lib\.c", text) for text in heard.updates)


def test_settings_may_bring_programs(tmp_path: Path, cache: Store) -> None:
    """A program that only some settings bring is built with them, and is not missing without."""
    options = BuildOptions(cmake_args=("-DTINY_OPTIONAL=tiny-optional",))
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), options, progress=Quiet())
    assert set(build.programs) == {"tiny-cli", "tiny-extra", "tiny-optional"}
    assert build.missing == ("tiny-absent",)


def test_second_time_comes_from_the_cache(tmp_path: Path, cache: Store) -> None:
    """The same inputs give the same build, without any tool run but those that say their version."""
    tree = made_up.pristine(tmp_path / "tree")
    first = make_build(cache, tree, CLI, progress=Quiet())
    log = first.log.read_text()
    second = make_build(cache, tree, BuildOptions(jobs=7, programs=("tiny-cli",)), progress=Quiet())
    assert (first.fresh, second.fresh) == (True, False)
    assert (second.key, second.programs, second.seconds) == (first.key, first.programs, first.seconds)
    assert second.log.read_text() == log


@pytest.mark.parametrize("what", ["tree", "plan", "arguments", "programs", "type", "flags", "compiler"])
def test_other_inputs_give_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Each input is part of the key."""
    pristine, patched = made_up.pristine(tmp_path / "a", "k1"), made_up.patched(tmp_path / "b", "d1")
    before = {build_key(pristine, CLI), build_key(patched, CLI)}
    options = CLI
    if what == "tree":
        pristine = made_up.pristine(tmp_path / "a", "k2")
    elif what == "plan":
        patched = made_up.patched(tmp_path / "b", "d2")
    elif what == "arguments":
        options = BuildOptions(programs=CLI.programs, cmake_args=("-DX=Y",))
    elif what == "programs":
        options = BuildOptions(programs=())
    elif what == "type":
        options = BuildOptions(programs=CLI.programs, build_type="Debug")
    elif what == "flags":
        monkeypatch.setenv("CFLAGS", "-DX")
    elif what == "compiler":
        monkeypatch.setenv("CC", "cc -DX")
    after = {build_key(pristine, options), build_key(patched, options)}
    assert len(before) == 2
    assert len(after - before) == (1 if what in ("tree", "plan") else 2)


def test_patched_build_has_the_switch_on(tmp_path: Path, cache: Store) -> None:
    """Only a patched tree is built with the mirror code, and an argument of the user's turns that off."""
    tree = made_up.patched(tmp_path / "tree")
    on = make_build(cache, tree, CLI, progress=Quiet())
    off = BuildOptions(programs=CLI.programs, cmake_args=("-DTINY_MIRROR=OFF",))
    without = make_build(cache, tree, off, progress=Quiet())
    assert says(on.programs["tiny-cli"])[2] == "1"
    assert says(without.programs["tiny-cli"])[2] == "0"
    assert (on.settings["TINY_MIRROR"], without.settings["TINY_MIRROR"]) == ("ON", "OFF")


ASKS = """\
execute_process(
    COMMAND git rev-parse --short HEAD OUTPUT_VARIABLE TINY_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE)
configure_file("""


@pytest.mark.parametrize("asks", [False, True])
def test_commit_by_git(tmp_path: Path, cache: Store, tiny_data: Path, asks: bool) -> None:
    """A build that asks git gets the pin's commit where it may, and otherwise nothing;
    never that of a repository around the cache."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--allow-empty", "-m", "x"],
        cwd=tmp_path,
        check=True,
    )
    made_up.data_root(tiny_data, made_up.FACTS.replace("[build]", f"[build]\nasks_git = {str(asks).lower()}"))
    text = made_up.TREE["CMakeLists.txt"].replace("configure_file(", ASKS)
    tree = made_up.pristine(tmp_path / "tree", changed={"CMakeLists.txt": text})
    build = make_build(cache, tree, CLI, progress=Quiet())
    said = subprocess.run([build.programs["tiny-cli"]], capture_output=True, text=True, check=True).stdout
    assert said.split(" ")[0] == ("c0ffee0" if asks else "")


def test_what_a_source_lacks_is_supplied(tmp_path: Path, cache: Store, tiny_data: Path) -> None:
    """Either tree is built with the files that it lacks; it does not get them, and they count for the key."""
    text = made_up.TREE["CMakeLists.txt"] + "include(tools/info.cmake)\n"
    pristine = made_up.pristine(tmp_path / "tree", changed={"CMakeLists.txt": text})
    patched = made_up.patched(tmp_path / "patched", changed={"CMakeLists.txt": text})
    keys = set()
    for content in ("set(A 1)\n", "set(A 2)\n"):
        made_up.write(tiny_data / "patches/tiny/supplied", {"tools/info.cmake": content})
        keys |= {make_build(cache, tree, CLI, progress=Quiet()).key for tree in (pristine, patched)}
    assert len(keys) == 4
    assert not (pristine.path / "tools").exists()


def test_libraries_alone(tmp_path: Path, cache: Store) -> None:
    """Without programs the libraries are built, static ones when the user says so."""
    options = BuildOptions(programs=(), cmake_args=("-DBUILD_SHARED_LIBS=OFF",))
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), options, progress=Quiet())
    assert build.programs == {}
    assert build.files == ()
    assert (build.libraries / "libtiny.a").is_file()


def test_tree_is_left_as_it_is(tmp_path: Path, cache: Store) -> None:
    """A tree that writes into its own folder when it is built does so in a copy."""
    tree = made_up.pristine(tmp_path / "tree")
    before = sorted(tree.path.rglob("*"))
    make_build(cache, tree, CLI, progress=Quiet())
    assert sorted(tree.path.rglob("*")) == before


def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of what is made depends on the folders of tree and cache: spaces, links, ccache or not."""
    made: list[list[bytes]] = []
    (tmp_path / "real folder").mkdir()
    (tmp_path / "b").symlink_to("real folder")
    for name, arguments in (("a", ()), ("b", ()), ("c", ("-UCMAKE_C_COMPILER_LAUNCHER",))):
        tree = made_up.pristine(tmp_path / name / "tree")
        options = BuildOptions(programs=CLI.programs, cmake_args=arguments)
        build = make_build(Store(tmp_path / name / "cache"), tree, options, progress=Quiet())
        made.append([path.read_bytes() for path in build.files])
    assert made[0] == made[1] == made[2]
    assert not any(str(tmp_path).encode() in content for content in made[0])


@pytest.mark.skipif(not shutil.which("ccache"), reason="ccache is not installed")
def test_ccache_shares_objects(tmp_path: Path) -> None:
    """A patched tree in another folder takes every object from ccache that its change leaves as it was."""
    make_build(Store(tmp_path / "1"), made_up.pristine(tmp_path / "a"), CLI, progress=Quiet())
    subprocess.run(["ccache", "--zero-stats"], check=True, capture_output=True)
    make_build(Store(tmp_path / "2"), made_up.patched(tmp_path / "b"), CLI, progress=Quiet())
    shown = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True, check=True).stdout
    counts = {name: int(count) for name, count in (line.split() for line in shown.splitlines())}
    assert counts["preprocessed_cache_hit"] + counts["direct_cache_hit"] == 2, "more.cpp and main.c"
    assert counts["cache_miss"] == 1, "lib.c, whose text the switch changes"


def test_programs_run_wherever_they_are_moved(tmp_path: Path, cache: Store) -> None:
    """Installed programs look for their libraries in their own folder alone; all licences lie beside."""
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), CLI, progress=Quiet())
    files = install_programs(build, tmp_path / "here")
    shutil.rmtree(build.path)
    shutil.move(tmp_path / "here", tmp_path / "there")
    command = ["readelf", "--dynamic", str(tmp_path / "there/bin/tiny-cli")]
    dynamic = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic) == ["$ORIGIN"]
    assert says(tmp_path / "there/bin/tiny-cli")[0] == "c0ffee000"
    assert [path.relative_to(tmp_path / "here").as_posix() for path in files] == [
        "bin/libtiny.so",
        "bin/libtiny.so.1",
        "bin/libtiny.so.1.2.3",
        "bin/tiny-cli",
        "licences/numamirror-build/LICENSE",
        "licences/numamirror-build/NOTICE",
        "licences/tiny/LICENSE",
        "licences/tiny/vendor/json/LICENSE-MIT",
    ]


def test_installing_again_replaces(tmp_path: Path, cache: Store) -> None:
    """A second installation to the same folder gives the same files, links included."""
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), CLI, progress=Quiet())
    assert install_programs(build, tmp_path / "out") == install_programs(build, tmp_path / "out")
    assert (tmp_path / "out/bin/libtiny.so").readlink() == Path("libtiny.so.1")


def test_compile_error_is_shown(tmp_path: Path, cache: Store) -> None:
    """The error names the file in the tree, line and column, the compiler's message and the log."""
    tree = made_up.pristine(
        tmp_path / "tree", changed={"lib.c": "#warning first\nint f(void) {\n    return g;\n}\n"}
    )
    with pytest.raises(BuildError) as caught:
        make_build(cache, tree, CLI, progress=Quiet())
    assert caught.value.exit_code == 21
    assert caught.value.where == "lib.c:3:12"
    assert "undeclared" in str(caught.value.why)
    log = Path(caught.value.details["log"])
    assert "undeclared" in log.read_text()
    assert str(log) in str(caught.value.hint)


def test_failed_build_is_not_finished(tmp_path: Path, cache: Store) -> None:
    """The same command fails again after a failure; it does not find a build."""
    tree = made_up.pristine(tmp_path / "tree", changed={"lib.c": "x"})
    for _ in range(2):
        with pytest.raises(BuildError):
            make_build(cache, tree, CLI, progress=Quiet())


def test_configure_error_is_shown(tmp_path: Path, cache: Store) -> None:
    """CMake's own errors are shown with the place in the CMake file."""
    text = made_up.TREE["CMakeLists.txt"] + 'message(FATAL_ERROR "no such luck")\n'
    tree = made_up.pristine(tmp_path / "tree", changed={"CMakeLists.txt": text})
    with pytest.raises(BuildError) as caught:
        make_build(cache, tree, CLI, progress=Quiet())
    assert caught.value.where == f"CMakeLists.txt:{text.count(chr(10))}"
    assert caught.value.why == "no such luck"


def test_no_such_program(tmp_path: Path, cache: Store) -> None:
    """Asking only for programs that the tree does not have is an error."""
    with pytest.raises(BuildError, match="none of the programs"):
        make_build(
            cache, made_up.pristine(tmp_path / "tree"), BuildOptions(programs=("other",)), progress=Quiet()
        )


def compiler(folder: Path, script: str) -> str:
    """A C compiler that runs a script first; ``$*`` are its arguments."""
    folder.mkdir()
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\n{script}\nexec {shutil.which("cc")} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_full_disk(tmp_path: Path, cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that cannot write because the disk is full gives the error of that, not a compile error."""
    script = 'case "$*" in *more.cpp*|*lib.c*) cat /dev/zero > /dev/full || exit 1;; esac'
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", script))
    with pytest.raises(DiskFullError) as caught:
        make_build(cache, made_up.pristine(tmp_path / "tree"), CLI, progress=Quiet())
    assert caught.value.exit_code == 23


SLOW = """
case "$*" in *" -c "*main.c*)
    echo $$ > "{0}/started"
    while [ -e "{0}/wait" ]; do sleep 0.05; done;;
esac
case "$*" in *" -c "*) echo "$*" | grep -o '[a-z]*\\.c$' >> "{0}/compiled";; esac
"""
RUN = """
import sys
from pathlib import Path
from numamirror_build import data
from numamirror_build.building.build import BuildOptions, make_build
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.unit.building import made_up
data._root = lambda: Path(sys.argv[1])
tree = made_up.pristine(Path(sys.argv[2]))
make_build(Store(Path(sys.argv[3])), tree, BuildOptions(programs=("tiny-cli",)), progress=Quiet())
"""


def is_gone(process: Path) -> bool:
    """Whether a process ends within two seconds."""
    deadline = time.monotonic() + 2
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not process.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_build_goes_on(
    tmp_path: Path, tiny_data: Path, cache: Store, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    """After a kill or Ctrl-C in the middle, the next run compiles only what is not compiled yet.

    It waits for the compilers that a killed run leaves behind.
    """
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", SLOW.format(tmp_path)))
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    (tmp_path / "wait").touch()
    command = [sys.executable, "-c", RUN, str(tiny_data), str(tmp_path / "tree"), str(cache.root)]
    running = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    started = tmp_path / "started"
    while not started.exists():
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(how)
    assert running.wait(10) != 0
    leftover = Path(f"/proc/{started.read_text().strip()}")
    if how == signal.SIGINT:
        assert is_gone(leftover), "Ctrl-C ends the compilers too"
    (tmp_path / "wait").unlink()
    build = make_build(cache, made_up.pristine(tmp_path / "tree"), CLI, progress=Quiet())
    assert is_gone(leftover)
    assert says(build.programs["tiny-cli"])[0] == "c0ffee000"
    assert (tmp_path / "compiled").read_text().split().count("lib.c") == 1


def test_interrupted_configure_begins_anew(tmp_path: Path, cache: Store) -> None:
    """What an interrupted CMake left is thrown away."""
    tree = made_up.pristine(tmp_path / "tree")
    key = make_build(cache, tree, CLI, progress=Quiet()).key
    folder = cache.folder("builds", key)
    folder.with_name(f"{key}.json").unlink()
    (folder / "build/build.ninja").unlink()
    (folder / "build/CMakeCache.txt").write_text("half a line")
    build = make_build(cache, tree, CLI, progress=Quiet())
    assert build.fresh
    assert says(build.programs["tiny-cli"])[0] == "c0ffee000"


def test_two_runs_at_once(tmp_path: Path, tiny_data: Path, cache: Store) -> None:
    """Two runs that want the same build both get it."""
    command = [sys.executable, "-c", RUN, str(tiny_data), str(tmp_path / "tree"), str(cache.root)]
    made_up.pristine(tmp_path / "tree")
    runs = [subprocess.Popen(command, cwd=Path(__file__).parents[3]) for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    build: Build = make_build(cache, made_up.pristine(tmp_path / "tree"), CLI, progress=Quiet())
    assert not build.fresh
    assert build.log.read_text().count("Building C object") == 2
