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
Later = dict[torch.device, list[Tensor]]  # checksums that devices are asked for at once
NUMBERED = frozenset((torch.float32, torch.float64))  # as NumPy has them too


def fingerprint(module: nn.Module) -> tuple[Any, ...]:
    """A summary of everything a forward pass reads, as far as it hangs on the module.

    >>> layer = nn.Linear(2, 2)
    >>> before = fingerprint(layer)
    >>> layer.weight.data[0, 0] += 1
    >>> fingerprint(layer) == before
    False
    """
    later: Later = {}
    parts = tuple((name, type(part), _summary(vars(part), 0, later)) for name, part in module.named_modules())
    return (*parts, *((device, *torch.stack(sums).tolist()) for device, sums in later.items()))


def _summary(value: Any, depth: int, later: Later) -> Any:
    """Plain values as they are, arrays by checksum, everything else by identity; devices tell their sums later."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in BOXES and depth <= DEEPEST:
        # a few hundred entries before each sweep: those that are plain or empty cost no call
        return tuple(
            [
                (str(k), v if type(v) in PLAIN else () if type(v) in BOXES and not v else _summary(v, depth + 1, later))
                for k, v in value.items()
            ]
        )
    if isinstance(value, KINDS):
        return value
    if isinstance(value, Tensor):
        return _tensor(value, later)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).tobytes())
    if depth > DEEPEST:
        return kind.__name__
    if isinstance(value, dict):
        return tuple((str(k), _summary(v, depth + 1, later)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_summary(v, depth + 1, later) for v in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(str(v) for v in value)
    return type(value).__name__, id(value)


def _tensor(tensor: Tensor, later: Later) -> tuple[Any, ...]:
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
    later.setdefault(flat.device, []).append(_checksum(flat.view(torch.uint8)))
    return kind


def _checksum(data: Tensor) -> Tensor:
    """Words weighted by odd numbers, so that two that change places are noticed; a few million at a time."""
    if data.storage_offset() % 8:  # a part of a larger tensor that does not begin with a word
        data = data.clone()
    whole = len(data) // 8 * 8
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for words in (data[:whole].view(torch.int64), data[whole:].to(torch.int64)):
        for at in range(0, len(words), WORDS):
            some = words[at : at + WORDS]
            odd = torch.arange(2 * at + 1, 2 * (at + len(some)), 2, device=words.device)
            total = torch.add((some * odd).sum(), total, alpha=31)
    return total
