"""What is run: variants of libraries and settings, and the cases that each evaluates. Data only.

There are two levels. ``quick`` is for every day: each setting and each action occurs.
In ``full`` each pair of two settings occurs, an action among them, and each with every number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from numamirror_build.verify.covering import covering
from numamirror_build.verify.profile import Instead, Option, Profile, Rule

MIRROR = 4  # GGML_NUMA_STRATEGY_MIRROR

Level = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

PROMPTS = (1, 33, 200)
BATCHES = (1, 32, 512)
THREADS: Mapping[Level, tuple[int, ...]] = {"quick": (1, 2, 3), "full": (1, 2, 3, 4, 5)}
NODES: Mapping[Level, tuple[int, ...]] = {"quick": (1, 2, 3), "full": (1, 2, 3, 4)}
CHECKED_NODES: Mapping[Level, tuple[int, ...]] = {"quick": (2,), "full": (2, 3)}

# With each option: type of the cache, flash attention. Without it V lies transposed, and is not quantised.
_OPTION_CACHES = (("f16", False), ("f16", True), ("q8_0", True))

# What happens between the two halves of what is generated, or instead of a plain evaluation.
RESTORING = ("state", "state-file", "sequence", "sequence-file")  # from memory or a file into a new context
ADAPTING = ("lora", "control-vector")  # loaded after graphs have run; they change the answers
ACTIONS = (
    "shift",  # some positions are removed, and the rest is shifted
    "trim",  # the last positions are removed, as speculation does
    "copy",  # the sequence goes on as a copy, in another part of the cache
    "keep",  # the sequence goes on as a copy that shares the cache, and is the only one kept
    "fork",  # two sequences go on together
    "clear",  # the cache is cleared
    "renew",  # the context is destroyed and made again
    "reload",  # the model is freed, another one loaded and freed, the first loaded again
    "defragment",  # a gap in the cache is closed
    *RESTORING,
    "checkpoint",  # the sequence goes back to a copy of its recurrent state, or of its window
    "checkpoint-device",  # the sequence goes back to a copy that stayed beside the cache
    *ADAPTING,
    "two-contexts",  # two contexts compute at the same time
    "two-models",  # two models compute at the same time
)

_MACHINES = Path(__file__).with_name("machines")  # what sysfs and procfs say on machines that we lack


@dataclass(frozen=True)
class Case:
    """One evaluation: a prompt in batches, then some generated tokens.

    Attributes:
        prompt: tokens in the prompt.
        batch: tokens evaluated at once, at most.
        threads: threads that compute.
        rows: positions at the prompt's end whose logits are compared.
        generate: tokens generated after the prompt; the logits of all are compared.
        kv: type of the KV cache.
        flash: flash attention on or off; None for the library's own choice.
        action: one of :data:`ACTIONS`, or None for a plain evaluation.
        options: of upstream's, what is otherwise than by default.
    """

    prompt: int
    batch: int
    threads: int
    rows: int = 64
    generate: int = 8
    kv: str = "f16"
    flash: bool | None = None
    action: str | None = None
    options: tuple[Option, ...] = ()

    @property
    def id(self) -> str:
        """The case's name, for example ``p33-b32-t2``."""
        flash = {None: None, True: "fa", False: "nofa"}[self.flash]
        kv = None if self.kv == "f16" else self.kv
        words = [f"p{self.prompt}", f"b{self.batch}", f"t{self.threads}", flash, kv, self.action]
        options = (option.name for option in self.options if not option.usual)
        return "-".join([*(word for word in words if word), *options])

    @property
    def model(self) -> dict[str, Any]:
        """Parameters that the model is loaded with."""
        return dict(pair for option in self.options for pair in option.model)

    def as_json(self) -> dict[str, Any]:
        """The case as the runner reads it."""
        context = dict(pair for option in self.options for pair in option.context)
        plain = {name: value for name, value in asdict(self).items() if name != "options"}
        return {"id": self.id, **plain, "model": self.model, "context": context}


@dataclass(frozen=True)
class Variant:
    """A library and the settings that it runs with.

    Attributes:
        name: for checks' names.
        title: for people.
        library: which build's libraries.
        strategy: the number for ``llama_numa_init``; 0 for no call.
        env: environment variables.
        expect: how its answers stand to pristine's: ``same``, ``different`` in the cases that tell,
            ``stopped`` by the comparison of replicas, or ``refused`` at load.
        telling: actions of the cases that must tell; empty for all.
        replicas: how many replicas its status record must show; 0 for no mirror.
        policy: what its status record must say is mirrored.
    """

    name: str
    title: str
    library: Literal["pristine", "patched"]
    strategy: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    expect: Literal["same", "different", "stopped", "refused"] = "same"
    telling: tuple[str, ...] = ()
    replicas: int = 0
    policy: Literal["weights", "kv", "weights,kv"] = "weights,kv"

    def as_json(self) -> dict[str, Any]:
        """The variant as part of a key."""
        return {**asdict(self), "env": dict(self.env)}


PRISTINE = Variant("pristine", "pristine", "pristine")
AGAIN = Variant("pristine-again", "pristine, a second time", "pristine")
OFF = Variant("off", "patched, no mirror asked", "patched")
BY_ENVIRONMENT = Variant(
    "mirror-2-env",
    "patched, mirror of the weights by environment variable alone, 2 pretend nodes",
    "patched",
    env={"GGML_NUMA_MIRROR": "weights", "GGML_NUMA_MIRROR_NODES": "2"},
    replicas=2,
    policy="weights",
)
DAMAGED = Variant(
    "damaged",
    "patched, mirror on 2 pretend nodes, the second replica left empty",
    "patched",
    strategy=MIRROR,
    env={"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_TEST_SKIP": "1"},
    expect="different",
    replicas=2,
)
_SKIP_CACHE = {
    "GGML_NUMA_MIRROR": "kv",
    "GGML_NUMA_MIRROR_NODES": "2",
    "GGML_NUMA_MIRROR_TEST_SKIP": "1",
}
DAMAGED_CACHE = Variant(
    "damaged-cache",
    "patched, mirror of the caches on 2 pretend nodes, restored states missing in the second replica",
    "patched",
    strategy=MIRROR,
    env=_SKIP_CACHE,
    expect="different",
    telling=RESTORING,
    replicas=2,
    policy="kv",
)
DAMAGED_CHECKED = Variant(
    "damaged-checked",
    "the same, and replicas compared after each write",
    "patched",
    strategy=MIRROR,
    env={**_SKIP_CACHE, "GGML_NUMA_MIRROR_CHECK": "1"},
    expect="stopped",
    telling=RESTORING,
    replicas=2,
    policy="kv",
)
NO_MEMORY = Variant(
    "no-memory",
    "patched, mirror on 2 pretend nodes of a machine without free memory",
    "patched",
    strategy=MIRROR,
    env={"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_ROOT": str(_MACHINES / "no-memory")},
    expect="refused",
)


def one_node(nodes: int) -> Variant:
    """Mirror without pretending: on this machine when it has one usable node, else on a described one."""
    return Variant(
        "one-node",
        f"patched, mirror on {'this' if nodes == 1 else 'a'} machine with one node",
        "patched",
        strategy=MIRROR,
        env={} if nodes == 1 else {"GGML_NUMA_MIRROR_ROOT": str(_MACHINES / "one-node")},
        expect="refused",
    )


def pretend(nodes: int) -> Variant:
    """Mirror on pretended nodes."""
    return Variant(
        f"mirror-{nodes}",
        f"patched, mirror on {nodes} pretend node{'s' if nodes > 1 else ''}",
        "patched",
        strategy=MIRROR,
        env={"GGML_NUMA_MIRROR_NODES": str(nodes)},
        replicas=nodes,
    )


def checked(nodes: int) -> Variant:
    """Mirror on pretended nodes that compares the replicas."""
    plain = pretend(nodes)
    return replace(
        plain,
        name=f"{plain.name}-checked",
        title=f"{plain.title}, replicas compared after each write",
        env={**plain.env, "GGML_NUMA_MIRROR_CHECK": "1"},
    )


def real(nodes: int) -> Variant:
    """Mirror on the machine's own nodes."""
    return Variant(
        "mirror-real", f"patched, mirror on this machine's {nodes} nodes", "patched", MIRROR, replicas=nodes
    )


def variants(level: Level, nodes: int) -> tuple[Variant, ...]:
    """All variants for a machine with that many usable NUMA nodes, pristine first."""
    own = (real(nodes),) if nodes > 1 else ()
    pretended = tuple(pretend(count) for count in NODES[level])
    compared = tuple(checked(count) for count in CHECKED_NODES[level])
    damaged = (DAMAGED, DAMAGED_CACHE, DAMAGED_CHECKED)
    return (PRISTINE, AGAIN, OFF, *pretended, BY_ENVIRONMENT, *compared, *own, *damaged)


@dataclass(frozen=True)
class Cases:
    """The cases of a model.

    Attributes:
        chosen: those to evaluate; those that are loaded with the same settings come together.
        left_out: names of those that upstream cannot do, each with the reason.
    """

    chosen: tuple[Case, ...]
    left_out: Mapping[str, str]


def cases(level: Level, profile: Profile, rules: Sequence[Rule], arch: str, *, own: bool) -> Cases:
    """The cases of a level.

    Args:
        level: which.
        profile: of the upstream.
        rules: those for the model at the commit.
        arch: the model's architecture.
        own: whether it is a small model made here, or one of real size.
    """
    groups = profile.options_for(arch)
    grid, actions, options = _grid(), _actions(profile), tuple(_options(groups))
    if own:
        kinds = tuple((kv, flash) for kv in profile.caches for flash in (False, True))
        pairs = _pairs(kinds, groups) if level == "full" else ()
        every: Iterable[Case] = (*grid, *_caches(kinds), *actions, *options, *pairs)
    else:
        several = (*grid, *((*actions, *options) if level == "full" else ()))
        every = (replace(case, rows=4, generate=4) for case in several)
    usual = tuple(option for group in groups for option in group if option.usual)
    named = {option.name: option for group in groups for option in group}
    chosen: list[Case] = []
    left_out: dict[str, str] = {}
    for case in every:
        possible: Case | None = _complete(case, usual)
        while possible and (rule := first_rule(rules, possible, profile)):
            left_out[possible.id] = rule.reason
            other = _instead(possible, rule.instead, named) if rule.instead else None
            possible = None if other == possible else other
        if possible and possible.action in ADAPTING:
            twin = replace(possible, action=None)  # which it must differ from
            chosen += [] if first_rule(rules, twin, profile) else [twin]
        chosen += [possible] if possible else []
    ordered = sorted(dict.fromkeys(chosen), key=lambda case: sorted(case.model.items()))
    return Cases(tuple(ordered), left_out)


def telling(case: Case, profile: Profile) -> bool:
    """Whether each thread reads K and V in a case."""
    return not profile.readers or case.threads in profile.readers


def _complete(case: Case, usual: Iterable[Option]) -> Case:
    """The case with the usual options of all groups that it has none of."""
    taken = {option.group for option in case.options}
    return replace(case, options=(*case.options, *(each for each in usual if each.group not in taken)))


def _instead(case: Case, change: Instead, named: Mapping[str, Option]) -> Case:
    options = tuple(named[name] for name in change.options)
    groups = {option.group for option in options}
    kept = tuple(option for option in case.options if option.group not in groups)
    flash = case.flash if change.flash is None else change.flash
    return replace(case, flash=flash, options=(*kept, *options))


def first_rule(rules: Iterable[Rule], case: Case, profile: Profile) -> Rule | None:
    """The first rule that is for a case."""
    return next((rule for rule in rules if _covers(rule, case, profile)), None)


def _covers(rule: Rule, case: Case, profile: Profile) -> bool:
    flash = profile.flash if case.flash is None else case.flash
    return (
        (not rule.prompts or case.prompt in rule.prompts)
        and (not rule.batches or case.batch in rule.batches)
        and (not rule.actions or case.action in rule.actions)
        and (not rule.kv or any(fnmatchcase(case.kv, glob) for glob in rule.kv))
        and (rule.flash is None or flash == rule.flash)
        and (not rule.options or any(option.name in rule.options for option in case.options))
        and not any(option.name in rule.unless for option in case.options)
    )


def _grid() -> tuple[Case, ...]:
    """Every pair of prompt, batch and threads, in nine cases."""
    threads = THREADS["quick"]
    return tuple(Case(PROMPTS[p], BATCHES[b], threads[(p + b) % 3]) for p in range(3) for b in range(3))


def _caches(kinds: tuple[tuple[str, bool], ...]) -> tuple[Case, ...]:
    """Every type of cache with and without flash attention."""
    threads = (2, 3) * len(kinds)
    return tuple(Case(33, 32, t, kv=kv, flash=flash) for t, (kv, flash) in zip(threads, kinds, strict=False))


def _actions(profile: Profile) -> tuple[Case, ...]:
    """Every action, with as many threads as the grid has for the same prompt and batch.

    What is restored must be read by all threads.
    """
    readers = profile.readers[0] if profile.readers else 3
    threads = {action: readers if action in RESTORING else 3 for action in ACTIONS}
    return tuple(Case(33, 32, threads[action], action=action) for action in ACTIONS)


def _options(groups: tuple[tuple[Option, ...], ...]) -> Iterator[Case]:
    """Every pair of two options, and of an option and a kind of cache."""
    if not groups:
        return
    for number, (*row, (kv, flash)) in enumerate(covering(*_choices(groups), _OPTION_CACHES)):
        if options := tuple(option for option in row if option):
            yield Case(33, 32, 2 + number % 2, kv=kv, flash=flash, options=options)


def _pairs(kinds: tuple[tuple[str, bool], ...], groups: tuple[tuple[Option, ...], ...]) -> Iterator[Case]:
    """Every pair of prompt, batch, threads, cache, action or none, and option or none."""
    rows = covering(PROMPTS, BATCHES, THREADS["full"], kinds, (None, *ACTIONS), *_choices(groups))
    for p, b, t, (kv, flash), action, *row in rows:
        options = tuple(option for option in row if option)
        yield Case(p, b, t, kv=kv, flash=flash, action=action, options=options)


def _choices(groups: tuple[tuple[Option, ...], ...]) -> list[tuple[Option | None, ...]]:
    """The options of each group; None for the usual one, or for none of them."""
    return [(None, *(option for option in group if not option.usual)) for group in groups]
