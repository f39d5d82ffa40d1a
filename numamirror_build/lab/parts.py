"""What the machine is made of: QEMU, a kernel with its modules, busybox; the system's own, or fetched."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from numamirror_build import proc
from numamirror_build.errors import LabError
from numamirror_build.lab.modules import needed_modules
from numamirror_build.lab.packages import PackageSource, os_release
from numamirror_build.progress import Progress
from numamirror_build.store import Store

QEMU = "qemu-system-x86_64"
QEMU_PACKAGE = "qemu-system-x86"
BUSYBOX_PACKAGE = "busybox-static"
KERNEL_PACKAGE = "linux-image-amd64"
# of systems that are made from Debian, and name their kernels otherwise
KERNEL_PACKAGES = {"ubuntu": "linux-image-generic"}

_FIRMWARE = ("usr/share/qemu", "usr/share/seabios")


@dataclass(frozen=True)
class Parts:
    """What a machine is made of.

    Attributes:
        qemu: the program.
        qemu_env: variables that the program needs beside the usual ones.
        qemu_options: what it must be told before all else.
        kernel: the kernel's image.
        modules: files of modules, in the order in which they are loaded.
        busybox: a busybox that needs no libraries.
    """

    qemu: Path
    qemu_env: Mapping[str, str]
    qemu_options: tuple[str, ...]
    kernel: Path
    modules: tuple[Path, ...]
    busybox: Path

    @property
    def release(self) -> str:
        """The kernel's release."""
        return self.kernel.name.partition("-")[2]

    @cached_property
    def qemu_release(self) -> str:
        """What QEMU says of its version."""
        done = proc.run([self.qemu, "--version"], env={**proc.environment(), **self.qemu_env})
        return done.output.partition("\n")[0]


def find_parts(store: Store, *, progress: Progress, root: Path = Path("/")) -> Parts:
    """The parts, from the system where it has them, else from Debian packages that are fetched to the cache.

    Args:
        store: the cache.
        progress: what is told how far it got.
        root: where the system is looked for.

    Raises:
        LabError: this is no x86-64 machine.
        ToolMissingError: a package is not installed and cannot be fetched; the message names it.
    """
    if platform.machine() != "x86_64":
        raise LabError(
            "The lab runs on x86-64 machines only",
            why=f"this is {platform.machine()}, and the guest runs the programs of this machine",
        )
    packages = PackageSource(store, progress)
    qemu, qemu_env, qemu_options = _find_qemu(packages)
    kernel, modules = _find_kernel(packages, root)
    return Parts(qemu, qemu_env, qemu_options, kernel, modules, _find_busybox(packages))


def _find_qemu(packages: PackageSource) -> tuple[Path, Mapping[str, str], tuple[str, ...]]:
    if found := shutil.which(QEMU):
        return Path(found), {}, ()
    fetched = packages.with_dependencies(QEMU_PACKAGE)
    libraries = sorted({str(path.parent) for path in fetched.rglob("lib*.so.*")})
    # it looks for firmware where it would be installed
    firmware = [word for folder in _FIRMWARE for word in ("-L", str(fetched / folder))]
    return fetched / "usr/bin" / QEMU, {"LD_LIBRARY_PATH": ":".join(libraries)}, tuple(firmware)


def _find_kernel(packages: PackageSource, root: Path) -> tuple[Path, tuple[Path, ...]]:
    installed = sorted((root / "boot").glob("vmlinuz-*"), key=_natural, reverse=True)
    for image in installed:
        if found := _usable(image, root):
            return image, found
    fetched = packages.what_it_names(kernel_package(), keep=_keep_kernel)
    [image] = (fetched / "boot").glob("vmlinuz-*")
    return image, needed_modules(_modules_of(image, fetched))


def kernel_package() -> str:
    """The package without content that always depends on this system's newest kernel."""
    system = os_release()
    likes = [system.get("ID", ""), *system.get("ID_LIKE", "").split()]
    return next((KERNEL_PACKAGES[name] for name in likes if name in KERNEL_PACKAGES), KERNEL_PACKAGE)


def _usable(image: Path, root: Path) -> tuple[Path, ...] | None:
    """The modules of an installed kernel, if the lab can use it."""
    config = image.with_name(image.name.replace("vmlinuz", "config"))
    try:
        with image.open("rb"):
            pass
        if "CONFIG_NUMA=y" not in config.read_text().splitlines():
            return None
        return needed_modules(_modules_of(image, root))
    except (OSError, LabError):
        return None


def _modules_of(image: Path, root: Path) -> Path:
    release = image.name.removeprefix("vmlinuz-")
    folders = [root / place / "modules" / release for place in ("usr/lib", "lib")]
    return folders[0] if folders[0].is_dir() else folders[1]


def _keep_kernel(folder: Path) -> None:
    """Take away of an unpacked kernel what the lab has no use for: nearly all of it."""
    [image] = (folder / "boot").glob("vmlinuz-*")
    modules = _modules_of(image, folder)
    kept = {image, modules / "modules.builtin", *needed_modules(modules)}
    for path in folder.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _find_busybox(packages: PackageSource) -> Path:
    found = shutil.which("busybox")
    if found and is_static(Path(found)):
        return Path(found)
    folder = packages.alone(BUSYBOX_PACKAGE)
    return next(path for path in folder.rglob("busybox") if path.is_file() and is_static(path))


def is_static(program: Path) -> bool:
    """Whether a program (a 64-bit ELF file) asks for no loader of libraries."""
    data = program.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return False
    start, size, count = (
        int.from_bytes(data[at : at + length], "little") for at, length in ((32, 8), (54, 2), (56, 2))
    )
    interpreter = 3
    kinds = [int.from_bytes(data[start + i * size :][:4], "little") for i in range(count)]
    return interpreter not in kinds


def _natural(path: Path) -> list[tuple[int, str]]:
    """Orders 6.10 after 6.9."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]
