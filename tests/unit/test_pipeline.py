"""The flow of a job: which value is made from which, when, and what the main job hands over."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build.building import install
from numamirror_build.building.build import BuildOptions
from numamirror_build.delivery import MANIFEST
from numamirror_build.errors import AuditError, ModelError, OutputError, VerificationError
from numamirror_build.patching.apply import PristineTree
from numamirror_build.pipeline import Pipeline, Request, run_job
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.callgrind import PORTABLE


@dataclass
class Calls:
    """Stands for all functions of the parts: notes each call, and returns its function's name."""

    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def replace(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        """Put this in the place of a function."""
        name = path.rsplit(".", 1)[1]

        def function(*args: Any, **named: Any) -> str:
            self.made.append((name, args, named))
            return name

        monkeypatch.setattr(f"numamirror_build.{path}", function)

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The calls of one function."""
        return [(args, named) for called, args, named in self.made if called == name]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every function that the pipeline calls, replaced."""
    calls = Calls()
    for path in (
        "upstreams.pins.find_pin",
        "upstreams.checkout.make_checkout",
        "patching.plan.make_plan",
        "patching.apply.apply_plan",
        "patching.audit.audit",
        "building.build.make_build",
        "building.wheel.make_wheel",
        "verify.verification.verify",
        "verify.models.find_model",
    ):
        calls.replace(monkeypatch, path)
    return calls


def pipeline_in(folder: Path, **request: Any) -> Pipeline:
    """A pipeline with a store of its own."""
    return Pipeline(Store(folder / "cache"), Request("llama.cpp", **request), Quiet())


def test_verification_takes_each_step_once_with_what_was_asked(calls: Calls, tmp_path: Path) -> None:
    """Every option of the request reaches its step, and no step is done twice."""
    pipeline = pipeline_in(
        tmp_path,
        pin="0.3.9",
        source="git",
        git_url="file:///mirror",
        scope="all",
        jobs=3,
        cmake_args=("-DA=1",),
        model="m.gguf",
    )
    assert pipeline.verification == "verify"  # type: ignore[comparison-overlap]
    assert pipeline.wheel == "make_wheel"  # type: ignore[comparison-overlap]
    store, progress = pipeline.store, pipeline.progress
    options = BuildOptions(jobs=3, cmake_args=("-DA=1",))
    tree = PristineTree("make_checkout")  # type: ignore[arg-type]
    assert calls.of("find_pin") == [(("llama.cpp", "0.3.9"), {})]
    assert calls.of("make_checkout") == [
        ((store, "find_pin"), {"source": "git", "git_url": "file:///mirror", "progress": progress})
    ]
    assert calls.of("make_plan") == [((store, "make_checkout"), {"scope": "all", "progress": progress})]
    assert calls.of("apply_plan") == [((store, "make_checkout", "make_plan"), {"progress": progress})]
    assert calls.of("make_build") == [
        ((store, tree, options), {"progress": progress}),
        ((store, "apply_plan", options), {"progress": progress}),
    ]
    assert calls.of("make_wheel") == [((store, "apply_plan", options), {"progress": progress})]
    assert calls.of("verify") == [
        (
            (store,),
            {
                "pristine": "make_build",
                "patched": "make_build",
                "wheel": "make_wheel",
                "model": "m.gguf",
                "level": "quick",
                "portable": None,
                "progress": progress,
            },
        )
    ]


def test_counting_instructions_takes_builds_that_valgrind_can_run(calls: Calls, tmp_path: Path) -> None:
    """Libraries of both trees are built once more, with the portable arguments last so that they win."""
    pipeline = pipeline_in(tmp_path, cmake_args=("-DGGML_NATIVE=ON",))
    pipeline.verify(instructions=True)
    options = [args[2] for args, _ in calls.of("make_build")]
    portable = [one for one in options if one.programs == ()]
    assert [one.cmake_args for one in portable] == [("-DGGML_NATIVE=ON", *PORTABLE)] * 2
    assert calls.of("verify")[0][1]["portable"] == ("make_build", "make_build")


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("checkout", ["find_pin", "make_checkout"]),
        ("plan", ["find_pin", "make_checkout", "make_plan"]),
        ("patched_tree", ["find_pin", "make_checkout", "make_plan", "apply_plan"]),
        ("pristine_build", ["find_pin", "make_checkout", "make_build"]),
        ("patched_build", ["find_pin", "make_checkout", "make_plan", "apply_plan", "make_build"]),
        ("wheel", ["find_pin", "make_checkout", "make_plan", "apply_plan", "make_wheel"]),
        ("audit", ["find_pin", "make_checkout", "make_plan", "apply_plan", "audit"]),
    ],
)
def test_a_value_takes_only_the_steps_before_it(
    calls: Calls, tmp_path: Path, value: str, steps: list[str]
) -> None:
    """Asking for one value does what it needs, in order, and nothing else."""
    getattr(pipeline_in(tmp_path), value)
    assert [name for name, _, _ in calls.made] == steps


def finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose values are there already."""
    made = folder / "made"
    (made / "tree").mkdir(parents=True)
    (made / "tree" / "a.c").write_text("int a;\n")
    (made / "bin").mkdir()
    for name in ("tool", "libx.so.1", "LICENSE", "w.whl", "v.json", "v.html"):
        (made / "bin" / name).write_text(name)
    (made / "bin" / "libx.so").symlink_to("libx.so.1")
    common = {"key": "k", "seconds": 1.0, "fresh": True}
    installed = {f"bin/{name}": made / "bin" / name for name in ("tool", "libx.so.1", "libx.so")}
    installed["licences/LICENSE"] = made / "bin" / "LICENSE"
    monkeypatch.setattr(install, "installed_files", lambda build: installed)
    pipeline = pipeline_in(folder)
    pipeline.__dict__.update(
        pin=SimpleNamespace(upstream="llama.cpp", name="p", commit="c"),
        checkout=SimpleNamespace(verified=True),
        plan=SimpleNamespace(digest="d"),
        patched_tree=SimpleNamespace(path=made / "tree", **common),
        patched_build=SimpleNamespace(programs={"tool": made / "bin" / "tool"}, **common),
        wheel=SimpleNamespace(path=made / "bin" / "w.whl", **common),
        audit=SimpleNamespace(compiled=("a.c",), excluded=()),
        verification=SimpleNamespace(
            report=made / "bin" / "v.json", page=made / "bin" / "v.html", counts=lambda: {"pass": 3}, **common
        ),
    )
    return pipeline


def test_the_main_job_hands_everything_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tree, programs with their libraries, wheel and report arrive; a second run changes nothing."""
    out = tmp_path / "dist"
    pipeline = finished(tmp_path, monkeypatch)
    products = run_job(pipeline, out)
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
    assert found == [
        "bin/libx.so",
        "bin/libx.so.1",
        "bin/tool",
        "licences/LICENSE",
        MANIFEST,
        "source/a.c",
        "v.html",
        "v.json",
        "w.whl",
    ]
    assert {product.kind for product in products} == {
        "tree",
        "program",
        "library",
        "licence",
        "wheel",
        "report",
    }
    manifest = json.loads((out / MANIFEST).read_text())
    assert (manifest["commit"], manifest["plan"], manifest["checks"]) == ("c", "d", {"pass": 3})
    times = {path: path.lstat().st_mtime_ns for path in out.rglob("*")}
    assert run_job(pipeline, out) == products
    assert {path: path.lstat().st_mtime_ns for path in out.rglob("*")} == times


@pytest.mark.parametrize(
    ("value", "error"),
    [("audit", AuditError("an access escapes")), ("verification", VerificationError("1 of 3 checks failed"))],
)
def test_nothing_is_handed_over_when_a_proof_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, error: Exception
) -> None:
    """What failed the audit or the verification does not reach the output folder."""
    pipeline = finished(tmp_path, monkeypatch)
    del pipeline.__dict__[value]

    def fail(self: Pipeline) -> None:
        raise error

    monkeypatch.setattr(getattr(Pipeline, value), "func", fail)
    with pytest.raises(type(error)):
        run_job(pipeline, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_the_model_is_looked_at_before_anything_dear_is_made(tmp_path: Path) -> None:
    """A file that is no GGUF ends the job at once, not after an hour of building."""
    model = tmp_path / "model.gguf"
    model.write_text("no model")
    pipeline = pipeline_in(tmp_path, model=str(model))
    with pytest.raises(ModelError):
        run_job(pipeline, tmp_path / "dist")
    assert "checkout" not in pipeline.__dict__


def test_an_output_folder_that_cannot_be_is_told_before_anything_is_made(
    calls: Calls, tmp_path: Path
) -> None:
    """Hours of work are not lost."""
    with pytest.raises(OutputError):
        run_job(pipeline_in(tmp_path), Path("/proc/x"))
    assert calls.made == []


def test_sources_for_other_builders_that_cannot_be_written(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the operating system says is an error of the output."""

    def fail(*_: Any, **__: Any) -> None:
        Path("/proc/x").mkdir()

    monkeypatch.setattr("numamirror_build.building.sources.write_sources", fail)
    with pytest.raises(OutputError):
        pipeline_in(tmp_path).write_sources(Path("/proc/x"))
