"""Workflows for a user's own repository: the known pins, wheels, and upstream's newest commit, in its CI."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from numamirror_build import __version__, data
from numamirror_build.config import APP, variable_of
from numamirror_build.errors import ConfigError, OutputError
from numamirror_build.store import write_atomic
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import Upstream

_ADDRESS = re.compile(r"https://[^\s@]+")
_SSH = re.compile(r"(?:git@([\w.-]+):|ssh://git@([\w.-]+)/)([^\s@]+)")


def own_requirement(clone: Path | None) -> str:
    """What pip installs this very program from, wherever it runs: its clone's origin, at its commit.

    No name on a package index is taken for ours: whoever has it there would run code in the user's CI.

    Args:
        clone: the clone that the program runs from; None if it was installed.

    Raises:
        ConfigError: it does not run from a clone, or others cannot get that commit from its origin.
        SourceError: git cannot read the clone.
        ToolMissingError: git is not installed.
    """
    why = "it does not run from a clone of its repository"
    if clone and (clone / ".git").exists():
        origin, commit, branches = (
            run_git(*words, cwd=clone).decode(errors="replace").strip()
            for words in (
                ("config", "--default", "", "--get", "remote.origin.url"),
                ("rev-parse", "HEAD"),
                ("for-each-ref", "--contains", "HEAD", "refs/remotes/origin"),
            )
        )
        if ssh := _SSH.fullmatch(origin):  # where forges have the same repository by https as well
            origin = f"https://{ssh[1] or ssh[2]}/{ssh[3]}"
        if not _ADDRESS.fullmatch(origin):  # a password in it must not get into a file that others read
            why = "its clone has no origin of the form https://HOST/REPOSITORY or git@HOST:REPOSITORY"
        elif not branches:
            why = f"its commit {commit} is in no branch of origin that the clone knows of"
        else:
            return f"{APP} @ git+{origin}@{commit}"
    raise ConfigError(
        f"Nobody can tell where {APP} is to be installed from",
        why=why,
        hint=f'say it: --install "{APP} @ git+https://HOST/REPOSITORY@COMMIT"',
    )


def workflow_text(upstream: Upstream, requirement: str) -> str:
    """GitHub's workflow file for one upstream.

    Args:
        upstream: the upstream.
        requirement: what pip installs there: a release of ours, or an address.

    Raises:
        ConfigError: the requirement is more than one line, or GitHub would replace a part of it.
    """
    if not requirement.isprintable() or "${{" in requirement:
        raise ConfigError(
            f"This is nothing that pip could install: {requirement!r}",
            where="option --install",
            hint="give a requirement as pip takes it, in one line and without expressions of GitHub's",
        )
    environment = Environment(
        loader=FileSystemLoader(data.templates()),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        # the braces are GitHub's
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
    )
    return environment.get_template("ci/github.yml.j2").render(
        app=APP,
        version=__version__,
        upstream=upstream.name,
        git_url=upstream.git_url,
        requirement=requirement,
        variables={name: variable_of(name) for name in ("upstream", "pin", "source")},
    )


def write_workflow(repository: Path, upstream: Upstream, requirement: str, *, force: bool = False) -> Path:
    """Write an upstream's workflow into a repository.

    Args:
        repository: its top folder.
        upstream: the upstream.
        requirement: what pip installs there.
        force: whether to replace a file that somebody has changed.

    Returns:
        the file.

    Raises:
        OutputError: the folder is not there, or inside of a repository, whose top GitHub looks at;
            or the file is there with other content.
        ConfigError: the requirement is none.
    """
    if not repository.is_dir():
        raise OutputError(
            "There is no such folder", where=str(repository), hint="name the top folder of a repository"
        )
    folder = repository.resolve()
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    if top != folder:
        raise OutputError(
            "GitHub looks for workflows in the top folder of a repository alone",
            where=str(repository),
            hint=f"add --into {shlex.quote(str(top))}",
        )
    path = repository / ".github" / "workflows" / f"numamirror-{upstream.name}.yml"
    text = workflow_text(upstream, requirement)
    if path.is_file() and path.read_bytes() != text.encode() and not force:
        raise OutputError(
            "There is a workflow already, and it differs",
            where=str(path),
            why="it was changed, or written by another release or with other options",
            hint="add --force to replace it",
        )
    write_atomic(path, text)
    return path
