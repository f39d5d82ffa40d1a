"""What to expect of each way to run a model: time per token, from reading, computing, and waiting.

The model is small on purpose, with one set of parameters for all models and machines.
docs/machine.md says how it compares with published figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from numamirror_build.advise.platform import Platform
from numamirror_build.advise.traffic import Traffic

GAIN = 1.05  # less than this is no gain


@dataclass(frozen=True)
class Parameters:
    """What is assumed about programs, whatever the model and the machine.

    Attributes:
        product_share: what matrix products reach of a stream's rate.
        together_share: what several nodes reach of their rates' sum: all wait for the last at each operation.
        product_seconds: what a product costs besides reading: starting, waiting, small operations.
        link_seconds: how much more it costs when threads on several nodes wait for each other.
        elements_per_cycle: weights that a core multiplies and adds per cycle.
    """

    product_share: float = 0.90
    together_share: float = 0.83
    product_seconds: float = 7e-6
    link_seconds: float = 5e-6
    elements_per_cycle: float = 8

    def as_json(self) -> dict[str, float]:
        """The parameters for machines."""
        return asdict(self)


@dataclass(frozen=True)
class Expectation:
    """One way to run a model.

    Attributes:
        arm: its name.
        threads: one per core of the nodes that it runs on.
        seconds: per token.
        memory: bytes that each node holds.
        fits: whether every node has room.
        bound: what most of the time goes to: ``memory``, ``link``, ``computing`` or ``waiting``.
        condition: what must be the case for it; empty if nothing.
    """

    arm: str
    threads: int
    seconds: float
    memory: tuple[int, ...]
    fits: bool
    bound: str
    condition: str

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return 1 / self.seconds

    def as_json(self) -> dict[str, Any]:
        """The expectation for machines."""
        return {**asdict(self), "memory": list(self.memory), "tokens_per_second": self.rate}


@dataclass(frozen=True)
class Advice:
    """What is to be expected of a model on a machine, and what to do."""

    traffic: Traffic
    platform: Platform
    parameters: Parameters
    expectations: tuple[Expectation, ...]

    def expectation(self, arm: str) -> Expectation:
        """That of an arm."""
        return next(one for one in self.expectations if one.arm == arm)

    @property
    def others(self) -> Expectation | None:
        """The fastest arm that fits and needs neither the mirror nor patience; None if none fits."""
        fitting = [
            one for one in self.expectations if one.fits and one.arm in ("isolate", "interleave", "none")
        ]
        return max(fitting, key=lambda one: one.rate, default=None)

    @property
    def gain(self) -> float | None:
        """What the mirror brings over that; None where there is no mirror, or nothing else fits."""
        mirror = next((one for one in self.expectations if one.arm == "mirror" and one.fits), None)
        return mirror.rate / self.others.rate if mirror and self.others else None

    @property
    def use(self) -> Expectation | None:
        """The arm to use, to begin with: the mirror where it brings something; None if nothing fits."""
        return self.expectation("mirror") if (self.gain or 0) >= GAIN else self.others

    def words(self) -> list[str]:
        """The advice in sentences."""
        nodes, others, gain, use = self.platform.nodes, self.others, self.gain, self.use
        if others is None or use is None:
            return [
                "The model does not fit in any way: take a smaller quantisation or context, or more memory."
            ]
        if len(nodes) < 2:
            return [f"One node: there is nothing to mirror. Use {use.threads} threads and no --numa option."]
        instead = f"use {others.threads} threads and {_option(others.arm)}"
        if gain is None:
            return [f"The mirror does not fit: {instead}; or take a smaller quantisation."]
        if gain < GAIN:
            return [
                f"No gain expected: the mirror gives {gain:.2f} times what {others.arm} gives; {instead}."
            ]
        return [
            f"Mirror: expect {gain:.2f} times the speed of {others.arm} in generation, for "
            f"{len(nodes)} times the memory; begin with {use.threads} threads (--numa mirror).",
            "A distribute that has settled is expected to be as fast, with the memory of one copy: "
            "where its conditions hold, compare with it.",
        ]

    def as_json(self) -> dict[str, Any]:
        """The advice for machines."""
        return {
            "traffic": self.traffic.as_json(),
            "machine": self.platform.as_json(),
            "parameters": self.parameters.as_json(),
            "arms": [one.as_json() for one in self.expectations],
            "gain": self.gain,
            "use": {"arm": self.use.arm, "threads": self.use.threads} if self.use else None,
            "advice": self.words(),
        }


def _option(arm: str) -> str:
    return {
        "isolate": "--numa isolate, or numactl with one node's CPUs and memory",
        "interleave": "numactl --interleave=all",
        "none": "no --numa option",
    }[arm]


PARAMETERS = Parameters()


def advise(traffic: Traffic, platform: Platform, parameters: Parameters = PARAMETERS) -> Advice:
    """Expect something of every arm that the machine has."""
    model = _Model(traffic, platform, parameters)
    arms: Mapping[str, Callable[[], Expectation]] = {
        "isolate": model.isolate,
        "none": model.none,
        "interleave": model.interleave,
        "distribute": model.distribute,
        "mirror-weights": model.mirror_weights,
        "mirror": model.mirror,
    }
    several = len(platform.nodes) > 1
    made = tuple(arm() for name, arm in arms.items() if several or name == "isolate")
    return Advice(traffic, platform, parameters, made)


class _Model:
    """Times of the arms. Threads are shared out as nodes have cores, and each reads as much as another."""

    def __init__(self, traffic: Traffic, platform: Platform, parameters: Parameters) -> None:
        self.traffic, self.platform, self.parameters = traffic, platform, parameters
        self.nodes = platform.nodes
        cores = sum(node.cores for node in self.nodes)
        self.shares = [node.cores / cores for node in self.nodes]
        self.rates = [
            min(node.bandwidth, node.cores * (node.core_bandwidth or node.bandwidth))
            * parameters.product_share
            for node in self.nodes
        ]
        self.both = traffic.weights + traffic.cache
        self.read = traffic.weights_read + traffic.cache_read

    def isolate(self) -> Expectation:
        """One node alone, the fastest."""
        best = max(range(len(self.nodes)), key=lambda i: (self.nodes[i].memory >= self.both, self.rates[i]))
        memory = tuple(self.both if i == best else 0 for i in range(len(self.nodes)))
        seconds = self.read / self.rates[best]
        return self._made("isolate", seconds, memory, cores=self.nodes[best].cores, bound="memory")

    def none(self) -> Expectation:
        """Threads everywhere, all memory on the first node: that of the thread that loads."""
        memory = (self.both, *(0 for _ in self.nodes[1:]))
        return self._several(
            "none", self._at_home(self.read), memory, "The model lies where it was loaded.", "link"
        )

    def interleave(self) -> Expectation:
        """Threads everywhere, pages everywhere in turn."""
        n = len(self.nodes)
        remote = self.platform.remote_share
        seconds = max(
            self.read * share * (1 / n + (n - 1) / n / remote) / rate
            for share, rate in zip(self.shares, self.rates, strict=True)
        )
        return self._several("interleave", seconds, (self.both // n,) * n, "", "link")

    def distribute(self) -> Expectation:
        """Upstream's distribute, when each page lies where it is read."""
        n = len(self.nodes)
        condition = "It has settled: mmap, an undisturbed page cache, and 10 to 15 minutes of generating."
        return self._several("distribute", self._everywhere(self.read), (self.both // n,) * n, condition)

    def mirror_weights(self) -> Expectation:
        """Replicas of the weights; the cache on the first node."""
        seconds = self._everywhere(self.traffic.weights_read) + self._at_home(self.traffic.cache_read)
        weights = self.traffic.weights
        return self._several("mirror-weights", seconds, (self.both, *(weights for _ in self.nodes[1:])), "")

    def mirror(self) -> Expectation:
        """Replicas of everything; what writes to a cache is done once per replica."""
        extra = (len(self.nodes) - 1) * self.traffic.cache_writes * self._waiting(True)
        seconds = self._everywhere(self.read)
        return self._several("mirror", seconds, (self.both,) * len(self.nodes), "", extra=extra)

    def _everywhere(self, size: int) -> float:
        """Each node reads its share from its own memory."""
        return max(size * share / rate for share, rate in zip(self.shares, self.rates, strict=True))

    def _at_home(self, size: int) -> float:
        """The first node's memory gives everything, the others' share over the link."""
        link = self.platform.remote_share * self.rates[0]
        return max(size / self.rates[0], *(size * share / link for share in self.shares[1:]))

    def _waiting(self, several: bool) -> float:
        return self.parameters.product_seconds + (self.parameters.link_seconds if several else 0)

    def _several(
        self,
        arm: str,
        seconds: float,
        memory: tuple[int, ...],
        condition: str,
        bound: str = "memory",
        extra: float = 0,
    ) -> Expectation:
        cores = sum(node.cores for node in self.nodes)
        seconds /= self.parameters.together_share
        return self._made(arm, seconds, memory, cores=cores, bound=bound, condition=condition, extra=extra)

    def _made(
        self,
        arm: str,
        seconds: float,
        memory: tuple[int, ...],
        *,
        cores: int,
        bound: str,
        condition: str = "",
        extra: float = 0,
    ) -> Expectation:
        waiting = self.traffic.products * self._waiting(arm != "isolate") + extra
        computing = 0.0
        if self.platform.clock:
            computing = self.traffic.elements_read / (
                cores * self.platform.clock * self.parameters.elements_per_cycle
            )
        times = {bound: seconds, "computing": computing}
        slowest = max(times, key=lambda name: times[name])
        return Expectation(
            arm=arm,
            threads=cores,
            seconds=times[slowest] + waiting,
            memory=memory,
            fits=all(need <= node.memory for need, node in zip(memory, self.nodes, strict=True))
            and (self.platform.limit is None or sum(memory) <= self.platform.limit),
            bound=slowest if times[slowest] >= waiting else "waiting",
            condition=condition,
        )
