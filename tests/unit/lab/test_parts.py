from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from numamirror_build.errors import LabError
from numamirror_build.lab import parts
from numamirror_build.lab.modules import WANTED
from numamirror_build.lab.parts import find_parts, is_static
from numamirror_build.progress import Quiet
from numamirror_build.store import Store


def elf(*kinds: int) -> bytes:
    """The beginning of a program with segments of these kinds; 3 is the name of a loader."""
    head = b"\x7fELF\x02" + bytes(27) + (64).to_bytes(8, "little") + bytes(14)
    head += (56).to_bytes(2, "little") + len(kinds).to_bytes(2, "little") + bytes(6)
    return head + b"".join(kind.to_bytes(4, "little") + bytes(52) for kind in kinds)


def add_kernel(root: Path, release: str, *, numa: bool = True, modules: tuple[str, ...] = WANTED) -> Path:
    """Install a kernel below a root."""
    folder = root / "lib/modules" / release / "kernel"
    folder.mkdir(parents=True)
    for name in modules:
        (folder / f"{name}.ko").write_bytes(b"depends=\0")
    boot = root / "boot"
    boot.mkdir(exist_ok=True)
    (boot / f"config-{release}").write_text("CONFIG_NUMA=y\n" if numa else "# CONFIG_NUMA is not set\n")
    image = boot / f"vmlinuz-{release}"
    image.write_bytes(b"kernel")
    return image


class Packages:
    """Stands for packages that are fetched: gives prepared folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def alone(self, name: str) -> Path:
        """A busybox."""
        self.asked.append(name)
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)
        (self.folder / "bin/busybox").write_bytes(elf(1))
        return self.folder

    def with_dependencies(self, name: str) -> Path:
        """A QEMU with a library."""
        self.asked.append(name)
        (self.folder / "usr/lib").mkdir(parents=True)
        (self.folder / "usr/lib/libx.so.1").touch()
        return self.folder

    def what_it_names(self, name: str, keep: Callable[[Path], None]) -> Path:
        """A kernel."""
        self.asked.append(name)
        add_kernel(self.folder, "6.9.1-amd64", modules=(*WANTED, "unused"))
        keep(self.folder)
        return self.folder


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """Packages that need no network, and an empty PATH."""
    made = Packages(tmp_path / "fetched")
    monkeypatch.setattr(parts, "PackageSource", lambda store, progress: made)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return made


def program(tmp_path: Path, name: str, content: bytes) -> Path:
    """Put a program on PATH."""
    path = tmp_path / "bin" / name
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def find(tmp_path: Path) -> parts.Parts:
    """The parts that are found."""
    return find_parts(Store(tmp_path / "cache"), progress=Quiet(), root=tmp_path / "root")


def test_what_the_system_has_is_used(tmp_path: Path, packages: Packages) -> None:
    """Nothing is fetched where QEMU, a kernel and a static busybox are installed; the newest kernel wins."""
    qemu = program(tmp_path, "qemu-system-x86_64", b"")
    busybox = program(tmp_path, "busybox", elf(1, 2))
    add_kernel(tmp_path / "root", "6.9.0-amd64")
    image = add_kernel(tmp_path / "root", "6.10.0-amd64")
    found = find(tmp_path)
    assert (found.qemu, found.busybox, found.kernel) == (qemu, busybox, image)
    assert found.release == "6.10.0-amd64"
    assert (found.qemu_env, found.qemu_options) == ({}, ())
    assert [path.stem for path in found.modules] == list(WANTED)
    assert packages.asked == []


def test_what_the_system_lacks_is_fetched(tmp_path: Path, packages: Packages) -> None:
    """All three parts come from packages; QEMU finds the libraries and the firmware that came with it."""
    found = find(tmp_path)
    assert sorted(packages.asked) == ["busybox-static", "linux-image-amd64", "qemu-system-x86"]
    assert found.qemu == packages.folder / "usr/bin/qemu-system-x86_64"
    assert found.qemu_env == {"LD_LIBRARY_PATH": str(packages.folder / "usr/lib")}
    folders = [str(packages.folder / "usr/share" / name) for name in ("qemu", "seabios")]
    assert found.qemu_options == ("-L", folders[0], "-L", folders[1])
    assert found.release == "6.9.1-amd64"
    assert not list(packages.folder.rglob("unused.ko")), "what the lab has no use for is taken away"


@pytest.mark.parametrize(
    ("system", "package"),
    [
        ({"ID": "debian"}, "linux-image-amd64"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "linux-image-generic"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "linux-image-generic"),
        ({}, "linux-image-amd64"),
    ],
    ids=["Debian", "Ubuntu", "from Ubuntu", "unknown"],
)
def test_kernels_have_the_systems_names(
    monkeypatch: pytest.MonkeyPatch, system: dict[str, str], package: str
) -> None:
    """What always depends on the newest kernel has another name in Ubuntu."""
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: system)
    assert parts.kernel_package() == package


def test_what_qemu_says_of_its_version(tmp_path: Path, packages: Packages) -> None:
    """Its first line, as it is."""
    program(tmp_path, "qemu-system-x86_64", b"#!/bin/sh\necho 'QEMU emulator version 7.2.17' $*\necho x\n")
    assert find(tmp_path).qemu_release == "QEMU emulator version 7.2.17 --version"


@pytest.mark.parametrize("fault", ["numa", "modules", "unreadable"])
def test_kernels_that_cannot_be_used_are_passed_over(tmp_path: Path, packages: Packages, fault: str) -> None:
    """A kernel without NUMA, without the modules, or that may not be read, is as none."""
    image = add_kernel(
        tmp_path / "root",
        "6.10.0-cloud",
        numa=fault != "numa",
        modules=() if fault == "modules" else WANTED,
    )
    if fault == "unreadable":
        image.unlink()
        image.symlink_to(tmp_path / "nowhere")
    assert find(tmp_path).release == "6.9.1-amd64"
    assert "linux-image-amd64" in packages.asked


def test_a_busybox_that_needs_libraries_is_no_use(tmp_path: Path, packages: Packages) -> None:
    """The guest starts without any library."""
    program(tmp_path, "busybox", elf(6, 3, 1))
    assert find(tmp_path).busybox == packages.folder / "bin/busybox"


def test_real_programs_are_told_apart(tmp_path: Path) -> None:
    """The Python that runs this needs a loader; a script is no program that could start alone."""
    assert not is_static(Path(sys.executable).resolve())
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n" + "x" * 100)
    assert not is_static(script)


def test_other_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guest runs this machine's programs, so both must be of one kind."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(LabError, match="x86-64 machines only") as caught:
        find(tmp_path)
    assert "aarch64" in str(caught.value.why)
    assert not list(tmp_path.iterdir())
