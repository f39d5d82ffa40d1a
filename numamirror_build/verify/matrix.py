"""What is run: variants of libraries and settings, and the cases that each evaluates. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

MIRROR = 4  # GGML_NUMA_STRATEGY_MIRROR
PROMPTS = (1, 33, 200)
BATCHES = (1, 32, 512)
THREADS = (1, 2, 3)

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
        action: what happens to the cache between prompt and generation: some positions are removed and the
            rest is shifted; the sequence is copied; the state goes through memory into another context.
    """

    prompt: int
    batch: int
    threads: int
    rows: int = 64
    generate: int = 8
    kv: Literal["f16", "q8_0"] = "f16"
    flash: bool | None = None
    action: Literal["shift", "copy", "state"] | None = None

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
class Variant:
    """A library and the settings that it runs with.

    Attributes:
        name: for checks' names.
        title: for people.
        library: which build's libraries.
        strategy: the number for ``llama_numa_init``; 0 for no call.
        env: environment variables.
        expect: how its answers stand to pristine's: ``same``, ``different``, or ``refused`` at load.
        replicas: how many replicas its status record must show; 0 for no mirror.
        policy: what its status record must say is mirrored.
    """

    name: str
    title: str
    library: Literal["pristine", "patched"]
    strategy: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    expect: Literal["same", "different", "refused"] = "same"
    replicas: int = 0
    policy: Literal["weights", "weights,kv"] = "weights,kv"

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
CHECKED = Variant(
    "mirror-2-checked",
    "patched, mirror on 2 pretend nodes, replicas compared after each write",
    "patched",
    strategy=MIRROR,
    env={"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_CHECK": "1"},
    replicas=2,
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


def real(nodes: int) -> Variant:
    """Mirror on the machine's own nodes."""
    return Variant(
        "mirror-real", f"patched, mirror on this machine's {nodes} nodes", "patched", MIRROR, replicas=nodes
    )


def variants(nodes: int) -> tuple[Variant, ...]:
    """All variants for a machine with that many usable NUMA nodes, pristine first."""
    own = (real(nodes),) if nodes > 1 else ()
    pretended = tuple(pretend(count) for count in (1, 2, 3))
    return (PRISTINE, AGAIN, OFF, *pretended, BY_ENVIRONMENT, CHECKED, *own, DAMAGED)


def all_cases() -> tuple[Case, ...]:
    """Every prompt with every batch and thread count; other attention and cache; changes of the cache."""
    grid = [Case(p, b, t) for p in PROMPTS for b in BATCHES for t in THREADS]
    attention = (Case(33, 32, 2, flash=False), Case(33, 32, 3, kv="q8_0", flash=True))
    changes = (
        Case(33, 32, 2, action="shift"),
        Case(33, 32, 3, action="copy"),
        Case(33, 32, 2, action="state"),
    )
    return (*grid, *attention, *changes)


def few_cases() -> tuple[Case, ...]:
    """A third of the grid that still has every pair of prompt, batch and threads: for models of real size."""
    pairs = [(p, b) for p in range(3) for b in range(3)]
    return tuple(Case(PROMPTS[p], BATCHES[b], THREADS[(p + b) % 3], rows=4, generate=4) for p, b in pairs)
