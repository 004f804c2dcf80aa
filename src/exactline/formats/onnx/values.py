"""Values while an ONNX graph is read, and what an operator is given.

A file describes one point, most often as a batch of one. We let the batch be any number of points: where the first dim
of a value is 1 it *leads*, and stands for the batch; otherwise all of its dims belong to the point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...errors import FileError
from ...network.builder import Barred, Data, Refused, Smooth
from ...network.curves import Curve
from ...ops.affine import Reshape
from .. import limits
from ..graph_builder import Sketch
from .tensors import Store

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """A value that depends on the input, with its shape in the file."""

    value: Data | Curve | Smooth | Barred
    shape: Shape
    leads: bool  # whether the first dim, of size 1, stands for the batch


Value: TypeAlias = Any  # Held, a constant Tensor, or None for an input that is left out


@dataclass
class Call:
    """One node of the graph: its settings, and ways to draw what it stands for."""

    sketch: Sketch
    store: Store
    opset: int
    kind: str  # the operator
    name: str
    settings: dict[str, Any]  # attributes
    outputs: int

    def get(self, key: str, default: Any = None) -> Any:
        """An attribute."""
        return self.settings.get(key, default)

    def ints(self, key: str, default: Sequence[int] = ()) -> list[int]:
        """An attribute that is a list of whole numbers."""
        value = self.settings.get(key)
        if value is None:
            return list(default)
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            raise self.damaged(f"Attribute {key} is not a list of whole numbers.")
        return value

    def number(self, key: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.settings.get(key)
        if value is None:
            return default if isinstance(default, int) else float(np.float32(default))  # ONNX has single floats
        if not isinstance(value, (int, float)):
            raise self.damaged(f"Attribute {key} is not a number.")
        return value

    def damaged(self, problem: str) -> FileError:
        """The error for a node that breaks the format."""
        where = f"{self.sketch.where}: {self.kind} {self.name[:80]}"
        return FileError(problem, where=where, hint="The file is damaged, or made by something that breaks the format.")

    def constant(self, value: Value, what: str) -> Tensor:
        """A value that must not depend on the input."""
        if isinstance(value, Held):
            raise Refused(f"takes {what} from data")
        if value is None:
            raise self.damaged(f"{what} is missing.")
        return value

    def whole(self, value: Value, what: str) -> list[int]:
        """A constant list of whole numbers."""
        tensor = self.constant(value, what).reshape(-1)
        limits.within(tensor.numel(), limits.NAME, what, self.sketch.where)
        if tensor.is_floating_point():
            raise self.damaged(f"{what} are not whole numbers.")
        return [int(v) for v in tensor]

    def leading(self, value: Value) -> Data:
        """Data whose batch is the first dim of the file's shape."""
        held = self.held(value)
        if held.leads:
            return self.data(held)
        if not held.shape or held.shape[0] != 1:
            raise Refused(f"expects a batch of one point, not shape {list(held.shape)}")
        return self._reshaped(self.data(held), held.shape[1:])

    def full(self, value: Held) -> Data:
        """Data of which every dim of the file's shape belongs to the point."""
        return self._reshaped(self.data(value), value.shape)

    def held(self, value: Value) -> Held:
        """A value that depends on the input."""
        if not isinstance(value, Held):
            raise self.damaged("An input is missing." if value is None else "Data is expected, and a constant found.")
        return value

    def data(self, held: Held) -> Data:
        """What operators take; a smooth or refused value says why it cannot be taken."""
        return self.sketch.builder.data(held.value)

    def call(self, operator: str, *args: Any, **kwargs: Any) -> Any:
        """One of torch's operators on data as it stands."""
        return self.sketch.call(operator, *args, **kwargs)

    def led(self, made: Any) -> Held:
        """The result of an operator on leading data."""
        return Held(made, (1, *_shape_of(made, self.sketch)), True)

    def whole_point(self, made: Any) -> Held:
        """The result of an operator on full data."""
        return Held(made, _shape_of(made, self.sketch), False)

    def along(self, value: Held, axes: Sequence[int], draw: Callable[[Data, list[int]], Any]) -> Held:
        """An operator along some axes: on leading data unless the first axis is among them."""
        dims = self.axes(axes, len(value.shape))
        if value.leads and 0 not in dims:
            return self.led(draw(self.data(value), dims))
        return self.whole_point(draw(self.full(value), [d + 1 for d in dims]))

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from 0."""
        if any(not -rank <= a < rank for a in axes):
            raise self.damaged(f"Axis {list(axes)[:20]} does not exist: there are {rank} dims.")
        found = [a % rank for a in axes]
        if len(set(found)) != len(found):
            raise self.damaged(f"Axes {found[:20]} name a dim twice.")
        return found

    def reshaped(self, value: Held, shape: Sequence[int]) -> Held:
        """The same elements under another shape of the file."""
        shape = tuple(shape)
        limits.sized(shape, "the result", self.sketch.where, limits.WIDTH)
        if isinstance(value.value, (Smooth, Barred)) and shape == value.shape:
            return value
        if torch.Size(shape).numel() != torch.Size(value.shape).numel():
            raise self.damaged(f"A value of shape {list(value.shape)} cannot become {list(shape)}.")
        leads = bool(shape) and shape[0] == 1
        return Held(self._reshaped(self.data(value), shape[1:] if leads else shape), shape, leads)

    def _reshaped(self, data: Data, shape: Shape) -> Data:
        if data.shape == tuple(shape):
            return data
        return self.sketch.builder.add(Reshape(tuple(shape)), [data], shape)


def _shape_of(made: Any, sketch: Sketch) -> Shape:
    if isinstance(made, Smooth):
        made = made.data
    return sketch.builder.nodes[made.root].shape if isinstance(made, Curve) else made.shape


Operator: TypeAlias = Callable[[Call, list[Value]], Any]  # gives a value, or a tuple for several outputs
OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register the reader of one or several ONNX operators."""

    def keep(function: Operator) -> Operator:
        for name in names:
            OPERATORS[name] = function
        return function

    return keep


def given(inputs: list[Value], place: int) -> Value:
    """An input, or None where it is left out."""
    return inputs[place] if place < len(inputs) else None
