"""What a wheel is built from elsewhere: cibuildwheel's settings, and the wheel that comes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from numamirror_build.building import sources as module
from numamirror_build.building.build import BuildOptions
from numamirror_build.building.portable import repair_wheel
from numamirror_build.building.sources import CONFIG, SETTINGS, write_sources
from numamirror_build.building.wheel import check_made
from numamirror_build.errors import ConfigError, OutputError, WheelError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from tests.unit.building import made_up

LEVEL = "x86-64-v2"
FACTS = f'{made_up.FACTS}\n[build.portable.{LEVEL}]\nTINY_LEVEL = "2"\n'
TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


@pytest.fixture(autouse=True)
def portable_data(tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up upstream can be built for a level, and its sdist is at hand."""
    made_up.data_root(tiny_data, FACTS)
    shutil.copytree(TEMPLATES / "ci", tiny_data / "templates/ci")
    archive = made_up.sdist(tmp_path / "index")
    monkeypatch.setattr(module, "fetch_sdist", lambda *_, **__: archive)


def write(folder: Path, plan: str = "d", options: BuildOptions | None = None) -> tuple[Path, str]:
    """The sources, and the version that the wheel will have."""
    tree = made_up.patched(folder / "tree", plan)
    options = options or BuildOptions(portable=LEVEL, cmake_args=("-DA=b c",))
    version = write_sources(Store(folder / "cache"), tree, options, folder / "out", progress=Quiet())
    return folder / "out", version


@dataclass(frozen=True)
class Settings:
    """What cibuildwheel understands of a folder's settings for one Python."""

    builds: Sequence[str]
    environment: dict[str, str]
    config_settings: Sequence[str]
    audit: Sequence[str]
    image: str


READ = """
import json, shlex, sys
from dataclasses import replace
from pathlib import Path
from cibuildwheel.options import CommandLineArguments, compute_options
from cibuildwheel.platforms.linux import get_python_configurations
folder = Path(sys.argv[1])
config = str(folder / sys.argv[2])
arguments = replace(
    CommandLineArguments.defaults(), platform="linux", package_dir=folder, config_file=config
)
options = compute_options("linux", arguments, {})
chosen = options.globals
found = get_python_configurations(chosen.build_selector, chosen.architectures)
one = options.build_options(found[0].identifier)
print(json.dumps({
    "builds": [entry.identifier for entry in found],
    "environment": one.environment.as_dictionary({}),
    "config_settings": shlex.split(one.config_settings),
    "audit": one.audit_command,
    "image": one.manylinux_images["x86_64"],
}))
"""


def settings(folder: Path) -> Settings:
    """What cibuildwheel's own reader makes of the settings."""
    pytest.importorskip("cibuildwheel")
    command = [sys.executable, "-c", READ, str(folder), CONFIG]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Settings(**json.loads(done.stdout))


def test_cibuildwheel_reads_the_settings(tmp_path: Path) -> None:
    """Every Python that is supported, on systems with glibc, for one machine; each wheel is checked by us."""
    out, _ = write(tmp_path)
    read = settings(out)
    assert read.builds == [f"cp3{minor}-manylinux_x86_64" for minor in range(10, 15)]
    assert read.environment["CMAKE_ARGS"] == f"-C /project/{SETTINGS} '-DA=b c'"
    assert read.audit == ["numamirror-build wheel --check {wheel}"]
    assert "manylinux_2_28" in read.image


@pytest.mark.build
def test_what_is_built_of_them(tmp_path: Path) -> None:
    """Built and repaired as cibuildwheel does it, the wheel is ours: variables, licences, record, level."""
    out, version = write(tmp_path)
    moved = out.rename(tmp_path / "elsewhere")
    read = settings(moved)
    arguments = read.environment["CMAKE_ARGS"].replace("/project", str(moved))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", str(tmp_path / "made"), str(moved)),
            *(f"--config-settings={setting}" for setting in read.config_settings),
        ],
        env={**os.environ, **read.environment, "CMAKE_ARGS": arguments},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (bare,) = (tmp_path / "made").iterdir()
    with pytest.raises(WheelError, match="not what it should be"):
        check_made(bare)
    wheel = repair_wheel(bare, tmp_path / "repaired", tmp_path / "log")
    record = check_made(wheel)
    assert (record["wheel"], record["portable"], record["plan"]) == (version, LEVEL, "d")
    with zipfile.ZipFile(wheel) as archive:
        assert made_up.PIN.commit[:9].encode() in archive.read("tiny_python/lib/libtiny.so")


def test_the_version_says_what_went_in(tmp_path: Path) -> None:
    """The same inputs give the same version and files, another plan others; what was written is replaced."""
    out, first = write(tmp_path / "a")
    (out / "left").touch()
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != "left"}
    assert write(tmp_path / "a") == (out, first)
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert write(tmp_path / "b", "other")[1] != first


def test_variables_know_the_build_folder(tmp_path: Path) -> None:
    """A variable with the build's folder in it says so in CMake's words."""
    out, _ = write(tmp_path)
    text = (out / SETTINGS).read_text()
    assert 'set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin" CACHE STRING "")' in text
    assert "set(TINY_LEVEL [==[2]==] CACHE" in text


def test_what_cannot_be_written(tmp_path: Path) -> None:
    """Without a level, and over somebody's files, there is an error, and nothing is written."""
    with pytest.raises(ConfigError) as caught:
        write(tmp_path, options=BuildOptions())
    assert LEVEL in str(caught.value.hint)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(OutputError):
        write(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError):
        write(tmp_path)


def test_a_folder_that_only_looks_like_ours_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's settings for cibuildwheel do not make a folder ours; the current folder is not replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / CONFIG).touch()
    (tmp_path / "out/mine").touch()
    with pytest.raises(OutputError, match="something else"):
        write(tmp_path)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {CONFIG, "mine"}
    (tmp_path / "out" / SETTINGS).touch()
    (tmp_path / "out/inner").mkdir()
    monkeypatch.chdir(tmp_path / "out/inner")
    with pytest.raises(OutputError, match="current folder"):
        write(tmp_path)
    assert (tmp_path / "out/mine").exists()


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    """What was written there is replaced, and the link stays."""
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    out, _ = write(tmp_path)
    write(tmp_path)
    assert out.is_symlink() and (tmp_path / "real" / SETTINGS).is_file()
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


@pytest.mark.parametrize(
    "content", [None, b'{"upstream": "tiny"}', b'{"upstream": "../../x"}', b"no zip", b""]
)
def test_a_file_that_is_no_wheel_of_ours(tmp_path: Path, content: bytes | None) -> None:
    """An archive without a record, or with half of one, or no archive at all, is an error of its own."""
    path = tmp_path / "tiny_python-1.5-py3-none-any.whl"
    if content is None or content.startswith(b"{"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "tiny_python/__init__.py" if content is None else "tiny_python/numamirror.json",
                content or b"",
            )
    else:
        path.write_bytes(content)
    with pytest.raises(WheelError, match="no wheel of ours") as caught:
        check_made(path)
    assert caught.value.hint
    assert "patches" not in str(caught.value), "no name in a record is taken for a path"


def test_a_damaged_wheel(tmp_path: Path) -> None:
    """A whole record beside a member that is not, or a value of another kind, is an error of its own."""
    path = tmp_path / "tiny_python-1.5-py3-none-any.whl"
    facts = {name: "x" for name in ("wheel", "commit", "tree", "plan", "scope", "settings", "arguments")}
    for binding in ("x", {}, {"package": "tiny-python"}):
        record = json.dumps({**facts, "upstream": "tiny", "portable": None, "binding": binding})
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny_python/numamirror.json", record)
            archive.writestr("tiny_python/lib/libtiny.so", b"\x7fELF" + bytes(range(256)) * 40)
        content = bytearray(path.read_bytes())
        at = content.index(b"lib/libtiny.so") + 40
        content[at : at + 60] = b"\xff" * 60
        path.write_bytes(content)
        with pytest.raises(WheelError, match=r"damaged|not what it should be"):
            check_made(path)
