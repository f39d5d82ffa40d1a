"""What is concluded from runs: each check passes for good reasons only."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.verify import checks, matrix
from numamirror_build.verify.callgrind import Instructions
from numamirror_build.verify.document import Check
from numamirror_build.verify.matrix import Case
from numamirror_build.verify.profile import Option, Profile, load_profile
from numamirror_build.verify.runs import Libraries, Run
from tests.unit.verify.made_up import (
    CONTENTS,
    MODEL,
    PROFILE,
    died,
    done,
    logits_run,
    refused,
    status_record,
)

CASES = (Case(1, 1, 1), Case(33, 32, 2), Case(200, 512, 3))
MIRROR = matrix.pretend(2)


def answers(run: Run, reference: Run | None = None) -> Check:
    """Same answers, for the made-up model."""
    return checks.same_answers(MODEL, MIRROR, run, reference or logits_run(CASES), CASES)


def test_same_answers() -> None:
    """Equal digests of all cases pass, and the figures say how much was compared."""
    check = answers(logits_run(CASES))
    assert (check.status, check.id) == ("pass", "same-answers/tiny/mirror-2")
    assert check.facts["values"] == 3 * 2 * 3


def test_one_case_differs() -> None:
    """One other bit in one case fails, with where and how much."""
    run = logits_run(CASES)
    run.facts["cases"][CASES[1].id].update(sha256="bb", difference={"first": [3, 7], "greatest": 0.5})
    check = answers(run)
    assert check.status == "fail"
    assert check.facts["different"] == [CASES[1].id]
    assert check.facts["first"] == {"case": CASES[1].id, "first": [3, 7], "greatest": 0.5}


def test_nothing_to_compare() -> None:
    """A dead process, a missing case, and logits that are not numbers are failures, not equalities."""
    assert "signal 11" in str(answers(died()).reason)
    assert "pristine" in str(answers(logits_run(CASES), died()).reason)
    assert "not evaluated" in str(answers(logits_run(CASES[:2])).reason)
    broken = logits_run(CASES)
    broken.facts["cases"][CASES[0].id].update(finite=False, spread=None)
    assert "not finite" in str(answers(broken, broken).reason)
    constant = logits_run(CASES)
    constant.facts["cases"][CASES[0].id].update(spread=0.0)
    assert "all the same" in str(answers(constant, constant).reason)


def test_what_is_not_possible_is_told() -> None:
    """A case that pristine cannot do is left out with the reason; one that only pristine cannot do fails."""
    reference, run = logits_run(CASES), logits_run(CASES)
    reference.facts["cases"][CASES[1].id] = {"not_possible": "no such cache"}
    check = answers(run, reference)
    assert "pristine says 'no such cache', this variant 'possible'" in str(check.reason)
    run.facts["cases"][CASES[1].id] = {"not_possible": "no such cache"}
    check = answers(run, reference)
    assert check.status == "pass"
    assert check.facts["not_possible"] == {CASES[1].id: "no such cache"}
    assert "(2 cases, 12 logits, 1 more not possible)" in check.title
    for case in CASES:
        for each in (reference, run):
            each.facts["cases"][case.id] = {"not_possible": "nothing is"}
    assert "no case was possible" in str(answers(run, reference).reason)


def test_upstreams_faults_are_told() -> None:
    """Cases that were not run, as pristine answers them by chance, are among those left out."""
    check = checks.same_answers(MODEL, MIRROR, logits_run(CASES), logits_run(CASES), CASES, {"x": "chance"})
    assert (check.status, check.facts["cases"]) == ("pass", 3)
    assert check.facts["not_possible"] == {"x": "chance"}


def test_an_adapter_must_have_an_effect() -> None:
    """Answers with an adapter that are those without it are no success."""
    cases = (Case(33, 32, 2), Case(33, 32, 2, action="lora"))
    run = logits_run(cases)
    assert checks.same_answers(MODEL, MIRROR, run, run, cases).status == "pass"
    run.facts["cases"][cases[1].id]["sha256"] = run.facts["cases"][cases[0].id]["sha256"]
    check = checks.same_answers(MODEL, MIRROR, run, run, cases)
    assert check.reason == "p33-b32-t2-lora: it had no effect"


def test_what_was_compared_is_told() -> None:
    """Actions and options of the cases that were possible, not of those that were only asked for."""
    option = Option("new-graphs", "graphs", (), (("graph_reuse", False),))
    cases = (*CASES, Case(33, 32, 2, action="copy", options=(option,)), Case(33, 32, 2, action="shift"))
    run = logits_run(cases)
    run.facts["cases"][cases[-1].id] = {"not_possible": "this cache cannot be shifted"}
    check = checks.same_answers(MODEL, MIRROR, run, run, cases)
    assert check.status == "pass"
    assert (check.facts["actions"], check.facts["options"]) == (["copy"], ["new-graphs"])


def test_models_made_here_have_adapters() -> None:
    """That there is none says that the model was made wrong; a user's model has none."""
    cases = (Case(33, 32, 2), Case(33, 32, 2, action="lora"), Case(33, 32, 3, action="lora"))
    run = logits_run(cases)
    run.facts["cases"][cases[1].id] = {"not_possible": "there is no such context"}
    assert checks.same_answers(MODEL, MIRROR, run, run, cases).status == "pass"
    run.facts["cases"][cases[2].id] = {"not_possible": "there is no adapter for this model"}
    check = checks.same_answers(MODEL, MIRROR, run, run, cases)
    assert (check.status, check.reason) == ("fail", "no case with lora was possible")
    theirs = replace(MODEL, own=False)
    assert checks.same_answers(theirs, MIRROR, run, run, cases).status == "pass"


def test_an_unknown_architecture_is_a_skip() -> None:
    """Its reason says what the commit lacks."""
    check = checks.unknown(replace(MODEL, arch="jamba"))
    assert (check.status, check.reason) == ("skip", "this commit does not know jamba")


def damaged(run: Run) -> Check:
    """The mutation check, for the made-up model."""
    return checks.damaged(MODEL, matrix.DAMAGED, run, logits_run(CASES), CASES)


def test_an_empty_replica_must_show() -> None:
    """Every case in which each team has a thread must differ; one thread reads the home replica only."""
    run = logits_run(CASES, sha="bb")
    run.facts["cases"][CASES[0].id]["sha256"] = "aa"
    assert damaged(run).status == "pass"
    assert damaged(run).id == "mutation/tiny/damaged"
    run.facts["cases"][CASES[1].id]["sha256"] = "aa"
    assert damaged(run).status == "fail"
    assert damaged(run).facts["unchanged"] == [CASES[1].id]
    assert damaged(died()).status == "fail"


def test_what_a_damaged_replica_makes_impossible_is_no_change() -> None:
    """A case without an answer does not show that a replica is read; nor does a pristine that died."""
    run = logits_run(CASES, sha="bb")
    for answer, reason in (({"not_possible": "no such cache"}, "no such cache"), (None, "was not evaluated")):
        run.facts["cases"][CASES[1].id] = answer
        check = damaged(run)
        assert (check.status, check.facts["cases"]) == ("fail", 1)
        assert check.reason == f"{CASES[1].id}: pristine says 'possible', this variant {reason!r}"
    assert damaged(replace(run, facts={"cases": {}})).status == "fail"
    check = checks.damaged(MODEL, matrix.DAMAGED, run, died(), CASES)
    assert check.reason == "pristine: the process died of signal 11"


def test_some_case_must_tell() -> None:
    """Where no case can show a damaged replica, nothing is shown."""
    alone = (Case(1, 1, 1),)
    check = checks.damaged(MODEL, matrix.DAMAGED, logits_run(alone, sha="bb"), logits_run(alone), alone)
    assert check.reason == "no case tells"


def test_comparing_must_stop_the_program() -> None:
    """Only the runtime's own words count: another death says nothing, and going on even less."""
    said = "x.cpp:9: numa mirror: replica 1 differs from replica 0 after cache_k_l0 (SET_ROWS)"
    check = checks.stopped(MODEL, matrix.DAMAGED_CHECKED, died(f"the process died of signal 6\n{said}"))
    assert (check.status, check.id) == ("pass", "mutation/tiny/damaged-checked")
    logged = replace(died("the last lines are a debugger's"), facts={"log": f"{said}\n#1 abort ()\n"})
    assert checks.stopped(MODEL, matrix.DAMAGED_CHECKED, logged).status == "pass"
    assert checks.stopped(MODEL, matrix.DAMAGED_CHECKED, died()).status == "fail"
    assert checks.stopped(MODEL, matrix.DAMAGED_CHECKED, logits_run(CASES)).status == "fail"


def engaged(status: dict[str, Any] | None) -> Check:
    """The engagement check with two pretend nodes, for the made-up model."""
    return checks.engaged("tiny/mirror-2", "title", done(status=status), (), MIRROR, CONTENTS, PROFILE)


def test_engaged() -> None:
    """A record with all bytes in both replicas passes."""
    assert engaged(status_record(2)).status == "pass"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"active": False, "error": {"code": "reserve"}}, "not active"),
        ({"replicas": 3}, "3 replicas instead of 2"),
        ({"pretend": False}, "real instead of pretended"),
        ({"nodes": [{"id": 0, "bytes": 4096}]}, "do not hold all"),
        ({"nodes": [{"id": 0, "bytes": 4096}, {"id": 1, "bytes": 999}]}, r"nodes \[1\]"),
        ({"policy": "weights"}, "the policy is weights, not weights,kv"),
        ({"kv": {"buffers": 0, "bytes": 0}}, "cache outside of the replicas"),
        ({"graphs": {"mirrored": 0, "home": 3}}, "no graph was computed"),
        ({"graphs": {"mirrored": 3, "home": 1}}, "1 graph"),
        (
            {
                "tensors": {
                    "eligible_bytes": 1000,
                    "replicated_bytes": 990,
                    "not_replicated": [{"name": "blk.0.attn_q.weight"}],
                }
            },
            r"990 of 1000 .*attn_q",
        ),
        ({"tensors": {"eligible_bytes": 900, "replicated_bytes": 900}}, "only 900 of the file's 1000"),
        ({"tensors": {"eligible_bytes": 0, "replicated_bytes": 0}}, "0 of 0"),
    ],
)
def test_not_engaged(changes: dict[str, Any], reason: str) -> None:
    """Whatever falls short in the record fails, and is named."""
    check = engaged(status_record(2, **changes))
    assert check.status == "fail"
    assert re.search(reason, str(check.reason))


def test_caches_of_each_case_count() -> None:
    """All caches that upstream names must be in the replicas; with weights alone, none may be."""
    run = logits_run(CASES, status=status_record(2))
    case = run.facts["cases"][CASES[0].id]
    assert checks.engaged("x", "", run, CASES, MIRROR, CONTENTS, PROFILE).status == "pass"
    weights = logits_run(CASES, status=status_record(2, policy="weights"))
    check = checks.engaged("x", "", weights, CASES, matrix.BY_ENVIRONMENT, CONTENTS, PROFILE)
    assert "against the policy" in str(check.reason)
    for said, reason in (
        ({"buffers": 2, "mib": 0.5}, "1 caches of 1048576 bytes are in the replicas, of 2 with 0.50 MiB"),
        ({"buffers": 1, "mib": 1.01}, "of 1 with 1.01 MiB"),
        ({"buffers": 0, "mib": 0.0}, "upstream names no cache"),
    ):
        case["caches"] = said
        check = checks.engaged("x", "", run, CASES, MIRROR, CONTENTS, PROFILE)
        assert check.status == "fail"
        assert f"1 of 3 cases: {CASES[0].id}: " in str(check.reason)
        assert reason in str(check.reason)
    case["caches"] = {"buffers": 1, "mib": 1.004}  # rounded
    assert checks.engaged("x", "", run, CASES, MIRROR, CONTENTS, PROFILE).status == "pass"


@pytest.mark.parametrize("options", [(), (Option("new-graphs", "graphs", (), (("graph_reuse", False),)),)])
@pytest.mark.parametrize("action", matrix.ADAPTING)
def test_adapters_are_replicated_with_the_weights(action: str, options: tuple[Option, ...]) -> None:
    """An adapter that takes no room in a replica lies outside, whatever else is in the case's name."""
    case = Case(33, 32, 2, action=action, options=options)
    run = logits_run([case], status=status_record(2))
    check = checks.engaged("x", "", run, [case], MIRROR, CONTENTS, PROFILE)
    assert f"{case.id}: the adapter takes 0 bytes" in str(check.reason)
    run.facts["cases"][case.id]["adapted"] = 4096
    assert checks.engaged("x", "", run, [case], MIRROR, CONTENTS, PROFILE).status == "pass"


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"eligible": 1000, "replicated": 990, "left": ["blk.0.attn_q"]}, "990 of 1000 .*not: .*attn_q"),
        ({"eligible": 900, "replicated": 900, "left": []}, "900 of 900 .* of 1000 in the file"),
        (None, "0 of 0"),
    ],
)
def test_weights_of_each_case_count(weights: dict[str, Any] | None, reason: str) -> None:
    """What is loaded otherwise for one case is replicated as well, or the check fails."""
    run = logits_run(CASES, status=status_record(2))
    run.facts["cases"][CASES[1].id]["weights"] = weights
    check = checks.engaged("x", "", run, CASES, MIRROR, CONTENTS, PROFILE)
    assert check.status == "fail"
    assert re.search(f"1 of 3 cases: {CASES[1].id}: {reason}", str(check.reason))


def test_graphs_that_load_a_model_may_run_at_home() -> None:
    """Where upstream computes weights in loading, graphs of then do not count; others do, everywhere else."""
    profile = load_profile("ik_llama.cpp")
    for home, profile_, status in ((3, profile, "pass"), (4, profile, "fail"), (3, PROFILE, "fail")):
        record = status_record(2, graphs={"mirrored": 5, "home": home})
        run = logits_run(CASES, status=record, home_in_loading=3)
        assert checks.engaged("x", "", run, CASES, MIRROR, CONTENTS, profile_).status == status


def test_comparing_must_happen() -> None:
    """The variant that compares replicas after each write has done so."""
    for count, status in ((0, "fail"), (9, "pass")):
        run = done(status=status_record(2, checks=count))
        assert checks.engaged("x", "", run, CASES, matrix.checked(2), CONTENTS, PROFILE).status == status


def test_no_record_is_no_engagement() -> None:
    """A library without a status record is not believed."""
    assert engaged(None).status == "fail"


def test_idle() -> None:
    """Off means inactive and without an error."""
    assert checks.idle(done(status=status_record(0, active=False))).status == "pass"
    assert checks.idle(done(status=status_record(2))).status == "fail"
    assert checks.idle(done(status=None)).status == "fail"
    failed = status_record(0, active=False, error={"code": "one-node"})
    assert checks.idle(done(status=failed)).status == "fail"


LOADED = {"libllama.so.0": "/b/bin/libllama.so.0", "libggml-base.so": "/b/bin/libggml-base.so"}
OWN = Libraries(Path("/b/bin"), Path("/b"), "key")


def libraries(run: Run, *, mirror: bool, profile: Profile = PROFILE) -> Check:
    """The check of loaded libraries, for a made-up build."""
    return checks.libraries("pristine", "", run, OWN, profile, mirror=mirror)


def test_libraries() -> None:
    """All libraries come from the build's folder, with or without the mirror as the build says."""
    run = done(libraries=LOADED, status=None)
    assert libraries(run, mirror=False).status == "pass"
    assert libraries(run, mirror=True).status == "fail"
    mirrored = done(libraries=LOADED, status=status_record(2))
    assert libraries(mirrored, mirror=True).status == "pass"
    assert libraries(mirrored, mirror=False).status == "fail"


def test_libraries_from_elsewhere() -> None:
    """A library of another folder, or none at all, fails."""
    stray = done(libraries={**LOADED, "libggml-cpu.so": "/usr/lib/libggml-cpu.so"})
    assert "/usr/lib/libggml-cpu.so" in str(libraries(stray, mirror=False).reason)
    nothing = libraries(done(libraries={}), mirror=False)
    assert "no libllama.so was loaded" in str(nothing.reason)


def test_libraries_are_those_of_the_upstream() -> None:
    """ik_llama.cpp has one library of ggml, in another folder of the build than llama's."""
    loaded = {"libllama.so": "/b/build/src/libllama.so", "libggml.so": "/b/build/ggml/src/libggml.so"}
    run = done(libraries=loaded, status=None)
    assert libraries(run, mirror=False, profile=load_profile("ik_llama.cpp")).status == "pass"
    assert "no libggml-base.so was loaded" in str(libraries(run, mirror=False).reason)


@pytest.mark.parametrize("buffer", ["CPU_REPACK", "CPU_AARCH64", "AMX"])
def test_repacked(buffer: str) -> None:
    """The loader's own words count, in old and new versions."""
    log = f"load_tensors: {buffer:>12} model buffer size =     1.73 MiB\n"
    check = checks.repacked(MODEL, done(log=log, system="REPACK = 1"), PROFILE)
    assert (check.status, check.facts["said"]) == ("pass", ["1.73"])


def test_not_repacked() -> None:
    """No repacked buffer fails where the library can repack, and is skipped where it cannot."""
    log = "load_tensors:   CPU_Mapped model buffer size =     1.73 MiB\n"
    assert checks.repacked(MODEL, done(log=log, system="REPACK = 1"), PROFILE).status == "fail"
    assert checks.repacked(MODEL, done(log=log, system="SSE3 = 1"), PROFILE).status == "skip"
    assert checks.repacked(MODEL, died(), PROFILE).status == "fail"


def test_repacked_at_run_time() -> None:
    """ik_llama.cpp says how many tensors it repacked, and can always do it."""
    profile = load_profile("ik_llama.cpp")
    for count, status in ((30, "pass"), (0, "fail")):
        run = done(log=f"============ Repacked {count} tensors\n", system="AVX = 1")
        assert checks.repacked(MODEL, run, profile).status == status
    assert checks.repacked(MODEL, done(log="", system="AVX = 1"), profile).status == "fail"


def test_refused() -> None:
    """A refusal has the right code in the record and a line on stderr."""
    variant = matrix.one_node(1)
    record = {"active": False, "error": {"code": "one-node", "message": "numa mirror: only one"}}
    good = {"status": record, "log": "x\nnuma mirror: there is only one NUMA node\n"}
    assert checks.refused(variant, refused(good)).status == "pass"
    assert checks.refused(variant, refused({**good, "log": "x"})).status == "fail"
    assert checks.refused(matrix.NO_MEMORY, refused(good)).status == "fail"
    assert "loaded all the same" in str(checks.refused(variant, done(**good)).reason)
    assert checks.refused(variant, died()).status == "fail"


STRUCTURE = {"size": 8, "fields": {"x": [0, 8]}}
SHIFTED = {"size": 8, "fields": {"x": [4, 4]}}


def test_layout() -> None:
    """Structures that calls rely on must match; others are reported."""
    name = checks.RELIED_ON[0]
    binding = {name: STRUCTURE, "llama_other": SHIFTED}
    good = checks.layout("pristine", "", binding, {name: STRUCTURE, "llama_other": STRUCTURE})
    assert good.status == "pass"
    assert len(good.facts["differences_not_relied_on"]) == 1
    assert checks.layout("pristine", "", binding, {name: SHIFTED}).status == "fail"
    assert "no " + name in str(checks.layout("pristine", "", binding, {}).reason)


def test_a_binding_without_structures_proves_nothing() -> None:
    """When none of the structures is found in the binding, the comparison fails."""
    assert checks.layout("pristine", "", {}, {}).status == "fail"


def test_wheel_import() -> None:
    """Version and libraries are those of the wheel that was made."""
    run = done(version="1+x", libraries={"libllama.so": "/venv/lib/libllama.so"})
    assert checks.wheel_version(run, "1+x", Path("/venv")).status == "pass"
    assert checks.wheel_version(run, "1+y", Path("/venv")).status == "fail"
    assert checks.wheel_version(run, "1+x", Path("/other")).status == "fail"
    assert checks.wheel_version(died(), "1+x", Path("/venv")).status == "fail"


def test_wheel_record() -> None:
    """The record names what was built."""
    wanted = {"commit": "c", "plan": "p"}
    assert checks.wheel_record({"commit": "c", "plan": "p", "more": 1}, wanted).status == "pass"
    assert checks.wheel_record({"commit": "c", "plan": "q"}, wanted).status == "fail"
    assert checks.wheel_record(None, wanted).status == "fail"


def test_wheel_text() -> None:
    """Some text, and the same one."""
    assert checks.wheel_text(MODEL, done(text="a"), done(text="a"), "Llama()").status == "pass"
    assert checks.wheel_text(MODEL, done(text="a"), done(text="b"), "Llama()").status == "fail"
    assert checks.wheel_text(MODEL, done(text=""), done(text=""), "Llama()").status == "fail"
    assert checks.wheel_text(MODEL, done(text="a"), died(), "Llama()").status == "fail"


def test_cost() -> None:
    """Half a percent more instructions is the limit; fewer are welcome."""
    assert checks.cost(Instructions(1000.0, 1004.9)).status == "pass"
    assert checks.cost(Instructions(1000.0, 900.0)).status == "pass"
    assert checks.cost(Instructions(1000.0, 1005.1)).status == "fail"
