"""What is concluded from observations. Pure functions: observations in, one check out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numamirror_build.lab.trace import Trace
from numamirror_build.lab.verify.arms import Arm, Setting
from numamirror_build.lab.verify.observe import Observation
from numamirror_build.verify.document import Check, Table
from numamirror_build.verify.models import Contents, Model

LIMIT = 0.001  # of the weights and caches that are read while tokens are generated, from other nodes
SAME_LOADS = 0.99  # so much of what pristine loads, the mirror must load at least
WHAT = ("weights", "kv")

_ABSENT = "-1"  # of pages, in what the driver says


def answers(setting: Setting, arm: Arm, model: Model, seen: Observation, reference: Observation) -> Check:
    """All logits in the lab equal those of pristine outside, bit for bit."""
    problems = [
        f"{where}: {side.reason}"
        for where, side in (("outside", reference), ("in the lab", seen))
        if side.reason
    ]
    facts: dict[str, Any] = {}
    if not problems:
        mine, theirs = (_logits(side) for side in (seen, reference))
        facts["logits"] = len(theirs)
        if len(mine) != len(theirs) or not len(theirs):
            problems.append(f"{len(mine)} logits instead of {len(theirs)}")
        elif different := int((mine.view(np.uint32) != theirs.view(np.uint32)).sum()):
            problems.append(f"{different} of {len(theirs)} logits differ")
        elif not np.isfinite(theirs).all() or not theirs.std():
            problems.append("pristine's logits are not finite, or all the same")
    title = f"{model.name}, {setting.title}, {arm.title}: logits as pristine's outside of the lab"
    return _check("lab-answers", setting, arm, model, title, problems, facts)


def pages(setting: Setting, arm: Arm, model: Model, seen: Observation, contents: Contents) -> Check:
    """The kernel has every page of replica k on node k, all weights and caches are in each replica."""
    problems = _reason(seen)
    status = seen.facts.get("status") or {}
    tensors = status.get("tensors") or {}
    nodes = [node["id"] for node in status.get("nodes", [])]
    wanted = [node.id for node in setting.layout.nodes]
    found: dict[str, dict[str, int]] = {}
    if not problems:
        if not status.get("active") or status.get("pretend"):
            problems.append(f"the mirror is not active on real nodes: {status.get('error')}")
        if nodes != wanted:
            problems.append(f"replicas are for the nodes {nodes} instead of {wanted}")
        if not contents.tensor_bytes <= tensors.get("eligible_bytes", 0) == tensors.get("replicated_bytes"):
            problems.append(f"of {contents.tensor_bytes} bytes of weights are replicated: {tensors}")
        for what in WHAT:
            for replica, node in enumerate(nodes):
                counts = _pages(seen, what, replica)
                found[f"{what} {replica}"] = counts
                if set(counts) != {str(node)}:
                    problems.append(f"pages of replica {replica} of the {what} lie on nodes {counts}")
        for node in status.get("nodes", []):
            if set(node["pages"]) != {str(node["id"])}:
                problems.append(f"the status record has replica {node['replica']} on nodes {node['pages']}")
    title = f"{model.name}, {setting.title}, {arm.title}: every page of replica k on node k"
    facts = {"pages": found, "replicated_bytes": tensors.get("replicated_bytes"), "nodes": nodes}
    return _check("lab-pages", setting, arm, model, title, problems, facts)


def threads(setting: Setting, arm: Arm, model: Model, seen: Observation) -> Check:
    """All threads but the calling one are bound to CPUs of a node, as many as the record has there."""
    problems = _reason(seen)
    status = seen.facts.get("status") or {}
    bound = list(seen.facts.get("threads", []))
    if not problems:
        teams = {node["cpus"]: node["threads"] for node in status.get("nodes", [])}
        if not (status.get("threads") or {}).get("bound"):
            problems.append(f"threads are not bound: {status.get('threads')}")
        if sum(teams.values()) != arm.threads(setting) or not all(teams.values()):
            problems.append(f"{arm.threads(setting)} threads are shared out as {teams}")
        counts = {cpus: bound.count(cpus) for cpus in teams}
        if sum(counts.values()) != arm.threads(setting) - 1 or any(
            counts[cpus] > teams[cpus] for cpus in teams
        ):
            problems.append(f"threads may run on the CPUs {bound}, the nodes have {teams}")
    title = f"{model.name}, {setting.title}, {arm.title}: threads are bound to their nodes"
    return _check("lab-threads", setting, arm, model, title, problems, {"threads": bound})


def remote(
    setting: Setting, arm: Arm, model: Model, seen: Observation, pristine: Observation | None
) -> Check:
    """In generation, next to nothing of weights and caches is read from another node.

    Args:
        setting: the machine.
        arm: the mirror.
        model: what generated.
        seen: what was counted.
        pristine: a run of pristine with as many threads, which must not have read more; None: there is none.
    """
    problems = _reason(seen)
    figures = _figures(seen.trace)
    if not problems:
        for what in WHAT:
            if not figures[what]["loaded"]:
                problems.append(f"nothing was read of the {what}: the trace did not see them")
            elif figures[what]["remote_share"] > LIMIT:
                problems.append(f"{figures[what]['remote_share']:.2%} of the {what} were read remotely")
            before = pristine.trace.loaded("generation", what) if pristine else 0
            if figures[what]["loaded"] < SAME_LOADS * before:
                problems.append(f"{figures[what]['loaded']} bytes of {what} were read, by pristine {before}")
        if seen.facts.get("balancing") != int(arm.balancing):
            problems.append(f"automatic balancing is {seen.facts.get('balancing')}")
        readers = {
            count.cpu_node
            for count in seen.trace.counts
            if (count.phase, count.what) == ("generation", "weights") and count.loaded
        }
        if readers != {node.id for node in setting.layout.nodes}:
            problems.append(f"only the CPUs of the nodes {sorted(readers)} read weights")
    title = f"{model.name}, {setting.title}, {arm.title}: {_shares(figures)} from other nodes"
    facts = {"generation": figures, "limit": LIMIT, "balancing": seen.facts.get("balancing")}
    return _check("lab-remote", setting, arm, model, title, problems, facts)


def other(setting: Setting, arm: Arm, model: Model, seen: Observation) -> Check:
    """What another arm reads remotely was counted."""
    problems = _reason(seen)
    figures = _figures(seen.trace)
    if not problems:
        problems = [
            f"nothing was read of the {what}: the trace did not see them"
            for what in WHAT
            if not figures[what]["loaded"]
        ]
    title = f"{model.name}, {setting.title}, {arm.title}: {_shares(figures)} from other nodes"
    facts = {
        "generation": figures,
        "pages": {what: _pages(seen, what) for what in WHAT},
        "threads": arm.threads(setting),
        "balancing": seen.facts.get("balancing"),
        "migrated_pages": seen.facts.get("migrated"),
    }
    return _check("lab-arms", setting, arm, model, title, problems, facts)


def arms_table(
    settings: Sequence[Setting],
    arms: Sequence[Arm],
    seen: Mapping[tuple[str, str], Observation],
    model: Model,
) -> Table:
    """Shares of what is read from other nodes, an arm a line."""
    head = ["arm"]
    for setting in settings:
        head += [f"{setting.title}: weights", "KV", "weights' pages by node"]
    rows = []
    for arm in arms:
        row = [arm.title]
        for setting in settings:
            run = seen[setting.name, arm.name]
            figures = _figures(run.trace)
            shares = ["-" if run.reason else f"{figures[what]['remote_share']:.1%}" for what in WHAT]
            row += [*shares, _placement(run)]
        rows.append(tuple(row))
    title = f"Read from other nodes while tokens are generated, {model.name}"
    return Table(title, tuple(head), tuple(rows))


def _placement(seen: Observation) -> str:
    """Where pages of the weights lie, all replicas together."""
    counts = _pages(seen, "weights")
    total = sum(counts.values()) or 1
    return ", ".join(f"{node}: {count / total:.0%}" for node, count in sorted(counts.items()))


def _pages(seen: Observation, what: str, replica: int | None = None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in seen.facts.get("ranges", []):
        if entry["class"] == what and replica in (None, entry["replica"]):
            for node, count in entry["pages"].items():
                name = "absent" if node == _ABSENT else node
                counts[name] = counts.get(name, 0) + count
    return counts


def _figures(trace: Trace) -> dict[str, dict[str, Any]]:
    figures = {}
    for what in WHAT:
        loaded, remotely = trace.loaded("generation", what), trace.loaded_remotely("generation", what)
        share = round(remotely / loaded, 6) if loaded else 0.0
        figures[what] = {"loaded": loaded, "loaded_remotely": remotely, "remote_share": share}
    return figures


def _shares(figures: Mapping[str, Mapping[str, Any]]) -> str:
    weights, caches = (figures[what] for what in WHAT)
    return f"{weights['remote_share']:.2%} of the weights and {caches['remote_share']:.2%} of the KV cache"


def _logits(seen: Observation) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.fromfile(seen.logits, dtype=np.float32) if seen.logits else np.empty(0, dtype=np.float32)


def _reason(seen: Observation) -> list[str]:
    return [seen.reason] if seen.reason else []


def _check(
    family: str,
    setting: Setting,
    arm: Arm,
    model: Model,
    title: str,
    problems: Sequence[str],
    facts: Mapping[str, Any],
) -> Check:
    name = f"{family}/{setting.name}/{arm.name}/{model.name}"
    return Check(name, title, "fail" if problems else "pass", "; ".join(problems) or None, facts)
