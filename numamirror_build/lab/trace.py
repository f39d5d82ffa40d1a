"""How many bytes are loaded and stored: by phase, class of addresses, node of the CPU and of the memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.errors import BuildError, LabError
from numamirror_build.lab.layout import Layout
from numamirror_build.lab.machine import escaped
from numamirror_build.store import Store, digest, file_sha256

HEADER = Path(__file__).with_name("mark.h")
SOURCE = Path(__file__).with_name("trace.c")

# in the order of the enumerations in mark.h
PHASES = ("none", "load", "prompt", "generation")
CLASSES = ("other", "weights", "kv")

_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden")
_NOWHERE = -1

_PHYSICAL_SINCE = (8, 2)
# the machine "pc": with so much memory or more it has the hole there, and the rest above
_MOST_BELOW = 0xE0000000
_HOLE = 0xC0000000
_ABOVE = 1 << 32


@dataclass(frozen=True)
class Count:
    """Bytes that the CPUs of a node loaded from, and stored to, the memory of a node.

    ``memory_node`` is None for what is in no node's memory.
    """

    phase: str
    what: str
    cpu_node: int
    memory_node: int | None
    loaded: int
    stored: int


@dataclass(frozen=True)
class Trace:
    """All counts of a run that are not zero."""

    counts: tuple[Count, ...]

    def loaded(self, phase: str, what: str) -> int:
        """Bytes loaded in a phase from addresses of a class."""
        return sum(count.loaded for count in self._of(phase, what))

    def loaded_remotely(self, phase: str, what: str) -> int:
        """Those of them that came from another node than the CPU's."""
        return sum(count.loaded for count in self._of(phase, what) if count.cpu_node != count.memory_node)

    def as_json(self) -> dict[str, Any]:
        """The counts, and how much of what was loaded came from other nodes."""
        shares: dict[str, dict[str, Any]] = {}
        for phase in PHASES[1:]:
            for what in CLASSES:
                if total := self.loaded(phase, what):
                    remote = self.loaded_remotely(phase, what)
                    shares.setdefault(phase, {})[what] = {
                        "loaded": total,
                        "loaded_remotely": remote,
                        "remote_share": round(remote / total, 6),
                    }
        return {"version": 1, "loads": shares, "counts": [vars(count) for count in self.counts]}

    def _of(self, phase: str, what: str) -> list[Count]:
        return [count for count in self.counts if (count.phase, count.what) == (phase, what)]


def make_plugin(store: Store) -> Path:
    """The plugin for QEMU that counts; compiled when it is not in the cache.

    Raises:
        ToolMissingError: there is no C compiler.
        BuildError: it does not compile.
    """
    compiler = proc.find_tool("cc", hint="install it (Debian, Ubuntu: apt install gcc)")
    version = proc.run([compiler, "--version"], tethered=True).output.partition("\n")[0]
    key = digest([file_sha256(SOURCE), file_sha256(HEADER), version, _FLAGS])

    def make(folder: Path) -> Mapping[str, Any]:
        done = proc.run([compiler, *_FLAGS, SOURCE, "-o", folder / "trace.so"], tethered=True)
        if done.returncode:
            raise BuildError("The trace does not compile", where=str(SOURCE), why=done.output[-500:])
        return {"compiler": version}

    return store.make("lab", f"trace-{key[:20]}", make).path / "trace.so"


def trace_arguments(plugin: Path, layout: Layout, out: Path, release: str) -> list[str]:
    """The arguments for QEMU that load the plugin.

    Args:
        plugin: the plugin.
        layout: the machine's nodes.
        out: where the counts are written to.
        release: what QEMU says of its version.

    Raises:
        LabError: it says none.
    """
    words = [f"file={escaped(plugin)}", f"out={escaped(out)}"]
    words += [f"node={node}:{begin}:{end}" for node, begin, end in _places(layout, release)]
    return ["-plugin", ",".join(words)]


def _places(layout: Layout, release: str) -> Iterator[tuple[int, int, int]]:
    """Where the nodes' memory is for QEMU's plugins: number, first address, address behind the last.

    Nodes are blocks of memory, in the order of their numbers.
    Before version 8.2 QEMU tells plugins of an address the place of its block among all blocks
    and its place in the machine's memory added up; since then, the physical address,
    and in the machine's physical memory there is a hole for devices, if it has too much to fit below.
    """
    found = re.search(r"version (\d+)\.(\d+)", release)
    if not found:
        raise LabError("QEMU does not say its version", why=release)
    is_physical = (int(found[1]), int(found[2])) >= _PHYSICAL_SINCE
    hole = _HOLE if layout.memory >= _MOST_BELOW else layout.memory
    start = 0
    for node in layout.nodes:
        end = start + node.memory
        if not is_physical:
            parts = [(2 * start, start + end)]
        else:
            parts = [(start, min(end, hole)), (_ABOVE + max(start, hole) - hole, _ABOVE + end - hole)]
        yield from ((node.id, *part) for part in parts if part[0] < part[1])
        start = end


def parse_trace(text: str, layout: Layout) -> Trace:
    """What the plugin has written.

    Raises:
        LabError: nothing was written, or it is not what the plugin writes.
    """
    places = layout.places_per_node
    summed: dict[tuple[str, str, int, int | None], list[int]] = {}
    try:
        lines = [json.loads(line) for line in text.splitlines()]
        *rows, end = lines
        if end != "end":
            raise ValueError("the end is missing")
        for cpu, phase, what, node, loaded, stored in rows:
            key = PHASES[phase], CLASSES[what], cpu // places, None if node == _NOWHERE else node
            sums = summed.setdefault(key, [0, 0])
            sums[0] += loaded
            sums[1] += stored
    except (ValueError, TypeError, IndexError) as error:
        raise LabError("The trace is not complete", why=str(error)) from error
    return Trace(tuple(Count(*key, *sums) for key, sums in sorted(summed.items(), key=_order)))


def _order(item: tuple[tuple[str, str, int, int | None], Sequence[int]]) -> tuple[int, int, int, int]:
    phase, what, cpu_node, memory_node = item[0]
    where = _NOWHERE if memory_node is None else memory_node
    return PHASES.index(phase), CLASSES.index(what), cpu_node, where
