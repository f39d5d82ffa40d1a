"""The flow of a verification, with made-up runs: what is asked, kept, and raised."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numamirror_build.errors import MirrorUnavailableError, ModelError, VerificationError
from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify import Verification, checks, matrix, verification, verify
from numamirror_build.verify.matrix import Case, Variant
from numamirror_build.verify.models import RECIPES, read_contents
from numamirror_build.verify.profile import Rule
from numamirror_build.verify.runs import Run
from tests.unit.verify.made_up import PROFILE, died, done, logits_run, refused, status_record

STRUCTURES = {name: {"size": 8, "fields": {"x": [0, 8]}} for name in checks.RELIED_ON}
LOG = "load_tensors:   CPU_REPACK model buffer size =     1.73 MiB\n"


class World:
    """All that a verification meets: builds, a wheel, and how runs end."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(tmp_path / "store")
        self.changed: dict[str, Run] = {}  # by variant's name
        self.compiled: dict[str, Any] = STRUCTURES
        self.runs: list[str] = []
        self.evaluated: list[tuple[str, str, tuple[Case, ...]]] = []
        self.list = tmp_path / "src/llama-arch.cpp"
        self.list.parent.mkdir()
        known = {recipe.arch.name for recipe in RECIPES}
        self.list.write_text("".join(f'    {{ LLM_ARCH_X, "{name}" }},\n' for name in sorted(known)))
        checkout = cast(Any, SimpleNamespace(path=tmp_path, key="checkout"))
        pin = SimpleNamespace(name="0.0.1", commit="c" * 40)
        plan = cast(Any, SimpleNamespace(upstream="llama.cpp", pin=pin, digest="p" * 64))
        self.pristine = self.build(tmp_path, "pristine", PristineTree(checkout))
        self.patched = self.build(
            tmp_path, "patched", PatchedTree(plan, checkout, tmp_path, "tree", 0.0, fresh=True)
        )
        self.wheel = self.make_wheel(tmp_path / "binding-1-py3-none-any.whl")
        python = tmp_path / "venv/bin/python"
        monkeypatch.setattr(verification, "make_venv", lambda *_, **__: python)
        monkeypatch.setattr(verification, "compiled_layout", lambda *_: self.compiled)
        monkeypatch.setattr(verification, "run_layout", lambda *_: done(structures=STRUCTURES))
        monkeypatch.setattr(verification, "run_logits", self.run_logits)
        monkeypatch.setattr(verification, "run_text", self.run_text)
        monkeypatch.setattr(verification, "usable_nodes", lambda: (0,))
        self.venv = tmp_path / "venv"

    @staticmethod
    def build(tmp_path: Path, name: str, tree: object) -> Any:
        """Something with what a build has."""
        folder = tmp_path / name
        return SimpleNamespace(key=name, path=folder, libraries=folder, tree=tree, programs={})

    @staticmethod
    def make_wheel(path: Path) -> Any:
        """A wheel with a build record."""
        record = {"commit": "c" * 40, "plan": "p" * 64, "wheel": "1+made"}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("binding/numamirror.json", json.dumps(record))
        binding = SimpleNamespace(package="binding")
        return SimpleNamespace(path=path, key="wheel", sha256="s" * 64, version="1+made", binding=binding)

    def verify(self, **options: Any) -> Verification:
        """Verify these builds and this wheel."""
        return verify(
            self.store,
            pristine=self.pristine,
            patched=self.patched,
            wheel=self.wheel,
            progress=Quiet(),
            **options,
        )

    def run_logits(
        self,
        store: Store,
        binding: object,
        libraries: Any,
        model: Any,
        variant: Variant,
        *rest: Any,
        **_: Any,
    ) -> Run:
        """A run that ends as it should for the variant, or as the test says."""
        cases: Sequence[Case] = rest[0]
        self.runs.append(variant.name)
        self.evaluated.append((model.name, variant.name, tuple(cases)))
        if variant.name in self.changed:
            return self.changed[variant.name]
        if variant.expect == "stopped":
            return died("numa mirror: replica 1 differs from replica 0 after cache_k_l0 (view) (SET_ROWS)")
        if variant.expect == "refused":
            record = {"active": False, "error": {"code": variant.name, "message": "numa mirror: no"}}
            return refused({"status": record, "log": "numa mirror: no\n"})
        status = None if variant.library == "pristine" else status_record(0, active=False)
        if variant.replicas:
            status = self.record(model, variant.replicas) | {"policy": variant.policy}
        folder = libraries.folder.resolve()
        loaded = {name: str(folder / name) for name in ("libllama.so", "libggml-base.so")}
        sha = "bb" if variant.expect == "different" else "aa"
        run = logits_run(cases, sha=sha, status=status, log=LOG, libraries=loaded)
        size = read_contents(model.path).tensor_bytes
        for case in run.facts["cases"].values():
            held = "kv" in variant.policy
            case["kv"] = {"buffers": int(held), "bytes": held << 20}
            case["adapted"] = 4096
            case["weights"] = {"eligible": size, "replicated": size, "left": []}
        return run

    def run_text(
        self, store: Store, binding: Any, libraries: None, model: Any, *, strategy: int, env: Any
    ) -> Run:
        """A run of the wheel that ends as it should."""
        assert libraries is None
        status = self.record(model, 2) if strategy else status_record(0, active=False)
        loaded = {"libllama.so": str(self.venv.resolve() / "lib/libllama.so")}
        return done(text="words", version="1+made", libraries=loaded, status=status)

    @staticmethod
    def record(model: Any, replicas: int) -> dict[str, Any]:
        """A status record with all bytes of the model."""
        size = read_contents(model.path).tensor_bytes
        nodes = [{"id": node, "bytes": size} for node in range(replicas)]
        tensors = {"eligible_bytes": size, "replicated_bytes": size, "replicated": 9}
        return status_record(replicas, nodes=nodes, tensors=tensors)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which everything is right."""
    return World(tmp_path, monkeypatch)


def test_everything_right_passes(world: World) -> None:
    """All families are asked, all pass, and the report says what was verified."""
    verified = world.verify()
    assert verified.passed
    assert verified.counts()["skip"] == 0
    families = {check.id.split("/")[0] for check in verified.checks}
    assert families == {
        *("layout", "libraries", "repacked", "same-answers", "engaged", "mutation"),
        *("idle", "refused", "wheel"),
    }
    subject = json.loads(verified.report.read_text())["subject"]
    assert subject["plan"] == "p" * 64
    assert [model["name"] for model in subject["models"]] == [recipe.name for recipe in RECIPES]


def test_an_architecture_that_the_commit_lacks_is_skipped(world: World) -> None:
    """Its models are not run, and the report says why."""
    world.list.write_text(world.list.read_text().replace('"mamba"', '"rwkv6"'))
    skipped = [check for check in world.verify().checks if check.status == "skip"]
    assert [(check.id, check.reason) for check in skipped] == [
        ("same-answers/mamba-q8_0", "this commit does not know mamba")
    ]
    world.list.write_text("")
    world.patched.key = "other"
    with pytest.raises(VerificationError, match="list of architectures"):
        world.verify()


def test_levels_are_verified_apart(world: World) -> None:
    """A quick verification does not stand for a full one, which runs more variants of more cases."""
    quick = world.verify()
    count = len(world.runs)
    full = world.verify(level="full")
    assert full.fresh
    assert len(world.runs) - count > count
    assert {check.id for check in quick.checks} < {check.id for check in full.checks}
    assert (quick.subject["level"], full.subject["level"]) == ("quick", "full")


def test_upstreams_faults_are_not_run(world: World) -> None:
    """Their cases are not evaluated, and every comparison of answers tells."""
    fault = next(rule for rule in PROFILE.rules if rule.path)
    path = world.list.parents[1] / str(fault.path)
    path.parent.mkdir(parents=True)
    path.write_text(fault.text)
    same = next(check for check in world.verify().checks if check.id == "same-answers/dense-q8_0/off")
    assert set(same.facts["not_possible"].values()) == {fault.reason}
    every = matrix.cases("quick", PROFILE, (), "llama", own=True).chosen
    assert same.facts["cases"] == len(every) - len(fault.actions)


def test_models_that_upstream_cannot_load_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checks that say skip, with the reason."""
    profile = replace(PROFILE, left_out={"rwkv-q8_0": "upstream ends the program"})
    monkeypatch.setattr(verification, "load_profile", lambda _: profile)
    skipped = [check for check in world.verify().checks if check.status == "skip"]
    assert [(check.id, check.reason) for check in skipped] == [
        ("same-answers/rwkv-q8_0", "upstream ends the program")
    ]


def test_what_an_empty_replica_ends_is_not_run_with_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the variant with an empty replica lacks these cases; of restored caches, telling ones are run."""
    rule = Rule("no number", models=("dense-*",), actions=("copy",))
    profile = replace(PROFILE, too_damaged=(rule,), readers=(2,))
    monkeypatch.setattr(verification, "load_profile", lambda _: profile)
    world.verify()
    evaluated = {name: cases for model, name, cases in world.evaluated if model == "dense-q8_0"}
    actions = {name: {case.action for case in cases} for name, cases in evaluated.items()}
    assert actions["mirror-2"] - actions["damaged"] == {"copy"}
    assert {case.threads for case in evaluated["damaged-cache"]} == {2}
    assert actions["damaged-cache"] == set(matrix.RESTORING)


def test_nothing_changed_is_not_verified_again(world: World) -> None:
    """A second verification comes from the cache; a new build of the patched tree does not."""
    first = world.verify()
    count = len(world.runs)
    again = world.verify()
    assert (first.fresh, again.fresh, len(world.runs)) == (True, False, count)
    assert again.checks == first.checks
    world.patched.key = "other"
    assert world.verify().fresh


def test_a_failed_check_is_an_error_after_the_report(world: World) -> None:
    """The error names what failed and where the report is; it is not kept as finished."""
    world.changed["mirror-2"] = died()
    for _ in range(2):
        with pytest.raises(VerificationError, match="checks failed") as caught:
            world.verify()
        failed = caught.value.details["failed"]
        assert {f"{family}/dense-q8_0/mirror-2" for family in ("same-answers", "engaged")} <= set(failed)
        assert json.loads(Path(caught.value.details["report"]).read_text())["passed"] is False
        assert Path(str(caught.value.where)).read_text().startswith("<!doctype html>")
    del world.changed["mirror-2"]
    assert world.verify().passed


def test_a_binding_that_does_not_fit_stops_everything(world: World) -> None:
    """With shifted structures nothing is run, as no answer could be trusted."""
    world.compiled = {name: {"size": 16, "fields": {}} for name in STRUCTURES}
    with pytest.raises(VerificationError) as caught:
        world.verify()
    assert caught.value.details["failed"] == ["layout/pristine", "layout/patched"]
    assert world.runs == []


def test_real_nodes_where_there_is_one(world: World) -> None:
    """Insisting on real nodes on a machine with one ends with its own exit code."""
    with pytest.raises(MirrorUnavailableError, match="one NUMA node") as caught:
        world.verify(real_nodes=True)
    assert caught.value.exit_code == 31


def test_real_nodes_where_there_are_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with nodes they are used; a record that says they are pretended fails."""
    monkeypatch.setattr(verification, "usable_nodes", lambda: (0, 1))
    with pytest.raises(VerificationError) as caught:
        world.verify(real_nodes=True)
    assert set(caught.value.details["failed"]) == {f"engaged/{each.name}/mirror-real" for each in RECIPES}


def test_no_memory_for_the_replicas(world: World) -> None:
    """The runtime's own words reach the user, with an exit code of their own."""
    record = {"error": {"code": "no-memory", "message": "numa mirror: node 0 needs 9 GiB, has 1 GiB"}}
    world.changed["mirror-3"] = refused({"status": record})
    with pytest.raises(MirrorUnavailableError, match="needs 9 GiB, has 1 GiB"):
        world.verify()


def test_a_bad_model_is_told_before_anything_runs(world: World, tmp_path: Path) -> None:
    """A file that is no GGUF file ends the verification at once."""
    path = tmp_path / "model.gguf"
    path.write_text("hello")
    with pytest.raises(ModelError):
        world.verify(model=path)
    assert world.runs == []


def test_a_tree_is_not_compared_with_itself(world: World) -> None:
    """Pristine and patched may not be swapped, nor be the same."""
    world.patched.tree, world.pristine.tree = world.pristine.tree, world.patched.tree
    with pytest.raises(TypeError):
        world.verify()
