"""What the mirror costs when nobody asks for it: instructions per generated token, patched against pristine.

Counted, not timed, so a busy machine gives the same figure. Loading and start-up cancel out: each library
generates a few and many tokens, and the difference is divided by the number of tokens between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build import proc
from numamirror_build.errors import BuildError, VerificationError
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify.models import Model

if TYPE_CHECKING:
    from numamirror_build.building.build import Build

LIMIT = 0.005  # of pristine's instructions
FEW, MANY = 16, 80  # tokens

# Valgrind does not know the newest instructions; this builds for what every x86-64 of the last ten years has.
PORTABLE = ("-DGGML_NATIVE=OFF",)

DRIVER = Path(__file__).with_name("driver.c")

_COLLECTED = re.compile(r"^==\d+== Collected : (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Instructions:
    """Instructions per generated token, one thread, no mirror asked.

    Attributes:
        pristine: of the untouched build.
        patched: of the patched build.
    """

    pristine: float
    patched: float

    @property
    def excess(self) -> float:
        """How much more patched needs, as a share of pristine; negative: less."""
        return self.patched / self.pristine - 1

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        return {"pristine": self.pristine, "patched": self.patched, "excess": self.excess, "limit": LIMIT}


def count_instructions(
    store: Store, pristine: Build, patched: Build, model: Model, *, progress: Progress
) -> Instructions:
    """Count the instructions per generated token of two builds.

    Args:
        store: the cache.
        pristine: a build of the untouched tree with the CMake arguments :data:`PORTABLE`.
        patched: a build of the patched tree with the same arguments.
        model: what to generate with.
        progress: what is told how far it got.

    Raises:
        ToolMissingError: valgrind or a C compiler is not installed.
        BuildError: the program that generates does not compile.
        VerificationError: the program died under valgrind.
    """
    return Instructions(
        _per_token(store, pristine, model, progress), _per_token(store, patched, model, progress)
    )


def _per_token(store: Store, build: Build, model: Model, progress: Progress) -> float:
    hint = "install it (Debian, Ubuntu: apt install {})"
    valgrind = proc.find_tool("valgrind", hint=hint.format("valgrind"))
    compiler = proc.find_tool("cc", hint=hint.format("gcc"))
    inputs = {
        "driver": file_sha256(DRIVER),
        "build": build.key,
        "model": model.identity,
        "tokens": [FEW, MANY],
        "valgrind": proc.run([valgrind, "--version"]).output.strip(),
    }

    def make(folder: Path) -> dict[str, Any]:
        program = folder / "driver"
        _compile(compiler, build, program)
        few, many = (_count(valgrind, program, model, tokens, folder, progress) for tokens in (FEW, MANY))
        return {"few": few, "many": many}

    made = store.make("verifications", f"instructions-{digest(inputs)[:20]}", make).made
    return float(made["many"] - made["few"]) / (MANY - FEW)


def _compile(compiler: Path, build: Build, program: Path) -> None:
    tree, libraries = build.tree.path, build.libraries
    paths = [f"-I{tree / 'include'}", f"-I{tree / 'ggml' / 'include'}", f"-L{libraries}"]
    link = ["-lllama", f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"]
    done = proc.run([compiler, "-O2", *paths, DRIVER, "-o", program, *link])
    if done.returncode:
        raise BuildError(
            "The program that generates tokens for the count does not compile",
            where=str(DRIVER),
            why=next((line for line in done.output.splitlines() if "error" in line), done.output[-500:]),
        )


def _count(valgrind: Path, program: Path, model: Model, tokens: int, folder: Path, progress: Progress) -> int:
    progress.update(f"{tokens} tokens under valgrind")
    log = folder / "valgrind.log"
    command: list[str | Path] = [
        valgrind,
        "--tool=callgrind",
        f"--callgrind-out-file={folder}/callgrind.{tokens}",
    ]
    env = {
        name: value
        for name, value in proc.environment().items()
        if not name.startswith(("GGML_", "LLAMA_", "OMP_", "GOMP_"))
    }
    command += [program, model.path, str(tokens)]
    done = proc.run(command, env=env, log=log)
    collected = _COLLECTED.search(done.output)
    if done.returncode or not collected:
        illegal = "Illegal opcode" in done.output or "unhandled instruction" in done.output
        raise VerificationError(
            "The program that generates tokens died under valgrind",
            where=str(log),
            why="valgrind does not know an instruction of this build" if illegal else done.output[-500:],
            hint=f"build with {' '.join(PORTABLE)}",
        )
    return int(collected[1])
