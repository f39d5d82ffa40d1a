"""The main job as the README prints it, for each upstream, from a clean clone, with everything it ends in."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.recipe import load_recipe
from numamirror_build.pipeline import Pipeline
from numamirror_build.store import Store

pytestmark = [pytest.mark.sources, pytest.mark.build]

ROOT = Path(__file__).resolve().parents[2]
UPSTREAMS = ("llama.cpp", "ik_llama.cpp")


@dataclass(frozen=True)
class Clone:
    """A clone of this repository, and the cache that its program uses."""

    root: Path
    cache: Path

    def answer(self, *words: str) -> dict[str, Any]:
        """What its program answers."""
        done = subprocess.run(
            ["./numamirror-build", *words, "--json"],
            cwd=self.root,
            env={**os.environ, "NUMAMIRROR_CACHE_DIR": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@dataclass(frozen=True)
class Job:
    """A clone in which the main job was done twice."""

    made: Pipeline
    clone: Clone
    first: dict[str, Any]
    second: dict[str, Any]
    seconds: float

    @property
    def out(self) -> Path:
        """What was handed over."""
        return self.clone.root / "dist"


@pytest.fixture(scope="module", params=UPSTREAMS)
def job(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    store: Store,
    pipeline: Pipeline,
    ik_pipeline: Pipeline,
) -> Iterator[Job]:
    """The README's first command in a clean clone; the products come from the session's cache."""
    made = dict(zip(UPSTREAMS, (pipeline, ik_pipeline), strict=True))[request.param]
    assert made.pristine_build and made.wheel
    root = tmp_path_factory.mktemp("clone") / "numamirror-build"
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    clone = Clone(root, store.root)
    first = clone.answer("--upstream", request.param)
    before = processor_time()
    second = clone.answer("--upstream", request.param)
    yield Job(made, clone, first, second, processor_time() - before)


def processor_time() -> float:
    """Seconds that ended children have computed: on a busy machine a clock says more of others' work."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_it_ends_with_programs_wheel_report_and_tree(job: Job) -> None:
    """All that the README promises is in dist/, whole, with the sizes and digests that the table says."""
    products = {
        Path(product["path"]).relative_to(job.out).as_posix(): product for product in job.first["products"]
    }
    for name in load_recipe(job.made.pin.upstream).programs:
        assert products[f"bin/{name}"]["kind"] == "program"
    assert [product["kind"] for product in products.values()].count("wheel") == 1
    assert {"verification.json", "verification.html", "source"} <= products.keys()
    for product in products.values():
        path = Path(product["path"])
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert (product["size"], product["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert json.loads((job.out / "numamirror-build.json").read_text())["complete"] is True


def test_the_report_has_no_failed_check(job: Job) -> None:
    """Checks passed, none failed, in the document, and the report that was handed over."""
    counts = job.first["verification"]["counts"]
    assert counts["fail"] == 0
    assert counts["pass"] > 20
    report = json.loads((job.out / "verification.json").read_text())
    assert [check for check in report["checks"] if check["status"] == "fail"] == []


def test_the_programs_run_from_where_they_were_handed_over(job: Job) -> None:
    """They find the libraries beside them, know --numa mirror, and none comes from the cache."""
    bench = subprocess.run(
        [job.out / "bin/llama-bench", "--help"], capture_output=True, text=True, check=True
    )
    assert "mirror" in bench.stdout + bench.stderr
    linked = subprocess.run(["ldd", job.out / "bin/llama-cli"], capture_output=True, text=True, check=True)
    ours = [line.split()[2] for line in linked.stdout.splitlines() if "libggml" in line or "libllama" in line]
    assert ours
    assert all(Path(path).resolve().is_relative_to(job.out.resolve()) for path in ours)


def test_a_second_run_with_nothing_changed_takes_less_than_three_seconds(job: Job) -> None:
    """The bootstrap, every step and the delivery find that there is nothing to do."""
    assert job.seconds < 3
    assert not any(product["fresh"] for product in job.second["products"])
    facts = ("path", "size", "sha256")
    assert [[product[fact] for fact in facts] for product in job.second["products"]] == [
        [product[fact] for fact in facts] for product in job.first["products"]
    ]


def test_regress_verifies_the_default_pin(job: Job, tmp_path: Path) -> None:
    """It passes every step up to the verification, which is the one that the job made."""
    pin, junit = job.made.pin, tmp_path / "junit.xml"
    words = ("--upstream", pin.upstream, "--pins", pin.name, "--level", "verify", "--junit", str(junit))
    (result,) = job.clone.answer("regress", *words)["pins"]
    assert [step["status"] for step in result["steps"]] == ["pass"] * 7
    verify = result["steps"][-1]
    assert (verify["name"], verify["cached"]) == ("verify", True)
    assert verify["facts"].startswith(f"{job.first['verification']['counts']['pass']} checks passed")
    assert junit.read_text().count("<testcase ") == 7


def test_the_document_says_what_was_in_force(job: Job) -> None:
    """Settings with their origins, the pin, the verified checkout and the plan are in the JSON."""
    document = job.second
    assert document["settings"]["upstream"] == {"value": job.made.pin.upstream, "from": "command line"}
    assert document["settings"]["out"] == {"value": str(job.out), "from": "default"}
    assert document["pin"]["name"] == job.made.upstream.default_pin
    assert document["checkout"]["verified"] is True
    assert len(document["plan"]["digest"]) == 64


def test_the_clone_is_as_it_was(job: Job) -> None:
    """The job writes nothing into the clone but dist/, which git ignores."""
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=job.clone.root, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
