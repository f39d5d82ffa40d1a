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
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as api
import numpy as np

MIRROR = 4  # GGML_NUMA_STRATEGY_MIRROR
TYPES = {"f16": 1, "q8_0": 8}  # enum ggml_type


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
    """Evaluate every case with a fresh context of one model."""
    api.llama_backend_init()
    if request["strategy"]:
        api.llama_numa_init(request["strategy"])
    params = api.llama_model_default_params()
    params.n_gpu_layers = 0
    model = api.llama_model_load_from_file(request["model"].encode(), params)
    facts: dict[str, Any] = {"loaded": bool(model), "status": mirror_status(), "cases": {}}
    if model:
        for case in request["cases"]:
            values, caches = evaluate(model, case)
            name = f"{case['id']}.npy"
            facts["cases"][case["id"]] = {**described(values), "kv": caches}
            if request["reference"]:
                difference = compared(values, np.load(Path(request["reference"]) / name))
                facts["cases"][case["id"]]["difference"] = difference
            else:
                np.save(folder / name, values)
        facts["status"] = mirror_status()
        facts["system"] = api.llama_print_system_info().decode()
        api.llama_model_free(model)
    return facts


def evaluate(model: Any, case: dict[str, Any]) -> tuple[np.ndarray[Any, Any], Any]:
    """Logits of the last ``rows`` positions of a prompt, and of each token generated after it (greedy).

    Returns:
        the logits, and what the mirror's status record says about caches while the context is there.
    """
    vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    tokens = [3 + (7919 * position + 13) % (vocabulary - 3) for position in range(case["prompt"])]
    position, sequence, first = len(tokens), 0, max(0, len(tokens) - case["rows"])
    context = new_context(model, case)
    rows: list[np.ndarray[Any, Any]] = []
    for start in range(0, len(tokens), case["batch"]):
        rows += decode(context, tokens[start : start + case["batch"]], start, first, sequence, vocabulary)
    if case["action"] == "shift":  # forget some of the prompt, close the gap
        change_cache(context, "seq_rm", sequence, 4, 12)
        change_cache(context, "seq_add", sequence, 12, -1, -8)
        position -= 8
    elif case["action"] == "copy":  # go on in a copy, drop the original
        sequence = 1
        change_cache(context, "seq_cp", 0, sequence, -1, -1)
        change_cache(context, "seq_rm", 0, -1, -1)
    elif case["action"] == "state":  # go on in another context
        state = (ctypes.c_uint8 * api.llama_state_get_size(context))()
        size = api.llama_state_get_data(context, state, len(state))
        api.llama_free(context)
        context = new_context(model, case)
        if api.llama_state_set_data(context, state, size) != size:
            raise SystemExit("the state could not be restored")
    for place in range(position, position + case["generate"]):
        rows += decode(context, [int(np.argmax(rows[-1]))], place, place, sequence, vocabulary)
    caches = (mirror_status() or {}).get("kv")
    api.llama_free(context)
    return np.stack(rows), caches


def new_context(model: Any, case: dict[str, Any]) -> Any:
    """A context for a case."""
    context = api.llama_init_from_model(model, context_params(case))
    if not context:
        raise SystemExit(f"no context for case {case['id']}")
    return context


def change_cache(context: Any, what: str, *arguments: int) -> None:
    """Call a function on the context's memory, whichever way this version spells it."""
    for prefix in ("llama_memory_", "llama_kv_self_", "llama_kv_cache_"):
        if function := getattr(api, prefix + what, None):
            function(api.llama_get_memory(context) if prefix == "llama_memory_" else context, *arguments)
            return
    raise SystemExit(f"the binding has no {what}")


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


def decode(
    context: Any, tokens: list[int], start: int, first: int, sequence: int, vocabulary: int
) -> list[np.ndarray[Any, Any]]:
    """Evaluate tokens at positions from ``start`` on; the logits of positions from ``first`` on."""
    batch = api.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for index, token in enumerate(tokens):
        batch.token[index] = token
        batch.pos[index] = start + index
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = sequence
        batch.logits[index] = start + index >= first
    status = api.llama_decode(context, batch)
    api.llama_batch_free(batch)
    if status:
        raise SystemExit(f"llama_decode gave {status}")
    wanted = [index for index in range(len(tokens)) if start + index >= first]
    pointers = [api.llama_get_logits_ith(context, index) for index in wanted]
    return [np.ctypeslib.as_array(pointer, shape=(vocabulary,)).copy() for pointer in pointers]


def context_params(case: dict[str, Any]) -> Any:
    """A context's parameters, whichever way this version spells them."""
    params = api.llama_context_default_params()
    params.n_seq_max = 2 if case["action"] == "copy" else 1
    params.n_ctx = params.n_seq_max * 256
    params.n_batch = params.n_ubatch = case["batch"]
    params.n_threads = params.n_threads_batch = case["threads"]
    params.type_k = params.type_v = TYPES[case["kv"]]
    if case["flash"] is not None:
        field = "flash_attn_type" if hasattr(params, "flash_attn_type") else "flash_attn"
        setattr(params, field, int(case["flash"]))
    return params


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
