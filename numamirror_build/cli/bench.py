"""``bench``: what is measured, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from numamirror_build import __version__, data
from numamirror_build.bench.arms import Files, Task, Tree, arms_for
from numamirror_build.bench.job import Job
from numamirror_build.bench.meters import TokenTimes, ask_program
from numamirror_build.bench.results import load_results, results_so_far
from numamirror_build.cli.answers import Answer
from numamirror_build.machine.state import read_state
from numamirror_build.toml import read_toml
from numamirror_build.verify.models import find_model, parts_of, read_model

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.lab.layout import Layout
    from numamirror_build.lab.parts import Parts
    from numamirror_build.pipeline import Pipeline
    from numamirror_build.progress import Progress


def run(
    pipeline: Pipeline,
    model: str,
    *,
    arms: Sequence[str],
    threads: Sequence[int],
    generate: Sequence[int],
    prompt: Sequence[int],
    token_times: Sequence[int],
    slots: Sequence[int],
    depth: Sequence[int],
    repetitions: int,
    pretend: int,
    lab: bool,
    results: Path,
) -> Answer:
    """Measure what is not in the file of results yet, and say what it shows."""
    if slots and not token_times:
        raise click.UsageError(
            "--slots is how many requests --token-times generates at once: give that, too."
        )
    if lab and pretend:
        raise click.UsageError("The lab's machine has several nodes: leave out --pretend.")
    if not lab:
        _require(arms, [arm.name for arm in arms_for(read_state().mirrored, pretend)])
    results_so_far(results)
    found = find_model(pipeline.store, model, progress=pipeline.progress)
    size = sum(tensor.size for tensor in read_model(found.path).tensors.values())
    machine = _machine(pipeline, size, arms) if lab else None
    builds = _builds(pipeline, lab)
    job = Job(
        arms=tuple(arms),
        threads=tuple(threads),
        tests=tuple(_tests(generate, prompt, token_times, slots, depth)),
        repetitions=repetitions,
        pretend=pretend,
        model=Files(found.path, tuple(parts_of(found.path))),
        programs={tree: ask_program(build.programs["llama-bench"]) for tree, build in builds.items()},
        bindings=_bindings(pipeline, builds) if token_times else {},
        subject={
            "tool": __version__,
            "upstream": pipeline.pin.upstream,
            "pin": pipeline.pin.name,
            "commit": pipeline.pin.commit,
            "builds": {tree: build.key for tree, build in builds.items()},
            # with its name what tells a model from another
            "model": {"name": found.name, "bytes": size},
        },
        results=results.absolute(),
    )
    if machine:
        _in_lab(job, *machine, pipeline.progress)
    else:
        job.carry_out(read_state, pipeline.progress)
    # what statistics need takes a second to load: not before something was measured
    from numamirror_build.cli.measured import measured

    return measured(load_results(job.results), job.results)


def _require(arms: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in arms if name not in known]:
        raise click.UsageError(f"No such arm here: {', '.join(unknown)}. There are: {', '.join(known)}.")


def _machine(pipeline: Pipeline, size: int, arms: Sequence[str]) -> tuple[Layout, Parts]:
    """The lab's machine for a model of so many bytes, which must have the arms."""
    from numamirror_build.bench.lab import arms_there, layout_for
    from numamirror_build.lab.parts import find_parts

    layout = layout_for(size)
    _require(arms, arms_there(layout))
    return layout, find_parts(pipeline.store, progress=pipeline.progress)


def _in_lab(job: Job, layout: Layout, parts: Parts, progress: Progress) -> None:
    from numamirror_build.bench.lab import carry_out_in_lab, described

    inside = replace(job, subject={**job.subject, "lab": described(layout, parts)})
    carry_out_in_lab(inside, layout, parts, progress)


def _tests(
    generate: Sequence[int],
    prompt: Sequence[int],
    token_times: Sequence[int],
    slots: Sequence[int],
    depth: Sequence[int],
) -> list[Task]:
    return [
        *(Task("tg", count, before) for count in generate for before in depth),
        *(Task("pp", count, before) for count in prompt for before in depth),
        *(
            Task("tok", count, before, at_once)
            for count in token_times
            for at_once in slots or (1,)
            for before in depth
        ),
    ]


def _builds(pipeline: Pipeline, lab: bool) -> dict[Tree, Build]:
    if lab:
        pristine, patched = pipeline.portable_benches
        return {"pristine": pristine, "patched": patched}
    return {"pristine": pipeline.pristine_build, "patched": pipeline.patched_build}


def _bindings(pipeline: Pipeline, builds: dict[Tree, Build]) -> dict[Tree, TokenTimes]:
    """The binding, installed from the wheel, with each build's libraries in the place of its own."""
    from numamirror_build.building.venv import make_venv
    from numamirror_build.verify.profile import load_profile
    from numamirror_build.verify.runs import RUNNER

    upstream = pipeline.pin.upstream
    profile = load_profile(upstream)
    own = data.patches(upstream) / "bench.toml"
    several = read_toml(own, "What measuring must know")["several_slots"] if own.is_file() else {}
    python = make_venv(pipeline.store, pipeline.wheel, progress=pipeline.progress)

    def binding(build: Build) -> TokenTimes:
        env = {profile.variable: str(build.libraries / profile.file)}
        return TokenTimes(python, RUNNER, profile.binding, env, several)

    return {tree: binding(build) for tree, build in builds.items()}
