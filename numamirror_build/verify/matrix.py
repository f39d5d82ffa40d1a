"""What is run: variants of libraries and settings, and the cases that each evaluates. Data only.

There are two levels. ``quick`` is for every day: each setting and each action occurs.
In ``full`` each pair of two settings occurs, an action among them, and each with every number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from numamirror_build.verify.covering import covering

MIRROR = 4  # GGML_NUMA_STRATEGY_MIRROR

Level = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

PROMPTS = (1, 33, 200)
BATCHES = (1, 32, 512)
THREADS: Mapping[Level, tuple[int, ...]] = {"quick": (1, 2, 3), "full": (1, 2, 3, 4, 5)}
NODES: Mapping[Level, tuple[int, ...]] = {"quick": (1, 2, 3), "full": (1, 2, 3, 4)}
CHECKED_NODES: Mapping[Level, tuple[int, ...]] = {"quick": (2,), "full": (2, 3)}

# Type of the cache, flash attention. Without it V lies transposed, and is not quantised.
CACHES = tuple((kv, flash) for kv in ("f16", "bf16", "q8_0", "q4_0") for flash in (False, True))

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
    """

    prompt: int
    batch: int
    threads: int
    rows: int = 64
    generate: int = 8
    kv: str = "f16"
    flash: bool | None = None
    action: str | None = None

    @property
    def id(self) -> str:
        """The case's name, for example ``p33-b32-t2``."""
        flash = {None: None, True: "fa", False: "nofa"}[self.flash]
        kv = None if self.kv == "f16" else self.kv
        words = [f"p{self.prompt}", f"b{self.batch}", f"t{self.threads}", flash, kv, self.action]
        return "-".join(word for word in words if word)

    def as_json(self) -> dict[str, Any]:
        """The case as the runner reads it."""
        return {"id": self.id, **asdict(self)}


@dataclass(frozen=True)
class Fault:
    """What upstream itself does wrong at some commits: cases that it answers by chance are left out there.

    Attributes:
        actions: of the cases that it spoils.
        path: the file in which it shows.
        text: what that file has where the fault is.
        reason: what is wrong.
    """

    actions: tuple[str, ...]
    path: str
    text: str
    reason: str


FAULTS = (
    Fault(
        ("two-contexts", "two-models"),
        "ggml/src/ggml-cpu/llamafile/sgemm.cpp",
        "static std::atomic<int64_t> current_chunk",
        "upstream's fault at this commit: one counter of chunks for all contexts of a process (sgemm.cpp)",
    ),
)


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


def cases(level: Level, *, own: bool) -> tuple[Case, ...]:
    """The cases of a level: for a small model made here, or for one of real size."""
    grid, actions = _grid(), _actions()
    if not own:
        return tuple(
            replace(case, rows=4, generate=4) for case in (*grid, *(actions if level == "full" else ()))
        )
    return tuple(dict.fromkeys((*grid, *_caches(), *actions, *(_pairs() if level == "full" else ()))))


def of_two_types(case: Case) -> bool:
    """Whether K is quantised in a case and V is not."""
    return case.flash is False and case.kv.startswith("q")


def shifts_quantised(case: Case) -> bool:
    """Whether a case turns a quantised K to other positions."""
    return case.action == "shift" and case.kv.startswith("q")


def faults(tree: Path) -> dict[str, str]:
    """By action, why its cases are left out with a tree of upstream's."""
    present = [
        fault
        for fault in FAULTS
        if (tree / fault.path).is_file() and fault.text in (tree / fault.path).read_text(errors="replace")
    ]
    return {action: fault.reason for fault in present for action in fault.actions}


def _grid() -> tuple[Case, ...]:
    """Every pair of prompt, batch and threads, in nine cases."""
    threads = THREADS["quick"]
    return tuple(Case(PROMPTS[p], BATCHES[b], threads[(p + b) % 3]) for p in range(3) for b in range(3))


def _caches() -> tuple[Case, ...]:
    """Every type of cache with and without flash attention."""
    threads = (2, 3) * len(CACHES)
    return tuple(Case(33, 32, t, kv=kv, flash=flash) for t, (kv, flash) in zip(threads, CACHES, strict=False))


def _actions() -> tuple[Case, ...]:
    """Every action, with as many threads as the grid has for the same prompt and batch."""
    return tuple(Case(33, 32, 3, action=action) for action in ACTIONS)


def _pairs() -> tuple[Case, ...]:
    """Every pair of prompt, batch, threads, cache, and action or none."""
    rows = covering(PROMPTS, BATCHES, THREADS["full"], CACHES, (None, *ACTIONS))
    return tuple(Case(p, b, t, kv=kv, flash=flash, action=action) for p, b, t, (kv, flash), action in rows)
