"""Evaluate prompts with one llama.cpp library and write down what came out. Runs in a process of its own.

    python runner.py REQUEST.json

It needs nothing but numpy and the binding ``llama_cpp``; LLAMA_CPP_LIB_PATH says which library it loads.
The request's ``mode`` says what to do: ``logits`` evaluates cases through the low-level interface, ``text``
generates through the class ``Llama``, ``layout`` lists the structures as the binding declares them.
Facts go to ``facts.json`` in the request's folder. Logits are compared with those in its ``reference``
folder, or, when there is none, written to one ``.npy`` file per case.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as api
import numpy as np

MIRROR = 4  # GGML_NUMA_STRATEGY_MIRROR
TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # enum ggml_type


def main(request_file: str) -> None:
    """Do what the request says, and write the facts last."""
    request = json.loads(Path(request_file).read_text())
    folder = Path(request["folder"])
    facts = {"layout": layout, "logits": logits, "text": text}[request["mode"]](request, folder)
    facts["version"] = importlib.metadata.version(request["package"])
    facts["libraries"] = loaded_libraries()
    (folder / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True))


def layout(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The structures of the binding: size, and each field's offset and size in bytes."""
    structures = {}
    for name, value in vars(api).items():
        is_structure = isinstance(value, type) and issubclass(value, ctypes.Structure)
        if is_structure and name.startswith("llama_") and value.__dict__.get("_fields_"):
            fields = {field[0]: getattr(value, field[0]) for field in value._fields_}
            structures[name] = {
                "size": ctypes.sizeof(value),
                "fields": {field: [at.offset, at.size] for field, at in fields.items()},
            }
    return {"structures": structures}


def logits(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Evaluate every case with fresh contexts of one model."""
    api.llama_log_set(ON_LOG, None)
    api.llama_backend_init()
    if request["strategy"]:
        api.llama_numa_init(request["strategy"])
    world = World(request, folder)
    loaded = world.load(request["model"])
    facts: dict[str, Any] = {"loaded": loaded, "status": mirror_status(), "cases": {}}
    if not loaded:
        return facts
    for case in request["cases"]:
        try:
            values = np.stack(ACTIONS[case["action"]](world, case))
            answer = {**described(values), **world.caches()}
            name = f"{case['id']}.npy"
            if request["reference"]:
                answer["difference"] = compared(values, np.load(Path(request["reference"]) / name))
            else:
                np.save(folder / name, values)
            facts["cases"][case["id"]] = answer
        except NotPossible as reason:
            facts["cases"][case["id"]] = {"not_possible": str(reason)}
        world.free(but=request["model"])
    facts["status"] = mirror_status()
    facts["system"] = api.llama_print_system_info().decode()
    world.free()
    return facts


class NotPossible(Exception):
    """This version, or this model, cannot do what a case asks; says why."""


class World:
    """What is alive in this process: models, and contexts."""

    def __init__(self, request: dict[str, Any], folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.models: dict[str, Any] = {}
        self.sessions: list[Session] = []
        self.adapted = 0  # bytes that an adapter took

    def load(self, path: str) -> bool:
        """Load a model; whether that went well."""
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        model = api.llama_model_load_from_file(path.encode(), params)
        if model:
            self.models[path] = model
        return bool(model)

    def model(self, which: str = "model") -> Any:
        """The model to verify, or the ``other`` one; loaded when it is not."""
        path = self.request[which]
        if not path:
            raise NotPossible(f"no {which} was given")
        if path not in self.models and not self.load(path):
            raise SystemExit(f"{path} was not loaded")
        return self.models[path]

    def session(self, case: dict[str, Any], which: str = "model", **settings: Any) -> Session:
        """A context of a model, at its beginning."""
        session = Session(self.model(which), case, settings)
        self.sessions.append(session)
        return session

    def caches(self) -> dict[str, Any]:
        """Caches, as upstream counts those of the contexts alive, and as the mirror counts what it holds."""
        said = [size for session in self.sessions for size in session.caches]
        held = (mirror_status() or {}).get("kv")
        return {"caches": {"buffers": len(said), "mib": sum(said)}, "kv": held, "adapted": self.adapted}

    def free(self, *, but: str | None = None) -> None:
        """Free all contexts, and all models but one; forget what adapters took."""
        for session in self.sessions:
            session.free()
        self.sessions, self.adapted = [], 0
        for path in [path for path in self.models if path != but]:
            api.llama_model_free(self.models.pop(path))


class Session:
    """A context, and how far its sequence is."""

    def __init__(self, model: Any, case: dict[str, Any], settings: dict[str, Any]) -> None:
        self.model, self.case, self.settings = model, case, settings
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        self.rows: list[np.ndarray[Any, Any]] = []
        self.sequence = self.position = 0
        self.context: Any = None
        self.make()

    def make(self) -> None:
        """Make the context; sizes of its caches are what the library says about them."""
        before = len(LOG)
        self.context = api.llama_init_from_model(self.model, context_params(self.case, self.settings))
        new = "".join(LOG[before:])
        if not self.context:
            raise NotPossible(f"there is no such context: {new.strip().splitlines()[-1:]}")
        self.caches = [float(size) for size in _CACHE.findall(new)]

    def free(self) -> None:
        """Free the context."""
        if self.context:
            api.llama_free(self.context)
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

    def decode(self, entries: list[tuple[int, int, int]], first: int = 0) -> list[np.ndarray[Any, Any]]:
        """Evaluate (token, position, sequence) at once; the logits of positions from ``first`` on."""
        batch = api.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for index, (token, position, sequence) in enumerate(entries):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = position >= first
        status = api.llama_decode(self.context, batch)
        api.llama_batch_free(batch)
        if status:
            raise SystemExit(f"case {self.case['id']}: llama_decode gave {status}")
        wanted = [index for index, (_, position, _) in enumerate(entries) if position >= first]
        pointers = [api.llama_get_logits_ith(self.context, index) for index in wanted]
        return [np.ctypeslib.as_array(pointer, shape=(self.vocabulary,)).copy() for pointer in pointers]

    def cache(self, what: str, *arguments: int) -> Any:
        """Call a function on the context's memory, whichever way this version spells it."""
        for prefix in ("llama_memory_", "llama_kv_self_", "llama_kv_cache_"):
            if function := getattr(api, prefix + what, None):
                place = api.llama_get_memory(self.context) if prefix == "llama_memory_" else self.context
                return function(place, *arguments)
        raise NotPossible(f"this version has no {what}")

    def forget(self, begin: int, end: int) -> None:
        """Remove positions of the sequence."""
        if self.cache("seq_rm", self.sequence, begin, end) is False:
            raise NotPossible("this cache cannot forget some positions only")


Rows = list["np.ndarray[Any, Any]"]
Action = Callable[[World, "dict[str, Any]"], Rows]


def plain(world: World, case: dict[str, Any]) -> Rows:
    """Evaluate the prompt, and generate."""
    session = world.session(case)
    session.prompt()
    session.generate(1)
    return session.rows


def changing(change: Callable[[World, Session], None], **settings: Any) -> Action:
    """Evaluate the prompt, generate one half, change something, generate the other."""

    def action(world: World, case: dict[str, Any]) -> Rows:
        session = world.session(case, **settings)
        session.prompt()
        session.generate()
        change(world, session)
        session.generate()
        return session.rows

    return action


def shift(world: World, session: Session) -> None:
    """Forget a quarter of what there is, and close the gap: K is turned to its new positions."""
    if not session.cache("can_shift"):
        raise NotPossible("this cache cannot be shifted")
    if session.case["kv"] == "bf16":
        raise NotPossible("upstream's operation that shifts, ROPE, ends the program when it meets bf16")
    begin, end = 1, 1 + session.position // 4
    session.forget(begin, end)
    session.cache("seq_add", session.sequence, end, -1, begin - end)
    session.position -= end - begin


def trim(world: World, session: Session) -> None:
    """Evaluate some tokens, and forget them again, as speculation does."""
    session.draft()
    session.forget(session.position, -1)


def copy(world: World, session: Session) -> None:
    """Go on in a copy of the sequence, drop the original."""
    session.cache("seq_cp", 0, 1, -1, -1)
    session.cache("seq_rm", 0, -1, -1)
    session.sequence = 1


def keep(world: World, session: Session) -> None:
    """Go on in a copy of the sequence, the only one that is kept."""
    session.cache("seq_cp", 0, 1, -1, -1)
    session.cache("seq_keep", 1)
    session.sequence = 1


def fork(world: World, session: Session) -> None:
    """Go on in two sequences at once, then in the second alone."""
    session.cache("seq_cp", 0, 1, -1, -1)
    for token in (7, 8, 9):
        session.rows += session.decode([(token + each, session.position, each) for each in (0, 1)])
        session.position += 1
    session.sequence = 1


def clear(world: World, session: Session) -> None:
    """Clear the cache, and begin again."""
    session.cache("clear", True) if hasattr(api, "llama_memory_clear") else session.cache("clear")
    session.prompt()


def renew(world: World, session: Session) -> None:
    """Free the context, and begin again in another."""
    session.renew()
    session.prompt()


def defragment(world: World, session: Session) -> None:
    """Make a gap, and close it by moving what comes after."""
    session.forget(1, 1 + session.position // 4)
    session.cache("defrag")
    session.cache("update")


def state(world: World, session: Session) -> None:
    """Go on in another context, with the state through memory."""
    data = (ctypes.c_uint8 * api.llama_state_get_size(session.context))()
    size = api.llama_state_get_data(session.context, data, len(data))
    session.renew()
    if api.llama_state_set_data(session.context, data, size) != size:
        raise SystemExit("the state could not be restored")


def state_file(world: World, session: Session) -> None:
    """Go on in another context, with the state through a file."""
    path, none, count = world.folder / "state", (api.llama_token * 1)(), ctypes.c_size_t()
    file = str(path).encode()
    saved = api.llama_state_save_file(session.context, file, none, 0)
    session.renew()
    if not saved or not api.llama_state_load_file(session.context, file, none, 1, ctypes.byref(count)):
        raise SystemExit("the state could not be saved and loaded")
    path.unlink()


def sequence(world: World, session: Session) -> None:
    """Go on in another sequence of another context, with the sequence's state through memory."""
    data = (ctypes.c_uint8 * api.llama_state_seq_get_size(session.context, 0))()
    size = api.llama_state_seq_get_data(session.context, data, len(data), 0)
    session.renew()
    session.sequence = 1
    if not size or api.llama_state_seq_set_data(session.context, data, size, 1) != size:
        raise SystemExit("the sequence could not be restored")


def sequence_file(world: World, session: Session) -> None:
    """Go on in another sequence of another context, with the sequence's state through a file."""
    path, none, count = world.folder / "sequence", (api.llama_token * 1)(), ctypes.c_size_t()
    file = str(path).encode()
    saved = api.llama_state_seq_save_file(session.context, file, 0, none, 0)
    session.renew()
    session.sequence = 1
    if not saved or not api.llama_state_seq_load_file(session.context, file, 1, none, 1, ctypes.byref(count)):
        raise SystemExit("the sequence could not be saved and loaded")
    path.unlink()


def checkpoint(flag: str) -> Callable[[World, Session], None]:
    """Evaluate some tokens, and go back to a copy of the sequence's state made before."""

    def change(world: World, session: Session) -> None:
        flags = getattr(api, flag, None)
        if flags is None:
            raise NotPossible(f"this version has no {flag}")
        data = (ctypes.c_uint8 * api.llama_state_seq_get_size_ext(session.context, 0, flags))()
        size = api.llama_state_seq_get_data_ext(session.context, data, len(data), 0, flags)
        session.draft()
        if api.llama_state_seq_set_data_ext(session.context, data, size, 0, flags) != size:
            raise SystemExit("the copy could not be restored")
        session.forget(session.position, -1)

    return change


def lora(world: World, session: Session) -> None:
    """Load a LoRA adapter, and go on with it."""
    path = world.request["adapter"]
    if not path:
        raise NotPossible("there is no adapter for this model")
    before = weight_bytes()
    adapter = api.llama_adapter_lora_init(session.model, path.encode())
    if not adapter:
        raise SystemExit("the adapter was not loaded")
    world.adapted = weight_bytes() - before
    if function := getattr(api, "llama_set_adapters_lora", None):
        adapters = (api.llama_adapter_lora_p_ctypes * 1)(adapter)
        failed = function(session.context, adapters, 1, (ctypes.c_float * 1)(1.0))
    else:
        failed = api.llama_set_adapter_lora(session.context, adapter, 1.0)
    if failed:
        raise SystemExit("the adapter was not applied")


def control_vector(world: World, session: Session) -> None:
    """Load a control vector, and go on with it."""
    embedding, layers = (getattr(api, f"llama_model_n_{what}")(session.model) for what in ("embd", "layer"))
    values = [((7 * index) % 13 - 6) / 20 for index in range(embedding * (layers - 1))]
    before = weight_bytes()
    data = (ctypes.c_float * len(values))(*values)
    name = "llama_set_adapter_cvec"
    function = getattr(api, name, None) or api.llama_apply_adapter_cvec
    if function(session.context, data, len(values), embedding, 1, layers - 1):
        raise SystemExit("the control vector was not applied")
    world.adapted = weight_bytes() - before


def reload(world: World, session: Session) -> None:
    """Free the model, use another, free that, load the first again, and begin again."""
    for which in ("other", "model"):
        world.free()
        again = world.session(session.case, which)
        again.prompt()
        session.rows += again.rows if again.vocabulary == session.vocabulary else []
    session.model, session.context = again.model, again.context
    session.position = again.position


def at_once(which: str) -> Action:
    """Two contexts, of one model or of two, evaluate and generate at the same time."""

    def action(world: World, case: dict[str, Any]) -> Rows:
        first, second = world.session(case), world.session(case, which)
        start = threading.Barrier(2)

        def run(session: Session, step: int) -> Rows:
            start.wait()
            session.prompt(step)
            session.generate(1)
            return session.rows

        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(run, first, 7919), pool.submit(run, second, 104729)]
        mine, theirs = (run.result() for run in runs)
        return mine + (theirs if second.vocabulary == first.vocabulary else [])

    return action


# Settings are those of contexts, where this version has them.
ACTIONS: dict[str | None, Action] = {
    None: plain,
    "shift": changing(shift, swa_full=True),
    "trim": changing(trim, n_rs_seq=4),
    "copy": changing(copy, n_seq_max=2),
    "keep": changing(keep, n_seq_max=2, kv_unified=True),
    "fork": changing(fork, n_seq_max=2),
    "clear": changing(clear),
    "renew": changing(renew),
    "defragment": changing(defragment),
    "state": changing(state),
    "state-file": changing(state_file),
    "sequence": changing(sequence, n_seq_max=2),
    "sequence-file": changing(sequence_file, n_seq_max=2),
    "checkpoint": changing(checkpoint("LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY")),
    "checkpoint-device": changing(checkpoint("LLAMA_STATE_SEQ_FLAGS_ON_DEVICE")),
    "lora": changing(lora),
    "control-vector": changing(control_vector),
    "reload": changing(reload),
    "two-contexts": at_once("model"),
    "two-models": at_once("other"),
}


def context_params(case: dict[str, Any], settings: dict[str, Any]) -> Any:
    """A context's parameters, whichever way this version spells them."""
    params = api.llama_context_default_params()
    params.n_seq_max = settings.get("n_seq_max", 1)
    params.n_ctx = params.n_seq_max * 256
    params.n_batch = max(case["batch"], params.n_seq_max)
    params.n_ubatch = case["batch"]
    params.n_threads = params.n_threads_batch = case["threads"]
    params.type_k = params.type_v = TYPES[case["kv"]]
    if case["flash"] is not None:
        field = "flash_attn_type" if hasattr(params, "flash_attn_type") else "flash_attn"
        setattr(params, field, int(case["flash"]))
    if case["flash"] is False and case["kv"].startswith("q"):
        params.type_v = TYPES["f16"]  # it is transposed then, and cannot be quantised
    for name, value in {"swa_full": False, **settings}.items():
        if name == "n_rs_seq" and case["batch"] <= value + 1:
            continue  # upstream ends the program where a batch is no larger than what a state can go back
        if hasattr(params, name):
            setattr(params, name, value)
    return params


# What the library logs, as it comes.
LOG: list[str] = []

_CACHE = re.compile(r"(?:KV|RS|state) buffer size =\s*([\d.]+) MiB")


def keep_log(level: int, text: bytes, user_data: Any) -> None:
    """Hear what the library says."""
    LOG.append(text.decode(errors="replace"))
    sys.stderr.write(LOG[-1])


ON_LOG = api.llama_log_callback(keep_log)


def weight_bytes() -> int:
    """Bytes in the mirror that are no caches."""
    status = mirror_status() or {}
    return int(status.get("bytes_per_replica", 0)) - int(status.get("kv", {}).get("bytes", 0))


def described(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The logits' digest, shape and sanity."""
    return {
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        "shape": list(values.shape),
        "finite": bool(np.isfinite(values).all()),
        "spread": float(values.std()) if np.isfinite(values).all() else None,
    }


def compared(values: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> dict[str, Any] | None:
    """Where and how much logits differ from the reference, bit for bit; None for nowhere."""
    if values.shape != reference.shape:
        return {"shapes": [list(values.shape), list(reference.shape)]}
    where = np.argwhere(values.view(np.uint32) != reference.view(np.uint32))
    if not len(where):
        return None
    distance = np.abs(values.astype(np.float64) - reference)
    return {
        "values": len(where),
        "first": [int(index) for index in where[0]],
        "greatest": float(np.nanmax(distance)) if not np.isnan(distance).all() else None,
    }


def text(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Generate through the class that users use."""
    try:
        llama = llama_cpp.Llama(
            request["model"],
            numa=request["strategy"],
            n_ctx=256,
            n_threads=2,
            n_threads_batch=2,
            verbose=True,
        )
    except ValueError:
        return {"loaded": False, "status": mirror_status()}
    answer = llama.create_completion(request["prompt"], max_tokens=request["generate"], temperature=0.0)
    return {"loaded": True, "status": mirror_status(), "text": answer["choices"][0]["text"]}


def mirror_status() -> Any:
    """The runtime's own record of what it did, or None for a library without one."""
    function = getattr(api._lib, "ggml_numa_mirror_status", None)
    if function is None:
        return None
    function.restype = ctypes.c_char_p
    return json.loads(function().decode())


def loaded_libraries() -> dict[str, str]:
    """The files that llama and ggml were really loaded from, by name."""
    maps = Path("/proc/self/maps").read_text()
    paths = {match for match in re.findall(r"\S+/lib(?:llama|ggml)[^/\s]*$", maps, re.MULTILINE)}
    return {Path(path).name: os.path.realpath(path) for path in sorted(paths)}


if __name__ == "__main__":
    main(sys.argv[1])
