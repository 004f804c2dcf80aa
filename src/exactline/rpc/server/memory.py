"""How much memory the front process uses: the only trace of messages that gRPC has not delivered yet."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MALLOC_FIELDS = 10  # of the struct mallinfo2
IN_USE_FIELDS = (4, 7)  # of it: bytes in memory maps, and bytes in use on the heap
STATM = Path("/proc/self/statm")


class _MallocInfo(ctypes.Structure):
    _fields_ = [(f"field_{i}", ctypes.c_size_t) for i in range(MALLOC_FIELDS)]


def _find_malloc_info() -> ctypes._NamedFuncPointer | None:  # pyright: ignore[reportPrivateUsage]
    """Return glibc's function that reports what is allocated, None where there is none."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return None
    function.restype = _MallocInfo
    return function


_MALLOC_INFO = _find_malloc_info()


def allocated_bytes() -> int:
    """Return the bytes that this process has allocated, as far as the system tells; 0 where it does not."""
    if _MALLOC_INFO is not None:
        info = _MALLOC_INFO()
        return sum(int(getattr(info, f"field_{i}")) for i in IN_USE_FIELDS)
    return resident_bytes()


def resident_bytes() -> int:
    """Return the bytes of memory that this process occupies; 0 where the system does not tell."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
