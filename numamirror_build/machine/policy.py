"""Memory policies by system calls: whether the kernel takes one, and setting one."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Sequence

# mbind and set_mempolicy in asm/unistd.h of these architectures
_CALLS = {
    "x86_64": (237, 238),
    "aarch64": (235, 237),
    "riscv64": (235, 237),
    "ppc64le": (259, 261),
    "s390x": (268, 270),
}
_MODES = {"preferred": 1, "bind": 2, "interleave": 3}
_LONG = 8 * ctypes.sizeof(ctypes.c_ulong)


def refused_policy(node: int) -> str | None:
    """Ask to have one page on a node; the name of the error if the kernel refuses, else None.

    None as well on an architecture whose number of the system call is not known here.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return None
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        place = ctypes.c_char.from_buffer(page)
        address, mask = ctypes.addressof(place), _mask([node])
        code = _call(
            calls[0],
            address,
            mmap.PAGESIZE,
            _MODES["preferred"],
            ctypes.addressof(mask),
            len(mask) * _LONG,
            0,
        )
        del place  # it keeps the mapping from being closed
    return errno.errorcode.get(code, str(code)) if code else None


def set_policy(name: str, nodes: Sequence[int]) -> None:
    """Give this process a memory policy: ``bind`` or ``interleave``.

    Raises:
        OSError: the kernel refuses.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, "the number of set_mempolicy is not known on this architecture")
    mask = _mask(nodes)
    if code := _call(calls[1], _MODES[name], ctypes.addressof(mask), len(mask) * _LONG):
        raise OSError(code, f"set_mempolicy: {os.strerror(code)}")


def _mask(nodes: Sequence[int]) -> ctypes.Array[ctypes.c_ulong]:
    mask = (ctypes.c_ulong * (max(nodes) // _LONG + 2))()
    for node in nodes:
        mask[node // _LONG] |= 1 << node % _LONG
    return mask


def _call(number: int, *arguments: int) -> int:
    """The error's number; 0 for none."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    done = syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
    return ctypes.get_errno() if done else 0
