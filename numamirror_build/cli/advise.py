"""``advise``: what is predicted, and how it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numamirror_build.advise.platform import Platform, load_platform, measured_platform
from numamirror_build.advise.speed import PARAMETERS, Advice
from numamirror_build.advise.speed import advise as expected
from numamirror_build.advise.traffic import Traffic, traffic_of
from numamirror_build.cli.answers import Answer, table
from numamirror_build.errors import MirrorUnavailableError, naming
from numamirror_build.machine.bandwidth import as_text, make_program, measure
from numamirror_build.machine.state import read_state
from numamirror_build.verify.models import find_model, read_model

if TYPE_CHECKING:
    from numamirror_build.progress import Progress
    from numamirror_build.store import Store

MIB = 1 << 20
GIB = 1 << 30


def advise(
    store: Store,
    model: str,
    *,
    machine: str | None,
    context: int,
    depth: int,
    cache_type: str,
    progress: Progress,
) -> Answer:
    """Predict.

    Args:
        store: the cache.
        model: a GGUF file, or ``smollm2``.
        machine: a description's file or name; None for this machine, measured.
        context: tokens that the cache has room for.
        depth: tokens that are in it.
        cache_type: type of K and V.
        progress: what is told how far it is.
    """
    found = find_model(store, model, progress=progress)
    with naming(found.path):
        traffic = traffic_of(read_model(found.path), context=context, depth=depth, cache_type=cache_type)
    platform = load_platform(machine) if machine else _this_machine(store, progress)
    made = expected(traffic, platform)
    return Answer({"model": found.name, **made.as_json()}, _text(found.name, made))


def _this_machine(store: Store, progress: Progress) -> Platform:
    state = read_state()
    if not state.mirrored:
        raise MirrorUnavailableError(
            "No node has memory and CPUs that this process may use", hint="numamirror-build doctor says why"
        )
    progress.step("Measuring bandwidth")
    return measured_platform(state, measure(state.mirrored, make_program(store), progress))


def _text(name: str, made: Advice) -> str:
    parts = [
        _model(name, made.traffic),
        _machine(made.platform),
        _arms(made),
        made.words(),
        _assumptions(made),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _model(name: str, traffic: Traffic) -> list[str]:
    experts = ""
    if traffic.experts:
        experts = f", {traffic.experts[0]} of {traffic.experts[1]} experts"
    return [
        f"{name} ({traffic.arch}{experts}): {_size(traffic.weights)} of weights, "
        f"{_size(traffic.cache)} of cache for {traffic.context:,} tokens ({traffic.cache_type})",
        f"a token reads {_size(traffic.weights_read)} of weights and "
        f"{_size(traffic.cache_read)} of cache, with {traffic.depth:,} tokens in it",
    ]


def _machine(platform: Platform) -> list[str]:
    rows = [
        [str(number), str(node.cores), f"{node.memory / GIB:.1f}", as_text(node.bandwidth)]
        for number, node in enumerate(platform.nodes)
    ]
    return [f"{platform.name}", *table(["node", "cores", "GiB", "reads"], rows, right=(0, 1, 2, 3))]


def _arms(made: Advice) -> list[str]:
    most = max(size for one in made.expectations for size in one.memory)
    unit, name = _unit(most)
    rows = [
        [
            one.arm,
            f"{one.rate:.2f}",
            one.bound,
            " + ".join(f"{size / unit:.1f}" for size in one.memory),
            "" if one.fits else "does not fit",
        ]
        for one in made.expectations
    ]
    return table(["arm", "t/s", "bound by", f"{name} per node", ""], rows, right=(1,))


def _unit(size: int) -> tuple[int, str]:
    """GiB, or MiB for what is less than one."""
    return (GIB, "GiB") if size >= GIB else (MIB, "MiB")


def _size(size: int) -> str:
    unit, name = _unit(size)
    return f"{size / unit:.2f} {name}"


def _assumptions(made: Advice) -> list[str]:
    parameters = ", ".join(f"{key} {value:g}" for key, value in PARAMETERS.as_json().items())
    conditions = [f"{one.arm}: {one.condition}" for one in made.expectations if one.condition]
    facts = [*made.traffic.assumptions, *made.platform.assumptions, *conditions]
    return ["Assumed:", *(f"- {fact}" for fact in facts), f"- {parameters} (docs/machine.md)"]
