"""A fingerprint of a module that changes with its weights, structure, settings and hooks."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import CaptureError

PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))
PLAIN_TYPE_SET = frozenset(PLAIN_TYPES)
DICT_TYPES = frozenset((dict, OrderedDict))  # most attributes of a module are dicts of hooks, and empty
CHECKSUM_CHUNK_WORDS = 1 << 24  # 8-byte words of a weight that are summed at a time on a device
MAX_NESTING_DEPTH = 8  # containers in containers; anything deeper counts only by its type
PendingChecksums = dict[torch.device, list[Tensor]]  # fetched once per device at the end
NUMPY_DTYPES = frozenset((torch.float32, torch.float64))  # that NumPy has too


def fingerprint_module(module: nn.Module) -> tuple[Any, ...]:
    """Summarize every attribute of a module and its submodules that a forward pass can read.

    >>> layer = nn.Linear(2, 2)
    >>> before = fingerprint_module(layer)
    >>> layer.weight.data[0, 0] += 1
    >>> fingerprint_module(layer) == before
    False

    Raises CaptureError for a lazy module that has no weights yet.
    """
    pending: PendingChecksums = {}
    parts = tuple((name, type(part), _summarize(vars(part), 0, pending)) for name, part in module.named_modules())
    return (*parts, *((device, *torch.stack(sums).tolist()) for device, sums in pending.items()))


def _summarize(value: Any, depth: int, pending: PendingChecksums) -> Any:
    """Summarize a plain value by itself, an array by a checksum and any other object by its identity.

    Checksums on a device go to ``pending``.
    """
    kind = type(value)
    if kind in PLAIN_TYPE_SET:
        return value
    if kind in DICT_TYPES and depth <= MAX_NESTING_DEPTH:
        entries: list[tuple[str, Any]] = []
        for key, item in value.items():  # a few hundred before each sweep: plain values and empty dicts need no call
            item_kind = type(item)
            if item_kind in PLAIN_TYPE_SET:
                summary = item
            elif item_kind in DICT_TYPES and not item:
                summary = ()
            else:
                summary = _summarize(item, depth + 1, pending)
            entries.append((str(key), summary))
        return tuple(entries)
    if isinstance(value, PLAIN_TYPES):
        return value
    if isinstance(value, Tensor):
        return _summarize_tensor(value, pending)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).tobytes())
    if depth > MAX_NESTING_DEPTH:
        return kind.__name__
    if isinstance(value, dict):
        return tuple((str(k), _summarize(v, depth + 1, pending)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_summarize(v, depth + 1, pending) for v in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(str(v) for v in value)
    return type(value).__name__, id(value)


def _summarize_tensor(tensor: Tensor, pending: PendingChecksums) -> tuple[Any, ...]:
    if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise CaptureError(
            "A lazy module has no weights yet.",
            where=type(tensor).__name__,
            hint="Call the module once on a batch to initialize its weights.",
        )
    kind = (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad)
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return (*kind, id(tensor))
    if tensor.device.type == "cpu" and tensor.dtype in NUMPY_DTYPES and tensor.is_contiguous():
        return (*kind, zlib.crc32(tensor.detach().numpy().data))
    flat = tensor.detach().contiguous().view(-1)
    if flat.device.type == "cpu":
        return (*kind, zlib.crc32(flat.view(torch.uint8).numpy().data))
    pending.setdefault(flat.device, []).append(_checksum(flat.view(torch.uint8)))
    return kind


def _checksum(data: Tensor) -> Tensor:
    """The sum of all 8-byte words times distinct odd numbers, so that swapped words are noticed."""
    if data.storage_offset() % 8:  # a view into a larger tensor that is not aligned to words
        data = data.clone()
    whole = len(data) // 8 * 8
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for words in (data[:whole].view(torch.int64), data[whole:].to(torch.int64)):
        for first in range(0, len(words), CHECKSUM_CHUNK_WORDS):
            chunk = words[first : first + CHECKSUM_CHUNK_WORDS]
            odd = torch.arange(2 * first + 1, 2 * (first + len(chunk)), 2, device=words.device)
            total = torch.add((chunk * odd).sum(), total, alpha=31)
    return total
