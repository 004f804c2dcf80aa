"""Weights, buffers and constants as the real numbers they stand for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import CaptureError, NumberError


def doubled(value: Any) -> Any:
    """Floating-point tensors in float64, everything else as it is."""
    if isinstance(value, (tuple, list)):
        return type(value)(doubled(v) for v in value)
    return value.to(torch.float64) if isinstance(value, Tensor) and value.is_floating_point() else value


def parameter(value: Any, name: str) -> Any:
    """A weight, buffer or constant as the real numbers it stands for."""
    if not isinstance(value, Tensor):
        return value
    if value.is_meta or value.is_quantized or value.is_complex() or value.layout != torch.strided:
        raise CaptureError(
            f"{name} is a meta, quantised, complex or sparse tensor.",
            where=name,
            hint="Give a module with real, dense weights.",
        )
    held = value.detach().cpu()
    found = doubled(held)
    if found.data_ptr() == value.data_ptr():
        found = found.clone()  # the answer keeps the weights it was made with
    if found.is_floating_point() and not all_finite(found):
        raise NumberError(f"{name} holds NaN or infinite numbers.", where=name, hint="Repair the weights.")
    return found


def all_finite(numbers: Tensor) -> bool:
    """Whether none is NaN or infinite: a sum is one quick pass, but may overflow where no number does.

    >>> all_finite(torch.tensor([1e308, 1e308], dtype=torch.float64)), all_finite(torch.tensor([1.0, torch.inf]))
    (True, False)
    """
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())
