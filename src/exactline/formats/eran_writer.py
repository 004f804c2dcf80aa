"""Networks that are one layer after another as ERAN text; every number is written so that it reads back the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnsupportedError
from ..network.graph import Network, Node, Shape
from ..ops import windows
from ..ops.affine import Product, Rearrange, Reshape, Scale
from ..ops.base import Input, Op
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from .eran import LEAKY_SLOPE

WIDE = 4096  # units of a layer that a square matrix is written for
ZERO, ONE = Fraction(0), Fraction(1)
NAMES = {  # by knots, slopes and the value at the first knot
    ((ZERO,), (ZERO, ONE), ZERO): "ReLU",
    ((-ONE, ONE), (ZERO, ONE, ZERO), -ONE): "HardTanh",
    ((ZERO,), (Fraction(LEAKY_SLOPE), ONE), ZERO): "LeakyRelu",
}
TAILS = {"sigmoid": "Sigmoid", "tanh": "Tanh"}


def eran_bytes(network: Network) -> bytes:
    """The text of a .eran file.

    A network that reshapes its points before its first layer takes them as that layer does when it is read again.

    Raises UnsupportedError naming the first node that the format has no words for.
    """
    nodes = network.nodes
    writer = _Writer(nodes[0].shape)
    for i, node in enumerate(nodes):
        if node.inputs != ((i - 1,) if i else ()) or isinstance(node.op, Input) != (i == 0):
            raise _unfit(node, "does not follow the node before it")
        if i:
            writer.node(node, nodes[i - 1].shape)
    if network.outputs != (len(nodes) - 1,):
        raise _unfit(nodes[network.outputs[0]], "is an output, and not the last node")
    tail = network.tails[0]
    if tail is not None and tail.name not in TAILS:
        raise _unfit(nodes[-1], f"is followed by {tail.name}, which the format has no name for")
    return writer.finished(nodes[-1], None if tail is None else TAILS[tail.name])


@dataclass
class _Layer:
    """An affine layer whose activation is not known yet."""

    weight: Tensor  # (out, in), or (out, in, height, width)
    bias: Tensor | None  # (out,)
    image: Shape | None = None  # (channels, height, width) that a convolution takes
    stride: Sequence[int] = (1, 1)
    padding: int = 0

    def text(self, activation: str) -> str:
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        if self.image is None:
            return f"{activation}\n{_numbers(self.weight)}\n{_numbers(bias)}\n"
        channels, height, width = self.image
        settings = (
            f"{activation}, filters={len(self.weight)}, kernel_size={list(self.weight.shape[2:])}, "
            f"input_shape={[height, width, channels]}, stride={list(self.stride)}, padding={self.padding}"
        )
        return f"Conv2D\n{settings}\n{_numbers(self.weight.permute(2, 3, 1, 0))}\n{_numbers(bias)}\n"


@dataclass
class _Writer:
    """The text so far, and the shape that a reader of it has in hand."""

    shape: Shape
    parts: list[str] = field(default_factory=list[str])
    layer: _Layer | None = None
    mean: Tensor | None = None  # (channels,) of a Normalize line, until a layer follows
    std: Tensor | None = None
    begun: bool = False  # whether a layer was seen
    order: Tensor | None = None  # where each element stands in the reader's hand, if they were moved since
    moved: Node | None = None  # the last node that moved or reshaped

    def node(self, node: Node, before: Shape) -> None:
        """Write one node, or keep it until its activation is known."""
        op = node.op
        if isinstance(op, (Reshape, Rearrange)):
            self._move(node, op)
        elif isinstance(op, Scale):
            self._scale(node, op, before)
        elif isinstance(op, Product):
            self._product(node, op, before)
        elif isinstance(op, Pointwise):
            self._activation(node, _name(op))
        elif isinstance(op, Maximum):
            self._pool(node, op, before)
        else:
            raise _unfit(node, "has no words in ERAN text")

    def finished(self, last: Node, tail: str | None) -> bytes:
        """All of the text."""
        if tail is not None:
            self._activation(last, tail)
        self._flush("Affine")
        if not self.begun or self.order is not None or self.shape != last.shape:
            if len(last.shape) != 1:
                self._settled(last, last.shape)
            self._diagonal(last, last.shape, None, None)
            self._flush("Affine")
        return "".join(self.parts).encode()

    def _move(self, node: Node, op: Reshape | Rearrange) -> None:
        self.moved = node
        if isinstance(op, Reshape):
            return
        index = op.index.cpu()
        count = prod(self.shape if self.order is None else self.order.shape)
        if op.constant is not None or not torch.equal(index.sort().values, torch.arange(count)):
            raise _unfit(node, "repeats or drops elements")
        order = index if self.order is None else self.order[index]
        self.order = None if torch.equal(order, torch.arange(len(order))) else order

    def _settled(self, node: Node, before: Shape) -> None:
        """See that a layer of images, or of units by themselves, finds what it takes where it takes it."""
        if self.order is not None or (self.begun and self.shape != before):
            raise _unfit(self.moved or node, "moves elements that the next layer takes in their places")

    def _dense(self, node: Node, weight: Tensor, bias: Tensor | None) -> None:
        """A fully connected layer, its columns in the order of the elements they read."""
        if self.order is not None:
            moved = torch.empty_like(weight)
            moved[:, self.order] = weight
            weight, self.order = moved, None
        self._begin(node, _Layer(weight, bias), weight.shape[1:], weight.shape[:1])

    def _begin(self, node: Node, layer: _Layer | None, before: Shape, after: Shape) -> None:
        """A layer comes, after what was kept and, if it is the first, after the Normalize line."""
        self._flush("Affine")
        if not self.begun and (self.mean is not None or self.std is not None):
            none = torch.zeros(1, dtype=torch.float64)
            mean, std = none if self.mean is None else self.mean, none + 1 if self.std is None else self.std
            mean, std = torch.broadcast_tensors(mean, std)
            if bool((mean == mean[0]).all()) and bool((std == std[0]).all()):
                mean, std = mean[:1], std[:1]
            elif len(before) == 3 and before[0] != len(mean):
                raise _unfit(self.moved or node, "reshapes what is normalised channel by channel")
            self.parts.append(f"Normalize mean={_numbers(mean)} std={_numbers(std)}\n")
        self.begun, self.layer, self.shape = True, layer, tuple(after)

    def _flush(self, activation: str) -> None:
        if self.layer is not None:
            self.parts.append(self.layer.text(activation))
        self.layer = None

    def _activation(self, node: Node, name: str | None) -> None:
        if name is None:
            raise _unfit(node, "is an activation that the format has no name for")
        if self.layer is None:
            self._diagonal(node, self.shape, None, None)
        self._flush(name)

    def _scale(self, node: Node, op: Scale, before: Shape) -> None:
        weight, divisor, offset = op.weight, op.divisor, op.offset
        if node.shape != before:
            raise _unfit(node, "repeats its input")
        if weight is None and not self.begun and self.std is None and self.order is None:
            if divisor is None and offset is not None and self.mean is None:
                self.mean = _per_unit(node, -offset, before)
                return
            if offset is None and divisor is not None and (self.mean is None or before[:1] == self.mean.shape):
                self.std = _per_unit(node, divisor, before)
                return
        alone = weight is None and divisor is None and self.order is None and self.shape == before
        if alone and offset is not None and self.layer is not None and self.layer.bias is None:
            self.layer = replace(self.layer, bias=_per_unit(node, offset, before))
            return
        above, below = (torch.ones(1) if v is None else v.detach().cpu() for v in (weight, divisor))
        factor = above.double() / below.double()
        if len(before) != 1:
            self._settled(node, before)
        self._diagonal(node, before, factor, offset)

    def _diagonal(self, node: Node, shape: Shape, factor: Tensor | None, offset: Tensor | None) -> None:
        """A layer that treats every unit, or every channel of an image, by itself."""
        scale = _per_unit(node, torch.ones(1) if factor is None else factor, shape)
        if len(scale) > WIDE:
            raise _unfit(node, f"would need a square matrix for {shape[0]:,} units")
        bias = None if offset is None else _per_unit(node, offset, shape)
        matrix = torch.diag(scale)
        if len(shape) == 1:
            self._dense(node, matrix, bias)
        else:
            self._begin(node, _Layer(matrix[:, :, None, None], bias, shape), shape, shape)

    def _product(self, node: Node, op: Product, before: Shape) -> None:
        weight = op.weight.detach().cpu().double()
        known = op.settings
        full = op.call is F.linear and weight.dim() == 2 and len(before) == 1
        if not full and (op.name != "conv2d" or len(before) != 3 or not known):
            raise _unfit(node, "is not a fully connected layer on flat points, nor a convolution of images")
        bias = None if op.offset is None else _per_unit(node, op.offset, node.shape)
        if full:
            self._dense(node, weight, bias)
            return
        padding = set(known["padding"]) | set(known["padding_end"])
        if known["groups"] != 1 or set(known["dilation"]) != {1} or len(padding) != 1:
            raise _unfit(node, "has groups, a dilation or a padding that differs from side to side")
        self._settled(node, before)
        self._begin(node, _Layer(weight, bias, before, known["stride"], padding.pop()), before, node.shape)

    def _pool(self, node: Node, op: Maximum, before: Shape) -> None:
        found = _windows(op, before) if op.name == "max_pool2d" and op.sign > 0 and len(before) == 3 else None
        if found is None:
            raise _unfit(node, "is a maximum, but not over square-padded windows of an image")
        self._settled(node, before)
        if op.floor:
            self._activation(node, "ReLU")  # before the maximum or behind it is the same
        self._begin(node, None, before, node.shape)
        kernel, stride, padding = found
        channels, height, width = before
        size = [height, width, channels]
        self.parts.append(f"MaxPooling2D\npool_size={kernel}, input_shape={size}, stride={stride}, padding={padding}\n")


def _windows(op: Maximum, before: Shape) -> tuple[list[int], list[int], int] | None:
    """Kernel, stride and padding that give these windows."""
    channels, *size = before
    out, count = op.shape[1:], op.table.shape[1]
    for height in (k for k in range(1, count + 1) if count % k == 0):
        kernel = [height, count // height]
        for padding in range(min(kernel) // 2 + 1):
            spans = [n + 2 * padding - k for n, k in zip(size, kernel, strict=True)]
            if min(spans) < 0:
                continue
            stride = [_strides(span, n, k) for span, n, k in zip(spans, out, kernel, strict=True)]
            for pair in ([a, b] for a in stride[0] for b in stride[1]):
                table = windows.pool_windows(size, out, kernel, pair, [padding] * 2, [1, 1])
                if torch.equal(windows.repeat_for_channels(table, channels, size), op.table.cpu()):
                    return kernel, pair, padding
    return None


def _strides(span: int, out: int, kernel: int) -> list[int]:
    """Strides that give so many windows; any will do for a single one."""
    if out == 1:
        return [max(kernel, span + 1)]
    return [s for s in range(max(span // out, 1), span // (out - 1) + 1) if span // s + 1 == out]


def _name(op: Pointwise) -> str | None:
    key: Any = (op.knots, op.slopes, op.value)
    return None if any(isinstance(v, Tensor) for v in (*op.knots, *op.slopes, op.value)) else NAMES.get(key)


def _per_unit(node: Node, value: Tensor, shape: Shape) -> Tensor:
    """One number for each unit of a flat point, or for each channel of an image."""
    if len(shape) not in (1, 3) or not prod(shape):
        raise _unfit(node, f"has the shape {shape}, and the format knows flat points and images")
    wide = value.detach().cpu().double().expand(1, *shape)[0]
    first = wide.reshape(shape[0], prod(shape[1:]))
    if not bool((first == first[:, :1]).all()):
        raise _unfit(node, "treats the places of an image differently")
    return first[:, 0].contiguous()


def _numbers(values: Tensor) -> str:
    """Nested lists whose floats read back as they were."""
    return str(values.tolist())


def _unfit(node: Node, reason: str) -> UnsupportedError:
    op: Op = node.op
    return UnsupportedError(
        f"{node.name} ({op.title}) {reason}, so the network cannot be written as ERAN text.",
        nodes=(node.name,),
        where=node.path or node.name,
        hint="Save it as .onnx.",
    )
