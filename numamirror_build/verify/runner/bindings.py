"""The bindings that are driven: each generation of the C interface is a class, with the same methods.

What is spelled the same everywhere is an attribute: ``binding.llama_decode``.
What a binding does not declare and its library has is declared here.
"""

from __future__ import annotations

import ctypes
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_void_p
from pathlib import Path
from typing import Any

Function = tuple[Any, tuple[Any, ...]]  # type of the result, types of the arguments

LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class NotPossible(Exception):
    """This version, or this model, cannot do what a case asks; says why."""


class Binding(ABC):
    """A Python package that binds the library, and the way in which it spells what differs."""

    module: str  # with the declarations
    declared: Mapping[str, Function] = {}  # beside those of the module
    flags: Mapping[str, int] = {}  # of copies of a sequence's state

    def __init__(self) -> None:
        self.api = importlib.import_module(self.module)

    def __getattr__(self, name: str) -> Any:
        """A function, a type or a constant of the C interface."""
        if hasattr(self.api, name):
            return getattr(self.api, name)
        if name not in self.declared:
            raise AttributeError(name)
        function = getattr(self.api._lib, name)
        function.restype, function.argtypes = self.declared[name]
        setattr(self, name, function)
        return function

    def structures(self) -> dict[str, type[ctypes.Structure]]:
        """The structures that the binding declares, by name."""
        return {
            name: value
            for name, value in vars(self.api).items()
            if isinstance(value, type) and issubclass(value, ctypes.Structure) and name.startswith("llama_")
        }

    def status(self) -> Any:
        """The runtime's own record of what it did, or None for a library without one."""
        function = getattr(self.api._lib, "ggml_numa_mirror_status", None)
        if function is None:
            return None
        function.restype = ctypes.c_char_p
        return json.loads(function().decode())

    @abstractmethod
    def log_to(self, write: Callable[[str], None]) -> None:
        """Have all lines of the library's log written there."""

    @abstractmethod
    def free_model(self, model: Any) -> None:
        """Free a model."""

    @abstractmethod
    def layers(self, model: Any) -> int:
        """How many layers a model has."""

    @abstractmethod
    def set_flash(self, params: Any, on: bool) -> None:
        """Turn flash attention on or off in a context's parameters."""

    @abstractmethod
    def cache(self, context: Any, what: str, *arguments: int) -> Any:
        """Call a function on a context's caches."""

    @abstractmethod
    def clear(self, context: Any) -> None:
        """Forget all sequences."""

    @abstractmethod
    def shift(self, context: Any, sequence: int, begin: int, delta: int) -> None:
        """Move the positions of a sequence from ``begin`` on."""

    @abstractmethod
    def sequence_size(self, context: Any, sequence: int, flags: int = 0) -> int:
        """The size of the state of a sequence."""

    @abstractmethod
    def save_sequence(self, context: Any, data: Any, sequence: int, flags: int = 0) -> int:
        """Copy the state of a sequence to memory; its size."""

    @abstractmethod
    def restore_sequence(self, context: Any, data: Any, size: int, sequence: int, flags: int = 0) -> int:
        """Set the state of a sequence from memory; its size, or 0."""

    @abstractmethod
    def adapt(self, model: Any, context: Any, path: Path) -> None:
        """Load a LoRA adapter, and apply it."""

    @abstractmethod
    def steer(self, context: Any, values: Sequence[float], embedding: int, layers: int) -> None:
        """Apply a control vector to all layers but the first."""

    @abstractmethod
    def text(self, model: str, strategy: int, prompt: str, count: int) -> tuple[object, str] | None:
        """Generate through the class that people use: its object, and the text; or None."""


class LlamaCpp(Binding):
    """llama_cpp. Its older releases spell some functions otherwise."""

    module = "llama_cpp.llama_cpp"

    def __init__(self) -> None:
        super().__init__()
        names = ("LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY", "LLAMA_STATE_SEQ_FLAGS_ON_DEVICE")
        self.flags = {name: getattr(self.api, name) for name in names if hasattr(self.api, name)}

    def log_to(self, write: Callable[[str], None]) -> None:
        """Through the binding's own type of callback."""
        self._callback = self.llama_log_callback(lambda _, text, __: write(text.decode(errors="replace")))
        self.llama_log_set(self._callback, None)

    def free_model(self, model: Any) -> None:
        """As it is called there."""
        self.llama_model_free(model)

    def layers(self, model: Any) -> int:
        """As it is called there."""
        return int(self.llama_model_n_layer(model))

    def set_flash(self, params: Any, on: bool) -> None:
        """A type in new releases, a switch in old ones."""
        field = "flash_attn_type" if hasattr(params, "flash_attn_type") else "flash_attn"
        setattr(params, field, int(on))

    def cache(self, context: Any, what: str, *arguments: int) -> Any:
        """Whichever way this version spells it."""
        for prefix in ("llama_memory_", "llama_kv_self_", "llama_kv_cache_"):
            if function := getattr(self.api, prefix + what, None):
                place = self.llama_get_memory(context) if prefix == "llama_memory_" else context
                return function(place, *arguments)
        raise NotPossible(f"this version has no {what}")

    def clear(self, context: Any) -> None:
        """With the bytes in the buffers, where that can be chosen."""
        data = (True,) if hasattr(self.api, "llama_memory_clear") else ()
        self.cache(context, "clear", *data)

    def shift(self, context: Any, sequence: int, begin: int, delta: int) -> None:
        """There is a function to ask first."""
        if not self.cache(context, "can_shift"):
            raise NotPossible("this cache cannot be shifted")
        self.cache(context, "seq_add", sequence, begin, -1, delta)

    def sequence_size(self, context: Any, sequence: int, flags: int = 0) -> int:
        """Flags have functions of their own."""
        if flags:
            return int(self.llama_state_seq_get_size_ext(context, sequence, flags))
        return int(self.llama_state_seq_get_size(context, sequence))

    def save_sequence(self, context: Any, data: Any, sequence: int, flags: int = 0) -> int:
        """Flags have functions of their own."""
        if flags:
            return int(self.llama_state_seq_get_data_ext(context, data, len(data), sequence, flags))
        return int(self.llama_state_seq_get_data(context, data, len(data), sequence))

    def restore_sequence(self, context: Any, data: Any, size: int, sequence: int, flags: int = 0) -> int:
        """Flags have functions of their own."""
        if flags:
            return int(self.llama_state_seq_set_data_ext(context, data, size, sequence, flags))
        return int(self.llama_state_seq_set_data(context, data, size, sequence))

    def adapt(self, model: Any, context: Any, path: Path) -> None:
        """One adapter, or a list of one."""
        adapter = self.llama_adapter_lora_init(model, str(path).encode())
        if not adapter:
            raise SystemExit("the adapter was not loaded")
        if function := getattr(self.api, "llama_set_adapters_lora", None):
            adapters = (self.llama_adapter_lora_p_ctypes * 1)(adapter)
            failed = function(context, adapters, 1, (c_float * 1)(1.0))
        else:
            failed = self.llama_set_adapter_lora(context, adapter, 1.0)
        if failed:
            raise SystemExit("the adapter was not applied")

    def steer(self, context: Any, values: Sequence[float], embedding: int, layers: int) -> None:
        """Whichever way this version spells it."""
        function = getattr(self.api, "llama_set_adapter_cvec", None) or self.llama_apply_adapter_cvec
        if function(context, (c_float * len(values))(*values), len(values), embedding, 1, layers - 1):
            raise SystemExit("the control vector was not applied")

    def text(self, model: str, strategy: int, prompt: str, count: int) -> tuple[object, str] | None:
        """``Llama(numa=...)``."""
        package = importlib.import_module("llama_cpp")
        settings = {"n_ctx": 256, "n_threads": 2, "n_threads_batch": 2, "verbose": True}
        try:
            llama = package.Llama(model, numa=strategy, **settings)
        except ValueError:
            return None
        answer = llama.create_completion(prompt, max_tokens=count, temperature=0.0)
        return llama, str(answer["choices"][0]["text"])


_BYTES = POINTER(c_uint8)
_TOKENS = POINTER(c_int32)


class IkLlamaCpp(Binding):
    """ik_llama_cpp. It declares what its class needs; the rest is as in its ``llama.h``."""

    module = "ik_llama_cpp._ctypes_api"
    flags = {"LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY": 1}  # noqa: RUF012
    declared = {  # noqa: RUF012
        "llama_log_set": (None, (LOG_CALLBACK, c_void_p)),
        "llama_numa_init": (None, (ctypes.c_int,)),
        "llama_print_system_info": (c_char_p, ()),
        "llama_n_layer": (c_int32, (c_void_p,)),
        "llama_kv_cache_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
        "llama_kv_cache_seq_cp": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
        "llama_kv_cache_seq_keep": (None, (c_void_p, c_int32)),
        "llama_kv_cache_seq_add": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
        "llama_kv_cache_defrag": (None, (c_void_p,)),
        "llama_kv_cache_update": (c_int32, (c_void_p,)),
        "llama_state_get_size": (c_size_t, (c_void_p,)),
        "llama_state_get_data": (c_size_t, (c_void_p, _BYTES, c_size_t)),
        "llama_state_set_data": (c_size_t, (c_void_p, _BYTES, c_size_t)),
        "llama_state_save_file": (c_bool, (c_void_p, c_char_p, _TOKENS, c_size_t)),
        "llama_state_load_file": (c_bool, (c_void_p, c_char_p, _TOKENS, c_size_t, POINTER(c_size_t))),
        "llama_state_seq_get_size": (c_size_t, (c_void_p, c_int32, ctypes.c_uint32)),
        "llama_state_seq_get_data": (c_size_t, (c_void_p, _BYTES, c_size_t, c_int32, ctypes.c_uint32)),
        "llama_state_seq_set_data": (c_size_t, (c_void_p, _BYTES, c_size_t, c_int32, ctypes.c_uint32)),
        "llama_state_seq_save_file": (c_size_t, (c_void_p, c_char_p, c_int32, _TOKENS, c_size_t)),
        "llama_state_seq_load_file": (
            c_size_t,
            (c_void_p, c_char_p, c_int32, _TOKENS, c_size_t, POINTER(c_size_t)),
        ),
        "llama_lora_adapter_init": (c_void_p, (c_void_p, c_char_p)),
        "llama_lora_adapter_set": (c_int32, (c_void_p, c_void_p, c_float)),
        "llama_control_vector_apply": (
            c_int32,
            (c_void_p, POINTER(c_float), c_size_t, c_int32, c_int32, c_int32),
        ),
    }

    def log_to(self, write: Callable[[str], None]) -> None:
        """The binding has no type for the callback."""
        self._callback = LOG_CALLBACK(lambda _, text, __: write(text.decode(errors="replace")))
        self.llama_log_set(self._callback, None)

    def free_model(self, model: Any) -> None:
        """As it is called there."""
        self.llama_free_model(model)

    def layers(self, model: Any) -> int:
        """As it is called there."""
        return int(self.llama_n_layer(model))

    def set_flash(self, params: Any, on: bool) -> None:
        """A switch."""
        params.flash_attn = on

    def cache(self, context: Any, what: str, *arguments: int) -> Any:
        """All caches of a context are one."""
        return getattr(self, f"llama_kv_cache_{what}")(context, *arguments)

    def clear(self, context: Any) -> None:
        """Cells and bytes."""
        self.llama_kv_cache_clear(context)

    def shift(self, context: Any, sequence: int, begin: int, delta: int) -> None:
        """Whether it can be done shows when it is done."""
        self.llama_kv_cache_seq_add(context, sequence, begin, -1, delta)
        if self.llama_kv_cache_update(context):
            raise NotPossible("this cache cannot be shifted")

    def sequence_size(self, context: Any, sequence: int, flags: int = 0) -> int:
        """Flags are an argument."""
        return int(self.llama_state_seq_get_size(context, sequence, flags))

    def save_sequence(self, context: Any, data: Any, sequence: int, flags: int = 0) -> int:
        """Flags are an argument."""
        return int(self.llama_state_seq_get_data(context, data, len(data), sequence, flags))

    def restore_sequence(self, context: Any, data: Any, size: int, sequence: int, flags: int = 0) -> int:
        """Flags are an argument."""
        return int(self.llama_state_seq_set_data(context, data, size, sequence, flags))

    def adapt(self, model: Any, context: Any, path: Path) -> None:
        """The model owns the adapter."""
        adapter = self.llama_lora_adapter_init(model, str(path).encode())
        if not adapter:
            raise SystemExit("the adapter was not loaded")
        if self.llama_lora_adapter_set(context, adapter, 1.0):
            raise SystemExit("the adapter was not applied")

    def steer(self, context: Any, values: Sequence[float], embedding: int, layers: int) -> None:
        """As it is called there."""
        data = (c_float * len(values))(*values)
        if self.llama_control_vector_apply(context, data, len(values), embedding, 1, layers - 1):
            raise SystemExit("the control vector was not applied")

    def text(self, model: str, strategy: int, prompt: str, count: int) -> tuple[object, str] | None:
        """``IkLlama(numa=...)``, a parameter that the wheels made here have."""
        package = importlib.import_module("ik_llama_cpp")
        try:
            llama = package.IkLlama(model, numa=strategy, n_ctx=256, n_threads=2)
        except RuntimeError:
            return None
        tokens = llama.generate(llama.tokenize(prompt), max_tokens=count, temperature=0.0)
        return llama, str(llama.detokenize(tokens))


BINDINGS: Mapping[str, type[Binding]] = {"llama_cpp": LlamaCpp, "ik_llama_cpp": IkLlamaCpp}
