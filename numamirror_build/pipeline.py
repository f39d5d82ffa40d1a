"""The flow of a job as values: Pin -> Checkout -> Plan -> PatchedTree -> Build -> Wheel -> Verification.

Each value is made at most once per pipeline, from the ones before it,
and comes from the cache when it is there.
Nothing here knows a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from numamirror_build.errors import output_as_error

if TYPE_CHECKING:
    from numamirror_build.building.build import Build, BuildOptions
    from numamirror_build.building.wheel import Wheel
    from numamirror_build.delivery import Item, Product
    from numamirror_build.patching.apply import PatchedTree, PristineTree
    from numamirror_build.patching.audit import Audit
    from numamirror_build.patching.into import Changed
    from numamirror_build.patching.lock import LockReport
    from numamirror_build.patching.plan import Plan
    from numamirror_build.progress import Progress
    from numamirror_build.store import Store
    from numamirror_build.upstreams.checkout import Checkout
    from numamirror_build.upstreams.pins import Pin, Upstream
    from numamirror_build.verify.document import Verification
    from numamirror_build.verify.matrix import Level


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        upstream: name of the upstream.
        pin: name of a pin or commit; None for the upstream's default.
        source: ``auto``, ``git``, ``sdist`` or a path.
        git_url: remote to fetch from instead of upstream's own.
        scope: ``cpu`` or ``all``: which code is rewritten.
        jobs: compile steps at the same time.
        cmake_args: further arguments for CMake, for both builds and the wheel.
        portable: the level of x86-64 to build for; None: this machine.
        model: a GGUF file, or ``smollm2``, to verify with beside the models that the project makes itself.
    """

    upstream: str
    pin: str | None = None
    source: str = "auto"
    git_url: str | None = None
    scope: str = "cpu"
    jobs: int = 1
    cmake_args: tuple[str, ...] = ()
    portable: str | None = None
    model: str | None = None


class Pipeline:
    """The values of one request, each made when it is first asked for.

    Modules are imported by the step that needs them: a run that finds everything in the cache loads little.
    """

    def __init__(self, store: Store, request: Request, progress: Progress) -> None:
        self.store = store
        self.request = request
        self.progress = progress

    @cached_property
    def upstream(self) -> Upstream:
        """The facts about the upstream."""
        from numamirror_build.upstreams.pins import load_upstream

        return load_upstream(self.request.upstream)

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        """All listed pins of the upstream."""
        from numamirror_build.upstreams.pins import load_pins

        return load_pins(self.request.upstream)

    @cached_property
    def pin(self) -> Pin:
        """The pin that the request names."""
        from numamirror_build.upstreams.pins import find_pin

        return find_pin(self.request.upstream, self.request.pin)

    @cached_property
    def checkout(self) -> Checkout:
        """Upstream's files at the pin, checked."""
        from numamirror_build.upstreams.checkout import make_checkout

        return make_checkout(
            self.store,
            self.pin,
            source=self.request.source,
            git_url=self.request.git_url,
            progress=self.progress,
        )

    @cached_property
    def plan(self) -> Plan:
        """All edits and new files for the checkout."""
        from numamirror_build.patching.plan import make_plan

        return make_plan(self.store, self.checkout, scope=self.request.scope, progress=self.progress)

    @cached_property
    def lock_report(self) -> LockReport:
        """How the plan compares with its lock, or with the nearest one."""
        from numamirror_build.patching.lock import check_lock

        return check_lock(self.plan)

    def export(self, out: Path) -> list[Path]:
        """Write the plan as a series of patches; their paths."""
        from numamirror_build.patching.export import export_series

        return export_series(self.checkout, self.plan, out)

    def export_into(self, tree: Path) -> Changed:
        """Make the change in somebody's own tree, as that tree is."""
        from numamirror_build.patching.into import change_tree

        of_pin = self.plan
        self.progress.step(f"Planning the change of {tree}")
        return change_tree(tree, of_pin)

    def update_lock(self) -> Path:
        """Make the pin's lock what a plan finds now; the lock's file."""
        from numamirror_build import data
        from numamirror_build.patching.lock import write_lock
        from numamirror_build.patching.plan import make_plan

        scope = self.request.scope
        plan = make_plan(self.store, self.checkout, scope=scope, locked=False, progress=self.progress)
        with data.writing():
            return write_lock(plan)

    @cached_property
    def pristine_tree(self) -> PristineTree:
        """The checkout as something to build."""
        from numamirror_build.patching.apply import PristineTree

        return PristineTree(self.checkout)

    @cached_property
    def patched_tree(self) -> PatchedTree:
        """The checkout with the plan applied."""
        from numamirror_build.patching.apply import apply_plan

        return apply_plan(self.store, self.checkout, self.plan, progress=self.progress)

    @cached_property
    def build_options(self) -> BuildOptions:
        """How to build."""
        from numamirror_build.building.build import BuildOptions

        return BuildOptions(
            jobs=self.request.jobs, cmake_args=self.request.cmake_args, portable=self.request.portable
        )

    @cached_property
    def pristine_build(self) -> Build:
        """Programs and libraries of upstream as it is."""
        from numamirror_build.building.build import make_build

        return make_build(self.store, self.pristine_tree, self.build_options, progress=self.progress)

    @cached_property
    def patched_build(self) -> Build:
        """Programs and libraries of the patched tree."""
        from numamirror_build.building.build import make_build

        return make_build(self.store, self.patched_tree, self.build_options, progress=self.progress)

    @cached_property
    def audit(self) -> Audit:
        """The proof that no compiled access to tensor data bypasses the accessors."""
        from numamirror_build.patching.audit import audit

        return audit(self.store, self.patched_tree, self.build_options, progress=self.progress)

    @cached_property
    def wheel(self) -> Wheel:
        """The binding's wheel with the patched tree inside."""
        from numamirror_build.building.wheel import make_wheel

        return make_wheel(self.store, self.patched_tree, self.build_options, progress=self.progress)

    def write_sources(self, out: Path) -> str:
        """Write what a portable wheel is built from, for cibuildwheel; the wheel's version."""
        from numamirror_build.building.sources import write_sources

        tree = self.patched_tree
        with output_as_error(str(out)):
            return write_sources(self.store, tree, self.build_options, out, progress=self.progress)

    @cached_property
    def portable_builds(self) -> tuple[Build, Build]:
        """Libraries of the pristine and the patched tree that valgrind, and the lab's machine, can run."""
        return self._portable(())

    @cached_property
    def portable_benches(self) -> tuple[Build, Build]:
        """The same with ``llama-bench``."""
        return self._portable(("llama-bench",))

    def _portable(self, programs: tuple[str, ...]) -> tuple[Build, Build]:
        from numamirror_build.building.build import make_build
        from numamirror_build.verify.callgrind import PORTABLE

        arguments = (*self.request.cmake_args, *PORTABLE)
        options = replace(self.build_options, cmake_args=arguments, programs=programs)
        pristine, patched = (
            make_build(self.store, tree, options, progress=self.progress)
            for tree in (self.pristine_tree, self.patched_tree)
        )
        return pristine, patched

    @cached_property
    def verification(self) -> Verification:
        """The checks that the answers are unchanged and the replicas used."""
        return self.verify()

    def verify(self, *, level: Level = "quick", instructions: bool = False) -> Verification:
        """Verify at a level of the matrix; with ``instructions``, count those per token as well."""
        from numamirror_build.verify.verification import verify

        return verify(
            self.store,
            pristine=self.pristine_build,
            patched=self.patched_build,
            wheel=self.wheel,
            model=self.request.model,
            level=level,
            portable=self.portable_builds if instructions else None,
            progress=self.progress,
        )

    def verify_in_lab(self) -> Verification:
        """Verify on machines with several nodes, beside upstream's own options there."""
        from numamirror_build.lab.verify import verify_in_lab

        pristine, patched = self.portable_builds
        return verify_in_lab(self.store, pristine=pristine, patched=patched, progress=self.progress)

    def check_request(self) -> None:
        """See that there can be a wheel, and that the model can be used, before anything dear is made."""
        from numamirror_build.building.recipe import load_recipe
        from numamirror_build.building.wheel import check_level
        from numamirror_build.verify.models import find_model

        check_level(load_recipe(self.pin.upstream), self.request.portable)
        if self.request.model is not None:
            find_model(self.store, self.request.model, progress=self.progress)


def run_job(pipeline: Pipeline, out: Path) -> tuple[Product, ...]:
    """The main job: make, audit, verify and hand over everything.

    Nothing is handed over before audit and verification have passed.

    Args:
        pipeline: the values of the request.
        out: the folder for what is made.

    Raises:
        NumaMirrorError: a step failed; each kind of failure is a class of its own.
    """
    from numamirror_build.delivery import check_place, deliver

    check_place(out)
    pipeline.check_request()
    audit, verification = pipeline.audit, pipeline.verification
    facts = {
        "upstream": pipeline.pin.upstream,
        "pin": pipeline.pin.name,
        "commit": pipeline.pin.commit,
        "source_verified": pipeline.checkout.verified,
        "plan": pipeline.plan.digest,
        "audit": {"compiled": len(audit.compiled), "excluded": len(audit.excluded)},
        "checks": verification.counts(),
    }
    pipeline.progress.step(f"Handing over to {out}")
    return deliver(out, _items(pipeline), facts, locks=pipeline.store.root / "locks")


def _items(pipeline: Pipeline) -> list[Item]:
    from numamirror_build.building.install import installed_files
    from numamirror_build.delivery import Item

    tree, build, wheel = pipeline.patched_tree, pipeline.patched_build, pipeline.wheel
    verification = pipeline.verification
    programs = set(build.programs.values())

    def kind(target: str, source: Path) -> str:
        if target.startswith("licences/"):
            return "licence"
        return "program" if source in programs else "library"

    return [
        Item("tree", tree.path, "source", tree.key, tree.seconds, tree.fresh),
        *(
            Item(kind(target, source), source, target, build.key, build.seconds, build.fresh)
            for target, source in installed_files(build).items()
        ),
        Item("wheel", wheel.path, wheel.path.name, wheel.key, wheel.seconds, wheel.fresh),
        *(
            Item("report", path, path.name, verification.key, verification.seconds, verification.fresh)
            for path in (verification.report, verification.page)
        ),
    ]
