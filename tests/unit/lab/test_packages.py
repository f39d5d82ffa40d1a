"""Packages from made-up apt programs that are first on PATH and write down how they are called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from numamirror_build.errors import ToolMissingError
from numamirror_build.lab.packages import PackageSource
from numamirror_build.progress import Quiet
from numamirror_build.store import Store

APT_GET = r"""#!/bin/sh
echo "apt-get $*" >>"$CALLS"
case "$*" in *Dir::State::lists=*) NO_LISTS='' OLD_LISTS='' ;; esac
case "$*" in
*--simulate*)
    [ -z "$NO_LISTS" ] || { echo "E: Unable to locate package qemu"; exit 100; }
    echo "Inst liba (${OLD_LISTS:-1.0} Debian:12 [amd64])"
    echo "Inst qemu [6.2] (1:7.2 Debian:12 [amd64])"
    echo "Conf qemu (1:7.2 Debian:12 [amd64])" ;;
*download*)
    [ -z "$NO_LISTS" ] || { echo "E: Unable to locate package"; exit 100; }
    [ -z "$OLD_LISTS" ] || { touch "old_$OLD_LISTS.deb"; echo "E: Failed to fetch: 404 Not Found"; exit 100; }
    [ -z "$OFFLINE" ] || { echo "E: Failed to fetch"; exit 100; }
    for word; do :; done
    touch "$(echo "$word" | tr ':=' '__')_1.deb" ;;
esac
"""
APT_CACHE = r"""#!/bin/sh
echo "apt-cache $*" >>"$CALLS"
case "$2" in
linux-image-amd64) printf '  Depends: %s\n' linux-image-6.1.0-57-amd64 ;;
linux-image-generic) printf '  Depends: %s\n' linux-image-6.8.0-31-generic linux-firmware ;;
*-generic) printf '  Depends: %s\n' kmod linux-modules-6.8.0-31-generic ;;
esac
"""
DPKG_DEB = r"""#!/bin/sh
echo "dpkg-deb $1" >>"$CALLS"
mkdir -p "$3/usr/bin"
touch "$3/usr/bin/qemu"
"""
Calls = Callable[[], list[str]]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Puts the programs first on PATH; gives how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"apt-get": APT_GET, "apt-cache": APT_CACHE, "dpkg-deb": DPKG_DEB}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    log = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(log))
    return lambda: [line.replace("-o APT::Sandbox::User=root ", "") for line in log.read_text().splitlines()]


@pytest.fixture
def source(tmp_path: Path) -> PackageSource:
    """Packages for an empty cache."""
    return PackageSource(Store(tmp_path / "cache"), Quiet())


def test_a_package_comes_with_what_is_not_installed(source: PackageSource, calls: Calls) -> None:
    """apt says what would be installed, with versions; that is downloaded and unpacked, not installed."""
    folder = source.with_dependencies("qemu")
    assert (folder / "usr/bin/qemu").is_file()
    assert not list(folder.rglob("*.deb"))
    assert calls() == [
        "apt-get install --simulate --no-install-recommends qemu",
        "apt-get download liba=1.0 qemu=1:7.2",
        "dpkg-deb --extract",
    ]


def test_what_was_fetched_is_not_fetched_again(source: PackageSource, calls: Calls) -> None:
    """The cache answers the second time."""
    assert source.alone("busybox") == source.alone("busybox")
    assert calls() == ["apt-get download busybox", "dpkg-deb --extract"]


@pytest.mark.parametrize(
    ("name", "fetched"),
    [
        ("linux-image-amd64", "linux-image-6.1.0-57-amd64"),
        ("linux-image-generic", "linux-image-6.8.0-31-generic linux-modules-6.8.0-31-generic"),
    ],
    ids=["Debian", "Ubuntu"],
)
def test_the_package_of_kernels_leads_to_one(
    source: PackageSource, calls: Calls, name: str, fetched: str
) -> None:
    """The kernel and its modules are fetched, not what it would be installed with; the rest is taken away."""
    kept: list[Path] = []
    folder = source.what_it_names(name, keep=kept.append)
    assert kept == [folder]
    assert calls()[0] == f"apt-cache depends {name}"
    assert [call for call in calls() if "download" in call] == [f"apt-get download {fetched}"]


def test_lists_are_fetched_when_there_are_none(
    source: PackageSource, calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a fresh container apt knows no package: lists of our own are fetched to the cache."""
    monkeypatch.setenv("NO_LISTS", "1")
    source.with_dependencies("qemu")
    lists = f"-o Dir::State::lists={tmp_path}/cache/lab/apt/lists -o Dir::Cache={tmp_path}/cache/lab/apt"
    assert calls()[1:4] == [
        f"apt-get {lists} update",
        f"apt-get {lists} install --simulate --no-install-recommends qemu",
        f"apt-get {lists} download liba=1.0 qemu=1:7.2",
    ]


def test_lists_are_fetched_for_a_package_alone(
    source: PackageSource, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For what needs no choice, too: it is the download that finds no lists."""
    monkeypatch.setenv("NO_LISTS", "1")
    assert source.alone("busybox-static").is_dir()
    assert [line.rpartition(" -o ")[2].partition(" ")[2] for line in calls()[1:3]] == [
        "update",
        "download busybox-static",
    ]


def test_lists_are_fetched_when_they_are_old(
    source: PackageSource, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old lists name versions that are no longer there: it is chosen anew, and nothing old is unpacked."""
    monkeypatch.setenv("OLD_LISTS", "0.9")
    source.with_dependencies("qemu")
    assert calls()[1] == "apt-get download liba=0.9 qemu=1:7.2"
    assert calls()[-2].endswith(" download liba=1.0 qemu=1:7.2")
    assert calls()[-1] == "dpkg-deb --extract"
    assert calls().count("dpkg-deb --extract") == 1


def test_what_cannot_be_fetched_is_named_with_the_remedy(
    source: PackageSource, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network the message names the package, apt's reason, and the command that installs it."""
    monkeypatch.setenv("OFFLINE", "1")
    with pytest.raises(ToolMissingError) as caught:
        source.alone("busybox-static")
    assert caught.value.what.endswith("cannot be fetched: busybox-static")
    assert "E: Failed to fetch" in str(caught.value.why)
    assert caught.value.hint == "sudo apt-get install busybox-static"
    monkeypatch.delenv("OFFLINE")
    assert source.alone("busybox-static").is_dir(), "nothing half-made is taken for fetched"


def test_a_system_that_does_not_say_what_it_is(
    source: PackageSource, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file that names the system, packages are fetched all the same."""

    def nothing() -> dict[str, str]:
        raise OSError("Unable to read files /etc/os-release, /usr/lib/os-release")

    monkeypatch.setattr("platform.freedesktop_os_release", nothing)
    assert source.alone("busybox").is_dir()


def test_a_system_without_apt(source: PackageSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Elsewhere than on Debian the message names the package, too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="busybox-static") as caught:
        source.alone("busybox-static")
    assert "apt-get" in str(caught.value.why)
