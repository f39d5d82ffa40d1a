"""Measure how long each token takes, through a binding's low-level interface. Runs in a process of its own.

    python token_times.py RUNNER REQUEST.json

RUNNER is the folder with verification's classes for bindings; it needs nothing but them and a binding.
Each slot's cache is filled to the depth first; then every step generates a token for each slot, all at once.
What is generated has no influence on the time: a token depends on its place alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

BATCH = 512


def main(runner: str, request_file: str) -> None:
    """Do what the request says, and write the facts last."""
    sys.path.insert(0, runner)
    from bindings import BINDINGS

    request = json.loads(Path(request_file).read_text())
    binding = BINDINGS[request["binding"]]()
    binding.llama_backend_init()
    if request["strategy"]:
        binding.llama_numa_init(request["strategy"])
    model = load(binding, request)
    context = binding.llama_init_from_model(model, context_params(binding, request))
    if not context:
        raise SystemExit("error: there is no context of that size")
    vocabulary = binding.llama_vocab_n_tokens(binding.llama_model_get_vocab(model))
    slots, depth = range(request["slots"]), request["depth"]
    for slot in slots:
        for start in range(0, depth, BATCH):
            places = range(start, min(depth, start + BATCH))
            decode(binding, context, [(place, slot) for place in places], vocabulary)
    # the first step makes what later ones use again
    first, *seconds = [
        decode(binding, context, [(depth + step, slot) for slot in slots], vocabulary)
        for step in range(request["tokens"] + 1)
    ]
    try:
        numa_maps = Path("/proc/self/numa_maps").read_text(errors="replace")
    except OSError:
        numa_maps = ""
    facts = {"first": first, "seconds": seconds, "numa_maps": numa_maps}
    Path(request["facts"]).write_text(json.dumps(facts))
    binding.llama_free(context)
    binding.free_model(model)


def load(binding: Any, request: dict[str, Any]) -> Any:
    """The model, mapped or read into memory."""
    params = binding.llama_model_default_params()
    params.n_gpu_layers = 0
    if hasattr(params, "load_mode"):
        params.load_mode = int(request["mapped"])  # none is 0, mmap is 1
    else:
        params.use_mmap = request["mapped"]
    model = binding.llama_model_load_from_file(request["model"].encode(), params)
    if not model:
        raise SystemExit("error: the model was not loaded")
    return model


def context_params(binding: Any, request: dict[str, Any]) -> Any:
    """Room for what is there before and what is generated, for each slot."""
    slots = request["slots"]
    params = binding.llama_context_default_params()
    params.n_ctx = slots * (-(-(request["depth"] + request["tokens"] + 1) // 256) * 256)
    params.n_seq_max = slots
    params.n_batch = max(BATCH, slots)
    params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = request["threads"]
    for name, value in request["context"].items():
        if not hasattr(params, name):
            raise SystemExit(f"error: contexts have no parameter {name}")
        setattr(params, name, value)
    return params


def decode(binding: Any, context: Any, entries: list[tuple[int, int]], vocabulary: int) -> float:
    """Evaluate a token for each (position, sequence); seconds until the last one's logits are there."""
    batch = binding.llama_batch_init(len(entries), 0, 1)
    batch.n_tokens = len(entries)
    for index, (position, sequence) in enumerate(entries):
        batch.token[index] = 3 + (7919 * position + 104729 * sequence + 13) % (vocabulary - 3)
        batch.pos[index] = position
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = sequence
        # each sequence's last token of a batch is sampled from
        batch.logits[index] = index + 1 == len(entries) or entries[index + 1][1] != sequence
    start = time.perf_counter()
    status = binding.llama_decode(context, batch)
    if not status:
        binding.llama_get_logits_ith(context, len(entries) - 1)
    seconds = time.perf_counter() - start
    binding.llama_batch_free(batch)
    if status:
        raise SystemExit(f"error: llama_decode gave {status}")
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
