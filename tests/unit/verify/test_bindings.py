"""How the bindings are driven: what one class does through the other's names would not be found."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bindings import BINDINGS, Binding, IkLlamaCpp, LlamaCpp, NotPossible
from numamirror_build import data
from numamirror_build.verify.profile import load_profile


class Api:
    """A module of a binding: it notes what is called, and answers as the test says."""

    def __init__(self, **answers: Any) -> None:
        self.called: list[tuple[Any, ...]] = []
        for name, answer in answers.items():
            setattr(self, name, self.function(name, answer))
        self._lib = self

    def function(self, name: str, answer: Any) -> Callable[..., Any]:
        """A function with that answer."""

        def call(*arguments: Any) -> Any:
            self.called.append((name, *arguments))
            return answer

        return call


def binding(monkeypatch: pytest.MonkeyPatch, kind: type[Binding], api: object) -> Binding:
    """A binding with a made-up module."""
    monkeypatch.setattr(importlib, "import_module", lambda _: api)
    return kind()


def test_every_upstream_has_a_class() -> None:
    """The data names a class for each upstream's binding."""
    assert {load_profile(name).binding for name in data.upstream_names()} == set(BINDINGS)


@pytest.mark.parametrize("prefix", ["llama_memory_", "llama_kv_self_", "llama_kv_cache_"])
def test_caches_of_llama_cpp(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Its releases spell functions on caches in three ways, one of which takes another object."""
    answers = {f"{prefix}can_shift": True, f"{prefix}seq_add": None, "llama_get_memory": "memory"}
    api = Api(**answers)
    driven = binding(monkeypatch, LlamaCpp, api)
    driven.shift("context", 0, 9, -3)
    place = "memory" if prefix == "llama_memory_" else "context"
    assert (f"{prefix}seq_add", place, 0, 9, -1, -3) in api.called
    with pytest.raises(NotPossible, match="no defrag"):
        driven.cache("context", "defrag")


def test_a_cache_that_cannot_be_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp is asked before, ik_llama.cpp says it afterwards."""
    old = Api(llama_kv_cache_can_shift=False)
    with pytest.raises(NotPossible):
        binding(monkeypatch, LlamaCpp, old).shift("context", 0, 9, -3)
    for answer in (0, 1):
        api = Api(llama_kv_cache_seq_add=None, llama_kv_cache_update=answer)
        driven = binding(monkeypatch, IkLlamaCpp, api)
        if answer:
            with pytest.raises(NotPossible):
                driven.shift("context", 0, 9, -3)
        else:
            driven.shift("context", 0, 9, -3)
        assert api.called[0] == ("llama_kv_cache_seq_add", "context", 0, 9, -1, -3)


def test_flags_of_a_sequences_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument here, a function of its own there."""
    api = Api(llama_state_seq_get_size=4, llama_state_seq_get_size_ext=5)
    driven = binding(monkeypatch, LlamaCpp, api)
    assert [driven.sequence_size("context", 0), driven.sequence_size("context", 0, 1)] == [4, 5]
    ik = Api(llama_state_seq_get_size=6)
    assert binding(monkeypatch, IkLlamaCpp, ik).sequence_size("context", 0, 1) == 6
    assert ik.called == [("llama_state_seq_get_size", "context", 0, 1)]


def test_what_the_binding_does_not_declare_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers are not cut to 32 bits, as ctypes would without a declaration."""
    function = SimpleNamespace()
    api = SimpleNamespace(_lib=SimpleNamespace(llama_lora_adapter_init=function), llama_decode="own")
    driven = binding(monkeypatch, IkLlamaCpp, api)
    assert driven.llama_decode == "own"
    assert driven.llama_lora_adapter_init is function
    assert function.restype is ctypes.c_void_p
    assert function.argtypes == (ctypes.c_void_p, ctypes.c_char_p)
    with pytest.raises(AttributeError):
        assert driven.llama_nonsense


def test_structures_are_those_of_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others, and what is no structure, are not compared with llama.h."""

    class Made(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int)]

    api = SimpleNamespace(_lib=None, llama_x=Made, other=Made, llama_y=3)
    assert binding(monkeypatch, IkLlamaCpp, api).structures() == {"llama_x": Made}


def test_no_status_in_a_pristine_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without the function has no record; one with it is asked."""
    assert binding(monkeypatch, IkLlamaCpp, SimpleNamespace(_lib=SimpleNamespace())).status() is None
    function = Api(ggml_numa_mirror_status=b'{"active": true}')
    assert binding(monkeypatch, IkLlamaCpp, function).status() == {"active": True}
