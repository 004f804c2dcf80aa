"""Reusable buffers for large intermediate tensors: fresh memory costs more than most operations on it.

A buffer is free if nothing but the pool refers to it. A tensor made from an array keeps a reference to the array, and
so does every view of that tensor, so the reference count tells.
"""

from __future__ import annotations

import sys
import threading
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...ops.masks import is_on_host

MIN_BUFFER_BYTES = 1 << 16  # smaller tensors are cheap to allocate
MAX_BUFFER_BYTES = 1 << 24  # larger ones are not worth holding on to
BUFFERS_PER_THREAD = 3
FREE_REFERENCE_COUNT = 2  # references to a free buffer: from the pool, and from the call that counts them
ALIGNMENT_BYTES = 64  # as in torch's own allocator: matrix products may round differently on other alignments


class _BufferPool(threading.local):
    """The buffers of one thread."""

    def __init__(self) -> None:
        self.buffers: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """A free buffer of at least ``size`` bytes; a new one replaces a free one that is too small."""
        too_small = None
        for k in range(len(self.buffers)):
            if sys.getrefcount(self.buffers[k]) == FREE_REFERENCE_COUNT:
                if self.buffers[k].nbytes >= size:
                    return self.buffers[k]
                too_small = k
        # twice the size, for later requests: pages that are never written cost nothing
        buffer = np.empty(min(MAX_BUFFER_BYTES + ALIGNMENT_BYTES, 2 * size), dtype=np.uint8)
        if too_small is not None:
            self.buffers[too_small] = buffer
        elif len(self.buffers) < BUFFERS_PER_THREAD:
            self.buffers.append(buffer)
        return buffer


_buffer_pool = _BufferPool()


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An uninitialized tensor with the dtype and device of another one, in a reused buffer where that pays.

    >>> empty((2, 3), torch.zeros(1)).shape
    torch.Size([2, 3])
    """
    size = prod(shape) * like.element_size()
    if not is_on_host(like) or not MIN_BUFFER_BYTES <= size <= MAX_BUFFER_BYTES:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    buffer = _buffer_pool.take(size + ALIGNMENT_BYTES)
    start = -buffer.ctypes.data % ALIGNMENT_BYTES
    return torch.from_numpy(buffer[start : start + size]).view(like.dtype).view(shape)
