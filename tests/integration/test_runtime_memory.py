"""The memory of the mirror: room, huge pages, what is left when it is freed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from numamirror_build.verify.models import RECIPES, make_model
from tests.machines import GIB, MIB, Machine, Node

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.patching.apply import PatchedTree
    from numamirror_build.store import Store

pytestmark = [pytest.mark.sources, pytest.mark.build]

HERE = Path(__file__).parent
MODELS = [recipe.name for recipe in RECIPES]
# threads that spin while they wait are slow on busy CPUs
ENV = {"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "passive", "GGML_NUMA_MIRROR_NODES": "2"}
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


def link(source: str, tree: PatchedTree, build: Build, folder: Path) -> Path:
    """Compile a program of ours and link it with the patched build's libraries."""
    program = folder / source.removesuffix(".cpp")
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-Wall", "-Werror"),
            *("-DGGML_NUMA_MIRROR", "-DGGML_SHARED", "-DLLAMA_SHARED"),
            *(f"-I{tree.path / 'ggml/include'}", f"-I{tree.path / 'include'}", HERE / source, "-o", program),
            *(f"-L{build.libraries}", "-lllama", "-lggml", "-lggml-cpu", "-lggml-base"),
            f"-Wl,-rpath,{build.libraries}",
        ],
        check=True,
    )
    return program


@pytest.fixture(scope="module")
def driver(patched_tree: PatchedTree, patched_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that allocates."""
    return link("memory_driver.cpp", patched_tree, patched_build, tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def loader(patched_tree: PatchedTree, patched_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that loads a model."""
    return link("load_driver.cpp", patched_tree, patched_build, tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def models(store: Store) -> dict[str, Path]:
    """Small models by name."""
    return {recipe.name: make_model(store, recipe).path for recipe in RECIPES}


def run(program: Path, *arguments: str | Path, **env: str) -> Any:
    """What a program answers, with two pretend nodes, or as variables say."""
    done = subprocess.run(
        [program, *arguments],
        env={**ENV, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def drive(driver: Path, *steps: str, **env: str) -> list[Any]:
    """Run steps of the driver; the result of each."""
    results: list[Any] = run(driver, *steps, **env)
    return results


@contextlib.contextmanager
def stopped(program: Path, *arguments: str | Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has come to its step ``stop``."""
    with subprocess.Popen(
        [program, *arguments],
        env={**ENV, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.kill()


def on(machine: Machine, root: Path) -> dict[str, str]:
    """Variables that make the nodes of a made-up machine the mirror's nodes."""
    return {"GGML_NUMA_MIRROR_ROOT": str(machine.write(root)), "GGML_NUMA_MIRROR_NODES": ""}


def test_room_is_checked_before_anything_is_allocated(driver: Path, tmp_path: Path) -> None:
    """A load that does not fit is refused as a whole, with the numbers of every node."""
    machine = Machine({0: Node("0-3"), 3: Node("4-7", total=8 * GIB, free=GIB, cache=GIB // 2)})
    sizes = f"expect:{GIB},{GIB // 2}"
    error, status = drive(driver, sizes, "status", **on(machine, tmp_path))
    assert error == (
        "numa mirror: not enough memory on node 3"
        "; node 0 needs 1536.0 MiB, has 49152.0 MiB (32768.0 MiB free, 16384.0 MiB reclaimable)"
        ", of which 1024.0 MiB must stay free"
        "; node 3 needs 1536.0 MiB, has 1536.0 MiB (1024.0 MiB free, 512.0 MiB reclaimable)"
        ", of which 128.0 MiB must stay free"
    )
    assert status["error"] == {"code": "no-memory", "message": error}
    assert status["bytes_per_replica"] == 0


def test_a_64th_of_a_node_stays_free(driver: Path, tmp_path: Path) -> None:
    """What fits beside the margin is not refused; a page more is."""
    node = Node("0-3", total=GIB, free=100 * MIB, cache=0)
    env = on(Machine({0: node, 1: node}), tmp_path)
    assert drive(driver, f"expect:{84 * MIB}", **env) == [None]
    [error] = drive(driver, f"expect:{84 * MIB + 1}", **env)
    assert "on node 0, node 1" in error and "16.0 MiB must stay free" in error


def test_the_cache_may_use_the_margin(driver: Path, tmp_path: Path) -> None:
    """The margin is for what comes after the weights: an allocation alone does not keep it."""
    node = Node("0-1", total=GIB, free=100 * MIB, cache=0)
    assert drive(driver, f"kv:{96 * MIB}", **on(Machine({0: node, 1: node}), tmp_path)) == [True]


def test_control_group_room_is_for_all_replicas(driver: Path, tmp_path: Path) -> None:
    """All replicas together must fit under the control group's limit, and a 64th of it stays free."""
    files = {"sys/fs/cgroup/memory.max": f"{64 * MIB}\n", "sys/fs/cgroup/memory.current": f"{3 * MIB}\n"}
    env = on(Machine({0: Node("0"), 1: Node("1")}, cgroup="0::/\n", files=files), tmp_path)
    assert drive(driver, f"expect:{30 * MIB}", **env) == [None]
    [error] = drive(driver, f"expect:{32 * MIB}", **env)
    assert "not enough memory on the control group; the control group needs 64.0 MiB, has 61.0 MiB" in error


def test_room_of_pretend_nodes_is_the_machines(driver: Path, tmp_path: Path) -> None:
    """Pretend nodes share the memory of the machine."""
    machine = Machine({0: Node("0", total=GIB, free=GIB, cache=0)}).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(machine), "GGML_NUMA_MIRROR_NODES": "3"}
    assert drive(driver, f"expect:{320 * MIB}", **env) == [None]
    [error] = drive(driver, f"expect:{340 * MIB}", **env)
    assert "the machine needs 1020.0 MiB, has 1024.0 MiB" in error


@pytest.mark.parametrize("name", MODELS)
def test_model_needs_what_its_buffers_take(
    loader: Path, models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """What a model needs is known exactly before its first buffer, packed weights included."""
    status = run(loader, models[name])["status"]
    taken = status["bytes_per_replica"] - status["kv"]["bytes"]
    machine = Machine({0: Node("0", total=GIB, free=taken * 2 + 15 * MIB, cache=0)}).write(tmp_path)
    refused = run(loader, models[name], GGML_NUMA_MIRROR_ROOT=str(machine))
    assert not refused["loaded"]
    assert refused["status"]["bytes_per_replica"] == 0
    [need] = re.findall(r"the machine needs ([0-9.]+) MiB", refused["status"]["error"]["message"])
    assert float(need) == 2 * taken / MIB
    machine = Machine({0: Node("0", total=GIB, free=taken * 2 + 16 * MIB, cache=0)}).write(tmp_path)
    assert run(loader, models[name], GGML_NUMA_MIRROR_ROOT=str(machine))["loaded"]


def test_fallback_maps_the_model_as_upstream_does(
    loader: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    """A model that has no room and is loaded without the mirror stays in its file, where it need not fit."""
    machine = Machine({0: Node("0", total=GIB, free=MIB, cache=0)}).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(machine), "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    with stopped(loader, models["dense-q8_0"], "stop", **env) as process:
        assert str(models["dense-q8_0"]) in Path(f"/proc/{process.pid}/maps").read_text()
    plain = run(loader, models["dense-q8_0"], "plain")
    assert run(loader, models["dense-q8_0"], **env)["logits"] == plain["logits"]


def test_policy_can_be_changed_back_to_all(driver: Path) -> None:
    """What is asked for last counts: all of it, too."""
    steps = ("policy:weights", "policy:all", f"kv:{MIB}", "status")
    *_, status = drive(driver, *steps)
    assert status["policy"] == "weights,kv"
    assert status["kv"]["buffers"] == 1


def test_pieces_reach_every_replica(driver: Path) -> None:
    """Thousands of pieces of a cache, written in no order and over each other, are in all replicas."""
    assert drive(driver, f"kv:{5 * MIB}", f"kv:{3 * MIB}", "scatter:1,2", "scatter:0,2", "whole:1,1") == [
        *[True] * 4,
        False,
    ]


@pytest.mark.parametrize("kind", ["4K", "huge", "2m"])
def test_unknown_kind_of_pages_is_refused(driver: Path, kind: str) -> None:
    """A kind of pages that is none is refused with what it can be."""
    [status] = drive(driver, "status", GGML_NUMA_MIRROR_PAGES=kind)
    assert status["error"] == {
        "code": "config",
        "message": f"numa mirror: GGML_NUMA_MIRROR_PAGES is '{kind}'; it can be thp, small, 2M or 1G",
    }


def test_pool_without_pages_is_refused_with_what_to_write(driver: Path, tmp_path: Path) -> None:
    """Huge pages are counted node by node; the message names the file and the number to write to it."""
    files: dict[str, str] = {}
    for node, (total, free) in {0: (100, 40), 2: (10, 3)}.items():
        pool = f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"
        files |= {f"{pool}/nr_hugepages": f"{total}\n", f"{pool}/free_hugepages": f"{free}\n"}
    env = on(Machine({0: Node("0"), 2: Node("1")}, files=files), tmp_path)
    [error] = drive(driver, f"expect:{9 * MIB},{2 * MIB}", GGML_NUMA_MIRROR_PAGES="2M", **env)
    assert error == (
        "numa mirror: not enough huge pages of 2.0 MiB; node 2 needs 6, has 3 free: "
        "write 13 to /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages"
    )
    allocated, status = drive(driver, f"kv:{8 * MIB}", "status", GGML_NUMA_MIRROR_PAGES="2M", **env)
    assert not allocated and status["error"]["code"] == "no-memory"


def test_giant_pages_are_counted_too(driver: Path, tmp_path: Path) -> None:
    """With 1G a block takes whole pages of that size, and pages promised to others are not free."""
    pool = "sys/kernel/mm/hugepages/hugepages-1048576kB"
    files = {f"{pool}/nr_hugepages": "6\n", f"{pool}/free_hugepages": "5\n", f"{pool}/resv_hugepages": "2\n"}
    root = Machine({0: Node("0")}, files=files).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_PAGES": "1G"}
    assert drive(driver, "expect:1", **env) == [None]
    [error] = drive(driver, "expect:1,1", **env)
    assert "the machine needs 4, has 3 free: write 7 to /" + pool + "/nr_hugepages" in error


@pytest.fixture
def pool() -> Iterator[None]:
    """64 huge pages of 2 MiB, set aside for a test."""
    before = POOL.joinpath("nr_hugepages").read_text() if POOL.is_dir() else "0"
    if not os.access(POOL / "nr_hugepages", os.W_OK):
        pytest.skip("huge pages can only be set aside by root, where the kernel has them")
    POOL.joinpath("nr_hugepages").write_text(f"{int(before) + 64}\n")
    try:
        if free_pages() < 64:
            pytest.skip("the kernel has no 64 huge pages to set aside")
        yield
    finally:
        POOL.joinpath("nr_hugepages").write_text(before)


def free_pages() -> int:
    """Huge pages of 2 MiB that are free and promised to nobody."""
    free, promised = (int(POOL.joinpath(name).read_text()) for name in ("free_hugepages", "resv_hugepages"))
    return free - promised


@pytest.mark.usefixtures("pool")
def test_blocks_of_huge_pages(driver: Path) -> None:
    """With 2M every byte of every replica lies in the pool's pages; what is freed goes back to it."""
    steps = [f"weights:{9 * MIB}", f"kv:{3 * MIB}", "whole:0,3", "whole:1,3", "status"]
    before = free_pages()
    env = {"GGML_NUMA_MIRROR_NODES": "3", "GGML_NUMA_MIRROR_PAGES": "2M"}
    *results, status = drive(driver, *steps, **env)
    assert results == [True] * 4
    assert status["page_kind"] == "2M"
    assert status["bytes_per_replica"] == 14 * MIB
    assert free_pages() == before
    with subprocess.Popen(
        [driver, f"weights:{9 * MIB}", f"kv:{3 * MIB}", "free:1", "stop"],
        env={**ENV, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdout.readline()
        assert free_pages() == before - 3 * 5, "the freed cache's pages are back in the pool"
        process.communicate(b"")
    assert free_pages() == before


@pytest.mark.usefixtures("pool")
def test_pages_of_huge_blocks_are_counted(driver: Path) -> None:
    """The kernel says where huge pages are, as it does for others."""
    _, status = drive(driver, f"weights:{8 * MIB}", "status", GGML_NUMA_MIRROR_PAGES="2M")
    for node in status["nodes"]:
        assert set(node["pages"]) == {"0"} and node["pages"]["0"] > 0


@pytest.mark.usefixtures("pool")
def test_pool_that_is_smaller_than_it_says_is_an_error(driver: Path, tmp_path: Path) -> None:
    """When the pages are gone at the time they are needed, the program gets an error, not a signal."""
    made_up = "sys/kernel/mm/hugepages/hugepages-2048kB"
    files = {f"{made_up}/nr_hugepages": "999\n", f"{made_up}/free_hugepages": "999\n"}
    root = Machine({0: Node("0")}, files=files).write(tmp_path)
    env = {"GGML_NUMA_MIRROR_ROOT": str(root), "GGML_NUMA_MIRROR_PAGES": "2M"}
    allocated, status = drive(driver, f"weights:{100 * MIB}", "status", **env)
    assert not allocated
    assert status["error"]["code"] == "no-memory"
    assert "the kernel has no more of these pages" in status["error"]["message"]


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("options", [[], ["mlock"], ["two"]], ids=["plain", "mlock", "two"])
def test_models_in_huge_pages_answer_as_others(
    loader: Path, models: dict[str, Path], options: list[str]
) -> None:
    """A model in huge pages gives the same logits; nothing stays in use when the program has ended."""
    for name in ("dense-q8_0", "dense-q4_0"):
        plain = run(loader, models[name], "plain")["logits"]
        result = run(loader, models[name], *options, GGML_NUMA_MIRROR_PAGES="2M")
        assert result["logits"] == plain
        assert result["other"] == (plain if options == ["two"] else "0" * 16)
        assert result["status"]["page_kind"] == "2M"
        assert free_pages() == 64


@pytest.mark.parametrize("kind", ["thp", "small"])
def test_kind_of_pages_is_the_kernels_advice(driver: Path, kind: str) -> None:
    """By default huge pages are welcome wherever the kernel allows it; with small none are made."""
    if Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().find("[never]") >= 0:
        pytest.skip("transparent huge pages are off on this machine")
    with subprocess.Popen(
        [driver, f"weights:{16 * MIB}", "stop"],
        env={**ENV, "GGML_NUMA_MIRROR_PAGES": kind},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdout.readline()
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        process.communicate(b"")
    [huge] = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("AnonHugePages:")]
    assert (huge > 0) == (kind == "thp")
