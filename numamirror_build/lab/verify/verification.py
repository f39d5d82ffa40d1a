"""The whole verification in the lab, from builds to a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build import __version__
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.verify import checks
from numamirror_build.lab.verify.arms import MIRROR, WHOLE, Scope
from numamirror_build.lab.verify.observe import Laboratory, Observation
from numamirror_build.machine.state import describe
from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify.document import Check, Verification
from numamirror_build.verify.models import Model, find_recipe, known_architectures, make_model, read_contents
from numamirror_build.verify.profile import Profile, load_profile, profile_path
from numamirror_build.verify.report import load, save, verdict

if TYPE_CHECKING:
    from numamirror_build.building.build import Build


def verify_in_lab(
    store: Store, *, pristine: Build, patched: Build, scope: Scope = WHOLE, progress: Progress
) -> Verification:
    """Check on machines with several nodes that the mirror answers as pristine does, and reads nearby memory.

    Runs that are done are kept: after an interruption, or a failure, the next call goes on from there.

    Args:
        store: the cache.
        pristine: the build of the untouched tree, for a CPU that QEMU emulates.
        patched: the build of the patched tree with the same arguments.
        scope: how much is run.
        progress: what is told how far it got.

    Raises:
        LabError: a machine did not start, or broke down.
        LabTimeoutError: a run took too long.
        ToolMissingError: something that the lab needs is not installed and cannot be fetched.
        VerificationError: a check failed; the report is written before.
    """
    tree = patched.tree
    if not isinstance(tree, PatchedTree) or not isinstance(pristine.tree, PristineTree):
        raise TypeError("verification compares a pristine build with a patched one")
    profile = load_profile(tree.plan.upstream)
    known = known_architectures(pristine.tree.path)
    models = [model for model in _models(store, profile, scope) if model.arch in known]
    parts = find_parts(store, progress=progress)
    builds = {"pristine": pristine, "patched": patched}
    lab = Laboratory(store, builds, profile, parts, progress)
    subject = {
        "tool": __version__,
        "upstream": tree.plan.upstream,
        "pin": tree.plan.pin.name,
        "commit": tree.plan.pin.commit,
        "plan": tree.plan.digest,
        "builds": {name: build.key for name, build in builds.items()},
        "level": scope.name,
        "models": [{"name": model.name, "identity": model.identity} for model in models],
        "machine": describe(),
        "lab": {"qemu": parts.qemu_release, "kernel": parts.release},
    }
    layouts = [setting.layout.as_json() for setting in scope.settings]
    inputs = {"subject": subject, "layouts": layouts, "code": _code_digest(profile_path(tree.plan.upstream))}
    key = digest(inputs)[:20]

    def make(folder: Path) -> dict[str, Any]:
        seen: dict[tuple[str, str], Observation] = {}
        answers = tuple(_checks(lab, scope, models, seen))
        table = checks.arms_table(scope.settings, (*scope.others, MIRROR), seen, models[0])
        save(folder, answers, subject, (table,))
        if failure := verdict(folder, answers):
            raise failure
        return {}

    return load(store.make("verifications", key, make, resume=True), key)


def _checks(
    lab: Laboratory, scope: Scope, models: list[Model], seen: dict[tuple[str, str], Observation]
) -> Iterator[Check]:
    """Each check as soon as it can be answered; what was seen with the first model is kept for the table."""
    for setting in scope.settings:
        for arm in scope.others:
            lab.progress.step(f"{setting.title}, {arm.title}")
            run = seen[setting.name, arm.name] = lab.inside(setting, arm, models[0])
            yield checks.answers(setting, arm, models[0], run, lab.outside(setting, arm, models[0]))
            yield checks.other(setting, arm, models[0], run)
        for model in models:
            lab.progress.step(f"{setting.title}, {MIRROR.title}, {model.name}")
            run = lab.inside(setting, MIRROR, model)
            is_first = model is models[0]
            if is_first:
                seen[setting.name, MIRROR.name] = run
            pristine = seen[setting.name, scope.others[0].name] if is_first else None
            yield checks.answers(setting, MIRROR, model, run, lab.outside(setting, MIRROR, model))
            yield checks.pages(setting, MIRROR, model, run, read_contents(model.path))
            yield checks.threads(setting, MIRROR, model, run)
            yield checks.remote(setting, MIRROR, model, run, pristine)


def _models(store: Store, profile: Profile, scope: Scope) -> Iterator[Model]:
    """The two models that everything is verified with, and one whose weights are repacked."""
    names = list(profile.pair) if scope.further_models else [profile.pair[0]]
    recipes = [find_recipe(name) for name in profile.models]
    if scope.further_models:
        names += [recipe.name for recipe in recipes if recipe.repacked and not recipe.quantised][:1]
    return (make_model(store, find_recipe(name)) for name in names)


def _code_digest(profile: Path) -> str:
    own = [
        path
        for path in sorted(Path(__file__).parents[1].rglob("*"))
        if path.suffix in (".py", ".cpp", ".c", ".h")
    ]
    return digest([[path.name, file_sha256(path)] for path in [*own, profile]])
