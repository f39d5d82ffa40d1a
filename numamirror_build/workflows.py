"""Workflows for a user's own repository: the known pins, wheels, and upstream's newest commit, in its CI."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from numamirror_build import __version__, data
from numamirror_build.config import APP, variable_of
from numamirror_build.errors import OutputError
from numamirror_build.store import write_atomic
from numamirror_build.upstreams.pins import Upstream

RELEASE = f"{APP}=={__version__}"


def workflow_text(upstream: Upstream, requirement: str = RELEASE) -> str:
    """GitHub's workflow file for one upstream.

    Args:
        upstream: the upstream.
        requirement: what pip installs there: a release of ours, or an address.
    """
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


def write_workflow(
    repository: Path, upstream: Upstream, requirement: str = RELEASE, *, force: bool = False
) -> Path:
    """Write an upstream's workflow into a repository.

    Args:
        repository: its top folder.
        upstream: the upstream.
        requirement: what pip installs there.
        force: whether to replace a file that somebody has changed.

    Returns:
        the file.

    Raises:
        OutputError: the folder is not there, or the file is there with other content.
    """
    if not repository.is_dir():
        raise OutputError(
            "There is no such folder", where=str(repository), hint="name the top folder of a repository"
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
