"""The mirror on real nodes: patched libraries in the lab against pristine ones outside."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from numamirror_build.lab.guest import Command, passed_environment
from numamirror_build.lab.layout import parse_layout
from numamirror_build.lab.parts import find_parts
from numamirror_build.lab.run import run_in_lab
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model
from tests.integration.drivers import compile_driver, run_driver

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sources,
    pytest.mark.build,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed"),
]

# loads each model, and while the program still has it, says what the kernel knows of its threads and pages
GUEST = r"""
for model; do
    mkfifo /tmp/stop
    ./patched "$model" stop </tmp/stop >/tmp/out 2>/tmp/err &
    exec 3>/tmp/stop
    until [ -s /tmp/out ]; do
        kill -0 $! || { cat /tmp/err; exit 1; }
        sleep 0.1
    done
    head -n 1 /tmp/out
    grep -h Cpus_allowed_list /proc/$!/task/*/status | cut -f 2 | tr '\n' ' '
    echo
    grep bind: /proc/$!/numa_maps | tr '\n' ';'
    echo
    exec 3>&-
    wait $! || exit 1
    rm /tmp/stop /tmp/out
done
"""
LAYOUT = {
    "node": [
        {"id": 0, "cpus": 1, "memory": "384M"},
        {"id": 1, "memory": "128M"},
        {"id": 3, "cpus": 1, "memory": "384M"},
    ]
}
MODELS = ("dense-q4_0", "moe-q8_0")


@pytest.fixture(scope="module")
def seen(
    store: Store, pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, Any]]]:
    """Per model: the pristine driver's answer outside the lab, and all that was seen in it.

    The machine has no AVX-512, so both builds are without; and it has a node without CPUs and a gap.
    """
    folder = tmp_path_factory.mktemp("lab")
    pristine, patched = pipeline.portable_builds
    compile_driver(patched, "load_driver.cpp", folder / "patched", mirror=True)
    outside = compile_driver(pristine, "load_driver.cpp", folder / "pristine")
    models = {name: make_model(store, recipe).path for recipe in RECIPES if (name := recipe.name) in MODELS}
    env = passed_environment({"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive"}, [])
    output, errors = bytearray(), bytearray()
    outcome = run_in_lab(
        parse_layout(LAYOUT, "layout"),
        Command(("sh", "-c", GUEST, "sh", *map(str, models.values())), env, folder),
        find_parts(store, progress=Quiet()),
        timeout=300,
        on_stdout=output.extend,
        on_stderr=errors.extend,
        progress=Quiet(),
    )
    assert outcome.exit_status == 0, (output, errors)
    lines = iter(output.decode().splitlines())
    yield {
        name: {
            "pristine": json.loads(run_driver(outside, path).stdout),
            **json.loads(next(lines)),
            "threads": next(lines).split(),
            "mappings": [line for line in next(lines).split(";") if line],
        }
        for name, path in models.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_answers_are_those_of_pristine_outside(seen: dict[str, Any], name: str) -> None:
    """All logits of 40 tokens are the same bit for bit."""
    assert seen[name]["logits"] == seen[name]["pristine"]["logits"] != "0" * 16


@pytest.mark.parametrize("name", MODELS)
def test_the_nodes_are_the_machines(seen: dict[str, Any], name: str) -> None:
    """Replicas are on the nodes with CPUs and memory, whatever their numbers; the other is named."""
    status = seen[name]["status"]
    assert (status["active"], status["pretend"], status["error"]) == (True, False, None)
    assert [(node["id"], node["cpus"], node["threads"]) for node in status["nodes"]] == [
        (0, "0", 1),
        (3, "1", 1),
    ]
    assert [node["id"] for node in status["skipped_nodes"]] == [1]
    assert status["tensors"]["replicated_bytes"] == status["tensors"]["eligible_bytes"] > 0
    assert status["memory_policy"]["error"] is None


@pytest.mark.parametrize("name", MODELS)
def test_pages_of_a_replica_are_on_its_node(seen: dict[str, Any], name: str) -> None:
    """The status record and the kernel's own list of mappings agree: no page of a replica is elsewhere."""
    for node in seen[name]["status"]["nodes"]:
        assert list(node["pages"]) == [str(node["id"])]
        pages = 0
        for mapping in seen[name]["mappings"]:
            if f" bind:{node['id']} " in mapping:
                counts = dict(re.findall(r" N(\d+)=(\d+)", mapping))
                size = int(re.findall(r" kernelpagesize_kB=(\d+)", mapping)[0])
                assert list(counts) in ([], [str(node["id"])]), mapping
                pages += sum(map(int, counts.values())) * size // 4
        assert pages * 4096 == node["bytes"] > 0


@pytest.mark.parametrize("name", MODELS)
def test_threads_are_bound_to_their_nodes(seen: dict[str, Any], name: str) -> None:
    """The second team's thread may run on its node's CPU only; the calling thread got its own CPUs back."""
    assert seen[name]["status"]["threads"]["bound"] is True
    assert sorted(seen[name]["threads"]) == ["0-1", "1"]
