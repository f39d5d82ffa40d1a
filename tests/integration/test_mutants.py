"""Sources changed at random: the plan of each compiles, or is refused with its place and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.pipeline import Pipeline
from numamirror_build.rewrite import apply_edits
from tests.mutants import judge as judge_module
from tests.mutants.__main__ import fuzz
from tests.mutants.corpus import ours, upstream
from tests.mutants.judge import BROKEN, REFUSED, SAME, Judge
from tests.mutants.mutations import MUTATIONS
from tests.mutants.subject import Subject

pytestmark = pytest.mark.build


def test_the_sources_themselves(tmp_path: Path) -> None:
    """Unchanged, each source of ours is planned, compiles with the field hidden, and to the same code."""
    judge = Judge(tmp_path)
    verdicts = {subject.path: judge.verdict(subject) for subject in ours()}
    assert [
        path for path, verdict in verdicts.items() if verdict.is_fault or verdict.outcome == REFUSED
    ] == []
    assert sum(verdict.outcome == SAME for verdict in verdicts.values()) >= len(verdicts) - 2


@pytest.mark.parametrize(
    ("right", "wrong", "outcome"),
    [
        (b"o->data = p", b"tensor_set_data(o, p)", "wrong edit or missed access"),
        (b"tensor_set_data(t, p)", b"t->data = p", "wrong edit or missed access"),
        (b"tensor_set_data(t, p)", b"tensor_set_data(t, (char *) p + 1)", "other machine code"),
    ],
)
def test_the_judge_sees_wrong_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bytes, wrong: bytes, outcome: str
) -> None:
    """A rewritten access of another struct, a missed one, and an edit that does something else are faults."""
    head = b'#include "ggml.h"\nstruct other { void * data; };\n'
    text = (
        head + b"void f(struct ggml_tensor * t, struct other * o, void * p) { t->data = p; o->data = p; }\n"
    )
    subject = Subject("a.c", text, ours()[0].others)
    assert Judge(tmp_path / "1").verdict(subject).outcome == SAME
    monkeypatch.setattr(
        judge_module,
        "apply_edits",
        lambda content, edits: apply_edits(content, edits).replace(right, wrong if edits else right),
    )
    monkeypatch.setattr(judge_module, "is_taken_back", lambda *_: True)
    assert Judge(tmp_path / "2").verdict(subject).outcome == outcome


@pytest.mark.parametrize("each", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_mutants_of_our_sources(tmp_path: Path, each: int) -> None:
    """Whatever is done to them, no plan is wrong; every kind of change occurs, and has each good outcome."""
    tally = fuzz(ours(), range(each), Judge(tmp_path))
    print(tally.table())
    assert tally.faults == []
    assert tally.total == each * len(ours())
    outcomes = {outcome for _, outcome in tally.counts}
    assert {REFUSED, SAME} <= outcomes
    if each > 50:
        assert {kind for kind, _ in tally.counts} >= MUTATIONS.keys()
        assert BROKEN in outcomes


@pytest.mark.slow
@pytest.mark.sources
@pytest.mark.parametrize("name", ["llama.cpp", "ik_llama.cpp"])
def test_mutants_of_upstream(tmp_path: Path, pipeline: Pipeline, ik_pipeline: Pipeline, name: str) -> None:
    """The same of sources of the default pins."""
    made = pipeline if name == "llama.cpp" else ik_pipeline
    subjects = tuple(upstream(name, made.checkout.path))
    assert subjects
    tally = fuzz(subjects, range(80), Judge(tmp_path, codes=False), sample=8)
    print(tally.table())
    assert tally.faults == []
