"""``python -m tests.mutants``: change sources at random, judge the plans, and print what came of it."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.mutants.corpus import UNITS, ours, upstream
from tests.mutants.judge import OUTCOMES, Judge, Verdict
from tests.mutants.mutations import MUTATIONS, mutate
from tests.mutants.subject import Subject


def made(subject: Subject, number: int, kind: str | None = None) -> tuple[tuple[str, ...], Subject]:
    """The mutant of a number: the same on every machine."""
    return mutate(Random(f"{subject.path}/{kind or ''}/{number}"), subject, kind)


class Tally:
    """What came of mutants, by mutation."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.faults: list[str] = []

    def add(self, subject: Subject, number: int, done: tuple[str, ...], verdict: Verdict) -> None:
        """Count one."""
        self.counts["+".join(done) if len(done) == 1 else "several", verdict.outcome] += 1
        if verdict.is_fault:
            what = f"{subject.path} {number} ({', '.join(done)}): {verdict.outcome}: {verdict.detail}"
            self.faults.append(what)
            print(f"FAULT {what}", file=sys.stderr, flush=True)

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(self.counts.values())

    def table(self) -> str:
        """The counts as Markdown."""
        shown = [outcome for outcome in OUTCOMES if any(o == outcome for _, o in self.counts)]
        rows = [["change", *shown, "all"]]
        kinds = [kind for kind in [*MUTATIONS, "several"] if any(k == kind for k, _ in self.counts)]
        for kind in kinds:
            numbers = [self.counts[kind, outcome] for outcome in shown]
            rows.append([kind, *map(str, numbers), str(sum(numbers))])
        sums = [sum(n for (_, o), n in self.counts.items() if o == outcome) for outcome in shown]
        rows.append(["all", *map(str, sums), str(self.total)])
        rows.insert(1, ["---"] * len(rows[0]))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fuzz(
    subjects: Sequence[Subject], numbers: range, judge: Judge, *, kind: str | None = None, sample: int = 1
) -> Tally:
    """Judge these mutants of each subject; compile every one of so many."""
    tally = Tally()
    for number in numbers:
        for subject in subjects:
            done, mutant = made(subject, number, kind)
            if done:
                tally.add(subject, number, done, judge.verdict(mutant, compiles=number % sample == 0))
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--mutants", type=int, default=100, help="of each source")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--upstream", choices=sorted(UNITS), help="sources of the default pin; else ours")
    parser.add_argument("--tree", type=Path, help="its checkout")
    parser.add_argument("--only", default="", help="sources whose path has this pattern in it")
    parser.add_argument("--kind", choices=sorted(MUTATIONS), help="one kind of change")
    parser.add_argument("--codes", action="store_true", help="compare machine code, too")
    parser.add_argument("--sample", type=int, default=1, help="compile one of so many, plan all")
    parser.add_argument("--show", action="store_true", help="print the changed text")
    given = parser.parse_args(arguments)
    subjects = tuple(upstream(given.upstream, given.tree)) if given.upstream else ours()
    subjects = tuple(subject for subject in subjects if re.search(given.only, subject.path))
    numbers = range(given.first, given.first + given.mutants)
    if given.show:
        for subject in subjects:
            for number in numbers:
                sys.stdout.buffer.write(made(subject, number, given.kind)[1].whole())
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        judge = Judge(Path(folder), codes=given.codes)
        tally = fuzz(subjects, numbers, judge, kind=given.kind, sample=given.sample)
    print(tally.table())
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
