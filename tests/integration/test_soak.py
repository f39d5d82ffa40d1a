"""Hundreds and thousands of tokens through ``llama-server``, mirrored against pristine.

A request with several prompts enters the server's queue as one, so its sequences are evaluated in the same
batches in every run: results may depend on what a batch is made of, and then they can be compared.
That pristine repeats itself is checked before anything is said about the mirror.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.building.build import Build
from numamirror_build.store import Store
from numamirror_build.verify.models import RECIPES, make_model

pytestmark = [pytest.mark.sources, pytest.mark.build]

SLOTS = 4
CONTEXT = 256  # of each slot; the least that llama.cpp makes
STARTUP = 120  # seconds
ANSWER = 300

# llama-server shifts no context whose cache cannot be: answers end where it is full
NEVER_SHIFTED = ("compressor-q8_0", "delta-q8_0")

MIRRORS = {
    "2-nodes": {"GGML_NUMA_MIRROR_NODES": "2"},
    "3-nodes": {"GGML_NUMA_MIRROR_NODES": "3"},
    "2-nodes-check": {"GGML_NUMA_MIRROR_NODES": "2", "GGML_NUMA_MIRROR_CHECK": "1"},
}


@dataclass(frozen=True)
class Soak:
    """What one server answered.

    Attributes:
        answers: per request and prompt what was generated: tokens, their candidates with probabilities.
        generated: tokens in all.
        shifts: how often a context was shifted.
        reused: prompt tokens that were taken from a cache.
        status: the mirror's record, or None.
    """

    answers: list[list[dict[str, Any]]]
    generated: int
    shifts: int
    reused: int
    status: dict[str, Any] | None


def schedule(tokens: int) -> Iterator[dict[str, Any]]:
    """Requests that make the server generate at least that many tokens.

    Prompts share beginnings with each other and with those of earlier requests; some requests have fewer
    prompts than there are slots, some more, so that sequences wait for a slot that another has left.
    Every third answer goes beyond a slot's context, and every sixth twice.
    """
    common = "It was a dark and stormy night, and the rain fell in torrents except at intervals, " * 2
    left, number = tokens, 0
    while left > 0:
        prompts = [
            common[: 50 * (1 + (number + index) % 3)] + f"Chapter {(number + index) % 5}. " * (1 + index % 3)
            for index in range((SLOTS, SLOTS - 1, SLOTS + 2)[number % 3])
        ]
        predict = (CONTEXT // 2 + CONTEXT // 2 * (number % 2), 24, 40)[number % 3]
        yield {
            "prompt": prompts,
            "n_predict": predict,
            "seed": number,
            "temperature": 0.8,
            "ignore_eos": True,
            "cache_prompt": True,
            "return_tokens": True,
            "n_probs": 3,
        }
        left -= predict * len(prompts)
        number += 1


@contextmanager
def serving(program: Path, model: Path, folder: Path, **env: str) -> Iterator[tuple[int, Path]]:
    """A server on a free port of the loopback interface, ended whatever happens; its port and its log."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / "server.log"
    arguments = [
        *("--model", model, "--host", "127.0.0.1", "--port", str(port), "--no-ui", "--verbosity", "4"),
        *("--parallel", str(SLOTS), "--ctx-size", str(SLOTS * CONTEXT), "--batch-size", "64"),
        *("--no-kv-unified", "--context-shift", "--threads", "3"),
        *("--cache-reuse", "4", "--slot-prompt-similarity", "0.3"),
        *("--slot-save-path", folder, *(("--numa", "mirror") if env else ())),
    ]
    with log.open("w") as stream:
        process = subprocess.Popen(
            [program, *arguments],
            env={"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "passive", **env},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + STARTUP
        while not _healthy(port):
            assert process.poll() is None, f"the server ended:\n{_tail(log)}"
            assert time.monotonic() < deadline, f"the server is not ready:\n{_tail(log)}"
            time.sleep(0.1)
        yield port, log
        assert process.poll() is None, f"the server ended:\n{_tail(log)}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _healthy(port: int) -> bool:
    try:
        return _ask(port, "GET", "/health", None, timeout=5)[0] == 200
    except OSError:
        return False


def _ask(port: int, method: str, path: str, body: Any, *, timeout: float = ANSWER) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])


def soak(build: Build, model: Path, folder: Path, tokens: int, **env: str) -> Soak:
    """Send the schedule to a fresh server; in between, slots are saved to files and restored into others."""
    folder.mkdir()
    record = folder / "status.json"
    if env:
        env["GGML_NUMA_MIRROR_STATUS"] = str(record)
    answers: list[list[dict[str, Any]]] = []
    generated = reused = 0
    with serving(build.programs["llama-server"], model, folder, **env) as (port, log):
        for number, request in enumerate(schedule(tokens)):
            status, documents = _ask(port, "POST", "/completion", request)
            assert status == 200, documents
            documents = documents if isinstance(documents, list) else [documents]
            answers.append([_essence(document) for document in documents])
            generated += sum(document["tokens_predicted"] for document in documents)
            reused += sum(document["timings"]["cache_n"] for document in documents)
            if number % 2:
                source, target = number % SLOTS, (number + 1) % SLOTS
                for slot, action in ((source, "save"), (target, "restore")):
                    status, document = _ask(
                        port, "POST", f"/slots/{slot}?action={action}", {"filename": "slot.bin"}
                    )
                    assert status == 200, document
        shifts = len(re.findall("slot context shift", log.read_text(errors="replace")))
    return Soak(answers, generated, shifts, reused, json.loads(record.read_text()) if env else None)


def _essence(document: dict[str, Any]) -> dict[str, Any]:
    """What must be equal of an answer; times are not."""
    names = (
        "index",
        "id_slot",
        "content",
        "tokens",
        "completion_probabilities",
        "truncated",
        "tokens_cached",
    )
    # an answer without a token has no probabilities
    return {**{name: document.get(name) for name in names}, "cache_n": document["timings"]["cache_n"]}


def compare(
    pristine: Build,
    patched: Build,
    model: Path,
    folder: Path,
    tokens: int,
    mirrors: dict[str, dict[str, str]],
) -> None:
    """Run pristine twice, then each mirror; all answers are those of pristine."""
    reference = soak(pristine, model, folder / "pristine", tokens)
    again = soak(pristine, model, folder / "again", tokens)
    assert again.answers == reference.answers, "pristine does not repeat itself: nothing would be proved"
    if model.stem in NEVER_SHIFTED:
        assert reference.generated > tokens / 2 and reference.shifts == 0
    else:
        assert reference.generated >= tokens
        assert reference.shifts > 0, "no context was shifted"
    assert reference.reused > 0, "no prompt was taken from a cache"
    for name, env in mirrors.items():
        mirrored = soak(patched, model, folder / name, tokens, **env)
        assert mirrored.answers == reference.answers, name
        assert (mirrored.shifts, mirrored.reused) == (reference.shifts, reference.reused)
        assert mirrored.status and mirrored.status["active"]
        assert mirrored.status["replicas"] == int(env["GGML_NUMA_MIRROR_NODES"])
        assert mirrored.status["graphs"]["mirrored"] > 0 and mirrored.status["graphs"]["home"] == 0
        assert (mirrored.status["checks"] > 0) == ("GGML_NUMA_MIRROR_CHECK" in env)


def test_server_answers_as_pristine(
    pristine_build: Build, patched_build: Build, store: Store, tmp_path: Path
) -> None:
    """2,000 tokens over 4 slots, with the replicas compared after each write: every token and probability."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == "moe-q4_0")
    mirrors = {"2-nodes-check": MIRRORS["2-nodes-check"]}
    compare(pristine_build, patched_build, make_model(store, recipe).path, tmp_path, 2000, mirrors)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_soak(pristine_build: Build, patched_build: Build, store: Store, tmp_path: Path, recipe: Any) -> None:
    """20,000 tokens over context shifts, slot reuse, saved and restored slots; 2 and 3 nodes."""
    compare(pristine_build, patched_build, make_model(store, recipe).path, tmp_path, 20000, MIRRORS)


def test_an_empty_replica_changes_the_answers(
    pristine_build: Build, patched_build: Build, store: Store, tmp_path: Path
) -> None:
    """The comparison can fail: when a replica stays empty, the server answers something else."""
    model = make_model(store, RECIPES[0]).path
    reference = soak(pristine_build, model, tmp_path / "pristine", 50)
    env = {**MIRRORS["2-nodes"], "GGML_NUMA_MIRROR_TEST_SKIP": "1"}
    assert soak(patched_build, model, tmp_path / "empty", 50, **env).answers != reference.answers
