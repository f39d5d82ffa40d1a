"""A made-up upstream: a real git repository, an index with an sdist that carries it, and pins that name it.

Its files are what upstreams make trouble with: line ends that attributes would convert, a program, a link,
names that sort oddly, a name that is no ASCII, a file that is tracked although .gitignore names it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from numamirror_build.store import file_sha256
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import Pin, find_pin

NAME = "tiny"
CARRIED = ".git/modules/vendor/tiny"
SDIST = "tiny_python-1.0.tar.gz"
FILES = {
    ".gitattributes": b"* text=auto eol=crlf ident\n*.bin filter=nothing\n",
    ".gitignore": b"build/\n*.log\n",
    "README": b"$Id$\nfirst\n",
    "src/a.c": b"int a;\n",
    "src/dos.c": b"int dos;\r\n",
    "src.c": b"int between;\n",
    "src-x": b"sorts before src/\n",
    "caf\u00e9 men\u00fc.txt": b"name\n",
    "tracked.log": b"kept\n",
    ":(odd)*[a].txt": b"looks like a pattern\n",
    "empty": b"",
}
PROGRAM = "run.sh"
LINK, TARGET = "link", "src/a.c"

_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", "2026-01-02T03:04:05Z"))
}
_BACKEND = """
import pathlib, os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    if ran := os.environ.get("TINY_RAN"):
        pathlib.Path(ran).write_text("ran")
    if os.environ.get("TINY_KILL"):
        os.kill(int(os.environ["TINY_PID"]), 9)
    info = pathlib.Path(folder, "tiny_python-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: tiny-python\\nVersion: 1.0\\n")
    return info.name
def build_wheel(*args, **kwargs):
    raise SystemExit("nobody should build this")
"""
_CONFIG = "[core]\n\tworktree = ../../../../vendor/tiny\n\tbare = false\n"
_PYPROJECT = """
[build-system]
requires = ["a-build-tool-that-no-index-has"]
build-backend = "backend"
backend-path = ["."]
"""


@dataclass(frozen=True)
class Tiny:
    """The made-up upstream.

    Attributes:
        pin: its only pin, as the package reads it.
        repository: a clone with two commits, the pin's being the last.
        data: the package's data folder with the pin in it.
        index: folder with the sdist, for pip.
    """

    pin: Pin
    repository: Path
    data: Path
    index: Path

    @property
    def archive(self) -> Path:
        """The sdist that the index offers."""
        return self.index / SDIST

    def write_pins(self, **changes: str) -> Pin:
        """Write ``pins.toml`` anew with some values changed and return the pin."""
        facts = {
            "commit": self.pin.commit,
            "tree": self.pin.tree,
            "sha256": file_sha256(self.archive),
            "submodules": "{}",
            **changes,
        }
        (self.data / "patches" / NAME / "pins.toml").write_text(
            f'[[pin]]\nname = "1.0"\ncommit = "{facts["commit"]}"\ntree = "{facts["tree"]}"\n'
            f'date = "2026-01-02T03:04:05+00:00"\nsubmodules = {facts["submodules"]}\n'
            f'[pin.binding]\npackage = "tiny-python"\nversion = "1.0"\nsdist = "{SDIST}"\n'
            f'sha256 = "{facts["sha256"]}"\n'
        )
        return find_pin(NAME, None)

    def plain_folder(self, name: str) -> Path:
        """A copy of the pin's files without git, the same for the same name."""
        folder = self.data.parent / name
        if not folder.exists():
            write_files(folder)
        return folder


def write_files(folder: Path) -> None:
    """Write the made-up upstream's files."""
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / PROGRAM).write_bytes(b"#!/bin/sh\n")
    (folder / PROGRAM).chmod(0o755)
    (folder / LINK).symlink_to(TARGET)


def commit_all(repository: Path, message: str) -> str:
    """Commit what is in the work tree, ignored files too, bytes as they are; returns the commit."""
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/attributes").write_text("* -text -ident -filter\n")
    run_git("add", "--all", "--force", cwd=repository)
    run_git("commit", "--quiet", "--message", message, cwd=repository, env=_AUTHOR)
    return run_git("rev-parse", "HEAD", cwd=repository).decode().strip()


def make(root: Path) -> Tiny:
    """Make all of it below a folder; ``data`` still has to take the place of the package's own."""
    repository = root / "clone"
    repository.mkdir()
    run_git("init", "--quiet", cwd=repository)
    (repository / "README").write_text("before\n")
    commit_all(repository, "first")
    write_files(repository)
    commit = commit_all(repository, "second")
    tree = run_git("rev-parse", "HEAD^{tree}", cwd=repository).decode().strip()
    data = root / "data"
    (data / "patches" / NAME).mkdir(parents=True)
    (data / "patches" / NAME / "upstream.toml").write_text(
        f'name = "{NAME}"\ngit_url = "{repository.as_uri()}"\ndefault_pin = "1.0"\n'
        f'sdist_repository = "{CARRIED}"\n'
    )
    pin = Pin(NAME, "1.0", commit, tree, None, None, listed=True)
    tiny = Tiny(pin, repository, data, root / "index")
    make_sdist(tiny)
    return tiny


def make_sdist(tiny: Tiny, config: str = _CONFIG) -> None:
    """An sdist with a shallow repository of the pin's commit inside, as the real ones have."""
    tiny.index.mkdir(exist_ok=True)
    carried = tiny.data.parent / "carried"
    shutil.rmtree(carried, ignore_errors=True)
    run_git("init", "--quiet", "--bare", carried)
    run_git("fetch", "--quiet", "--depth=1", tiny.repository.as_uri(), tiny.pin.commit, cwd=carried)
    run_git("update-ref", "--no-deref", "HEAD", tiny.pin.commit, cwd=carried)
    (carried / "config").write_text(config)
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-python\nVersion: 1.0\n",
        "pyproject.toml": _PYPROJECT,
        "backend.py": _BACKEND,
        "vendor/tiny/.git": "gitdir: ../../.git/modules/vendor/tiny\n",
    }
    with tarfile.open(tiny.archive, "w:gz") as tar:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"tiny_python-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        tar.add(carried, arcname=f"tiny_python-1.0/{CARRIED}")


def content(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All that is in a folder, by path: kind (``file``, ``program``, ``link``) and content."""
    found = {}
    for place in sorted(folder.rglob("*")):
        name = str(place.relative_to(folder))
        if place.is_symlink():
            found[name] = ("link", os.fsencode(place.readlink()))
        elif place.is_file():
            found[name] = ("program" if os.access(place, os.X_OK) else "file", place.read_bytes())
    return found


def expected_content() -> dict[str, tuple[str, bytes]]:
    """What :func:`content` says about the pin's files."""
    files = {name: ("file", body) for name, body in FILES.items()}
    return {**files, PROGRAM: ("program", b"#!/bin/sh\n"), LINK: ("link", TARGET.encode())}


def unlisted(pin: Pin, commit: str) -> Pin:
    """A pin that stands in no list, with the same binding."""
    return replace(pin, name=commit[:12], commit=commit, tree=None, date=None, listed=False)
