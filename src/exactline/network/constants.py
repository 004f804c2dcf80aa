"""Weights, buffers and constants in float64, checked to be finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import CaptureError, NumberError


def to_float64(value: Any) -> Any:
    """Convert floating-point tensors to float64, also inside tuples and lists; return anything else unchanged."""
    if isinstance(value, (tuple, list)):
        return type(value)(to_float64(v) for v in value)
    return value.to(torch.float64) if isinstance(value, Tensor) and value.is_floating_point() else value


def read_parameter(value: Any, name: str) -> Any:
    """Copy a weight, buffer or constant to the CPU in float64.

    Raises CaptureError for a tensor that is not real and dense, NumberError for NaN or infinite numbers.
    """
    if not isinstance(value, Tensor):
        return value
    if value.is_meta or value.is_quantized or value.is_complex() or value.layout != torch.strided:
        raise CaptureError(
            f"{name} is a meta, quantised, complex or sparse tensor.",
            where=name,
            hint="Use a module with real, dense weights.",
        )
    copy = to_float64(value.detach().cpu())
    if copy.data_ptr() == value.data_ptr():
        copy = copy.clone()  # the network keeps its numbers when the module is trained further
    if copy.is_floating_point() and not all_finite(copy):
        raise NumberError(f"{name} holds NaN or infinite numbers.", where=name, hint="Repair the weights.")
    return copy


def all_finite(numbers: Tensor) -> bool:
    """Whether no number is NaN or infinite.

    The sum is checked first, because that is one fast pass; it can overflow although every number is finite.

    >>> all_finite(torch.tensor([1e308, 1e308], dtype=torch.float64)), all_finite(torch.tensor([1.0, torch.inf]))
    (True, False)
    """
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())
