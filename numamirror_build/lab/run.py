"""Starting the machine, running a command in it, and seeing what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.errors import ConfigError, LabError, LabTimeoutError
from numamirror_build.lab.guest import Command, make_guest
from numamirror_build.lab.layout import Layout
from numamirror_build.lab.machine import ANY_CPU, Files, machine_arguments
from numamirror_build.lab.parts import Parts
from numamirror_build.lab.trace import Trace, parse_trace, trace_arguments
from numamirror_build.progress import Progress

_CONSOLE_LINES = 100
_FAULTS = ("Kernel panic", "BUG:", "Oops:", "soft lockup")
_NODE = re.compile(r"node (\d+) (\d+) ([\d ]*) cpus ([\d,-]*)")


@dataclass(frozen=True)
class SeenNode:
    """A node as the guest's kernel sees it: number, list of CPUs, bytes of memory, distances to all nodes."""

    id: int
    cpus: str
    memory: int
    distances: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a command.

    Attributes:
        exit_status: the command's; more than 128: ended by that signal less 128.
        nodes: the machine's nodes as its kernel sees them.
        files: those in the scratch folder that are new or changed, below it, with their sizes.
        boot_seconds: from the start of the machine to that of the command.
        seconds: in all.
        trace: what was counted, if that was asked for.
    """

    exit_status: int
    nodes: tuple[SeenNode, ...]
    files: Mapping[str, int]
    boot_seconds: float
    seconds: float
    trace: Trace | None = None

    def as_json(self) -> dict[str, Any]:
        """The outcome for machines."""
        return {**asdict(self), "trace": self.trace and self.trace.as_json()}


def run_in_lab(
    layout: Layout,
    command: Command,
    parts: Parts,
    *,
    timeout: float,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    progress: Progress,
    plugin: Path | None = None,
    cpu: str = ANY_CPU,
) -> Outcome:
    """Run a command on a machine of that layout.

    Args:
        layout: the machine's nodes.
        command: what to run.
        parts: QEMU, kernel and modules, busybox.
        timeout: seconds after which the machine is switched off.
        on_stdout: called with what the command writes to its standard output, as it comes.
        on_stderr: the same for its standard error.
        progress: what is told how far it got.
        plugin: the plugin that counts loads and stores, if that is asked for.
        cpu: the model of the CPUs, as QEMU names it.

    Raises:
        ConfigError: the scratch folder cannot be used.
        LabError: the machine did not start, is not as laid out, or ended before the command did.
        LabTimeoutError: the time was up.
    """
    before = _files(command.scratch)
    size = f"{len(layout.nodes)} nodes, {layout.cpus} CPUs, {layout.memory >> 20} MiB"
    progress.step(f"Starting a machine: {size}")
    counts = bytearray()
    conversation = _Conversation(layout, progress, on_stdout, on_stderr)
    with _in_memory(make_guest(command, busybox=parts.busybox, modules=parts.modules)) as initramfs:

        def arguments(ports: tuple[Path, ...]) -> list[str | Path]:
            named = dict(zip(("control", "stdout", "stderr"), ports[1:4], strict=True))
            files = Files(parts.kernel, Path(f"/proc/self/fd/{initramfs}"), named, command.scratch)
            traced = trace_arguments(plugin, layout, ports[4], parts.qemu_release) if plugin else []
            return [parts.qemu, *parts.qemu_options, *machine_arguments(layout, files, cpu), *traced]

        status = proc.run_tethered(
            arguments,
            [*conversation.channels, counts.extend],
            env={**proc.environment(), **parts.qemu_env},
            timeout=timeout,
            keep_open=[initramfs],
        )
    seconds = time.monotonic() - conversation.start
    where = f"a machine of {size}"
    if status is None:
        what = "The command did not end" if conversation.ready else "The machine did not start"
        raise LabTimeoutError(
            f"{what} within {timeout:g} seconds",
            where=where,
            why=conversation.complaint(),
            hint="give more time with --timeout",
            details={"console": conversation.console()},
        )
    if conversation.exit_status is None:
        raise LabError(
            "The machine broke down while the command ran"
            if conversation.ready
            else "The machine did not start",
            where=where,
            why=conversation.failure or conversation.complaint() or f"QEMU ended with status {status}",
            hint="see docs/lab.md",
            details={"qemu_status": status, "console": conversation.console()},
        )
    after = _files(command.scratch)
    return Outcome(
        conversation.exit_status,
        tuple(conversation.nodes),
        {name: facts[0] for name, facts in after.items() if before.get(name) != facts},
        round(conversation.boot_seconds, 3),
        round(seconds, 3),
        parse_trace(counts.decode(errors="replace"), layout) if plugin else None,
    )


class _Conversation:
    """What the machine says, on its console and through its ports."""

    def __init__(
        self,
        layout: Layout,
        progress: Progress,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> None:
        self._layout = layout
        self._progress = progress
        self._console = bytearray()
        self._pending = b""
        self.start = time.monotonic()
        self.boot_seconds = 0.0
        self.nodes: list[SeenNode] = []
        self.ready = False
        self.failure: str | None = None
        self.exit_status: int | None = None
        self.channels = (self._on_console, self._on_control, on_stdout, on_stderr)

    def console(self) -> list[str]:
        """The last lines of the kernel, or of QEMU."""
        text = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|c)", "", self._console.decode(errors="replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-_CONSOLE_LINES:]

    def complaint(self) -> str | None:
        """What the console says of an end that nobody asked for."""
        lines = self.console()
        faults = [line for line in lines if any(word in line for word in _FAULTS)]
        return "\n".join(faults[:1] or lines[-3:]) or None

    def _on_console(self, data: bytes) -> None:
        self._console += data
        del self._console[: -(1 << 16)]

    def _on_control(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def _on_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "node":
            self.nodes.append(_seen_node(line))
        elif word == "failed":
            self.failure = f"in the guest: {rest}"
        elif word == "exit":
            self.exit_status = int(rest)
        elif word == "ready":
            self.nodes.sort(key=lambda node: node.id)
            _check_nodes(self._layout, self.nodes)
            self.ready = True
            self.boot_seconds = time.monotonic() - self.start
            self._progress.step("Running the command in it")
            self._progress.done()


def _seen_node(line: str) -> SeenNode:
    found = _NODE.fullmatch(line)
    if not found:
        raise LabError("The guest describes a node in an unknown form", why=line)
    number, memory, distances, cpus = found.groups()
    return SeenNode(int(number), cpus, int(memory) << 10, tuple(map(int, distances.split())))


def _check_nodes(layout: Layout, nodes: list[SeenNode]) -> None:
    """See that the kernel has what was laid out; of memory it keeps a part for itself."""
    wanted = [(node.id, node.cpus, node.memory > 0) for node in layout.nodes]
    seen = [(node.id, _count(node.cpus), node.memory > 0) for node in nodes]
    distances = tuple(node.distances for node in nodes)
    if wanted != seen or distances != layout.distances:
        raise LabError(
            "The machine's kernel does not see the nodes that were asked for",
            why=f"it sees {nodes}",
            hint="try another layout; docs/lab.md says what is possible",
        )


def _count(cpus: str) -> int:
    """How many CPUs are in a list such as ``0-3,8``."""
    ranges = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """A file without a name, which is gone when nobody has it open."""
    number = os.memfd_create("initramfs")
    try:
        with os.fdopen(os.dup(number), "wb") as stream:
            stream.write(content)
        yield number
    finally:
        os.close(number)


def _files(folder: Path | None) -> dict[str, tuple[int, int]]:
    """Size and time of each file below a folder, which is made if it is not there."""
    if folder is None:
        return {}
    if folder.exists() and folder.samefile("/"):
        raise ConfigError("The scratch folder is the whole file system", hint="name a folder of its own")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "The scratch folder cannot be made", where=str(folder), why=error.strerror
        ) from error
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            facts = path.stat()
            found[path.relative_to(folder).as_posix()] = (facts.st_size, facts.st_mtime_ns)
    return found
