"""Plans of the real upstreams, at every listed commit."""

from __future__ import annotations

import json
import os
import shutil
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from numamirror_build import data
from numamirror_build.building.build import Build, make_build
from numamirror_build.building.recipe import load_recipe
from numamirror_build.building.units import in_parallel, mirror_build
from numamirror_build.cli.commands import cli
from numamirror_build.errors import AccessError, AnchorError, NumaMirrorError
from numamirror_build.patching.apply import (
    PatchedTree,
    apply_plan,
    patch_files,
    supplied_files,
    unpatch_files,
)
from numamirror_build.patching.export import DOCUMENT, export_series
from numamirror_build.patching.lock import check_lock
from numamirror_build.patching.plan import Plan, make_plan, plan_files
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.rewrite import find_accesses
from numamirror_build.store import Store, file_sha256
from numamirror_build.upstreams.checkout import Checkout, make_checkout
from numamirror_build.upstreams.git import run_git
from numamirror_build.upstreams.pins import Pin, find_pin, load_pins, load_upstream

pytestmark = pytest.mark.sources

UPSTREAM, IK = "llama.cpp", "ik_llama.cpp"
SCOPES = ("cpu", "all")
COMMITS = {pin.commit: pin for upstream in data.upstream_names() for pin in load_pins(upstream)}
# CI plans all of them; what else there is to see it sees at the oldest one and at the defaults
THOROUGHLY = {
    (UPSTREAM, "0.3.9"),
    *((name, load_upstream(name).default_pin) for name in data.upstream_names()),
}
EVERY_PIN = pytest.mark.parametrize(
    "pin",
    [
        pytest.param(pin, marks=() if (pin.upstream, pin.name) in THOROUGHLY else pytest.mark.slow)
        for pin in COMMITS.values()
    ],
    ids=lambda pin: f"{pin.upstream}-{pin.name}",
)
EVERY_SCOPE = pytest.mark.parametrize("scope", SCOPES)


class Planned:
    """Checkouts and plans, each made once for all tests of this file."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.plan = cache(self._plan)
        self.checkout = cache(self._checkout)

    def _checkout(self, pin: Pin) -> Checkout:
        return make_checkout(self.store, pin, progress=Quiet())

    def _plan(self, pin: Pin, scope: str) -> Plan:
        return make_plan(self.store, self.checkout(pin), scope=scope, progress=Quiet())

    def files(self, pin: Pin) -> TreeFiles:
        """Upstream's files."""
        return TreeFiles(self.checkout(pin).path)

    def tree(self, pin: Pin, scope: str) -> PatchedTree:
        """The patched tree."""
        return apply_plan(self.store, self.checkout(pin), self.plan(pin, scope), progress=Quiet())


@pytest.fixture(scope="module")
def planned(store: Store) -> Planned:
    """All pins' checkouts and plans."""
    return Planned(store)


def test_regress_plans_every_pin(store: Store, tmp_path: Path) -> None:
    """`regress` passes at every commit, each with a lock of its own, and says what changes between them."""
    answer = CliRunner().invoke(
        cli, ["regress", "--json", "--page", str(tmp_path / "page.md"), "--quiet", "--parallel", "3"]
    )
    document = json.loads(answer.stdout)
    assert [pin["steps"][-1]["name"] for pin in document["pins"]] == ["apply"] * len(COMMITS)
    assert {(pin["upstream"], pin["pin"]): pin["passed"] for pin in document["pins"]} == {
        (pin.upstream, pin.name): True for pin in COMMITS.values()
    }
    assert all("as locked in " in pin["steps"][1]["facts"] for pin in document["pins"])
    ours = [pin for pin in document["pins"] if pin["upstream"] == UPSTREAM]
    assert len(ours) >= 16
    assert [pin["pin"] for pin in ours[1:] if not pin["changes"]] == ["0.3.32"]
    assert (tmp_path / "page.md").read_text().count("| llama.cpp 0.3.") == len(ours)


@pytest.mark.slow
def test_a_release_that_needs_something_says_what(store: Store) -> None:
    """0.3.8 has llama-bench elsewhere and a cache without a class: both are named, nothing is listed."""
    before = (data.patches(UPSTREAM) / "pins.toml").read_bytes()
    answer = CliRunner().invoke(cli, ["pins", "update", "--release", "0.3.8", "--write", "--json", "--quiet"])
    (release,) = json.loads(answer.stdout)["releases"]
    problems = {
        problem["details"].get("hook", "census"): problem["details"].get("nearest")
        for problem in release["problems"]
    }
    assert set(problems) == {
        "bench-include",
        "bench-options",
        "bench-value",
        "bench-help",
        "cache-kv",
        "census",
    }
    assert problems["bench-value"] == ["examples/llama-bench/llama-bench.cpp"]
    assert release["fits"] is False
    assert (data.patches(UPSTREAM) / "pins.toml").read_bytes() == before


@EVERY_PIN
@EVERY_SCOPE
def test_plan_is_what_its_lock_says(planned: Planned, pin: Pin, scope: str) -> None:
    """The plan has exactly the sites, edits and anchors that its lock file says."""
    report = check_lock(planned.plan(pin, scope))
    assert (report.lock, report.locked, report.differences) == (pin.name, True, ())


@EVERY_PIN
def test_planning_again_gives_the_same_bytes(planned: Planned, pin: Pin, tmp_path: Path) -> None:
    """Two plans of one tree, made apart from each other, are the same file byte for byte."""
    texts = []
    for name in ("one", "two"):
        make_plan(Store(tmp_path / name), planned.checkout(pin), progress=Quiet())
        (path,) = (tmp_path / name).glob("plans/*/plan.json")
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


@EVERY_PIN
@EVERY_SCOPE
def test_nothing_is_left_to_rewrite(planned: Planned, pin: Pin, scope: str) -> None:
    """The engine finds no access to edit in the tree that it rewrote."""
    plan = planned.plan(pin, scope)
    targets = sorted({site.path for site in plan.sites})
    sources = dict(TreeFiles(planned.tree(pin, scope).path))
    assert len(targets) > 10
    assert find_accesses(sources, targets).edits == ()


@EVERY_PIN
@EVERY_SCOPE
def test_taking_the_plan_back_gives_pristine(planned: Planned, pin: Pin, scope: str) -> None:
    """Without the plan and what a build lacks, the patched tree has upstream's files and bytes, no more."""
    pristine = dict(planned.files(pin))
    patched: dict[str, bytes | None] = dict(TreeFiles(planned.tree(pin, scope).path))
    assert patched != pristine
    restored = {
        **patched,
        **unpatch_files(TreeFiles(planned.tree(pin, scope).path), planned.plan(pin, scope)),
        **dict.fromkeys(supplied_files(pin.upstream, planned.checkout(pin).path)),
    }
    assert {path: content for path, content in restored.items() if content is not None} == pristine


def am(checkout: Checkout, patches: Sequence[Path], clone: Path) -> Path:
    """What a user of a series does, on a fresh checkout of the commit; the tree."""
    run_git("init", "--quiet", clone)
    repository = checkout.path.with_name("git")
    run_git("fetch", "--quiet", "--depth=1", repository.as_uri(), "HEAD", cwd=clone)
    run_git("checkout", "--quiet", "FETCH_HEAD", cwd=clone)
    committer = {"GIT_COMMITTER_NAME": "Somebody", "GIT_COMMITTER_EMAIL": "some@body"}
    run_git("am", "--quiet", *patches, cwd=clone, env=committer)
    return clone


def content_of(tree: Path) -> dict[str, tuple[bool, bytes]]:
    """Every file of a tree but git's: its path, whether it can be run, and its bytes or where it links to."""
    return {
        path.relative_to(tree).as_posix(): (
            bool(path.lstat().st_mode & 0o100),
            os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in tree.rglob("*")
        if (path.is_symlink() or path.is_file()) and ".git" not in path.relative_to(tree).parts
    }


@EVERY_PIN
def test_series_applies_with_git_am(planned: Planned, pin: Pin, tmp_path: Path) -> None:
    """On a fresh checkout of the commit, `git am` gives the patched tree, byte for byte, and the document."""
    checkout, plan = planned.checkout(pin), planned.plan(pin, "cpu")
    patches = export_series(checkout, plan, tmp_path / "series")
    clone = am(checkout, patches, tmp_path / "clone")
    run_git("rm", "--quiet", DOCUMENT, cwd=clone)
    lacking = supplied_files(pin.upstream, checkout.path)
    expected = content_of(planned.tree(pin, "cpu").path)
    assert content_of(clone) == {path: kept for path, kept in expected.items() if path not in lacking}
    subjects = run_git("log", "--format=%s", "FETCH_HEAD..HEAD", cwd=clone).decode()
    assert subjects.count("\n") == len(patches) == 6


@pytest.mark.build
@pytest.mark.parametrize(
    "ccache", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["ccache", "compiled"]
)
@pytest.mark.parametrize("upstream", data.upstream_names())
def test_series_builds_to_the_objects_of_apply(
    planned: Planned, upstream: str, ccache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `git am` leaves is built to the same objects as what `apply` made; also when each is compiled."""
    pipeline = Pipeline(planned.store, Request(upstream, jobs=os.cpu_count() or 1), Quiet())
    patches = export_series(pipeline.checkout, pipeline.plan, tmp_path / "series")
    applied = pipeline.patched_tree
    mailed = replace(applied, path=am(pipeline.checkout, patches, tmp_path / "clone"))
    if not ccache:
        monkeypatch.setenv("CCACHE_DISABLE", "1")
    built = make_build(Store(tmp_path / "cache"), mailed, pipeline.build_options, progress=Quiet())
    assert built.path != pipeline.patched_build.path
    objects = objects_of(built)
    assert len(objects) > 80
    assert objects == objects_of(pipeline.patched_build)


def objects_of(build: Build) -> dict[str, str]:
    """Digests of what a build has compiled."""
    folder = build.path / "build"
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in folder.rglob("*.o")}


@pytest.fixture
def fork(planned: Planned, tmp_path: Path) -> Path:
    """A fork of the default pin with a source of its own, and lines before what hooks are anchored at."""
    tree = tmp_path / "fork"
    shutil.copytree(planned.checkout(find_pin(UPSTREAM, None)).path, tree, symlinks=True)
    (tree / "src/fork.cpp").write_text(
        '#include "ggml.h"\nvoid * of(const ggml_tensor * t) {\n    return t->data;\n}\n'
    )
    arg = tree / "common/arg.cpp"
    arg.write_text("// ours\n\n" + arg.read_text())
    return tree


def test_a_forks_own_accesses_are_rewritten(planned: Planned, fork: Path) -> None:
    """`export --into` plans for the fork as it is, and tells what it has beside the pin's accesses."""
    answer = CliRunner().invoke(cli, ["export", "--into", str(fork), "--json", "--quiet"])
    document = json.loads(answer.stdout)
    assert document["beside_the_pin"] == {"src/fork.cpp": {"read": 1}}
    assert "return tensor_data(t);" in (fork / "src/fork.cpp").read_text()
    plan = planned.plan(find_pin(UPSTREAM, None), "cpu")
    expected = patch_files(planned.files(plan.pin), plan)
    expected["common/arg.cpp"] = b"// ours\n\n" + expected["common/arg.cpp"]
    assert {path: (fork / path).read_bytes() for path in expected} == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "arg-value"), (["--upstream", IK], f"no tree of {IK}"), (["--source", "/nowhere"], "/nowhere")],
    ids=["collision", "other-upstream", "no-pin"],
)
def test_what_fails_leaves_the_fork_alone(fork: Path, words: list[str], says: str) -> None:
    """A fork without what a hook is anchored at, one of something else, a pin that cannot be had."""
    arg = fork / "common/arg.cpp"
    arg.write_text(arg.read_text().replace('(value == "numactl")', '(value == "gone")'))
    before = {path: (fork / path).stat().st_mtime_ns for path in TreeFiles(fork)}
    answer = CliRunner().invoke(cli, ["export", "--into", str(fork), "--json", "--quiet", *words])
    assert isinstance(answer.exception, NumaMirrorError) and says in str(answer.exception)
    assert {path: (fork / path).stat().st_mtime_ns for path in TreeFiles(fork)} == before


@pytest.mark.build
def test_each_patch_of_the_series_compiles(planned: Planned, pristine_build: Build, tmp_path: Path) -> None:
    """After each patch, every source that it changed compiles with the flags of the pristine build."""
    pin = find_pin(UPSTREAM, None)
    patches = export_series(planned.checkout(pin), planned.plan(pin, "cpu"), tmp_path / "series")
    units = mirror_build(pristine_build, tmp_path / "build")
    tree = tmp_path / "build/source" / load_recipe(UPSTREAM).vendored
    compiled = []
    for patch in patches:
        run_git("apply", patch, cwd=tree)
        paths = run_git("apply", "--numstat", patch, cwd=tree).decode().split()[2::3]
        files = {tree / path for path in paths}
        changed = [unit for unit in units if unit.file in files]
        for unit, result in in_parallel(
            lambda unit: unit.check_syntax([], tmp_path / "dependencies"), changed
        ):
            assert (unit.file.name, result.returncode, result.output) == (unit.file.name, 0, "")
        compiled.append(len(changed))
    assert compiled[0] == compiled[-1] == 0 and min(compiled[1:-1]) >= 2


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_a_later_commit_is_planned_whole_and_what_is_new_is_listed(planned: Planned, upstream: str) -> None:
    """Where text moved and an operation came, an unlisted commit differs from the lock by the latter."""
    moved, added = "ggml/src/ggml.c", "ggml/src/ggml-new-op.c"
    files = planned.files(find_pin(upstream, None))
    operation = b"void new_op(struct ggml_tensor * d) { *(int *) d->data = d->src[0]->data != 0; }\n"
    later = {moved: b"// later\n" + files[moved], added: b'#include "ggml.h"\n' + operation}
    pin = find_pin(upstream, "f" * 40)
    plan = plan_files(ChainMap(later, files), pin, tree=None, scope="cpu")  # type: ignore[arg-type]
    report = check_lock(plan)
    assert (report.lock, report.locked) == (find_pin(upstream, None).name, False)
    assert report.differences == (f"{added} (new): read 2 instead of 0",)


@pytest.mark.parametrize(
    ("upstream", "path", "old", "new", "kind"),
    [
        (UPSTREAM, "common/arg.cpp", b'(value == "numactl")', b'(value == "numactrl")', AnchorError),
        (UPSTREAM, "common/arg.cpp", b'"- numactl: use the CPU map', b'"- numactl: no CPU map', AnchorError),
        (UPSTREAM, "ggml/src/ggml-cpu/ops.cpp", b"ggml_tensor * dst", b"ggml_tensr * dst", AccessError),
        (IK, "ggml/src/ggml.c", b"shared->n_batch > 32", b"shared->n_batch > 31", AnchorError),
        (
            IK,
            "src/llama.cpp",
            b"bool needs_repack = false;",
            b"ggml_backend_buft_alloc_buffer(b, 1);",
            AnchorError,
        ),
        (IK, "ggml/src/iqk/iqk_cpu_ops.cpp", b"ggml_tensor * dst", b"ggml_tensr * dst", AccessError),
    ],
    ids=["anchor-1", "anchor-2", "unknown-type", "ik-anchor", "ik-new-allocation", "ik-unknown-type"],
)
def test_changed_upstream_is_an_error(
    planned: Planned, upstream: str, path: str, old: bytes, new: bytes, kind: type[NumaMirrorError]
) -> None:
    """Without an anchor, with an allocation or an access that nobody knows, the error names the file."""
    pin = find_pin(upstream, None)
    files = planned.files(pin)
    assert old in files[path]
    changed = ChainMap({path: files[path].replace(old, new)}, files)  # type: ignore[arg-type]
    with pytest.raises(kind) as caught:
        plan_files(changed, pin, tree=None, scope="cpu")
    assert path in str(caught.value)
