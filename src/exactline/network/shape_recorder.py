"""Record a forward pass of common torch functions on tensors without data.

Torch's own tensors without data, those of `FakeTensorMode`, take a second to import and are slow. Here a tensor of the
meta device stands for each value. Its shape is found by calling the torch function on a batch of no points, which
computes nothing; functions that only move elements are called on the meta tensors themselves.

A value of torch may lie in memory in another order than its meta tensor, as the sum of permuted tensors does. Whether a
reshaped tensor shares memory with it is unknown then, so changing one of them in place needs data.
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
        points: in each batch; as many as in the inputs by default. If given, the calls are only compared with recorded
            ones: forward reads the batch size as a plain number, and layouts in memory do not matter.

    Raises NeedsData, also where forward catches it.
    """

    plain_attributes = tuple(name for name in PLAIN_ATTRIBUTES if name not in DEVICE_ATTRIBUTES)

    def __init__(self, inputs: Sequence[Tensor], points: int | None = None) -> None:
        self.is_compared = points is not None
        self.points, self.device = points or len(inputs[0]), inputs[0].device
        super().__init__([torch.empty(self.points, *t.shape[1:], dtype=t.dtype, device="meta") for t in inputs])
        self.needs_data = False
        self.unknown_layouts: set[int] = set()  # ids of tensors whose values may lie in memory in another order

    def _mark_batch_size(self, tensor: Tensor, sizes: Any, dim: int | None = None) -> Any:
        return sizes if self.is_compared else super()._mark_batch_size(tensor, sizes, dim)

    def compute(self, func: Any, args: Any, keywords: Any) -> Any:
        if func in READING_FUNCTIONS:
            return func(*args, **keywords)
        if not self._is_plain(func, args, keywords):
            raise self._note_need()
        tensors = list_tensors((args, keywords))
        has_unknown = any(id(t) in self.unknown_layouts for t in tensors)
        if func in MOVING_FUNCTIONS:
            return self._mark_layouts(func(*args, **keywords), has_unknown)
        is_in_place = func in IN_PLACE_FUNCTIONS or bool(keywords.get("inplace"))
        if is_in_place and id(args[0]) in self.unknown_layouts and not self.is_compared:
            raise self._note_need()
        result = func(*self._empty_batches(args), **self._empty_batches(keywords))
        if not isinstance(result, Tensor) or not result.dim() or len(result):
            raise self._note_need()
        if is_in_place:
            increment_version(args[0])
            return args[0]
        stand_in = torch.empty(self.points, *result.shape[1:], dtype=result.dtype, device="meta")
        is_ordered = result.stride() == torch.empty_like(result, memory_format=torch.contiguous_format).stride()
        is_unknown = has_unknown or not is_ordered or not all(t.is_contiguous() for t in tensors)
        return self._mark_layouts(stand_in, is_unknown)

    def _mark_layouts(self, result: Any, are_unknown: bool) -> Any:
        """Note whether the layouts of a result are unknown; returns the result."""
        if are_unknown:
            self.unknown_layouts.update(id(t) for t in list_tensors(result))
        return result

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
