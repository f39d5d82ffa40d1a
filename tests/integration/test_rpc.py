"""Servers of llama.cpp's RPC backend with the mirror: they answer as a local run, from their replicas."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.build import Build, BuildOptions, make_build
from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.pipeline import Pipeline
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, fetch_smollm2, make_model
from tests.integration.drivers import compile_driver, run_driver

pytestmark = [pytest.mark.sources, pytest.mark.build]

JOBS = os.cpu_count() or 1
RPC = ("-DGGML_RPC=ON",)
SERVER = "ggml-rpc-server"
MIRROR = {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_CHECK": "1"}
MODELS = ("dense-q8_0", "moe-q8_0", "mamba-q8_0")
START_SECONDS = 30


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, and where it writes its status record."""

    endpoint: str
    status: Path

    def record(self) -> dict[str, Any]:
        """The status record, which the server writes when its client leaves."""
        deadline = time.monotonic() + START_SECONDS
        while not self.status.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        record: dict[str, Any] = json.loads(self.status.read_text())
        return record


@pytest.fixture(scope="module")
def build(store: Store, patched_tree: PatchedTree) -> Build:
    """Patched libraries and server with the RPC backend."""
    options = BuildOptions(jobs=JOBS, cmake_args=RPC, programs=(SERVER, "llama-bench"))
    return make_build(store, patched_tree, options, progress=Quiet())


@pytest.fixture(scope="module")
def driver(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client: a driver linked with the patched libraries."""
    return compile_driver(build, "llama_driver.cpp", tmp_path_factory.mktemp("driver") / "patched")


@pytest.fixture(scope="module")
def pristine_driver(
    store: Store, pristine_tree: PristineTree, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A client that knows nothing of the mirror, also the local run to compare with."""
    options = BuildOptions(jobs=JOBS, cmake_args=RPC, programs=())
    made = make_build(store, pristine_tree, options, progress=Quiet())
    return compile_driver(made, "llama_driver.cpp", tmp_path_factory.mktemp("driver") / "pristine")


@contextmanager
def serving(build: Build, status: Path, *arguments: str, **env: str) -> Iterator[Server]:
    """A server on a port of this machine, ended at the end."""
    program = next(path for name, path in build.programs.items() if name.endswith("rpc-server"))
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [program, "-p", str(port), "-t", "2", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "OMP_WAIT_POLICY": "passive",
            "GGML_NUMA_MIRROR_STATUS": str(status),
            **env,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert process.poll() is None and time.monotonic() < deadline
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield Server(f"127.0.0.1:{port}", status)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def two_servers(build: Build, tmp_path: Path) -> Iterator[Callable[..., list[Server]]]:
    """Starts two servers, with arguments and environment variables."""
    with ExitStack() as stack:

        def start(*arguments: str, **env: str) -> list[Server]:
            return [
                stack.enter_context(serving(build, tmp_path / f"{i}.json", *arguments, **env))
                for i in range(2)
            ]

        yield start


def answers(driver: Path, model: Path, servers: list[Server] | None = None, **env: str) -> str:
    """The digest of all logits of a prompt and some tokens, three times."""
    if servers:
        env["DRIVER_RPC"] = ",".join(server.endpoint for server in servers)
    done = run_driver(driver, "alone", model, 2, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.strip()) == 16
    return done.stdout


def model_of(store: Store, name: str) -> Path:
    """One of the project's own models."""
    return make_model(store, next(recipe for recipe in RECIPES if recipe.name == name)).path


@pytest.mark.parametrize("name", MODELS)
def test_two_mirrored_servers_answer_as_a_local_run(
    driver: Path, pristine_driver: Path, two_servers: Callable[..., list[Server]], store: Store, name: str
) -> None:
    """All logits are those of the local pristine run; weights and caches of both servers are replicated."""
    model = model_of(store, name)
    servers = two_servers("--numa", "mirror", **MIRROR)
    assert answers(driver, model, servers) == answers(pristine_driver, model)
    for record in [server.record() for server in servers]:
        assert record["active"] and record["replicas"] == 2
        assert record["bytes_per_replica"] > record["kv"]["bytes"] > 0
        assert record["graphs"]["mirrored"] > 0 and record["graphs"]["home"] == 0
        assert record["nodes_replicated"] > 0 and record["checks"] > 0
    assert sum(server.record()["bytes_per_replica"] for server in servers) > 0.7 * model.stat().st_size


def test_an_empty_replica_changes_the_answers(
    driver: Path, pristine_driver: Path, two_servers: Callable[..., list[Server]], store: Store
) -> None:
    """The servers' threads do read their replicas."""
    model = model_of(store, MODELS[0])
    servers = two_servers("--numa", "mirror", GGML_NUMA_MIRROR_NODES="2", GGML_NUMA_MIRROR_TEST_SKIP="1")
    assert answers(driver, model, servers) != answers(pristine_driver, model)


@pytest.mark.parametrize(("use", "weights", "caches"), [("weights", True, False), ("kv", False, True)])
def test_servers_replicate_what_is_named(
    driver: Path,
    pristine_driver: Path,
    two_servers: Callable[..., list[Server]],
    store: Store,
    use: str,
    weights: bool,
    caches: bool,
) -> None:
    """--numa-mirror says what, as in other programs."""
    model = model_of(store, MODELS[0])
    servers = two_servers("--numa-mirror", use, **MIRROR)
    assert answers(driver, model, servers) == answers(pristine_driver, model)
    for record in [server.record() for server in servers]:
        assert (record["kv"]["bytes"] > 0) == caches
        assert (record["bytes_per_replica"] > record["kv"]["bytes"]) == weights


def test_a_server_without_the_mirror_is_asked_as_ever(
    driver: Path, pristine_driver: Path, two_servers: Callable[..., list[Server]], store: Store
) -> None:
    """What the client says of buffers goes to mirrored servers only."""
    model = model_of(store, MODELS[0])
    assert answers(driver, model, two_servers()) == answers(pristine_driver, model)


def test_a_client_that_says_nothing_is_served_as_ever(
    pristine_driver: Path, two_servers: Callable[..., list[Server]], store: Store
) -> None:
    """For a client of upstream's nothing is replicated, and the answers are right."""
    model = model_of(store, MODELS[0])
    servers = two_servers("--numa", "mirror", **MIRROR)
    assert answers(pristine_driver, model, servers) == answers(pristine_driver, model)


def test_the_client_may_have_the_mirror_too(
    driver: Path, pristine_driver: Path, two_servers: Callable[..., list[Server]], store: Store
) -> None:
    """What stays with the client lies in its own replicas."""
    model = model_of(store, MODELS[0])
    servers = two_servers("--numa", "mirror", **MIRROR)
    mirrored = answers(driver, model, servers, GGML_NUMA_MIRROR="all", **MIRROR)
    assert mirrored == answers(pristine_driver, model)


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["--numa", "distribute"], {}, "Invalid parameters"),
        (["--numa-mirror", "all of it"], {}, "Invalid parameters"),
        (
            ["--numa", "mirror"],
            {"GGML_NUMA_MIRROR_NODES": "many"},
            "numa mirror: GGML_NUMA_MIRROR_NODES is 'many'",
        ),
    ],
)
def test_a_server_that_cannot_have_the_mirror_does_not_start(
    build: Build, arguments: list[str], env: dict[str, str], message: str
) -> None:
    """It says why, and ends with 1."""
    done = run_driver(build.programs[SERVER], *arguments, env=env, timeout=30)
    assert done.returncode == 1 and message in done.stderr


@pytest.mark.slow
def test_a_server_of_ik_answers_as_a_local_run(ik_pipeline: Pipeline, store: Store, tmp_path: Path) -> None:
    """The text is that of the local run, and comes from replicas."""
    options = BuildOptions(jobs=JOBS, cmake_args=RPC, programs=("rpc-server", "llama-cli"))
    build = make_build(store, ik_pipeline.patched_tree, options, progress=Quiet())

    def complete(*arguments: str) -> str:
        model = fetch_smollm2(store, progress=Quiet()).path
        prompt = (
            "-m",
            model,
            "-p",
            "The capital of France is",
            "-n",
            "16",
            "-t",
            "2",
            "--temp",
            "0",
            "--no-warmup",
        )
        done = run_driver(
            build.programs["llama-cli"], "-m", model, "-t", 2, *prompt, *arguments, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    with (
        serving(build, tmp_path / "0.json", "--numa", "mirror", **MIRROR) as first,
        serving(build, tmp_path / "1.json", "--numa", "mirror", **MIRROR) as second,
    ):
        text = complete("--rpc", f"{first.endpoint},{second.endpoint}", "-ngl", "99")
        assert "Paris" in text and text == complete()
        record = first.record()  # its client leaves the last device without layers
    assert record["active"] and record["replicas"] == 2 and record["checks"] > 0
    assert record["bytes_per_replica"] > record["kv"]["bytes"] > 0
    assert record["graphs"]["mirrored"] > 0 and record["graphs"]["home"] == 0
