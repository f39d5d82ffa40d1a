"""Running variants: one process each, kept when it ended well."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from numamirror_build.store import Store
from numamirror_build.verify import matrix
from numamirror_build.verify.matrix import Case, Variant
from numamirror_build.verify.profile import load_profile
from numamirror_build.verify.runs import Binding, Libraries, Run, run_logits
from tests.unit.verify.made_up import MODEL, PROFILE

CASES = (Case(1, 1, 1),)


def fake_python(tmp_path: Path, body: str) -> Binding:
    """A program in place of the environment's Python: it gets the runner and the request as arguments."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\nfolder=$(dirname "$2")\necho run >> "$COUNT"\nenv > "$folder/env"\n' + body)
    path.chmod(0o755)
    env = {"COUNT": str(tmp_path / "count")}
    return Binding(path, "package", "binding", PROFILE, env)


def run(
    tmp_path: Path, binding: Binding, variant: Variant = matrix.PRISTINE, reference: Run | None = None
) -> Run:
    """Run the made-up model's case."""
    libraries = Libraries(tmp_path / "lib", tmp_path, "key")
    return run_logits(
        Store(tmp_path / "store"), binding, libraries, MODEL, variant, CASES, reference=reference
    )


def runs(tmp_path: Path) -> int:
    """How often the program was started."""
    return len((tmp_path / "count").read_text().splitlines())


FACTS = '{"loaded": true, "cases": {}, "status": null}'


def test_a_run_is_kept(tmp_path: Path) -> None:
    """What ended well is not done again; its facts and log come from the cache."""
    binding = fake_python(tmp_path, f"echo hello\necho '{FACTS}' > \"$folder/facts.json\"\n")
    first, second = run(tmp_path, binding), run(tmp_path, binding)
    assert first.outcome == second.outcome == "done"
    assert first.facts == second.facts
    assert second.facts["log"] == "hello\n"
    assert runs(tmp_path) == 1


def test_the_request(tmp_path: Path) -> None:
    """The runner is told model, cases, strategy, and what to compare with."""
    binding = fake_python(tmp_path, f"echo '{FACTS}' > \"$folder/facts.json\"\n")
    reference = run(tmp_path, binding)
    other = run(tmp_path, binding, matrix.pretend(2), reference)
    request = json.loads((other.folder / "request.json").read_text())
    assert request["strategy"] == matrix.MIRROR
    assert request["reference"] == str(reference.folder)
    assert request["cases"] == [CASES[0].as_json()]
    assert request["folder"] == str(other.folder) != str(reference.folder)
    assert request["other"] is request["adapter"] is None


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's settings for these libraries are shut out, the variant's are in."""
    monkeypatch.setenv("GGML_NUMA_MIRROR", "weights")
    monkeypatch.setenv("LLAMA_ARG_THREADS", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    binding = fake_python(tmp_path, f"echo '{FACTS}' > \"$folder/facts.json\"\n")
    plain = (run(tmp_path, binding).folder / "env").read_text()
    assert not {"GGML_NUMA_MIRROR=weights", "LLAMA_ARG_THREADS=7", "OMP_NUM_THREADS=5"} & set(
        plain.splitlines()
    )
    assert f"LLAMA_CPP_LIB_PATH={tmp_path / 'lib'}" in plain.splitlines()
    mirrored = run(tmp_path, binding, matrix.BY_ENVIRONMENT)
    lines = (mirrored.folder / "env").read_text().splitlines()
    assert {"GGML_NUMA_MIRROR=weights", "GGML_NUMA_MIRROR_NODES=2"} <= set(lines)
    assert f"GGML_NUMA_MIRROR_STATUS={mirrored.folder / 'status.json'}" in lines


def test_the_library_of_another_binding(tmp_path: Path) -> None:
    """ik_llama_cpp is told of a file; the runner is told which binding it is."""
    made_up = fake_python(tmp_path, f"echo '{FACTS}' > \"$folder/facts.json\"\n")
    done = run(tmp_path, dataclasses.replace(made_up, profile=load_profile("ik_llama.cpp")))
    lines = (done.folder / "env").read_text().splitlines()
    assert f"IK_LLAMA_CPP_LIB_PATH={tmp_path / 'lib/libllama.so'}" in lines
    assert not any(line.startswith("LLAMA_CPP_LIB_PATH=") for line in lines)
    assert json.loads((done.folder / "request.json").read_text())["binding"] == "ik_llama_cpp"


def test_a_dead_process_is_not_kept(tmp_path: Path) -> None:
    """A crash is told with its signal and last output, and tried again next time."""
    binding = fake_python(tmp_path, "echo about to crash\nkill -SEGV $$\n")
    for _ in range(2):
        dead = run(tmp_path, binding)
        assert dead.outcome == "died"
        assert "signal 11" in str(dead.reason)
        assert "about to crash" in str(dead.reason)
    assert runs(tmp_path) == 2


def test_a_debugger_does_not_hide_the_reason(tmp_path: Path) -> None:
    """Upstream may call one when it aborts: what came before is told, and the whole log is kept."""
    words = "".join(f"echo '#{number} frame'\n" for number in range(20))
    body = f"echo 'x.c:7: GGML_ASSERT(y) failed'\necho '[New LWP 3]'\n{words}kill -ABRT $$\n"
    dead = run(tmp_path, fake_python(tmp_path, body))
    assert str(dead.reason).endswith("GGML_ASSERT(y) failed")
    assert "#19 frame" in dead.facts["log"]


def test_no_facts_is_a_failure(tmp_path: Path) -> None:
    """A program that ends well but leaves no facts has not done its work."""
    assert run(tmp_path, fake_python(tmp_path, "exit 0\n")).outcome == "died"


def test_refused(tmp_path: Path) -> None:
    """A model that was not loaded is a result, with the record that says why."""
    facts = '{"loaded": false, "status": {"error": {"code": "one-node"}}}'
    refused = run(tmp_path, fake_python(tmp_path, f"echo '{facts}' > \"$folder/facts.json\"\n"))
    assert refused.outcome == "refused"
    assert refused.status == {"error": {"code": "one-node"}}


def test_another_library_is_another_run(tmp_path: Path) -> None:
    """Results of one build are never taken for those of another."""
    binding = fake_python(tmp_path, f"echo '{FACTS}' > \"$folder/facts.json\"\n")
    store = Store(tmp_path / "store")
    folders = {
        run_logits(
            store, each, Libraries(tmp_path, tmp_path, key), model, matrix.OFF, CASES, reference=None
        ).folder
        for each, key, model in (
            (binding, "one", MODEL),
            (binding, "two", MODEL),
            (dataclasses.replace(binding, key="new"), "one", MODEL),
            (binding, "one", dataclasses.replace(MODEL, identity="new")),
        )
    }
    assert len(folders) == 4
