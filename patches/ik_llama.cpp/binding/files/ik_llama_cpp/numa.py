"""Where threads run and where memory lies on a machine with several NUMA nodes. Added by numamirror-build."""

from __future__ import annotations

import ctypes

from . import _ctypes_api as C

GGML_NUMA_STRATEGY_DISABLED = 0
GGML_NUMA_STRATEGY_DISTRIBUTE = 1
GGML_NUMA_STRATEGY_ISOLATE = 2
GGML_NUMA_STRATEGY_NUMACTL = 3
GGML_NUMA_STRATEGY_MIRROR = 4


def llama_numa_init(numa: bool | int) -> None:
    """Choose the strategy of the process, before its first model is loaded.

    Args:
        numa: one of the strategies above; True is DISTRIBUTE, as in llama_cpp.

    Raises:
        ValueError: there is no such strategy.
    """
    if not GGML_NUMA_STRATEGY_DISABLED <= numa <= GGML_NUMA_STRATEGY_MIRROR:
        raise ValueError(f"there is no NUMA strategy {numa!r}")
    C.llama_backend_init()
    function = C._lib.llama_numa_init
    function.argtypes = [ctypes.c_int]
    function.restype = None
    function(int(numa))
