"""llama.cpp's own tests of the CPU backend, of threads and of states, with the mirror on.

Every program is built from the pristine and from the patched tree. What it says about its test cases must be
the same for both: which cases there are, and how each ends. Which programs are not run, and why, is said in
docs/development.md.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from numamirror_build.building.build import Build, BuildOptions, Tree, make_build
from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.verify.models import fetch_smollm2
from tests.integration.drivers import compile_driver, run_driver

pytestmark = [pytest.mark.sources, pytest.mark.build, pytest.mark.slow]

HOUR = 3600
NODES = {"GGML_NUMA_MIRROR_NODES": "2"}
ARCHS = "test-llama-archs"


@dataclass(frozen=True)
class Program:
    """One of upstream's test programs.

    Attributes:
        name: of the target.
        arguments: ``{model}`` stands for a real model, ``{models}`` for a folder with one model of each
            architecture.
        outcome: what its lines about test cases look like; the groups are compared. None: it has none, or
            prints measurements; its exit status is compared.
        cases: how many such lines there are at least.
        arena: it loads no model. All its buffers lie in the arena all the same: as caches, so that each
            operation is computed once per replica and the replicas are compared, or as weights, so that all
            graphs run on the home replica.
        compared: whether it has such buffers; some programs have their tensors elsewhere.
    """

    name: str
    arguments: tuple[str, ...] = ()
    outcome: str | None = None
    cases: int = 0
    arena: Literal["kv", "weights"] | None = None
    compared: bool = False


# of test-backend-ops: what language models compute, fused or not
OPERATIONS = (
    "ACC,ADD,ADD1,ADD_ADD,ADD_ID,ADD_RMS_NORM,ARGMAX,ARGSORT,CLAMP,CONCAT,CONT,COUNT_EQUAL,"
    "CPY,CUMSUM,DIAG,DIAG_MASK_INF,DIV,DSV4_HC_COMB,DSV4_HC_POST,DSV4_HC_PRE,DUP,EXP,FILL,"
    "GATED_DELTA_NET,GATED_LINEAR_ATTN,GEGLU,GELU,GELU_MUL,GET_ROWS,L2_NORM,LIGHTNING_INDEXER,"
    "MUL,NEG,NORM,NORM_MUL_ADD,PAD,REGLU,RELU,RELU_SQR,REPEAT,RMS_NORM,RMS_NORM_MUL_ADD,"
    "RMS_NORM_MUL_ROPE,RMS_NORM_SCALE,ROLL,ROPE,ROPE_SET_ROWS,RWKV_WKV6,RWKV_WKV7,SCALE,SET,"
    "SET_ROWS,SIGMOID,SIGMOID_MUL,SILU,SILU_MUL,SOFTCAP,SOFTPLUS,SOFT_MAX,SQR,SQRT,SSM_CONV,"
    "SSM_CONV_BIAS_SILU,SSM_SCAN,SSM_SCAN_ROLLBACK,SUB,SUM,SUM_ROWS,SWIGLU,SWIGLU_OAI,TANH,"
    "TOP_K,TRI,UPSCALE"
)
# of the thousands of matrix products and attentions, some
PRODUCTS = "type_b=f32,m=16,n=[19],k=256|n_mats=[48],n_used=[12],.*,m=512,n=(1|17),"
ATTENTIONS = "hsk=64,.*kv=113,nb=(1|32),mask=1,sinks=0"
PARTS = (
    (("-o", OPERATIONS), 2500),
    (("-o", "MUL_MAT,MUL_MAT_ID", "-p", PRODUCTS), 300),
    (("-o", "FLASH_ATTN_EXT", "-p", ATTENTIONS), 50),
)
OPERATION = r"^  (\w+\(.*\)): .*?(OK|FAIL|not supported|skipping)"
TABLE = r"^(\S+\.gguf)((?:\s+(?:PASS|FAIL|SKIP))+)"
PROGRAMS = (
    *(
        Program("test-backend-ops", ("test", "-b", "CPU", *arguments), OPERATION, cases, "kv", compared=True)
        for arguments, cases in PARTS
    ),
    Program("test-alloc", arena="kv"),
    Program("test-barrier", ("3", "20"), arena="kv"),
    Program("test-col2im-1d", arena="kv"),
    # it writes its parameters to a tensor behind the backend's back, which as caches nobody would notice
    Program("test-opt", (), r"^\s*(\S.*): (OK|FAIL)", 150, arena="weights"),
    Program("test-quantize-fns", arena="kv"),
    Program("test-quantize-perf", ("--op", "vec_dot_q", "-i", "10"), arena="kv"),
    Program("test-rope", arena="kv"),
    Program("test-tiled-mulmat", arena="kv"),
    Program("test-batch-alloc", arena="kv"),
    Program("test-autorelease", ("{model}",)),
    Program(ARCHS, ("-s", "1"), r"^\|\s*(\S+)\|.*\|\s*(Dense|MoE)\|\s*(.*)\|$", 100),
    Program("test-model-load-cancel", ("{model}",)),
    Program("test-recurrent-state-rollback", ("--models", "{models}"), TABLE, 100),
    Program("test-save-load-state", ("--models", "{models}"), TABLE, 100),
    Program("test-state-restore-fragmented", ("-m", "{model}")),
    Program(
        "test-thread-safety",
        (
            *("-m", "{model}", "-p", "The meaning of life is", "-n", "64", "-c", "256", "-ub", "32"),
            *("-np", "4", "-t", "2"),
        ),
    ),
)


def built(store: Store, tree: Tree) -> Build:
    """Upstream's test programs of a tree."""
    options = BuildOptions(
        jobs=os.cpu_count() or 1,
        cmake_args=("-DLLAMA_BUILD_TESTS=ON",),
        programs=tuple(dict.fromkeys(program.name for program in PROGRAMS)),
    )
    return make_build(store, tree, options, progress=Quiet())


@pytest.fixture(scope="module")
def pristine(store: Store, pristine_tree: PristineTree) -> Build:
    """Upstream's tests, built from the pristine tree."""
    return built(store, pristine_tree)


@pytest.fixture(scope="module")
def patched(store: Store, patched_tree: PatchedTree) -> Build:
    """Upstream's tests, built from the patched tree."""
    return built(store, patched_tree)


@pytest.fixture(scope="module")
def preload(patched: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that puts a program's buffers in the arena."""
    library = tmp_path_factory.mktemp("preload") / "arena_preload.so"
    return compile_driver(patched, "arena_preload.cpp", library, "-fPIC", "-shared", mirror=True)


@pytest.fixture(scope="module")
def models(pristine: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of each architecture, made by one of upstream's tests."""
    folder = tmp_path_factory.mktemp("models")
    done = run_driver(pristine.programs[ARCHS], "-s", 1, "-o", folder, timeout=HOUR)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def run(
    build: Build, program: Program, folder: Path, real: Path, made: Path, **env: str
) -> tuple[int, Counter[str]]:
    """Run a program; its exit status, and how often it says what about its cases."""
    folder.mkdir()
    values = {"model": str(real), "models": str(made)}
    arguments = (argument.format(**values) for argument in program.arguments)
    done = run_driver(build.programs[program.name], *arguments, env=env, cwd=folder, timeout=HOUR)
    (folder / "output").write_text(done.stdout + done.stderr)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    found = re.findall(program.outcome, plain, re.MULTILINE) if program.outcome else []
    return done.returncode, Counter(" ".join(" ".join(groups).split()) for groups in found)


def read_status(folder: Path, program: Program) -> dict[str, Any]:
    """What the mirror's record says: that of the preloaded library is in the program's output."""
    if program.arena:
        text = (folder / "output").read_text().rsplit("arena_preload: ", 1)[1].splitlines()[0]
    else:
        text = (folder / "status.json").read_text()
    status: dict[str, Any] = json.loads(text)
    return status


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_ends_as_on_pristine(
    pristine: Build,
    patched: Build,
    preload: Path,
    models: Path,
    store: Store,
    tmp_path: Path,
    program: Program,
) -> None:
    """Each case ends as it does on pristine; the mirror was really on."""
    model = fetch_smollm2(store, progress=Quiet()).path
    env = {**NODES, "GGML_NUMA_MIRROR_STATUS": "status.json", "GGML_NUMA_MIRROR_CHECK": "1"}
    if program.arena:
        env |= {"LD_PRELOAD": str(preload), "ARENA_PRELOAD_USE": program.arena}
    else:
        env["GGML_NUMA_MIRROR"] = "all"
    expected = run(pristine, program, tmp_path / "pristine", model, models)
    seen = run(patched, program, tmp_path / "patched", model, models, **env)
    print(f"{program.name}: status {seen[0]}, {sum(seen[1].values())} cases")
    assert seen[1] - expected[1] == Counter(), "cases that end otherwise than on pristine"
    assert expected[1] - seen[1] == Counter(), "cases of pristine that are not there"
    assert seen[0] == expected[0]
    assert sum(seen[1].values()) >= program.cases
    status = read_status(tmp_path / "patched", program)
    assert status["active"] and status["replicas"] == 2
    assert status["checks"] > 0 or not program.compared


def test_every_architecture_answers_as_on_pristine(
    pristine: Build, patched: Build, models: Path, tmp_path: Path
) -> None:
    """All logits of a prompt and some tokens are pristine's, for a model of each architecture.

    A model that pristine cannot evaluate this way, such as an encoder, the mirrored program cannot either.
    """
    mirror = {"GGML_NUMA_MIRROR": "all", "GGML_NUMA_MIRROR_CHECK": "1", "GGML_NUMA_MIRROR_NODES": "3"}
    drivers = {
        name: compile_driver(build, "llama_driver.cpp", tmp_path / name)
        for name, build in (("pristine", pristine), ("patched", patched))
    }
    results = {}
    for model in sorted(models.glob("*.gguf")):
        expected = run_driver(drivers["pristine"], "alone", model, 2)
        seen = run_driver(drivers["patched"], "alone", model, 2, env=mirror)
        results[model.stem] = (expected, seen)
    different = [
        f"{name}: {seen.returncode} {seen.stderr[-300:]}"
        for name, (expected, seen) in results.items()
        if (expected.returncode, expected.stdout) != (seen.returncode, seen.stdout)
    ]
    assert different == []
    evaluated = [name for name, (expected, _) in results.items() if expected.returncode == 0]
    print(f"{len(evaluated)} of {len(results)} architectures were evaluated")
    assert len(evaluated) >= 100
