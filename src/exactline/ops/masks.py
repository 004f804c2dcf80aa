"""Comparisons and searches over large tensors: with NumPy on the CPU, where it is several times faster than torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

HOST_DEVICES = frozenset({"cpu"})  # types of device whose memory NumPy can read


def is_host(device: torch.device) -> bool:
    """Whether the tensors of a device can be read without synchronising with it."""
    return device.type in HOST_DEVICES


def is_on_host(x: Tensor) -> bool:
    """Whether a tensor can be read without synchronising with a device."""
    return is_host(x.device)


def greater(x: Tensor, level: float | Tensor) -> Tensor:
    """Elementwise ``x > level``."""
    if not is_on_host(x):
        return x > level
    return torch.from_numpy(np.greater(x.numpy(), level.numpy() if isinstance(level, Tensor) else level))


def less(x: Tensor, level: float | Tensor) -> Tensor:
    """Elementwise ``x < level``."""
    if not is_on_host(x):
        return x < level
    return torch.from_numpy(np.less(x.numpy(), level.numpy() if isinstance(level, Tensor) else level))


def all_true(mask: Tensor) -> bool:
    """Whether every element of a mask is true."""
    return bool(mask.numpy().all()) if is_on_host(mask) else bool(mask.all())


def argsort(x: Tensor) -> Tensor:
    """Indices (n,) that sort ``x`` (n,) in ascending order; the order of equal values is arbitrary."""
    return torch.from_numpy(np.argsort(x.numpy())) if is_on_host(x) else torch.argsort(x)


def xor(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise exclusive or of two masks."""
    return torch.from_numpy(a.numpy() ^ b.numpy()) if is_on_host(a) else a ^ b


def nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns, (k,) each, of the true elements of a matrix, in row-major order.

    >>> nonzero(torch.tensor([[False, True], [True, True]]))
    (tensor([0, 1, 1]), tensor([1, 0, 1]))
    """
    if not is_on_host(mask):
        rows, columns = torch.nonzero(mask, as_tuple=True)
        return rows, columns
    flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
    width = max(mask.shape[1], 1)
    rows = flat // width
    return rows, flat - rows * width
