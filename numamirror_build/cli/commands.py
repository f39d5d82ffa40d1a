"""The commands: options -> settings -> one call into the pipeline -> an answer that is printed."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from numamirror_build import __version__, data
from numamirror_build.advise import CACHE_TYPES
from numamirror_build.cli import answers
from numamirror_build.cli.answers import Answer
from numamirror_build.cli.options import (
    Finite,
    Version,
    given_settings,
    option,
    refuse_beside,
    setting_options,
    tokens,
)
from numamirror_build.config import APP, OPTIONS, Settings, load_settings
from numamirror_build.errors import ConfigError, OutputError
from numamirror_build.pipeline import Pipeline, Request, run_job
from numamirror_build.progress import reporting
from numamirror_build.store import Store, check_writable

if TYPE_CHECKING:
    from numamirror_build.regress.steps import Level as RegressLevel
    from numamirror_build.verify.matrix import Level

Body = Callable[..., Answer]

SOURCE = ("upstream", "pin", "source", "git_url")
PLAN = (*SOURCE, "scope")
BUILD = (*PLAN, "jobs", "cmake_arg", "portable")
JOB = (*BUILD, "model", "out")

_LEVELS = click.Choice(("plan", "audit", "build", "verify"))


def answering(*names: str) -> Callable[[Body], Callable[..., int]]:
    """A decorator: the command takes these settings, and prints what its body answers.

    The body is called with the pipeline, the settings and the command's own options.
    """

    def decorate(body: Body) -> Callable[..., int]:
        @functools.wraps(body)
        def command(**parameters: Any) -> int:
            context = click.get_current_context()
            if context.invoked_subcommand is not None:
                return 0
            settings = load_settings(given_settings(context), os.environ, _current_folder())
            own = {name: value for name, value in parameters.items() if name not in OPTIONS}
            with reporting(quiet=settings.quiet, verbose=settings.verbose) as progress:
                pipeline = Pipeline(_open_store(settings.cache_dir), _request(settings), progress)
                answer = body(pipeline, settings, **own)
            if settings.json:
                click.echo(answers.printed({**answer.document, "settings": settings.as_json()}))
            elif answer.text:
                click.echo(answer.text)
            return answer.exit_code

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


@cli.group(invoke_without_command=True)
@answering("upstream")
def pins(pipeline: Pipeline, settings: Settings) -> Answer:
    """List the commits that are known and tested."""
    return answers.pins(pipeline.pins, pipeline.upstream.default_pin)


@pins.command(name="update")
@option(
    "--release",
    "releases",
    type=Version(),
    multiple=True,
    metavar="VERSION",
    help="A release of the binding to look at, of any age; may be repeated.  [default: all newer ones]",
)
@option(
    "--commit",
    "commits",
    multiple=True,
    metavar="COMMIT",
    help="A commit to look at instead: a full id, or what upstream's remote calls one, such as HEAD.",
)
@option("--write", is_flag=True, help="List the releases that need no hand work, and write their locks.")
@answering("upstream", "git_url")
def pins_update(
    pipeline: Pipeline, settings: Settings, releases: tuple[str, ...], commits: tuple[str, ...], write: bool
) -> Answer:
    """Show what newer releases of the binding, or commits, would change; list the releases when told to.

    A release that needs something says what: accesses without a rule, anchors that are gone with what is most
    like them, calls that no hook takes care of.
    """
    from numamirror_build.cli.update import update

    if commits:
        refuse_beside("--commit", "write")
    else:
        refuse_beside("releases of the binding", "git_url")
    return update(pipeline, releases=releases, commits=commits, write=write)


@cli.command()
@option(
    "--level",
    type=_LEVELS,
    default="plan",
    show_default=True,
    help="How far to go at each pin: plan also checks the lock and makes the tree; audit also compiles"
    " with the field hidden; build also makes programs and wheel; verify also compares answers.",
)
@option("--defaults", type=_LEVELS, help="How far to go at the default pins.  [default: as far]")
@option(
    "--pins",
    "names",
    metavar="NAME,...",
    help="Pins of the upstream, names or commits.  [default: all, of all upstreams unless --upstream"
    " names one; of releases with the same commit the newest, unless wheels are made]",
)
@option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="Pins at once; they share the jobs.  [default: 1 for plans, else one per 4 CPUs]",
)
@option(
    "--junit", "junit_file", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML as well."
)
@option(
    "--page",
    "page_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the table as a Markdown page as well.",
)
@answering("upstream", "source", "git_url", "scope", "jobs", "cmake_arg", "model")
def regress(
    pipeline: Pipeline,
    settings: Settings,
    level: RegressLevel,
    defaults: RegressLevel | None,
    names: str | None,
    parallel: int | None,
    junit_file: Path | None,
    page_file: Path | None,
) -> Answer:
    """Do the same at many pins, and show how each went and what changes from pin to pin.

    What an interrupted run made is in the cache: the same command goes on from there.
    The program ends with the exit code of the first failure.
    """
    from numamirror_build.cli.regress import regress as answer

    pins = [name for name in (names or "").split(",") if name]
    if names and not pins:
        raise click.UsageError("--pins names none: give names or commits, with commas between them.")
    if junit_file and page_file and junit_file.resolve() == page_file.resolve():
        raise click.UsageError("--junit and --page name the same file: give each its own.")
    return answer(
        pipeline,
        settings,
        level=level,
        defaults=defaults,
        pins=pins,
        parallel=parallel,
        junit_file=junit_file,
        page_file=page_file,
    )


@cli.command()
@answering(*SOURCE)
def checkout(pipeline: Pipeline, settings: Settings) -> Answer:
    """Get upstream's files at the pin, and check them."""
    return answers.checkout(pipeline)


@cli.command()
@option("--update-lock", is_flag=True, help="Make the pin's lock file what this plan finds.")
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
@option("--pristine", is_flag=True, help="Build the tree as upstream has it.")
@answering(*BUILD)
def build(pipeline: Pipeline, settings: Settings, pristine: bool) -> Answer:
    """Build programs and libraries."""
    return answers.build(pipeline, pristine=pristine)


@cli.command()
@option(
    "--sources",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write what the wheel is built from instead, with settings for cibuildwheel; needs --portable.",
)
@option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check a wheel that somebody built from these sources instead.",
)
@answering(*BUILD)
def wheel(pipeline: Pipeline, settings: Settings, sources: Path | None, check: Path | None) -> Answer:
    """Build the wheel of the Python binding with the patched tree inside."""
    if check is not None:
        refuse_beside("--check", "sources", *BUILD)
        return answers.checked_wheel(check)
    if sources is not None:
        return answers.sources(pipeline, sources)
    return answers.wheel(pipeline)


@cli.command()
@option(
    "--matrix",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="How much is run: quick, each setting and action; full, each pair of them (15 minutes or more).",
)
@option("--instructions", is_flag=True, help="Count instructions per token as well (needs valgrind).")
@option(
    "--lab",
    is_flag=True,
    help="Verify on virtual machines with 2 and 4 nodes instead, and count what is read from other nodes; "
    "takes neither --matrix nor --model.",
)
@answering(*BUILD, "model")
def verify(pipeline: Pipeline, settings: Settings, matrix: Level, instructions: bool, lab: bool) -> Answer:
    """Check that the answers are unchanged and the replicas used."""
    if lab:
        refuse_beside("--lab", "matrix", "instructions", "model")
        return answers.verification(pipeline, pipeline.verify_in_lab())
    return answers.verification(pipeline, pipeline.verify(level=matrix, instructions=instructions))


@cli.command()
@option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Make the change in a clone or fork of your own instead, for its files as they are.",
)
@answering(*PLAN, "out")
def export(pipeline: Pipeline, settings: Settings, into: Path | None) -> Answer:
    """Write the change as a series of patches for git am, or make it in a tree of your own.

    With --into, accesses that only that tree has are rewritten, too; where the change does not fit,
    nothing is written.
    """
    if into is not None:
        refuse_beside("--into", "out")
        return answers.changed(pipeline, pipeline.export_into(into))
    return answers.series(pipeline, pipeline.export(settings.out))


@cli.command(name="init-ci")
@option(
    "--into",
    type=click.Path(path_type=Path),
    default=".",
    metavar="DIR",
    help="The repository's top folder.  [default: the current folder]",
)
@option(
    "--install",
    metavar="REQUIREMENT",
    help="What pip installs there as this program.  [default: the clone's origin, at its commit]",
)
@option("--force", is_flag=True, help="Replace a workflow that was changed.")
@answering("upstream")
def init_ci(pipeline: Pipeline, settings: Settings, into: Path, install: str | None, force: bool) -> Answer:
    """Write a GitHub workflow for a repository of your own.

    It audits all known commits on each push to the default branch and for each pull request,
    builds programs and wheel on demand and for tags, and tries upstream's newest commit each night.
    """
    from numamirror_build.workflows import own_requirement, write_workflow

    requirement = install or own_requirement(data.clone())
    return answers.workflow(write_workflow(into, pipeline.upstream, requirement, force=force))


@cli.command(name="settings")
@answering(*JOB)
def show_settings(pipeline: Pipeline, settings: Settings) -> Answer:
    """Print the settings in force, and where each comes from."""
    return answers.settings(settings)


@cli.command()
@option(
    "--bandwidth/--no-bandwidth",
    default=True,
    help="Whether to measure how fast each node reads each node's memory: about a second for each pair.",
)
@answering()
def doctor(pipeline: Pipeline, settings: Settings, bandwidth: bool) -> Answer:
    """Look for what would prevent the mirror on this machine, or spoil what it brings.

    The exit status is 60 when something would.
    """
    from numamirror_build.cli import machine

    return machine.doctor(pipeline.store, measured=bandwidth, progress=pipeline.progress)


@cli.command()
@option(
    "--machine",
    metavar="FILE|NAME",
    help="A TOML file that describes a machine, or the name of one that is known."
    "  [default: this machine, measured]",
)
@option(
    "--context",
    type=tokens(1),
    default=4096,
    show_default=True,
    metavar="TOKENS",
    help="Tokens that the cache has room for.",
)
@option(
    "--depth",
    type=tokens(0),
    metavar="TOKENS",
    help="Tokens in the cache when the predicted one is generated.  [default: an eighth of the context]",
)
@option(
    "--cache-type",
    type=click.Choice(CACHE_TYPES),
    default="f16",
    show_default=True,
    metavar="TYPE",
    help=f"Type of K and V in the cache: {', '.join(CACHE_TYPES)}.",
)
@answering("model")
def advise(
    pipeline: Pipeline,
    settings: Settings,
    machine: str | None,
    context: int,
    depth: int | None,
    cache_type: str,
) -> Answer:
    """Predict what each way to run a model costs and brings on a machine, and say which to use.

    Nothing is run but, without --machine, the measurement of bandwidth that doctor makes.
    """
    from numamirror_build.cli import advise as answering_advise

    if settings.model is None:
        raise click.UsageError("Say which model: --model FILE.gguf.")
    if depth is None:
        depth = context // 8
    if depth > context:
        raise click.UsageError(f"--depth {depth} does not fit in a cache with --context {context}.")
    return answering_advise.advise(
        pipeline.store,
        settings.model,
        machine=machine,
        context=context,
        depth=depth,
        cache_type=cache_type,
        progress=pipeline.progress,
    )


@cli.group(invoke_without_command=True)
@option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME",
    help="A way to run the model; may be repeated.  [default: all that this machine has]",
)
@option(
    "--threads",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="How many threads; may be repeated.  [default: one per core, and half as many]",
)
@option(
    "--generate",
    type=tokens(1),
    multiple=True,
    default=(64,),
    metavar="TOKENS",
    help="Measure generating so many tokens; may be repeated.  [default: 64]",
)
@option(
    "--prompt",
    type=tokens(1),
    multiple=True,
    metavar="TOKENS",
    help="Measure reading a prompt of so many tokens; may be repeated.",
)
@option(
    "--token-times",
    type=tokens(2),
    multiple=True,
    metavar="TOKENS",
    help="Measure how long each of so many tokens takes, through the Python binding; may be repeated.",
)
@option(
    "--slots",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="How many requests --token-times generates at once; may be repeated.  [default: 1]",
)
@option(
    "--depth",
    type=tokens(0),
    multiple=True,
    default=(0,),
    metavar="TOKENS",
    help="Tokens in the cache before; may be repeated.  [default: 0]",
)
@option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="How often each point is measured; fewer than 4 cannot tell arms apart.",
)
@option(
    "--pretend",
    type=click.IntRange(min=2),
    metavar="NODES",
    help="Let the mirror pretend that there are so many nodes: to try it, not to learn about speed.",
)
@option(
    "--lab",
    is_flag=True,
    help="Run it on an emulated machine with two nodes: to see that each way runs and where its memory is.",
)
@option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("numamirror-bench.jsonl"),
    show_default=True,
    metavar="FILE",
    help="Where results are kept; what is in it already is not measured again.",
)
@answering(*BUILD, "model")
def bench(
    pipeline: Pipeline,
    settings: Settings,
    arms: tuple[str, ...],
    threads: tuple[int, ...],
    generate: tuple[int, ...],
    prompt: tuple[int, ...],
    token_times: tuple[int, ...],
    slots: tuple[int, ...],
    depth: tuple[int, ...],
    repetitions: int,
    pretend: int | None,
    lab: bool,
    results: Path,
) -> Answer:
    """Measure what each way to run a model brings on this machine, and say which to use.

    Each point is a process of its own, and the order of the arms turns around with each repetition.
    Interrupted, the same command goes on where it was.
    """
    from numamirror_build.cli import bench as answering_bench

    if settings.model is None:
        raise click.UsageError("Say which model: --model FILE.gguf.")
    return answering_bench.run(
        pipeline,
        settings.model,
        arms=arms,
        threads=threads,
        generate=generate,
        prompt=prompt,
        token_times=token_times,
        slots=slots,
        depth=depth,
        repetitions=repetitions,
        pretend=pretend or 0,
        lab=lab,
        results=results,
    )


@bench.command(name="compare")
@click.argument("first", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("second")
@answering()
def bench_compare(pipeline: Pipeline, settings: Settings, first: Path, second: str) -> Answer:
    """Compare results with others of the same model on the same machine in the same state, series by series.

    SECOND may also be a table that somebody else published, a TOML file or the name of one that is known:
    ratios are shown side by side then.
    """
    from numamirror_build.cli.measured import comparison

    return comparison(first, second)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@cli.command()
@option("--results", type=_FILE, metavar="FILE", help="Results of bench.")
@option("--prediction", type=_FILE, metavar="FILE", help="What advise --json wrote.")
@option("--verification", type=_FILE, metavar="FILE", help="The JSON report of a verification.")
@option("--trace", type=_FILE, metavar="FILE", help="What lab run --trace wrote.")
@option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where report.html, report.md and report.json are written.  [default: the current folder]",
)
@answering()
def report(
    pipeline: Pipeline,
    settings: Settings,
    results: Path | None,
    prediction: Path | None,
    verification: Path | None,
    trace: Path | None,
    to: Path,
) -> Answer:
    """Write one report of what is given: a page with plots that is complete in itself, Markdown, and JSON."""
    from numamirror_build.cli import report as answering_report

    return answering_report.write(
        to, results=results, prediction=prediction, verification=verification, trace=trace
    )


@cli.group(no_args_is_help=False)
@setting_options()
def cache(**_: Any) -> None:
    """See what lies in the cache folder, and take away what is not used."""


@cache.command(name="list")
@answering()
def cache_list(pipeline: Pipeline, settings: Settings) -> Answer:
    """Show what the cache has of each kind: number, size, days since it was last used."""
    from numamirror_build.cli.cache import listed

    return listed(pipeline.store.root)


@cache.command(name="prune")
@option(
    "--unused-for",
    "days",
    type=Finite(min=0),
    required=True,
    metavar="DAYS",
    help="How long something must not have been used.",
)
@option("--dry-run", is_flag=True, help="Only show what would be removed.")
@answering()
def cache_prune(pipeline: Pipeline, settings: Settings, days: float, dry_run: bool) -> Answer:
    """Remove what nobody has used for some days; what is needed again is made again.

    What another process uses or makes is left.
    """
    from numamirror_build.cli.cache import pruned

    return pruned(pipeline.store.root, days=days, dry_run=dry_run)


@cli.group(no_args_is_help=False)
@setting_options()
def lab(**_: Any) -> None:
    """Try things on a virtual machine with several NUMA nodes."""


@lab.command(name="run", context_settings={"allow_interspersed_args": False})
@option("--nodes", type=click.IntRange(min=1), help="How many nodes.  [default: 2]")
@option("--cpus-per-node", type=click.IntRange(min=1), help="CPUs of each node.  [default: 2]")
@option("--mem-per-node", metavar="SIZE", help="Memory of each node.  [default: 1G]")
@option("--distance", type=int, help="From each node to each other.  [default: 21]")
@option(
    "--layout",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file that describes the nodes, instead of the four options above.",
)
@option(
    "--cpu",
    default="max",
    show_default=True,
    metavar="MODEL",
    help="The model of the CPUs, as QEMU names it, for example Nehalem, which has no AVX.",
)
@option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the command, with the caller's value if none is given; may be repeated.",
)
@option(
    "--scratch",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that the command may write to, at the same place as here; it is made if it is not there.",
)
@option(
    "--timeout",
    type=Finite(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="When the machine is switched off, whatever it does; its start counts.",
)
@option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Count the bytes that a program which marks its phases loads and stores; written to FILE as JSON.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@answering()
def lab_run(
    pipeline: Pipeline,
    settings: Settings,
    command: tuple[str, ...],
    layout: Path | None,
    cpu: str,
    env: tuple[str, ...],
    scratch: Path | None,
    timeout: float,
    trace: Path | None,
    **given: Any,
) -> Answer:
    """Run a command on a virtual machine with several NUMA nodes.

    The machine sees the files of this one, and what it changes is gone with it,
    but for the folder that --scratch names.
    The program ends with the command's exit status.
    Write -- before the command.
    """
    from numamirror_build.cli import lab as answering_lab

    return answering_lab.run(
        pipeline.store,
        answering_lab.chosen_layout(
            layout, {name: value for name, value in given.items() if value is not None}
        ),
        command,
        env=env,
        scratch=scratch,
        timeout=timeout,
        trace=trace,
        cpu=cpu,
        json=settings.json,
        progress=pipeline.progress,
    )


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigError("The current folder is gone", hint="go to another one") from error


def _request(settings: Settings) -> Request:
    return Request(
        upstream=settings.upstream,
        pin=settings.pin,
        source=settings.source,
        git_url=settings.git_url,
        scope=settings.scope,
        jobs=settings.jobs,
        cmake_args=settings.cmake_arg,
        portable=settings.portable,
        model=settings.model,
    )


def _open_store(root: Path) -> Store:
    """The cache, whose folder is made by what is first kept in it."""
    try:
        if not root.is_dir():
            check_writable(root / "locks")
    except OutputError as error:
        raise ConfigError(
            "The cache folder cannot be made",
            where=str(root),
            why=error.why,
            hint="choose another with --cache-dir",
        ) from error
    return Store(root)
