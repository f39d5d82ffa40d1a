"""Evaluate prompts with one library and write down what came out. Runs in a process of its own.

    python FOLDER REQUEST.json

It needs nothing but numpy and a binding; the environment says which library that loads.
The request's ``mode`` says what to do: ``logits`` evaluates cases through the low-level interface, ``text``
generates through the class that people use, ``layout`` lists the structures as the binding declares them.
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

import numpy as np

from actions import ACTIONS
from bindings import BINDINGS, Binding, NotPossible
from world import World, loaded


def main(request_file: str) -> None:
    """Do what the request says, and write the facts last."""
    request = json.loads(Path(request_file).read_text())
    folder = Path(request["folder"])
    binding = BINDINGS[request["binding"]]()
    facts = {"layout": layout, "logits": logits, "text": text}[request["mode"]](binding, request, folder)
    facts["version"] = importlib.metadata.version(request["package"])
    facts["libraries"] = loaded_libraries()
    (folder / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True))


def layout(binding: Binding, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The structures of the binding: size, and each field's offset and size in bytes."""
    structures = {}
    for name, value in binding.structures().items():
        if value.__dict__.get("_fields_"):
            fields = {field[0]: getattr(value, field[0]) for field in value._fields_}
            structures[name] = {
                "size": ctypes.sizeof(value),
                "fields": {field: [at.offset, at.size] for field, at in fields.items()},
            }
    return {"structures": structures}


def logits(binding: Binding, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Evaluate every case with fresh contexts of one model."""
    world = World(binding, request, folder)
    binding.llama_backend_init()
    if request["strategy"]:
        binding.llama_numa_init(request["strategy"])
    is_loaded = world.load(request["model"], {})
    facts: dict[str, Any] = {"loaded": is_loaded, "status": binding.status(), "cases": {}}
    if not is_loaded:
        return facts
    for case in request["cases"]:
        world.free(but=loaded(request["model"], case["model"]))
        try:
            values = np.stack(ACTIONS[case["action"]](world, case))
            answer = {**described(values), **world.holdings()}
            name = f"{case['id']}.npy"
            if request["reference"]:
                answer["difference"] = compared(values, np.load(Path(request["reference"]) / name))
            else:
                np.save(folder / name, values)
            facts["cases"][case["id"]] = answer
        except NotPossible as reason:
            facts["cases"][case["id"]] = {"not_possible": str(reason)}
        world.free(but=loaded(request["model"], case["model"]))
    facts["status"] = binding.status()
    facts["home_in_loading"] = world.home_in_loading
    facts["system"] = binding.llama_print_system_info().decode()
    world.free()
    return facts


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


def text(binding: Binding, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Generate through the class that users use."""
    made = binding.text(request["model"], request["strategy"], request["prompt"], request["generate"])
    status = binding.status()  # while what was made is alive
    return {"loaded": bool(made), "status": status, **({"text": made[1]} if made else {})}


def loaded_libraries() -> dict[str, str]:
    """The files that llama and ggml were really loaded from, by name."""
    maps = Path("/proc/self/maps").read_text()
    paths = {match for match in re.findall(r"\S+/lib(?:llama|ggml)[^/\s]*$", maps, re.MULTILINE)}
    return {Path(path).name: os.path.realpath(path) for path in sorted(paths)}


if __name__ == "__main__":
    main(sys.argv[1])
