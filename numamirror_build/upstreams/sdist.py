"""Source distributions of the binding: got by pip, checked by sha256, unpacked with care."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from numamirror_build import proc
from numamirror_build.errors import ContentMismatchError, SourceError
from numamirror_build.progress import Progress
from numamirror_build.store import Entry, Store, digest, file_sha256
from numamirror_build.upstreams.pins import Binding, Pin

if TYPE_CHECKING:
    from typing_extensions import Self

_PIP = (sys.executable, "-m", "pip")
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")

MAX_BYTES = 4 << 30
MAX_MEMBERS = 200_000
"""What an archive may unpack to; known sdists stay below 300 MB and 10,000 members."""
MAX_NAME = 1024
MAX_DEPTH = 64
MAX_HEADER = 1 << 20
"""Bytes and folders of a path, and bytes of what an archive says of a member, which is read at once."""


def fetch_sdist(store: Store, pin: Pin, *, progress: Progress) -> Path:
    """The sdist of the pin's binding, from the cache when it is there and still intact.

    pip gets it by package name, with the user's pip settings (index, mirrors, certificates).
    pip knows the sha256 that the file must have and runs nothing of it before that is checked.

    Raises:
        SourceError: the pin has no binding, or pip could not get the file.
        ContentMismatchError: the file that the index offers has another sha256.
    """
    binding = pin.binding
    if binding is None:
        raise SourceError(f"Pin {pin.name} of {pin.upstream} has no source distribution on the package index")

    def maker(folder: Path) -> dict[str, str]:
        progress.step(f"Getting {binding.sdist} from the package index")
        _download(binding, folder, progress)
        return asdict(binding)

    def intact(entry: Entry) -> bool:
        archive = entry.path / binding.sdist
        return archive.is_file() and file_sha256(archive) == binding.sha256

    return store.make("sdists", _key(binding), maker, intact=intact).path / binding.sdist


def list_releases(package: str) -> list[str]:
    """The versions of a package that the index offers, pre-releases not among them.

    Raises:
        SourceError: pip could not ask the index.
    """
    command = [*_PIP, "index", "versions", package, *_QUIET[:2]]
    done = proc.run(command)
    found = re.search(r"^Available versions: (.+)$", done.output, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise _not_had(f"the versions of {package}", done, f"pip index versions {package}")
    return [version.strip() for version in found.group(1).split(",")]


def fetch_release(store: Store, package: str, version: str, *, progress: Progress) -> Binding:
    """Get the sdist of a release that no pin names, and say what it is.

    Nobody knows its sha256 yet but the index, against which pip checks it: the pin will hold it from then on.

    Raises:
        SourceError: pip could not get it.
    """

    def maker(folder: Path) -> dict[str, str]:
        progress.step(f"Getting {package} {version} from the package index")
        done, where = _pip_download(package, f"{package}=={version}", folder, progress)
        archives = sorted(folder.glob("*.tar.gz"))
        if done.returncode != 0 or len(archives) != 1:
            raise _not_had(f"an sdist of {package} {version}", done, where)
        (archive,) = archives
        binding = Binding(package, version, archive.name, file_sha256(archive))

        def take(place: Path) -> dict[str, str]:
            shutil.move(archive, place / archive.name)
            return asdict(binding)

        store.make("sdists", _key(binding), take)
        archive.unlink(missing_ok=True)
        return asdict(binding)

    return Binding(**store.make("releases", digest([package, version])[:20], maker).made)


def unpack_sdist(archive: Path, into: Path, *, only: str = "") -> Path:
    """Unpack an sdist; nothing that it contains can end up or point outside of its own folder.

    Args:
        archive: a ``.tar.gz`` with everything below one top folder.
        into: folder to unpack in, which must not hold that top folder already.
        only: unpack only what lies below this path inside the top folder.

    Returns:
        The top folder.

    Raises:
        SourceError: the archive is damaged, or contains something that no sdist should.
    """
    try:
        with tarfile.open(archive, "r|gz", tarinfo=_Member) as tar:
            top = _unpack(tar, into, PurePosixPath(only))
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise SourceError("An sdist is damaged", where=str(archive), why=str(error)) from error
    except (_Hostile, FileExistsError) as error:
        raise SourceError(
            "An sdist contains what no sdist should", where=str(archive), why=str(error)
        ) from error
    if top is None:
        raise SourceError(
            "An sdist lacks what was looked for", where=str(archive), why=f"nothing lies below {only or 'it'}"
        )
    return into / top


class _Hostile(Exception):
    """Something in an archive that could do harm."""


class _Member(tarfile.TarInfo):
    """A member of an archive, whose header is looked at before what it describes is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _DESCRIPTIONS and member.size > MAX_HEADER):
            raise _Hostile(f"{member.size} bytes of what describes a member")
        return member


_DESCRIPTIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


def _unpack(tar: tarfile.TarFile, into: Path, only: PurePosixPath) -> str | None:
    top = None
    links = []
    for member in _members(tar):
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise _Hostile(f"{member.name!r} lies outside of its folder")
        _check_name(member.name)
        if top not in (None, path.parts[0]):
            raise _Hostile(f"{member.name!r} does not lie below {top!r}")
        inside = path.relative_to(path.parts[0])
        if not inside.is_relative_to(only):
            continue
        top = path.parts[0]
        target = into / path
        _make_parents(target.parent, into)
        if member.isdir():
            target.mkdir(exist_ok=True)
        elif member.isreg():
            content = tar.extractfile(member)
            assert content is not None
            with target.open("xb") as stream:
                shutil.copyfileobj(content, stream, 1 << 20)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
        elif member.issym():
            _check_name(member.linkname)
            target.symlink_to(member.linkname)
            links.append(target)
        else:
            raise _Hostile(f"{member.name!r} is neither file, folder nor symbolic link")
    for link in links:
        if top is None or not _is_inside(link, into / top):
            link.unlink()
            raise _Hostile(f"the link {link.relative_to(into)} leads out of its folder")
    return top


def _check_name(name: str) -> None:
    """Refuse a path that a file system cannot take, or that is so deep that nobody could remove it."""
    path = PurePosixPath(name)
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if len(os.fsencode(name)) > MAX_NAME or len(path.parts) > MAX_DEPTH or longest > 255:
        raise _Hostile(f"{name[:60]!r}... is longer or deeper than any path should be")
    if not path.parts or "\0" in name:
        raise _Hostile(f"{name!r} is no path")


def _is_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle, which Python 3.13 no longer says by an error
        return False


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(tar, start=1):
        total += member.size
        if member.issparse() or member.size < 0:
            raise _Hostile(f"{member.name!r} is a file with holes, or less than none")
        if total > MAX_BYTES or number > MAX_MEMBERS:
            raise _Hostile(f"more than {MAX_BYTES} bytes or {MAX_MEMBERS} members")
        yield member


def _make_parents(folder: Path, into: Path) -> None:
    """Make a folder below ``into``; never through a link that was unpacked before."""
    for parent in [*reversed(folder.relative_to(into).parents), folder.relative_to(into)]:
        step = into / parent
        if step.is_symlink():
            raise _Hostile(f"the link {parent} is used as a folder")
        step.mkdir(exist_ok=True)


def _download(binding: Binding, folder: Path, progress: Progress) -> None:
    wanted = f"{binding.package}=={binding.version}"
    done, where = _pip_download(binding.package, f"{wanted} --hash=sha256:{binding.sha256}", folder, progress)
    if got := re.search(r"Expected sha256 (\w+)\s+Got\s+(\w+)", done.output):
        raise _mismatch(binding, got.group(2), where)
    archive = folder / binding.sdist
    if done.returncode != 0 or not archive.is_file():
        raise _not_had(binding.sdist, done, where)
    if (sha256 := file_sha256(archive)) != binding.sha256:
        raise _mismatch(binding, sha256, where)


def _pip_download(
    package: str, requirement: str, folder: Path, progress: Progress
) -> tuple[proc.Completed, str]:
    """Let pip download the sdist that a line of a requirements file names; how it ended, and what was run."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement}\n")
    # Without build isolation: pip asks the sdist for its metadata, and the backend that answers is one of our
    # own dependencies; isolation would get it from the index once more.
    # --no-binary names the one package: with :all: pip would build the build tools from source, too.
    args = ["--no-deps", "--no-binary", package, "--no-build-isolation", "--dest", str(folder)]
    command = [*_PIP, "download", *args, *_QUIET, "-r", str(requirements)]
    log = folder / "pip.log"
    done = proc.run(command, cwd=folder, log=log, on_line=lambda line: progress.update(line.strip()))
    return done, f"pip download {requirement.split(' ')[0]} --no-binary {package}; log: {log}"


def _not_had(what: str, done: proc.Completed, where: str) -> SourceError:
    errors = [line for line in done.output.splitlines() if line.startswith("ERROR: ")]
    why = [line for line in errors if line != "ERROR: Exception:"] or done.output.split("\n")[-2:]
    return SourceError(f"pip could not get {what}", where=where, why="\n".join(why).strip())


def _key(binding: Binding) -> str:
    return digest(asdict(binding))[:20]


def _mismatch(binding: Binding, got: str, where: str) -> ContentMismatchError:
    return ContentMismatchError(
        f"{binding.sdist} is not the file that the pin names",
        where=where,
        why=f"sha256 expected {binding.sha256}\n       got      {got}",
        hint="look at the package index or mirror that pip uses; --source git gets the commit without it",
        details={"file": binding.sdist, "expected": binding.sha256, "got": got},
    )
