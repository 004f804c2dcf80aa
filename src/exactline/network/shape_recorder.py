"""Record a forward pass of common torch functions on tensors without data.

Torch's own tensors without data, those of `FakeTensorMode`, take a second to import and are slow. Here a tensor of the
meta device stands for each value. Its shape is found by calling the torch function on a batch of no points, which
computes nothing; functions that only move elements are called on the meta tensors themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from .call_recorder import PLAIN_ATTRIBUTES, CallRecorder, list_tensors
from .plain_functions import IN_PLACE_FUNCTIONS, MOVING_FUNCTIONS, PLAIN_FUNCTIONS, READING_FUNCTIONS

DEVICE_ATTRIBUTES = ("device", "is_cuda", "is_meta")  # those of a meta tensor are not those of the value


class NeedsData(Exception):
    """Raised by a forward pass that calls other functions, or reads more of a tensor than its shape and type."""


class ShapeRecorder(CallRecorder):
    """Records a forward pass without data.

    Args:
        inputs: of the forward pass, whose shapes, precisions and devices count.

    Raises NeedsData, also where forward catches it.
    """

    plain_attributes = tuple(name for name in PLAIN_ATTRIBUTES if name not in DEVICE_ATTRIBUTES)

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__([torch.empty_like(t, device="meta") for t in inputs])
        self.points, self.device = len(inputs[0]), inputs[0].device
        self.needs_data = False

    def compute(self, func: Any, args: Any, keywords: Any) -> Any:
        if func in READING_FUNCTIONS:
            return func(*args, **keywords)
        if not self._is_plain(func, args, keywords):
            raise self._note_need()
        if func in MOVING_FUNCTIONS:
            return func(*args, **keywords)
        result = func(*self._empty_batches(args), **self._empty_batches(keywords))
        if not isinstance(result, Tensor) or not result.dim() or len(result):
            raise self._note_need()
        if func in IN_PLACE_FUNCTIONS or keywords.get("inplace"):
            increment_version(args[0])
            return args[0]
        return torch.empty(self.points, *result.shape[1:], dtype=result.dtype, device="meta")

    def _is_plain(self, func: Any, args: Any, keywords: Any) -> bool:
        """Whether a call is one of `PLAIN_FUNCTIONS` on a value that depends on the input."""
        if func not in PLAIN_FUNCTIONS or not self.reads.are_plain:
            return False
        depends_on_input = any(id(t) in self.made for t in list_tensors((args, keywords)))
        return depends_on_input and PLAIN_FUNCTIONS[func](*args, **keywords) is not None

    def _note_need(self) -> NeedsData:
        """Note that the forward pass needs data, since it may catch the exception."""
        self.needs_data = True
        return NeedsData()

    def record_end(self, outputs: Any) -> None:
        if self.needs_data or not self.reads.are_plain:
            raise NeedsData
        super().record_end(outputs)

    def _empty_batches(self, value: Any) -> Any:
        """Arguments with a batch of no points in place of each value."""
        if isinstance(value, (list, tuple)):
            return [self._empty_batches(v) for v in value]
        if isinstance(value, dict):
            return {k: self._empty_batches(v) for k, v in value.items()}
        if isinstance(value, Tensor) and id(value) in self.made:
            return torch.empty(0, *value.shape[1:], dtype=value.dtype, device=self.device)
        return value


def is_plain_weight(tensor: Tensor) -> bool:
    """Whether a weight lies in memory in the order of its dimensions, and its values too, as those of meta tensors."""
    return type(tensor) in (nn.Parameter, Tensor) and tensor.is_contiguous()
