"""Whether the kernel takes a memory policy from this process: containers often refuse it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import platform

# asm/unistd.h of these architectures
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259, "s390x": 268}
_PREFERRED = 1
_LONG = 8 * ctypes.sizeof(ctypes.c_ulong)


def refused_policy(node: int) -> str | None:
    """Ask to have one page on a node; the name of the error if the kernel refuses, else None.

    None as well on an architecture whose number of the system call is not known here.
    """
    number = _MBIND.get(platform.machine())
    if number is None:
        return None
    size = mmap.PAGESIZE
    with mmap.mmap(-1, size) as page:
        mask = (ctypes.c_ulong * (node // _LONG + 2))()
        mask[node // _LONG] = 1 << node % _LONG
        place = ctypes.c_char.from_buffer(page)
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        words = (ctypes.addressof(place), size, _PREFERRED, ctypes.addressof(mask), len(mask) * _LONG, 0)
        done = syscall(ctypes.c_long(number), *map(ctypes.c_ulong, words))
        code = ctypes.get_errno()
        del place  # it keeps the mapping from being closed
    return errno.errorcode.get(code, str(code)) if done else None
