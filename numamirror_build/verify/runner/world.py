"""What is alive in the process: models, contexts, and how far their sequences are."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bindings import Binding, NotPossible

Rows = list["np.ndarray[Any, Any]"]
Loaded = tuple[str, tuple[tuple[str, Any], ...]]  # a model's file, and the settings that it is loaded with

# enum ggml_type
TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30, "q6_0": 133}

_CACHE = re.compile(r"(?:KV|RS|state) buffer size =\s*([\d.]+) MiB")


class World:
    """What is alive in this process: models, and contexts."""

    def __init__(self, binding: Binding, request: dict[str, Any], folder: Path) -> None:
        self.binding = binding
        self.request = request
        self.folder = folder
        self.models: dict[Loaded, Any] = {}
        self.sessions: list[Session] = []
        self.adapted = 0  # bytes that an adapter took
        self.home_in_loading = 0  # graphs on the first replica alone, while models were loaded
        self.log: list[str] = []
        binding.log_to(self.hear)

    def hear(self, text: str) -> None:
        """Hear what the library says, as it comes."""
        self.log.append(text)
        sys.stderr.write(text)

    def load(self, path: str, settings: Mapping[str, Any]) -> bool:
        """Load a model; whether that went well."""
        params = self.binding.llama_model_default_params()
        params.n_gpu_layers = 0
        set_all(params, settings)
        before = self.home_graphs()
        model = self.binding.llama_model_load_from_file(path.encode(), params)
        self.home_in_loading += self.home_graphs() - before
        if model:
            self.models[loaded(path, settings)] = model
        return bool(model)

    def model(self, which: str, settings: Mapping[str, Any]) -> Any:
        """The model to verify, or the ``other`` one; loaded when it is not."""
        path = self.request[which]
        if not path:
            raise NotPossible(f"no {which} was given")
        if loaded(path, settings) not in self.models and not self.load(path, settings):
            raise SystemExit(f"{path} was not loaded")
        return self.models[loaded(path, settings)]

    def session(self, case: dict[str, Any], which: str = "model", **settings: Any) -> Session:
        """A context of a model, at its beginning."""
        session = Session(self, self.model(which, case["model"]), case, settings)
        self.sessions.append(session)
        return session

    def holdings(self) -> dict[str, Any]:
        """What upstream says of the caches of the contexts alive, and what the mirror says that it holds."""
        said = [size for session in self.sessions for size in session.caches]
        status = self.binding.status() or {}
        tensors = status.get("tensors") or {}
        return {
            "caches": {"buffers": len(said), "mib": sum(said)},
            "kv": status.get("kv"),
            "adapted": self.adapted,
            "weights": {
                **{name: tensors.get(f"{name}_bytes") for name in ("eligible", "replicated")},
                "left": [entry.get("name") for entry in tensors.get("not_replicated", [])][:5],
            }
            if status.get("active")
            else None,
        }

    def home_graphs(self) -> int:
        """How many graphs were computed on the first replica alone."""
        status = self.binding.status() or {}
        return int((status.get("graphs") or {}).get("home", 0))

    def weight_bytes(self) -> int:
        """Bytes in the mirror that are no caches."""
        status = self.binding.status() or {}
        return int(status.get("bytes_per_replica", 0)) - int(status.get("kv", {}).get("bytes", 0))

    def free(self, *, but: Loaded | None = None) -> None:
        """Free all contexts, and all models but one; forget what adapters took."""
        for session in self.sessions:
            session.free()
        self.sessions, self.adapted = [], 0
        for each in [each for each in self.models if each != but]:
            self.binding.free_model(self.models.pop(each))


class Session:
    """A context, and how far its sequence is."""

    def __init__(self, world: World, model: Any, case: dict[str, Any], settings: dict[str, Any]) -> None:
        self.world, self.binding = world, world.binding
        self.model, self.case, self.settings = model, case, settings
        self.vocabulary = self.binding.llama_vocab_n_tokens(self.binding.llama_model_get_vocab(model))
        self.rows: Rows = []
        self.sequence = self.position = 0
        self.context: Any = None
        self.make()

    def make(self) -> None:
        """Make the context; sizes of its caches are what the library says about them."""
        log = self.world.log
        before = len(log)
        params = context_params(self.binding, self.case, self.settings)
        self.context = self.binding.llama_init_from_model(self.model, params)
        new = "".join(log[before:])
        if not self.context:
            raise NotPossible(f"there is no such context: {new.strip().splitlines()[-1:]}")
        self.caches = [float(size) for size in _CACHE.findall(new)]

    def free(self) -> None:
        """Free the context."""
        if self.context:
            self.binding.llama_free(self.context)
        self.context = None

    def renew(self) -> None:
        """Free the context, and make another that knows nothing."""
        self.free()
        self.make()

    def prompt(self, step: int = 7919) -> None:
        """Evaluate the prompt in batches; what stands in it depends on ``step``."""
        case = self.case
        tokens = [3 + (step * place + 13) % (self.vocabulary - 3) for place in range(case["prompt"])]
        first = max(0, len(tokens) - case["rows"])
        self.position = 0
        for start in range(0, len(tokens), case["batch"]):
            part = tokens[start : start + case["batch"]]
            entries = [(token, start + index, self.sequence) for index, token in enumerate(part)]
            self.rows += self.decode(entries, first)
        self.position = len(tokens)

    def generate(self, share: float = 0.5) -> None:
        """Generate that share of the case's tokens, greedily."""
        for _ in range(int(self.case["generate"] * share)):
            self.rows += self.decode([(int(np.argmax(self.rows[-1])), self.position, self.sequence)])
            self.position += 1

    def draft(self, count: int = 3) -> None:
        """Evaluate tokens that are not kept: positions do not advance."""
        for index in range(count):
            self.rows += self.decode([(5 + index, self.position + index, self.sequence)])

    def decode(self, entries: list[tuple[int, int, int]], first: int = 0) -> Rows:
        """Evaluate (token, position, sequence) at once; the logits of positions from ``first`` on."""
        batch = self.binding.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for index, (token, position, sequence) in enumerate(entries):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = position >= first
        status = self.binding.llama_decode(self.context, batch)
        self.binding.llama_batch_free(batch)
        if status:
            raise SystemExit(f"case {self.case['id']}: llama_decode gave {status}")
        wanted = [index for index, (_, position, _) in enumerate(entries) if position >= first]
        pointers = [self.binding.llama_get_logits_ith(self.context, index) for index in wanted]
        return [np.ctypeslib.as_array(pointer, shape=(self.vocabulary,)).copy() for pointer in pointers]

    def cache(self, what: str, *arguments: int) -> Any:
        """Call a function on the context's caches."""
        return self.binding.cache(self.context, what, *arguments)

    def forget(self, begin: int, end: int) -> None:
        """Remove positions of the sequence."""
        if self.cache("seq_rm", self.sequence, begin, end) is False:
            raise NotPossible("this cache cannot forget some positions only")


def loaded(path: str, settings: Mapping[str, Any]) -> Loaded:
    """What tells one loaded model from another."""
    return path, tuple(sorted(settings.items()))


def context_params(binding: Binding, case: dict[str, Any], settings: dict[str, Any]) -> Any:
    """A context's parameters, where this version has them."""
    params = binding.llama_context_default_params()
    params.n_seq_max = settings.get("n_seq_max", 1)
    params.n_ctx = params.n_seq_max * 256
    params.n_batch = max(case["batch"], params.n_seq_max)
    params.n_ubatch = case["batch"]
    params.n_threads = params.n_threads_batch = case["threads"]
    params.type_k = params.type_v = TYPES[case["kv"]]
    if case["flash"] is not None:
        binding.set_flash(params, case["flash"])
    if case["flash"] is False and "16" not in case["kv"]:
        params.type_v = TYPES["f16"]  # it is transposed then, and cannot be quantised
    for name, value in {"swa_full": False, **settings}.items():
        if name == "n_rs_seq" and case["batch"] <= value + 1:
            continue  # upstream ends the program where a batch is no larger than what a state can go back
        if hasattr(params, name):
            setattr(params, name, value)
    set_all(params, case["context"])
    return params


def set_all(params: Any, settings: Mapping[str, Any]) -> None:
    """Set parameters; one that there is not is a mistake."""
    for name, value in settings.items():
        if not hasattr(params, name):
            raise SystemExit(f"{type(params).__name__} has no {name}")
        setattr(params, name, value)
