"""The commands: options -> settings -> one call into the pipeline -> an answer that is printed."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from numamirror_build import __version__
from numamirror_build.cli import answers
from numamirror_build.cli.answers import Answer
from numamirror_build.cli.options import given_settings, setting_options
from numamirror_build.config import APP, OPTIONS, Settings, load_settings
from numamirror_build.errors import ConfigError
from numamirror_build.pipeline import Pipeline, Request, run_job
from numamirror_build.progress import reporting
from numamirror_build.store import Store

if TYPE_CHECKING:
    from numamirror_build.verify.matrix import Level

Body = Callable[..., Answer]

SOURCE = ("upstream", "pin", "source", "git_url")
PLAN = (*SOURCE, "scope")
BUILD = (*PLAN, "jobs", "cmake_arg")
JOB = (*BUILD, "model", "out")


def answering(*names: str) -> Callable[[Body], Callable[..., None]]:
    """A decorator: the command takes these settings, and prints what its body answers.

    The body is called with the pipeline, the settings and the command's own options.
    """

    def decorate(body: Body) -> Callable[..., None]:
        @functools.wraps(body)
        def command(**parameters: Any) -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is not None:
                return
            settings = load_settings(given_settings(context), os.environ, Path.cwd())
            own = {name: value for name, value in parameters.items() if name not in OPTIONS}
            with reporting(quiet=settings.quiet, verbose=settings.verbose) as progress:
                pipeline = Pipeline(_open_store(settings.cache_dir), _request(settings), progress)
                answer = body(pipeline, settings, **own)
            if settings.json:
                click.echo(json.dumps({**answer.document, "settings": settings.as_json()}, indent=2))
            elif answer.text:
                click.echo(answer.text)

        return setting_options(*names)(command)

    return decorate


@click.group(
    name=APP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=APP)
@answering(*JOB)
def cli(pipeline: Pipeline, settings: Settings) -> Answer:
    """Build llama.cpp or ik_llama.cpp with one replica of the weights per NUMA node, and prove that it works.

    Without a command the whole job is done: a patched tree, programs, a wheel of the Python binding
    and a verification report end up in the output folder.
    Each command does one step, and the steps before it when they are not in the cache.
    """
    return answers.job(pipeline, run_job(pipeline, settings.out))


@cli.command()
@answering("upstream")
def pins(pipeline: Pipeline, settings: Settings) -> Answer:
    """List the commits that are known and tested."""
    return answers.pins(pipeline.pins, pipeline.upstream.default_pin)


@cli.command()
@answering(*SOURCE)
def checkout(pipeline: Pipeline, settings: Settings) -> Answer:
    """Get upstream's files at the pin, and check them."""
    return answers.checkout(pipeline)


@cli.command()
@click.option("--update-lock", is_flag=True, help="Make the pin's lock file what this plan finds.")
@answering(*PLAN)
def plan(pipeline: Pipeline, settings: Settings, update_lock: bool) -> Answer:
    """Find all places to change; nothing is written to the tree."""
    if update_lock:
        return answers.lock(pipeline, pipeline.update_lock())
    return answers.plan(pipeline)


@cli.command()
@answering(*PLAN)
def apply(pipeline: Pipeline, settings: Settings) -> Answer:
    """Make the patched tree."""
    return answers.tree(pipeline)


@cli.command()
@answering(*BUILD)
def audit(pipeline: Pipeline, settings: Settings) -> Answer:
    """Prove with the compiler that no access to tensor data was missed."""
    return answers.audit(pipeline)


@cli.command()
@click.option("--pristine", is_flag=True, help="Build the tree as upstream has it.")
@answering(*BUILD)
def build(pipeline: Pipeline, settings: Settings, pristine: bool) -> Answer:
    """Build programs and libraries."""
    return answers.build(pipeline, pristine=pristine)


@cli.command()
@answering(*BUILD)
def wheel(pipeline: Pipeline, settings: Settings) -> Answer:
    """Build the wheel of the Python binding with the patched tree inside."""
    return answers.wheel(pipeline)


@cli.command()
@click.option(
    "--matrix",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="How much is run: quick, each setting and action; full, each pair of them (15 minutes or more).",
)
@click.option("--instructions", is_flag=True, help="Count instructions per token as well (needs valgrind).")
@answering(*BUILD, "model")
def verify(pipeline: Pipeline, settings: Settings, matrix: Level, instructions: bool) -> Answer:
    """Check that the answers are unchanged and the replicas used."""
    return answers.verification(pipeline, pipeline.verify(level=matrix, instructions=instructions))


@cli.command()
@answering(*PLAN, "out")
def export(pipeline: Pipeline, settings: Settings) -> Answer:
    """Write the change as a series of patches for git am."""
    return answers.series(pipeline, pipeline.export(settings.out))


@cli.command(name="settings")
@answering(*JOB)
def show_settings(pipeline: Pipeline, settings: Settings) -> Answer:
    """Print the settings in force, and where each comes from."""
    return answers.settings(settings)


def _request(settings: Settings) -> Request:
    return Request(
        upstream=settings.upstream,
        pin=settings.pin,
        source=settings.source,
        git_url=settings.git_url,
        scope=settings.scope,
        jobs=settings.jobs,
        cmake_args=settings.cmake_arg,
        model=settings.model,
    )


def _open_store(root: Path) -> Store:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "The cache folder cannot be made",
            where=str(root),
            why=error.strerror,
            hint="choose another with --cache-dir",
        ) from error
    return Store(root)
