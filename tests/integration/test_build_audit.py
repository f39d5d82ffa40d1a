"""The audit of real trees: it passes, and one access that is left out is found where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from numamirror_build.building.units import mirror_build
from numamirror_build.errors import AuditError
from numamirror_build.patching.audit import compile_hidden
from numamirror_build.pipeline import Pipeline, Request
from numamirror_build.progress import Quiet
from numamirror_build.rewrite import apply_edits
from numamirror_build.store import Store
from numamirror_build.upstreams.pins import load_pins

pytestmark = [pytest.mark.sources, pytest.mark.build]

OTHERS = [pin.name for pin in load_pins("llama.cpp") if pin.name != "0.3.36"]


def test_default_pin_passes(pipeline: Pipeline) -> None:
    """No compiled access bypasses the accessors; what is not compiled is other machines' code."""
    made = pipeline.audit
    assert {"ggml/src/ggml-cpu/ops.cpp", "ggml/src/ggml.c", "src/llama-kv-cache.cpp"} <= set(made.compiled)
    uncompiled = {entry.path for entry in made.uncompiled}
    assert {"ggml/src/ggml-cpu/kleidiai/kleidiai.cpp", "ggml/src/ggml-rpc/ggml-rpc.cpp"} <= uncompiled
    assert all(path.startswith("ggml/src/ggml-") for path in uncompiled)


@pytest.mark.slow
@pytest.mark.parametrize("pin", OTHERS)
def test_other_pins_pass(store: Store, pin: str) -> None:
    """The same holds for every pin that there is data for."""
    made = Pipeline(store, Request("llama.cpp", pin, jobs=os.cpu_count() or 1), Quiet()).audit
    assert "ggml/src/ggml.c" in made.compiled


def test_ik_llama_passes(ik_pipeline: Pipeline) -> None:
    """The same holds for ik_llama.cpp: operations, iqk kernels, programs, and what its build generates."""
    made = ik_pipeline.audit
    kernels = {path for path in made.compiled if path.startswith("ggml/src/iqk/fa/")}
    assert len(kernels) == 9
    operations = {"ggml/src/ggml.c", "ggml/src/iqk/iqk_cpu_ops.cpp", "src/llama.cpp"}
    programs = {"examples/server/server.cpp", "examples/llama-bench/llama-bench.cpp", "common/build-info.cpp"}
    assert operations | programs <= set(made.compiled)
    assert {"ggml/src/ggml-rpc.cpp"} <= {entry.path for entry in made.uncompiled}
    assert not any("lacks that program" in entry.reason for entry in made.excluded)


@pytest.mark.parametrize(
    ("upstream", "path"),
    [
        ("llama.cpp", "ggml/src/ggml-cpu/ops.cpp"),
        ("llama.cpp", "ggml/src/ggml-alloc.c"),
        ("ik_llama.cpp", "ggml/src/ggml.c"),
        ("ik_llama.cpp", "ggml/src/iqk/iqk_cpu_ops.cpp"),
    ],
)
def test_edit_that_is_left_out_is_found(
    tmp_path: Path, pipeline: Pipeline, ik_pipeline: Pipeline, upstream: str, path: str
) -> None:
    """When the plan lacks the edits of one line, the audit names exactly that line."""
    made = {"llama.cpp": pipeline, "ik_llama.cpp": ik_pipeline}[upstream]
    content = (made.checkout.path / path).read_bytes()
    lines = [site.line for site in made.plan.sites if site.path == path and site.kind == "read"]
    left_out = next(line for line in lines if lines.count(line) == 1)
    edits = [
        edit
        for edit in made.plan.edits
        if edit.path == path and content.count(b"\n", 0, edit.start) + 1 != left_out
    ]
    text = apply_edits(content, edits)
    line = text.splitlines().index(content.splitlines()[left_out - 1]) + 1

    units = [unit for unit in mirror_build(made.patched_build, tmp_path) if unit.file.match(path)]
    units[0].file.write_bytes(text)
    with pytest.raises(AuditError) as caught:
        compile_hidden(units, tmp_path, made.plan, progress=Quiet())
    accesses = caught.value.details["accesses"]
    assert [(access["path"], access["line"]) for access in accesses] == [(path, line)]
