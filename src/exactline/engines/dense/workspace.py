"""Memory that sweeps use again and again: fresh memory costs more than most of what is done with it.

A buffer is free when nothing but the shelf refers to it. A tensor made from an array holds on to it, and so does every
view of that tensor, so the count of references tells.
"""

from __future__ import annotations

import sys
import threading
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = (
    1 << 16,
    1 << 24,
)  # bytes: smaller tensors are cheap anyway, larger ones are not held on to
BUFFERS_PER_THREAD = 3  # on each thread's shelf
FREE_REFERENCE_COUNT = 2  # references to a buffer that is free: the shelf, and the question itself
ALIGNMENT_BYTES = 64  # bytes, as torch's own memory: matrix products may round otherwise


class _BufferPool(threading.local):
    """The buffers of one thread."""

    def __init__(self) -> None:
        self.buffers: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """A free buffer of at least so many bytes; a new one takes the place of one that is too small."""
        small = None
        for place in range(len(self.buffers)):
            if sys.getrefcount(self.buffers[place]) == FREE_REFERENCE_COUNT:
                if self.buffers[place].nbytes >= size:
                    return self.buffers[place]
                small = place
        made = np.empty(
            min(MAX_BUFFER_BYTES + ALIGNMENT_BYTES, 2 * size), dtype=np.uint8
        )  # pages that are never written cost nothing
        if small is not None:
            self.buffers[small] = made
        elif len(self.buffers) < BUFFERS_PER_THREAD:
            self.buffers.append(made)
        return made


_buffer_pool = _BufferPool()


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor whose numbers are yet to be written, of the type and on the device of another.

    >>> empty((2, 3), torch.zeros(1)).shape
    torch.Size([2, 3])
    """
    size = prod(shape) * like.element_size()
    if like.device.type != "cpu" or not MIN_BUFFER_BYTES <= size <= MAX_BUFFER_BYTES:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    buffer = _buffer_pool.take(size + ALIGNMENT_BYTES)
    start = -buffer.ctypes.data % ALIGNMENT_BYTES
    return torch.from_numpy(buffer[start : start + size]).view(like.dtype).view(shape)
