"""Debian packages, fetched with apt's own programs and unpacked in the cache, without root."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.errors import NumaMirrorError, ToolMissingError
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest

_INSTALLED = re.compile(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+)", re.MULTILINE)
_KERNEL = re.compile(r"^ *\|?Depends: (linux-image-\S+)$", re.MULTILINE)
_MODULES = re.compile(r"^ *\|?Depends: (linux-modules-\S+)$", re.MULTILINE)


def os_release() -> Mapping[str, str]:
    """What the system says of itself; nothing where it says nothing."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


class PackageSource:
    """Where packages come from: this system's apt, with package lists of our own if its own do not do."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._options: tuple[str, ...] = ()

    def alone(self, name: str) -> Path:
        """The folder in which a package is unpacked."""
        return self._fetch(name, lambda: [name])

    def with_dependencies(self, name: str) -> Path:
        """The folder with a package, unpacked, and all that it needs and this system has not."""
        return self._fetch(name, lambda: self._needed(name))

    def what_it_names(self, name: str, *, keep: Callable[[Path], None]) -> Path:
        """The folder with the kernel, and its modules, that a package without content depends on.

        Args:
            name: the package.
            keep: called with the folder; takes away what is not needed.
        """
        return self._fetch(name, lambda: self._named(name), keep)

    def _fetch(
        self, name: str, choose: Callable[[], list[str]], keep: Callable[[Path], None] | None = None
    ) -> Path:
        system = os_release()
        key = digest([name, system.get("ID"), system.get("VERSION_ID"), platform.machine()])

        def make(folder: Path) -> Mapping[str, Any]:
            try:
                return {"packages": self._unpack(choose, folder, keep)}
            except NumaMirrorError as error:
                raise ToolMissingError(
                    f"The lab needs a Debian package that is not installed and cannot be fetched: {name}",
                    why=str(error),
                    hint=f"sudo apt-get install {name}",
                ) from error

        return self._store.make("lab", key, make).path

    def _unpack(
        self, choose: Callable[[], list[str]], folder: Path, keep: Callable[[Path], None] | None
    ) -> list[str]:
        downloads = folder / "downloads"

        def download() -> None:
            names = choose()
            self._progress.step(f"Fetching {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else ""))
            shutil.rmtree(downloads, ignore_errors=True)  # of a first try, with other versions
            downloads.mkdir()
            self._run("apt-get", "download", *names, cwd=downloads)

        self._with_lists(download)
        files = sorted(downloads.glob("*.deb"))
        for file in files:
            self._run("dpkg-deb", "--extract", file, folder)
            file.unlink()
        downloads.rmdir()
        if keep:
            keep(folder)
        return [file.stem for file in files]

    def _needed(self, name: str) -> list[str]:
        output = self._run("apt-get", "install", "--simulate", "--no-install-recommends", name)
        return [f"{package}={version}" for package, version in _INSTALLED.findall(output)] or [name]

    def _named(self, name: str) -> list[str]:
        output = self._run("apt-cache", "depends", name)
        found = _KERNEL.findall(output)
        if not found:
            raise ToolMissingError(f"The package {name} names no kernel", why=output)
        # Debian's kernels have their modules in the same package, Ubuntu's in another
        return [found[0], *_MODULES.findall(self._run("apt-cache", "depends", found[0]))]

    def _with_lists(self, get: Callable[[], None]) -> None:
        """Get packages; if that fails, once more with new lists: there may be none, or old ones."""
        try:
            get()
        except ToolMissingError as first:
            try:
                self._fetch_lists()
                get()
            except ToolMissingError as again:
                reasons = dict.fromkeys([str(first), str(again)])
                raise ToolMissingError("apt does not get the package", why="\n".join(reasons)) from again

    def _fetch_lists(self) -> None:
        lists = self._store.root / "lab" / "apt"
        for folder in ("lists/partial", "archives/partial"):
            (lists / folder).mkdir(parents=True, exist_ok=True)
        self._progress.step("Fetching lists of packages")
        self._options = ("-o", f"Dir::State::lists={lists}/lists", "-o", f"Dir::Cache={lists}")
        self._run("apt-get", "update")

    def _run(self, program: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        options = self._options if program.startswith("apt") else ()
        # as root, apt would fetch as a user who may not write to the cache
        options += ("-o", "APT::Sandbox::User=root") if program == "apt-get" else ()
        env = {**proc.environment(), "LC_ALL": "C"}
        done = proc.run([program, *options, *arguments], cwd=cwd, env=env, tethered=True)
        if done.returncode != 0:
            lines = [line for line in done.output.splitlines() if line.startswith("E:")]
            raise ToolMissingError(
                f"{program} failed", why="\n".join(lines) or done.output[-500:].strip() or None
            )
        return done.output
