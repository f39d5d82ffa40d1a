"""Wheels of a made-up binding: version, content, record, failure; environments with the wheel installed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.version import Version

from numamirror_build.building import wheel as module
from numamirror_build.building.build import BuildOptions
from numamirror_build.building.venv import make_venv
from numamirror_build.building.wheel import Wheel, make_wheel
from numamirror_build.errors import AnchorError, ConfigError, WheelError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.unit.building import made_up
from tests.unit.building.conftest import Heard

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the cache that the module's tests share."""
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture
def shared_cache(shared: Path) -> Store:
    """That cache."""
    return Store(shared / "cache")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The binding's sdist, which the package index would give."""
    path = made_up.sdist(tmp_path / "index")
    monkeypatch.setattr(module, "fetch_sdist", lambda *_, **__: path)
    return path


@pytest.fixture
def wheel(shared: Path, shared_cache: Store, archive: Path) -> Wheel:
    """The wheel of the made-up patched tree, built by the first test that asks for it."""
    return make_wheel(shared_cache, made_up.patched(shared / "tree"), BuildOptions(), progress=Quiet())


def read(wheel: Wheel, name: str) -> str:
    """One file of a wheel, by the end of its name."""
    with zipfile.ZipFile(wheel.path) as content:
        (found,) = (listed for listed in content.namelist() if listed.endswith(name))
        return content.read(found).decode()


def test_version_says_what_it_is(wheel: Wheel) -> None:
    """File name, metadata, package and record have the binding's version with our local part."""
    assert wheel.version == f"1.5+numamirror.{wheel.key[:10]}"
    assert wheel.path.name.startswith(f"tiny_python-{wheel.version}-py3-none-")
    assert Parser().parsestr(read(wheel, "dist-info/METADATA"))["Version"] == wheel.version
    assert f'__version__ = "{wheel.version}"' in read(wheel, "tiny_python/__init__.py")
    assert Version(wheel.version) > Version("1.5")
    assert wheel.sha256 == hashlib.sha256(wheel.path.read_bytes()).hexdigest()


def test_record_inside(wheel: Wheel) -> None:
    """The wheel carries what it was made from: commit, plan, settings, tools; and what CPU it needs."""
    record = json.loads(read(wheel, "tiny_python/numamirror.json"))
    assert record["wheel"] == wheel.version
    assert (record["commit"], record["plan"], record["scope"]) == (made_up.PIN.commit, "d", "cpu")
    assert record["settings"]["TINY_MIRROR"] == "ON"
    assert record["settings"]["TINY_WHEEL"] == "$ORIGIN;b", "what only the wheel's build has"
    assert record["binding"]["version"] == "1.5"
    assert record["tools"]["cmake"]
    assert "native" in record


def test_licences_inside(wheel: Wheel) -> None:
    """The licences of the binding, of upstream, of what upstream vendors, and ours are in the metadata."""
    assert read(wheel, "licenses/LICENSE.md") == "the binding's licence\n"
    assert read(wheel, "licences/tiny/LICENSE") == "upstream's licence\n"
    assert read(wheel, "licences/tiny/vendor/json/LICENSE-MIT") == "somebody's licence\n"
    assert read(wheel, "licences/numamirror-build/NOTICE") == "whose\n"


def test_nothing_of_the_place_inside(wheel: Wheel, shared: Path) -> None:
    """No path of this machine, and nothing of the sdist's git repository, ends up in the wheel."""
    with zipfile.ZipFile(wheel.path) as content:
        assert not any(".git" in name for name in content.namelist())
        assert not any(str(shared).encode() in content.read(name) for name in content.namelist())


def test_second_time_comes_from_the_cache(shared: Path, shared_cache: Store, wheel: Wheel) -> None:
    """The same inputs give the same wheel, and what it was made in is gone."""
    tree = made_up.patched(shared / "tree")
    again = make_wheel(shared_cache, tree, BuildOptions(jobs=5, programs=()), progress=Quiet())
    assert again == replace(wheel, fresh=False)
    folders = [path.name for path in shared_cache.folder("wheels", wheel.key).iterdir() if path.is_dir()]
    assert folders == ["wheel"]


def test_other_plan_gives_another_version(tmp_path: Path, cache: Store, wheel: Wheel) -> None:
    """pip never takes a wheel for another one."""
    other = make_wheel(cache, made_up.patched(tmp_path / "tree", "d2"), BuildOptions(), progress=Quiet())
    assert other.version != wheel.version


def test_arguments_of_the_user_come_last(tmp_path: Path, cache: Store, archive: Path) -> None:
    """CMake arguments reach the wheel's build, with spaces and semicolons, after our settings."""
    arguments = ("-DTINY_COMMIT=a b;c", "-DTINY_MIRROR=OFF")
    options = BuildOptions(cmake_args=arguments)
    wheel = make_wheel(cache, made_up.patched(tmp_path / "tree"), options, progress=Quiet())
    with zipfile.ZipFile(wheel.path) as content:
        assert b"a b;c" in content.read("tiny_python/lib/libtiny.so")
    assert json.loads(read(wheel, "numamirror.json"))["arguments"] == list(arguments)


def test_unlisted_commit_is_warned_of(tmp_path: Path, cache: Store, archive: Path) -> None:
    """The wheel for a commit that is not listed says that the binding was not made for it."""
    pin = replace(made_up.PIN, listed=False)
    wheel = make_wheel(cache, made_up.patched(tmp_path / "tree", pin=pin), BuildOptions(), progress=Quiet())
    assert "was not made for commit c0ffee" in str(wheel.warning)


def test_compile_error_is_shown(tmp_path: Path, cache: Store, archive: Path, heard: Heard) -> None:
    """A compile error inside pip is shown like one of a build."""
    tree = made_up.patched(tmp_path / "tree", changed={"lib.c": "int x(void) {\n    return y;\n}\n"})
    with pytest.raises(WheelError) as caught:
        make_wheel(cache, tree, BuildOptions(), progress=heard)
    assert caught.value.exit_code == 22
    assert caught.value.where == "lib.c:2:12"
    assert "undeclared" in str(caught.value.why)
    assert "undeclared" in Path(caught.value.details["log"]).read_text()


def test_failure_of_the_build_backend_is_shown(tmp_path: Path, cache: Store, archive: Path) -> None:
    """When something fails before anything is compiled, the first complaint is the reason."""
    text = made_up.SDIST["pyproject.toml"].replace("wheel.py-api", "wheel.no-such-setting")
    made_up.sdist(archive.parent, changed={"pyproject.toml": text})
    with pytest.raises(WheelError) as caught:
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    assert "no-such-setting" in str(caught.value.why)


def test_binding_without_a_version_line(tmp_path: Path, cache: Store, archive: Path) -> None:
    """A binding that says its version in another way is an error, not a wheel with a wrong version."""
    made_up.sdist(archive.parent, changed={"tiny_python/__init__.py": "VERSION = '1.5'\n"})
    with pytest.raises(WheelError, match="does not say its version"):
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())


STATIC = made_up.SDIST["pyproject.toml"].replace('dynamic = ["version"]', 'version = "1.5"')
TWO_PLACES = """[
    { file = "pyproject.toml", name = "version" },
    { file = "tiny_python/__init__.py", name = "__version__" },
]"""


def test_version_in_two_places(tmp_path: Path, cache: Store, archive: Path, tiny_data: Path) -> None:
    """A binding that says its version twice gets ours twice, even where the two differ."""
    facts = made_up.FACTS.replace('[{ file = "tiny_python/__init__.py", name = "__version__" }]', TWO_PLACES)
    made_up.data_root(tiny_data, facts)
    text = STATIC.partition("[tool.scikit-build.metadata")[0]
    older = made_up.SDIST["tiny_python/__init__.py"].replace("1.5", "1.4")
    made_up.sdist(archive.parent, changed={"pyproject.toml": text, "tiny_python/__init__.py": older})
    wheel = make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    assert Parser().parsestr(read(wheel, "dist-info/METADATA"))["Version"] == wheel.version
    assert f'__version__ = "{wheel.version}"' in read(wheel, "tiny_python/__init__.py")


def test_settings_of_the_build_backend(
    tmp_path: Path, cache: Store, archive: Path, tiny_data: Path, wheel: Wheel
) -> None:
    """What an upstream's data says beside the binding's own settings reaches the backend, and is an input."""
    made_up.data_root(tiny_data, f'{made_up.FACTS}\n[binding.backend]\n"wheel.build-tag" = "7"\n')
    other = make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    assert other.path.name.startswith(f"tiny_python-{other.version}-7-py3-none-")
    assert other.key != wheel.key


def test_a_portable_wheel_is_the_same_file_again(
    tmp_path: Path, archive: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in two caches, at two times and in two time zones, byte for byte, even where the binding's build
    has libraries that look for each other in its folder, and installs files that say where they were made."""
    made_up.data_root(tiny_data, f'{made_up.FACTS}\n[build.portable.x86-64-v2]\nTINY_LEVEL = "2"\n')
    more = """\
set(CMAKE_BUILD_WITH_INSTALL_RPATH FALSE)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
add_library(other SHARED tiny_python/other.c)
target_link_libraries(other PRIVATE tiny)
install(TARGETS other LIBRARY DESTINATION ${SKBUILD_PLATLIB_DIR}/tiny_python/lib)
file(WRITE ${CMAKE_BINARY_DIR}/tiny.pc "prefix=${CMAKE_INSTALL_PREFIX}")
install(FILES ${CMAKE_BINARY_DIR}/tiny.pc DESTINATION lib/pkgconfig)
"""
    changed = {"CMakeLists.txt": made_up.SDIST["CMakeLists.txt"] + more}
    changed["tiny_python/other.c"] = "int tiny_mirror(void);\nint other(void) { return tiny_mirror(); }\n"
    made_up.sdist(archive.parent, changed=changed)
    wheels = []
    for name, zone in (("one", "Asia/Tokyo"), ("another", "America/Lima")):
        monkeypatch.setenv("TZ", zone)
        tree = made_up.patched(tmp_path / name / "tree")
        options = BuildOptions(portable="x86-64-v2")
        wheels.append(make_wheel(Store(tmp_path / name / "cache"), tree, options, progress=Quiet()))
    one, another = wheels
    assert "manylinux" in one.path.name
    assert one.path.read_bytes() == another.path.read_bytes()


def test_a_level_without_a_wheel(tmp_path: Path, cache: Store, archive: Path, tiny_data: Path) -> None:
    """Where the data says why there can be none, that is the error, before anything is built."""
    made_up.data_root(tiny_data, f'{made_up.FACTS}\n[binding.no_wheel]\nodd = "a reason"\n')
    with pytest.raises(ConfigError) as caught:
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(portable="odd"), progress=Quiet())
    assert caught.value.why == "a reason"
    assert not cache.root.exists()


HOOK = """
[[hook]]
id = "more"
file = "tiny_python/__init__.py"
line_prefix = "__version__ = "
place = "{place}"
text = '''
from .ours import answer
'''
"""
OURS = {
    "binding/hooks.toml": HOOK.format(place="before"),
    "binding/files/tiny_python/ours.py": "answer = 42\n",
}


def test_hooks_and_files_of_ours(tmp_path: Path, cache: Store, archive: Path, tiny_data: Path) -> None:
    """The binding's code gets what its hooks and files say, and each of them counts for the version."""
    versions = set()
    for changed in (
        OURS,
        {"binding/hooks.toml": HOOK.format(place="after")},
        {"binding/files/tiny_python/ours.py": "answer = 43\n"},
    ):
        made_up.write(tiny_data / "patches/tiny", changed)
        wheel = make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
        versions.add(wheel.version)
        lines = read(wheel, "tiny_python/__init__.py").splitlines()
        at = lines.index("from .ours import answer")
        version = f'__version__ = "{wheel.version}"'
        assert lines.index(version) - at == (1 if changed is OURS else -1)
    assert read(wheel, "tiny_python/ours.py") == "answer = 43\n"
    assert len(versions) == 3


def test_hook_without_its_anchor(tmp_path: Path, cache: Store, archive: Path, tiny_data: Path) -> None:
    """A release of the binding that a hook does not fit is an error, not a wheel without it."""
    hook = HOOK.format(place="before").replace("__version__", "__release__")
    made_up.write(tiny_data / "patches/tiny", {"binding/hooks.toml": hook})
    with pytest.raises(AnchorError, match="hook more"):
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())


def test_file_of_our_name(tmp_path: Path, cache: Store, archive: Path, tiny_data: Path) -> None:
    """A release of the binding that has a file where ours should go is an error."""
    made_up.write(tiny_data / "patches/tiny", OURS)
    made_up.sdist(archive.parent, changed={"tiny_python/ours.py": ""})
    with pytest.raises(WheelError) as caught:
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    assert caught.value.where == "tiny_python/ours.py"


def test_wheel_without_the_library(tmp_path: Path, cache: Store, archive: Path) -> None:
    """A wheel that lacks what makes it one of ours is an error."""
    text = made_up.SDIST["CMakeLists.txt"].replace("tiny_python/lib", "tiny_python/bib")
    made_up.sdist(archive.parent, changed={"CMakeLists.txt": text})
    with pytest.raises(WheelError) as caught:
        make_wheel(cache, made_up.patched(tmp_path / "tree"), BuildOptions(), progress=Quiet())
    assert caught.value.why == "it lacks tiny_python/lib/libtiny.so"


def test_environment_has_the_wheel(
    shared_cache: Store, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's Python imports the wheel's package; the environment is made once."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    heard = Heard()
    python = make_venv(shared_cache, wheel, requirements=(), progress=heard)
    assert make_venv(shared_cache, wheel, requirements=(), progress=heard) == python
    assert len(heard.steps) == 1
    code = "import tiny_python as t; print(t.__version__, t.library.tiny_mirror())"
    said = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [wheel.version, "1"]


def test_environment_without_a_working_python_is_made_anew(
    cache: Store, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment whose Python has gone, for example by an update, is not taken for finished."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    python = make_venv(cache, wheel, requirements=(), progress=Quiet())
    python.unlink()
    python.symlink_to("/gone/python")
    assert (
        make_venv(cache, wheel, requirements=(), progress=Quiet()).resolve() == Path(sys.executable).resolve()
    )


def test_requirement_that_cannot_be_had(cache: Store, wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's reason is shown when something cannot be installed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(WheelError) as caught:
        make_venv(cache, wheel, requirements=("no-such-package-of-ours",), progress=Quiet())
    assert "no-such-package-of-ours" in str(caught.value.why)
