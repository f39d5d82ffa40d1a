"""A job of measuring as a value: everything but the machine, which is the one that it is carried out on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numamirror_build.bench.arms import Files, Kind, Task, Tree, arms_for, usual_threads
from numamirror_build.bench.meters import LlamaBench, Meter, TokenTimes
from numamirror_build.bench.results import Journal, state_of
from numamirror_build.bench.run import Plan, measure
from numamirror_build.errors import ConfigError
from numamirror_build.machine.state import State
from numamirror_build.progress import Progress


@dataclass(frozen=True)
class Job:
    """What is measured, with what, and where it is written.

    Attributes:
        arms: names; empty for all that the machine has.
        threads: thread counts; empty for the usual ones.
        tests: what is measured of each arm.
        repetitions: how often.
        pretend: how many nodes the mirror pretends; 0 for the machine's own.
        model: the model.
        programs: ``llama-bench`` of each tree.
        bindings: the binding with each tree's libraries; empty where no test needs it.
        subject: what the results are of, but for the machine's state.
        results: the file.
    """

    arms: tuple[str, ...]
    threads: tuple[int, ...]
    tests: tuple[Task, ...]
    repetitions: int
    pretend: int
    model: Files
    programs: Mapping[Tree, LlamaBench]
    bindings: Mapping[Tree, TokenTimes]
    subject: Mapping[str, Any]
    results: Path

    def plan(self, state: State) -> Plan:
        """The points on a machine.

        Raises:
            ConfigError: it does not have an arm of that name.
        """
        known = {arm.name: arm for arm in arms_for(state.mirrored, self.pretend)}
        if unknown := [name for name in self.arms if name not in known]:
            raise ConfigError(
                f"No such arm here: {', '.join(unknown)}",
                why=f"this machine has {', '.join(known)}",
                hint="--pretend 2 adds the mirror's on a machine with one node" if len(known) < 3 else None,
            )
        arms = tuple(known[name] for name in self.arms or known)
        return Plan(arms, self.threads or usual_threads(state.mirrored), self.tests, self.repetitions)

    def carry_out(self, read_state: Callable[[], State], progress: Progress) -> Journal:
        """Measure what is not in the file of results yet.

        Raises:
            ConfigError: the machine does not have such an arm.
            StateError: the file is of something else, or the machine changes meanwhile.
        """
        state = read_state()
        plan = self.plan(state)
        journal = Journal(self.results, {**self.subject, "pretend": self.pretend, "state": state_of(state)})
        progress.step(f"Measuring {len(plan.points(state))} points")
        meters: dict[tuple[Kind, Tree], Meter] = {}
        for tree, program in self.programs.items():
            meters["tg", tree] = meters["pp", tree] = program
        for tree, binding in self.bindings.items():
            meters["tok", tree] = binding
        measure(plan, meters, self.model, journal, read_state, progress)
        return journal

    def as_json(self) -> dict[str, Any]:
        """The job for another process; paths are absolute."""
        return dict(_plain(asdict(self)))


def job_of(document: Mapping[str, Any]) -> Job:
    """The job that :meth:`Job.as_json` wrote."""
    model = document["model"]
    return Job(
        arms=tuple(document["arms"]),
        threads=tuple(document["threads"]),
        tests=tuple(Task(**task) for task in document["tests"]),
        repetitions=document["repetitions"],
        pretend=document["pretend"],
        model=Files(Path(model["path"]), tuple(map(Path, model["parts"]))),
        programs={
            tree: LlamaBench(
                Path(program["path"]),
                tuple(program["mapped"]),
                tuple(program["read"]),
                {kind: tuple(words) for kind, words in program["deep"].items()},
            )
            for tree, program in document["programs"].items()
        },
        bindings={
            tree: TokenTimes(
                **{**binding, "python": Path(binding["python"]), "runner": Path(binding["runner"])}
            )
            for tree, binding in document["bindings"].items()
        },
        subject=document["subject"],
        results=Path(document["results"]),
    )


def _plain(value: Any) -> Any:
    """A value without paths and tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
