"""What is concluded from runs. Pure functions: runs and facts in, one check out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numamirror_build.verify.callgrind import LIMIT, Instructions
from numamirror_build.verify.document import Check
from numamirror_build.verify.layout import Structures, layout_differences
from numamirror_build.verify.matrix import ADAPTING, Case, Variant
from numamirror_build.verify.models import Contents, Model
from numamirror_build.verify.profile import Profile
from numamirror_build.verify.runs import Libraries, Run

# The structures that the calls made here, and those of the class Llama, hand over.
RELIED_ON = (
    "llama_batch",
    "llama_chat_message",
    "llama_context_params",
    "llama_logit_bias",
    "llama_model_params",
    "llama_model_quantize_params",
    "llama_sampler_chain_params",
    "llama_timings",
    "llama_token_data",
    "llama_token_data_array",
)

_ROUNDING_MIB = 0.005  # in upstream's log
_DIFFERS = re.compile(r"numa mirror: replica \d+ differs from replica 0 after .*")


def layout(name: str, title: str, binding: Structures, compiled: Structures) -> Check:
    """The binding declares the structures that are relied on as the compiler lays them out."""
    missing = [structure for structure in RELIED_ON if structure not in compiled and structure in binding]
    problems = [f"the headers have no {structure}" for structure in missing]
    if not binding:
        problems.append("the binding declares no structures")
    relied_on = {key: binding[key] for key in RELIED_ON if key in binding}
    problems += layout_differences(relied_on, compiled)
    others = {key: value for key, value in binding.items() if key not in RELIED_ON}
    facts = {
        "structures": {key: compiled[key]["size"] for key in relied_on if key in compiled},
        "differences_not_relied_on": list(layout_differences(others, compiled)),
    }
    return _check(f"layout/{name}", title, problems, facts)


def libraries(name: str, title: str, run: Run, own: Libraries, profile: Profile, *, mirror: bool) -> Check:
    """The process loaded llama and ggml of that build only, with the mirror's runtime or without it."""
    loaded = {key: str(value) for key, value in run.facts.get("libraries", {}).items()}
    problems = [run.reason or ""] if run.outcome != "done" else []
    problems += [
        f"no {stem} was loaded"
        for stem in profile.libraries
        if not any(key.startswith(stem) for key in loaded)
    ]
    root = own.root.resolve()
    problems += [
        f"{path} was loaded, which is not in {root}"
        for path in loaded.values()
        if not Path(path).is_relative_to(root)
    ]
    if mirror and run.status is None:
        problems.append("the libraries have no ggml_numa_mirror_status: the mirror is not compiled in")
    if not mirror and run.status is not None:
        problems.append("the libraries have ggml_numa_mirror_status: these are not pristine")
    return _check(f"libraries/{name}", title, problems, {"loaded": sorted(loaded)})


def same_answers(
    model: Model,
    variant: Variant,
    run: Run,
    reference: Run,
    cases: Sequence[Case],
    faults: Mapping[str, str] | None = None,
) -> Check:
    """All logits of a variant equal the reference's, bit for bit, and are worth comparing.

    A case that pristine cannot do is left out, and told; the variant must not be able to do it either.
    The facts name the actions and options of the cases that were compared.

    Args:
        model: what was evaluated.
        variant: with what.
        run: what came out.
        reference: what came out of pristine.
        cases: what was evaluated.
        faults: cases that were not, because pristine has no certain answer, each with the reason.
    """
    problems: list[str] = []
    first: dict[str, Any] | None = None
    different: list[str] = []
    possible: list[Case] = []
    left_out = dict(faults or {})
    for side, title in ((reference, "pristine"), (run, "this variant")):
        if side.outcome != "done":
            problems.append(f"{title}: {side.reason}")
    if not problems:
        for case in cases:
            mine, theirs = run.facts["cases"].get(case.id), reference.facts["cases"].get(case.id)
            if mine is None or theirs is None:
                problems.append(f"{case.id} was not evaluated")
            elif mine.get("not_possible") != theirs.get("not_possible"):
                answers = [side.get("not_possible") or "possible" for side in (theirs, mine)]
                problems.append(f"{case.id}: pristine says {answers[0]!r}, this variant {answers[1]!r}")
            elif reason := theirs.get("not_possible"):
                left_out[case.id] = reason
            else:
                possible.append(case)
                if mine["sha256"] != theirs["sha256"]:
                    different.append(case.id)
                    first = first or {"case": case.id, **(mine.get("difference") or {})}
                elif not theirs["finite"] or not theirs["spread"]:
                    problems.append(f"{case.id}: pristine's logits are not finite, or all the same")
        problems += _without_effect(reference, cases)
        problems += _without_adapter(model, cases, possible)
    compared = len(cases) + len(faults or {}) - len(left_out)
    if not compared:
        problems.append("no case was possible")
    if different:
        problems.append(f"{len(different)} of {compared} cases differ, the first: {first}")
    facts = {
        "cases": compared,
        "actions": sorted({case.action for case in possible if case.action}),
        "options": sorted({option.name for case in possible for option in case.options}),
        "different": different,
        "values": _values(run),
        "first": first,
        "not_possible": left_out,
    }
    besides = f", {len(left_out)} more not possible" if left_out else ""
    title = f"{model.name}: {variant.title} ({compared} cases, {_values(run):,} logits{besides})"
    return _check(f"same-answers/{model.name}/{variant.name}", title, problems, facts)


def unknown(model: Model) -> Check:
    """This commit lacks the model's architecture: nothing can be said."""
    return no_model(model.name, f"this commit does not know {model.arch}")


def no_model(name: str, reason: str) -> Check:
    """Upstream cannot load such a model: nothing can be said."""
    return Check(f"same-answers/{name}", f"{name}: all variants", "skip", reason)


def damaged(model: Model, variant: Variant, run: Run, reference: Run, cases: Sequence[Case]) -> Check:
    """Where each team has a thread, what is missing in a replica changes the answers: so it is read."""
    sides = ((reference, "pristine"), (run, "this variant"))
    problems = [f"{title}: {side.reason}" for side, title in sides if side.outcome != "done"]
    telling: list[str] = []
    unchanged: list[str] = []
    if not problems:
        for case in cases:
            mine, theirs = run.facts["cases"].get(case.id) or {}, reference.facts["cases"][case.id]
            if "sha256" not in theirs:
                continue
            if "sha256" not in mine:
                answer = mine.get("not_possible") or "was not evaluated"
                problems.append(f"{case.id}: pristine says 'possible', this variant {answer!r}")
            elif case.threads >= variant.replicas:
                telling.append(case.id)
                unchanged += [case.id] if mine["sha256"] == theirs["sha256"] else []
        if not telling:
            problems.append("no case tells")
    if unchanged:
        problems.append(
            f"{len(unchanged)} of {len(telling)} cases answer as if nothing were missing: {unchanged[:5]}"
        )
    facts = {"cases": len(telling), "unchanged": unchanged}
    what = "a cache that is missing in one replica" if variant.telling else "an empty replica"
    title = f"{model.name}: {what} changes the answers (it is really read)"
    return _check(f"mutation/{model.name}/{variant.name}", title, problems, facts)


def stopped(model: Model, variant: Variant, run: Run) -> Check:
    """The comparison of replicas finds a cache that is missing in one, and ends the program."""
    problems = []
    if run.outcome != "died":
        problems.append(f"the run was not stopped: it is {run.outcome}")
    found = _DIFFERS.search(f"{run.facts.get('log')}\n{run.reason}")
    if run.outcome == "died" and not found:
        problems.append(f"something else ended it: {run.reason}")
    title = f"{model.name}: comparing finds a cache that is missing in one replica"
    facts = {"said": found[0] if found else None}
    return _check(f"mutation/{model.name}/{variant.name}", title, problems, facts)


def engaged(
    name: str,
    title: str,
    run: Run,
    cases: Sequence[Case],
    variant: Variant,
    contents: Contents,
    profile: Profile,
) -> Check:
    """The status record says: as many replicas as asked, all eligible weight bytes and caches in each."""
    status = run.status or {}
    tensors = status.get("tensors") or {}
    eligible, replicated = tensors.get("eligible_bytes", 0), tensors.get("replicated_bytes", 0)
    problems = [f"{run.reason}"] if run.outcome != "done" else []
    if not status:
        problems.append("there is no status record")
    else:
        pretend = "GGML_NUMA_MIRROR_NODES" in variant.env
        if not status.get("active"):
            problems.append(f"the mirror is not active: {status.get('error')}")
        if status.get("replicas") != variant.replicas:
            problems.append(f"{status.get('replicas')} replicas instead of {variant.replicas}")
        if bool(status.get("pretend")) != pretend:
            problems.append(
                "the nodes are real instead of pretended" if pretend else "the nodes are pretended"
            )
        if replicated != eligible or not eligible:
            left = [entry.get("name") for entry in tensors.get("not_replicated", [])][:5]
            problems.append(f"{replicated} of {eligible} eligible bytes are replicated; not: {left}")
        if eligible < contents.tensor_bytes:
            problems.append(
                f"only {eligible} of the file's {contents.tensor_bytes} weight bytes are eligible"
            )
        short = [node.get("id") for node in status.get("nodes", []) if node.get("bytes", 0) < replicated]
        if short or len(status.get("nodes", [])) != variant.replicas:
            problems.append(f"nodes {short or status.get('nodes')} do not hold all {replicated} bytes")
        problems += _weights(run, contents)
        problems += _caches(run, cases, variant.policy)
        graphs = status.get("graphs") or {}
        if not graphs.get("mirrored"):
            problems.append("no graph was computed with replicas")
        loading = run.facts.get("home_in_loading", 0) if profile.computes_in_loading else 0
        if home := graphs.get("home", 0) - loading:
            problems.append(f"{home} graphs were computed on the home replica alone")
        if "GGML_NUMA_MIRROR_CHECK" in variant.env and not status.get("checks"):
            problems.append("replicas were never compared")
    facts = {
        "replicas": status.get("replicas"),
        "policy": status.get("policy"),
        "eligible_bytes": eligible,
        "replicated_bytes": replicated,
        "file_bytes": contents.tensor_bytes,
        "tensors": tensors.get("replicated"),
        "graphs": status.get("graphs"),
        "comparisons": status.get("checks"),
        "nodes": status.get("nodes"),
    }
    return _check(f"engaged/{name}", f"{title} ({replicated:,} bytes each)", problems, facts)


def _weights(run: Run, contents: Contents) -> list[str]:
    """What is wrong with the weights as they were at the end of each case, whatever they were loaded with."""
    cases: Mapping[str, Mapping[str, Any]] = run.facts.get("cases", {})
    done = {name: case for name, case in cases.items() if "not_possible" not in case}
    problems = []
    for name, case in done.items():
        held = case.get("weights") or {"eligible": 0, "replicated": 0, "left": []}
        if held["replicated"] != held["eligible"] or held["eligible"] < contents.tensor_bytes:
            problems.append(
                f"{name}: {held['replicated']} of {held['eligible']} eligible bytes are replicated, "
                f"of {contents.tensor_bytes} in the file; not: {held['left']}"
            )
    return [f"{len(problems)} of {len(done)} cases: {problems[0]}"] if problems else []


def _caches(run: Run, cases: Sequence[Case], policy: str) -> list[str]:
    """What is wrong with caches and adapters: they are in the replicas, or not, as the policy says."""
    status = run.status or {}
    if status.get("policy") != policy:
        return [f"the policy is {status.get('policy')}, not {policy}"]
    answers: Mapping[str, Mapping[str, Any]] = run.facts.get("cases", {})
    done = {name: case for name, case in answers.items() if "not_possible" not in case}
    if not answers and "kv" in policy and not (status.get("kv") or {}).get("bytes"):
        return ["the context has its cache outside of the replicas"]
    problems = [f"{name}: {problem}" for name, case in done.items() if (problem := _cache(case, policy))]
    for name in (case.id for case in cases if case.action in ADAPTING and case.id in done):
        adapted = done[name].get("adapted")
        if bool(adapted) != ("weights" in policy):
            problems.append(f"{name}: the adapter takes {adapted} bytes of a replica")
    return [f"{len(problems)} of {len(done)} cases: {problems[0]}"] if problems else []


def _cache(case: Mapping[str, Any], policy: str) -> str | None:
    """What is wrong with the caches of one case: upstream says how many there are, and how large."""
    said, held = case["caches"], case.get("kv") or {"buffers": 0, "bytes": 0}
    if "kv" not in policy:
        return "caches are in the replicas, against the policy" if held["bytes"] else None
    if not said["buffers"]:
        return "upstream names no cache"
    least = (said["mib"] - _ROUNDING_MIB * said["buffers"]) * (1 << 20)
    if held["buffers"] != said["buffers"] or held["bytes"] < least:
        return (
            f"{held['buffers']} caches of {held['bytes']} bytes are in the replicas, "
            f"of {said['buffers']} with {said['mib']:.2f} MiB"
        )
    return None


def _without_effect(reference: Run, cases: Sequence[Case]) -> list[str]:
    """Actions that must change the answers, and did not."""
    answers = reference.facts["cases"]
    return [
        f"{case.id}: it had no effect"
        for case in cases
        if case.action in ADAPTING
        and (plain := answers.get(replace(case, action=None).id))
        and answers.get(case.id, {}).get("sha256") == plain.get("sha256")
    ]


def _without_adapter(model: Model, cases: Sequence[Case], possible: Sequence[Case]) -> list[str]:
    """Kinds of adapters that were wanted, and not one was possible, though each model made here has them."""
    missing = {case.action for case in cases if case.action in ADAPTING}
    missing -= {case.action for case in possible}
    return [f"no case with {action} was possible" for action in sorted(filter(None, missing)) if model.own]


def idle(run: Run) -> Check:
    """Without being asked, the patched libraries mirror nothing."""
    status = run.status or {}
    problems = [f"{run.reason}"] if run.outcome != "done" else []
    if not status:
        problems.append("there is no status record")
    if status.get("active") or status.get("error"):
        problems.append(f"active: {status.get('active')}, error: {status.get('error')}")
    return _check("idle/off", "No mirror when none is asked", problems, {"active": status.get("active")})


def repacked(model: Model, run: Run, profile: Profile) -> Check:
    """Weights of this model were really repacked: repacked buffers are among what is verified."""
    said = profile.repacked.findall(str(run.facts.get("log", "")))
    title = f"{model.name}: weights are repacked by the CPU backend"
    silent = run.outcome == "done" and not any(float(number) for number in said)
    if silent and profile.repacking and profile.repacking not in str(run.facts.get("system")):
        return Check(f"repacked/{model.name}", title, "skip", "this build or processor does not repack")
    problems = [f"{run.reason}"] if run.outcome != "done" else []
    if silent:
        problems.append(f"the log says nothing of it, or that it is nothing: {said}")
    return _check(f"repacked/{model.name}", title, problems, {"said": said})


def refused(variant: Variant, run: Run) -> Check:
    """A mirror that cannot be had is an error at load, told on stderr and in the status record."""
    error = (run.status or {}).get("error") or {}
    problems = []
    if run.outcome != "refused":
        problems.append(f"the model was loaded all the same: {run.reason or 'no error'}")
    elif error.get("code") != variant.name:
        problems.append(f"the status record's error is {error or None}, not {variant.name}")
    lines = [line for line in str(run.facts.get("log", "")).splitlines() if line.startswith("numa mirror:")]
    if run.outcome == "refused" and not lines:
        problems.append("no line that begins with 'numa mirror:' was printed")
    title = f"An error at load, not silence: {variant.title}"
    return _check(f"refused/{variant.name}", title, problems, {"error": error, "printed": lines[:2]})


def wheel_version(run: Run, version: str, site: Path) -> Check:
    """The wheel that was installed is the one that was made, and its own libraries are loaded."""
    problems = [f"{run.reason}"] if run.outcome != "done" else []
    if run.outcome == "done" and run.facts.get("version") != version:
        problems.append(f"version {run.facts.get('version')} is installed, {version} was made")
    outside = [
        path
        for path in run.facts.get("libraries", {}).values()
        if not Path(path).is_relative_to(site.resolve())
    ]
    problems += [f"{path} was loaded, not the wheel's own library" for path in outside]
    facts = {"version": run.facts.get("version"), "libraries": sorted(run.facts.get("libraries", {}))}
    return _check("wheel/import", "The wheel imports in a clean environment", problems, facts)


def wheel_record(record: Mapping[str, Any] | None, wanted: Mapping[str, str]) -> Check:
    """The wheel's build record names the commit and the plan that were built."""
    problems = ["the wheel has no build record"] if record is None else []
    for key, value in wanted.items():
        if record is not None and record.get(key) != value:
            problems.append(f"{key} is {record.get(key)}, not {value}")
    return _check("wheel/record", "The wheel's build record says what it is", problems, dict(record or {}))


def wheel_text(model: Model, plain: Run, mirrored: Run, asking: str) -> Check:
    """What people use from Python writes the same text with the mirror as without."""
    problems = [f"{run.reason}" for run in (plain, mirrored) if run.outcome != "done"]
    texts = [run.facts.get("text") for run in (plain, mirrored)]
    if not problems and not texts[0]:
        problems.append("no text was generated")
    if not problems and texts[0] != texts[1]:
        problems.append(f"{texts[1]!r} instead of {texts[0]!r}")
    title = f"{model.name}: {asking} generates the same text"
    return _check(f"wheel/text/{model.name}", title, problems, {"text": texts[1]})


def cost(counted: Instructions) -> Check:
    """The mirror costs next to nothing when nobody asks for it."""
    over = counted.excess > LIMIT
    problems = [f"{counted.excess:+.2%} instructions, the limit is {LIMIT:+.2%}"] if over else []
    title = f"{counted.excess:+.2%} instructions per token, one thread, no mirror asked"
    return _check("cost/instructions", title, problems, counted.as_json())


def _values(run: Run) -> int:
    shapes = [case["shape"] for case in run.facts.get("cases", {}).values() if "shape" in case]
    return sum(int(rows) * int(columns) for rows, columns in shapes)


def _check(name: str, title: str, problems: Sequence[str], facts: Mapping[str, Any]) -> Check:
    reason = "; ".join(problems) or None
    return Check(name, title, "fail" if problems else "pass", reason, facts)
