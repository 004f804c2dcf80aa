"""What changes when a module's function may have changed: weights, structure, settings, hooks."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import CaptureError

KINDS = (bool, int, float, complex, str, bytes, type(None))
PLAIN = frozenset(KINDS)
BOXES = frozenset((dict, OrderedDict))  # most of what a module holds: its hooks, of which there are usually none
WORDS = 1 << 24  # of weights on a device that are added up at a time
DEEPEST = 8  # boxes in boxes; what lies deeper is not looked at
NUMBERED = frozenset((torch.float32, torch.float64))  # as NumPy has them too


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """A summary of everything a forward pass reads, as far as it hangs on the module.

    >>> layer = nn.Linear(2, 2)
    >>> before = fingerprint(layer)
    >>> layer.weight.data[0, 0] += 1
    >>> fingerprint(layer) == before
    False
    """
    return tuple((name, type(part), _summary(vars(part), 0)) for name, part in module.named_modules())


def _summary(value: Any, depth: int) -> Any:
    """Plain values as they are, arrays by checksum, everything else by identity."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in BOXES and depth <= DEEPEST:
        # a few hundred entries before each sweep: those that are plain or empty cost no call
        return tuple(
            [
                (str(k), v if type(v) in PLAIN else () if type(v) in BOXES and not v else _summary(v, depth + 1))
                for k, v in value.items()
            ]
        )
    if isinstance(value, KINDS):
        return value
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).tobytes())
    if depth > DEEPEST:
        return kind.__name__
    if isinstance(value, dict):
        return tuple((str(k), _summary(v, depth + 1)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_summary(v, depth + 1) for v in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(str(v) for v in value)
    return type(value).__name__, id(value)


def _tensor(tensor: Tensor) -> tuple[Any, ...]:
    if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise CaptureError(
            "A lazy module has no weights yet.",
            where=type(tensor).__name__,
            hint="Call the module once on a batch, so that it knows its shapes.",
        )
    kind = (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad)
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return (*kind, id(tensor))
    if tensor.device.type == "cpu" and tensor.dtype in NUMBERED and tensor.is_contiguous():
        return (*kind, zlib.crc32(tensor.detach().numpy().data))
    flat = tensor.detach().contiguous().view(-1)
    if flat.device.type == "cpu":
        return (*kind, zlib.crc32(flat.view(torch.uint8).numpy().data))
    return (*kind, _checksum(flat.view(torch.uint8)))


def _checksum(data: Tensor) -> int:
    """Words weighted by odd numbers, so that two that change places are noticed; a few million at a time."""
    whole = len(data) // 8 * 8
    total = 0
    for words in (data[:whole].view(torch.int64), data[whole:].to(torch.int64)):
        for at in range(0, len(words), WORDS):
            some = words[at : at + WORDS]
            odd = torch.arange(2 * at + 1, 2 * (at + len(some)), 2, device=words.device)
            total = (31 * total + int((some * odd).sum())) % (1 << 64)
    return total
