"""What ``pins update`` answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from numamirror_build.cli.answers import Answer
from numamirror_build.errors import NumaMirrorError
from numamirror_build.pinning.assess import SCOPES, Assessment, adopt, assess, assess_commit
from numamirror_build.pinning.watch import load_watches
from numamirror_build.pipeline import Pipeline
from numamirror_build.upstreams.releases import newer_releases

_FILES_SHOWN = 10


def update(
    pipeline: Pipeline, *, releases: Sequence[str], commits: Sequence[str] = (), write: bool
) -> Answer:
    """See what releases and commits would change, and list the releases that fit when told to."""
    request, progress = pipeline.request, pipeline.progress
    upstream = request.upstream
    if not releases and not commits:
        progress.step("Asking the package index for newer releases")
        releases = newer_releases(upstream)
    assessments: list[Assessment] = []
    written: list[str] = []
    stopped: NumaMirrorError | None = None
    try:
        for commit in commits:
            assessments.append(
                assess_commit(pipeline.store, upstream, commit, git_url=request.git_url, progress=progress)
            )
        for version in releases:
            assessments.append(made := assess(pipeline.store, upstream, version, progress=progress))
            if write and made.fits:
                written += map(str, adopt(pipeline.store, made))
    except NumaMirrorError as error:
        if not assessments:
            raise
        stopped = error
    written = list(dict.fromkeys(written))
    lines = [line for made in assessments for line in [*_lines(upstream, made), ""]]
    if not assessments:
        lines = ["The index offers no release that is newer than all pins."]
    elif written:
        lines += ["written:", *(f"  {path}" for path in written), ""]
    elif releases and not write and any(made.fits for made in assessments):
        lines += ["nothing was written; --write lists the releases that need no hand work", ""]
    if stopped:
        lines += ["it ended here:", *(f"  {line}" for line in stopped.lines())]
    problems = [*filter(None, [stopped]), *(problem for made in assessments for problem in made.problems)]
    return Answer(
        {
            "releases": [made.as_json() for made in assessments],
            "written": written,
            "stopped": stopped.as_json() if stopped else None,
        },
        "\n".join(lines).rstrip(),
        problems[0].exit_code if problems else 0,
    )


def _lines(upstream: str, made: Assessment) -> Iterator[str]:
    facts = (made.release.pin.commit, (made.release.pin.date or "")[:10]) if made.release else ()
    commit = f" ({', '.join(filter(None, facts))})" if facts else ""
    number = f"{len(made.problems)} problem{'s' if len(made.problems) > 1 else ''}"
    if made.release is None:
        yield f"{made.version}: its files could not be had"
    else:
        yield f"{made.version}{commit}: needs {'no hand work' if made.fits else f'hand work, {number}'}"
    if made.before:
        same = ", whose commit is the same" if made.same_commit else ""
        yield f"  compared with {made.before}{same}"
    if made.problems and made.plans:
        yield f"  scope {SCOPES[0]} needs no hand work, only scope {SCOPES[-1]} does"
    for problem in made.problems:
        yield from (f"  {line}" for text in problem.lines() for line in text.splitlines())
    yield from _sites(made.sites)
    for hook, places in made.hooks.items():
        yield f"  hook {hook}: {places}"
    hints = {watch.name: watch.hint for watch in load_watches(upstream)}
    for sort, names in made.names.items():
        yield f"  new {sort}: {', '.join(names)}"
        yield f"    {hints[sort]}"


def _sites(sites: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not sites:
        return
    total = sum(sum(counts.values()) for counts in sites.values())
    yield f"  accesses: {total:+} in {len(sites)} file{'s' if len(sites) > 1 else ''}"
    largest = sorted(sites, key=lambda path: -sum(map(abs, sites[path].values())))
    for path in largest[:_FILES_SHOWN]:
        yield f"    {path}: " + ", ".join(f"{kind} {number:+}" for kind, number in sites[path].items())
    if len(largest) > _FILES_SHOWN:
        yield f"    and {len(largest) - _FILES_SHOWN} more files"
