"""Git, run so that nothing of the user's reaches it: the only module that starts git.

Not the user's configuration, ignore and attribute files, not the system's, no ``GIT_*`` variable, no prompts.
All settings stand in ``gitconfig`` beside this file, which takes the place of the user's.
GitPython starts git with this process's environment and can only add to it,
so ``env`` stands before git on each command line and takes away what must not be inherited.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from numamirror_build.errors import DISK_FULL_HINT, DiskFullError, SourceError, ToolMissingError
from numamirror_build.proc import NO_SPACE, find_tool, interrupt_deferred

_SETTINGS = {
    "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",  # empty rather than unset: unset lets SSH_ASKPASS in
}
_RAW_CONTENT = "* -text -ident -filter -working-tree-encoding !diff !merge\n"


def run_git(
    *args: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Run one git command and return what it prints.

    Args:
        args: git's arguments, subcommand first or after options like ``--git-dir``.
        cwd: folder to run in; None for the current one.
        stdin: what it reads.
        env: variables for this command alone, for example ``GIT_INDEX_FILE``.

    Raises:
        ToolMissingError: git is not installed, or does not run.
        SourceError: git failed; ``why`` is what it said.
        DiskFullError: git failed because the disk is full.
    """
    hint = "install git, for example: apt install git"
    program = find_tool("git", hint=hint)
    # GitPython looks for a git when it is imported, and fails if there is none, unless told not to.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    try:
        import git
    except ImportError as error:  # it asks git for its version, too
        why = " ".join(str(error).split())
        raise ToolMissingError(
            "The program git does not run", where=str(program), why=why, hint=hint
        ) from error

    inherited = [f"--unset={name}" for name in os.environ if name.startswith("GIT_")]
    settings = [f"{name}={value}" for name, value in {**_SETTINGS, **(env or {})}.items()]
    words = [str(arg) for arg in args]
    command = ["env", *inherited, *settings, str(program), *words]
    process: subprocess.Popen[bytes] | None = None
    try:
        with interrupt_deferred():
            running = git.Git(cwd).execute(command, istream=subprocess.PIPE, as_process=True)
            process = running.proc
        assert process is not None
        output, said = process.communicate(stdin)
    finally:
        if process and process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode == 0:
        return output
    why = said.decode(errors="replace").strip()
    where = f"git {' '.join(words)}"
    if NO_SPACE in why:
        raise DiskFullError("No space left on the device", where=where, hint=DISK_FULL_HINT)
    raise SourceError("Git failed", where=where, why=why)


class Repository:
    """A bare repository of our own, with or without a folder of files that belongs to it.

    Files are written and read exactly as they are stored: attributes of the content convert nothing.

    Args:
        folder: the repository.
        work_tree: the folder of files.
    """

    def __init__(self, folder: Path, work_tree: Path | None = None) -> None:
        self.folder = folder
        self.work_tree = work_tree

    @classmethod
    def create(cls, folder: Path, work_tree: Path | None = None) -> Repository:
        """Make an empty repository, and the folder of files if it is not there."""
        run_git("init", "--quiet", "--bare", "--template=", folder)
        info = folder / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_RAW_CONTENT)
        if work_tree:
            work_tree.mkdir(parents=True, exist_ok=True)
        return cls(folder, work_tree)

    def run(self, *args: str | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Run a git command on this repository and return what it prints; errors as :func:`run_git`."""
        place: list[str | Path] = ["--git-dir", self.folder]
        if self.work_tree:
            place += ["--work-tree", self.work_tree]
        return run_git(*place, *args, cwd=self.work_tree or self.folder, stdin=stdin, env=env)

    def text(self, *args: str | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """The same as text, without white space at its ends."""
        return self.run(*args, stdin=stdin, env=env).decode(errors="surrogateescape").strip()
