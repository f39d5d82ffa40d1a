"""What happens in a case: the evaluation as it is, or with something done half-way through it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bindings import NotPossible
from world import Rows, Session, World

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
    begin, end = 1, 1 + session.position // 4
    session.forget(begin, end)
    world.binding.shift(session.context, session.sequence, end, begin - end)
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
    world.binding.clear(session.context)
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
    api = world.binding
    data = (ctypes.c_uint8 * api.llama_state_get_size(session.context))()
    size = api.llama_state_get_data(session.context, data, len(data))
    session.renew()
    if api.llama_state_set_data(session.context, data, size) != size:
        raise SystemExit("the state could not be restored")


def state_file(world: World, session: Session) -> None:
    """Go on in another context, with the state through a file."""
    api = world.binding
    path, none, count = world.folder / "state", (api.llama_token * 1)(), ctypes.c_size_t()
    file = str(path).encode()
    saved = api.llama_state_save_file(session.context, file, none, 0)
    session.renew()
    if not saved or not api.llama_state_load_file(session.context, file, none, 1, ctypes.byref(count)):
        raise SystemExit("the state could not be saved and loaded")
    path.unlink()


def sequence(world: World, session: Session) -> None:
    """Go on in another sequence of another context, with the sequence's state through memory."""
    binding = world.binding
    data = (ctypes.c_uint8 * binding.sequence_size(session.context, 0))()
    size = binding.save_sequence(session.context, data, 0)
    session.renew()
    session.sequence = 1
    if not size or binding.restore_sequence(session.context, data, size, 1) != size:
        raise SystemExit("the sequence could not be restored")


def sequence_file(world: World, session: Session) -> None:
    """Go on in another sequence of another context, with the sequence's state through a file."""
    api = world.binding
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
        binding = world.binding
        if flag not in binding.flags:
            raise NotPossible(f"this version has no {flag}")
        flags = binding.flags[flag]
        data = (ctypes.c_uint8 * binding.sequence_size(session.context, 0, flags))()
        size = binding.save_sequence(session.context, data, 0, flags)
        session.draft()
        if binding.restore_sequence(session.context, data, size, 0, flags) != size:
            raise SystemExit("the copy could not be restored")
        session.forget(session.position, -1)

    return change


def lora(world: World, session: Session) -> None:
    """Load a LoRA adapter, and go on with it."""
    path = world.request["adapter"]
    if not path:
        raise NotPossible("there is no adapter for this model")
    before = world.weight_bytes()
    world.binding.adapt(session.model, session.context, Path(path))
    world.adapted = world.weight_bytes() - before


def control_vector(world: World, session: Session) -> None:
    """Load a control vector, and go on with it."""
    binding = world.binding
    embedding, layers = binding.llama_model_n_embd(session.model), binding.layers(session.model)
    values = [((7 * index) % 13 - 6) / 20 for index in range(embedding * (layers - 1))]
    before = world.weight_bytes()
    binding.steer(session.context, values, embedding, layers)
    world.adapted = world.weight_bytes() - before


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
