"""Write networks whose layers form a chain as ERAN text; every number reads back exactly."""

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
from .eran import LEAKY_RELU_SLOPE

MAX_DIAGONAL_UNITS = 4096  # of a layer that is written as a diagonal matrix
ZERO, ONE = Fraction(0), Fraction(1)
ACTIVATION_NAMES = {  # by knots, slopes and the value at the first knot
    ((ZERO,), (ZERO, ONE), ZERO): "ReLU",
    ((-ONE, ONE), (ZERO, ONE, ZERO), -ONE): "HardTanh",
    ((ZERO,), (Fraction(LEAKY_RELU_SLOPE), ONE), ZERO): "LeakyRelu",
}
TAIL_NAMES = {"sigmoid": "Sigmoid", "tanh": "Tanh"}


def encode_eran(network: Network) -> bytes:
    """Encode a network as the content of a .eran file.

    A network that reshapes its points before its first layer takes them in the shape of that layer once it is read
    again.

    >>> from exactline.network import as_network
    >>> linear = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.ones_(linear.weight)
    >>> print(encode_eran(as_network(linear, [torch.zeros(2)])).decode(), end="")
    Affine
    [[1.0, 1.0]]
    [0.0]

    Raises UnsupportedError naming the first node that the format cannot express.
    """
    nodes = network.nodes
    writer = _EranWriter(nodes[0].shape)
    for i, node in enumerate(nodes):
        if node.inputs != ((i - 1,) if i else ()) or isinstance(node.op, Input) != (i == 0):
            raise _make_error(node, "does not follow the node before it")
        if i:
            writer.write_node(node, nodes[i - 1].shape)
    if network.outputs != (len(nodes) - 1,):
        raise _make_error(nodes[network.outputs[0]], "is an output, and not the last node")
    tail = network.tails[0]
    if tail is not None and tail.name not in TAIL_NAMES:
        raise _make_error(nodes[-1], f"is followed by {tail.name}, which the format has no name for")
    return writer.finish(nodes[-1], None if tail is None else TAIL_NAMES[tail.name])


@dataclass
class _PendingLayer:
    """An affine layer that is written once its activation is known."""

    weight: Tensor  # (out, in), or (out, in, height, width)
    bias: Tensor | None  # (out,)
    image: Shape | None = None  # (channels, height, width) that a convolution takes
    stride: Sequence[int] = (1, 1)
    padding: int = 0

    def to_text(self, activation: str) -> str:
        """The lines of the layer."""
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        if self.image is None:
            return f"{activation}\n{_format_numbers(self.weight)}\n{_format_numbers(bias)}\n"
        channels, height, width = self.image
        settings = (
            f"{activation}, filters={len(self.weight)}, kernel_size={list(self.weight.shape[2:])}, "
            f"input_shape={[height, width, channels]}, stride={list(self.stride)}, padding={self.padding}"
        )
        return f"Conv2D\n{settings}\n{_format_numbers(self.weight.permute(2, 3, 1, 0))}\n{_format_numbers(bias)}\n"


@dataclass
class _EranWriter:
    """Writes the nodes of a network one by one."""

    shape: Shape  # of the output of the last layer, as a reader of the text has it
    parts: list[str] = field(default_factory=list[str])
    pending_layer: _PendingLayer | None = None
    mean: Tensor | None = None  # (channels,) for a Normalize line, which is written with the first layer
    std: Tensor | None = None  # (channels,)
    has_layers: bool = False
    element_order: Tensor | None = None  # (elements,) their positions before rearrangements since the last layer
    last_move: Node | None = None  # the last node that rearranged or reshaped

    def write_node(self, node: Node, before: Shape) -> None:
        """Write one node; an affine layer waits for its activation."""
        op = node.op
        if isinstance(op, (Reshape, Rearrange)):
            self._rearrange(node, op)
        elif isinstance(op, Scale):
            self._write_scale(node, op, before)
        elif isinstance(op, Product):
            self._write_product(node, op, before)
        elif isinstance(op, Pointwise):
            self._write_activation(node, _find_activation_name(op))
        elif isinstance(op, Maximum):
            self._write_pool(node, op, before)
        else:
            raise _make_error(node, "does not exist in ERAN text")

    def finish(self, last: Node, tail: str | None) -> bytes:
        """Write what is pending, and return the whole text."""
        if tail is not None:
            self._write_activation(last, tail)
        self._flush("Affine")
        if not self.has_layers or self.element_order is not None or self.shape != last.shape:
            if len(last.shape) != 1:
                self._require_unmoved(last, last.shape)
            self._write_diagonal(last, last.shape, None, None)
            self._flush("Affine")
        return "".join(self.parts).encode()

    def _rearrange(self, node: Node, op: Reshape | Rearrange) -> None:
        self.last_move = node
        if isinstance(op, Reshape):
            return
        index = op.index.cpu()
        count = prod(self.shape if self.element_order is None else self.element_order.shape)
        if op.constant is not None or not torch.equal(index.sort().values, torch.arange(count)):
            raise _make_error(node, "repeats or drops elements")
        order = index if self.element_order is None else self.element_order[index]
        self.element_order = None if torch.equal(order, torch.arange(len(order))) else order

    def _require_unmoved(self, node: Node, before: Shape) -> None:
        """Raise UnsupportedError if elements were moved before a layer whose columns cannot be permuted."""
        if self.element_order is not None or (self.has_layers and self.shape != before):
            raise _make_error(self.last_move or node, "moves elements in front of a layer that needs their order")

    def _write_dense(self, node: Node, weight: Tensor, bias: Tensor | None) -> None:
        """Write a fully connected layer, with its columns permuted to undo rearrangements in front of it."""
        if self.element_order is not None:
            permuted = torch.empty_like(weight)
            permuted[:, self.element_order] = weight
            weight, self.element_order = permuted, None
        self._begin_layer(node, _PendingLayer(weight, bias), weight.shape[1:], weight.shape[:1])

    def _begin_layer(self, node: Node, layer: _PendingLayer | None, before: Shape, after: Shape) -> None:
        """Write the pending layer, or the Normalize line in front of the first layer, and begin a new layer."""
        self._flush("Affine")
        if not self.has_layers and (self.mean is not None or self.std is not None):
            zero = torch.zeros(1, dtype=torch.float64)
            mean, std = zero if self.mean is None else self.mean, zero + 1 if self.std is None else self.std
            mean, std = torch.broadcast_tensors(mean, std)
            if bool((mean == mean[0]).all()) and bool((std == std[0]).all()):
                mean, std = mean[:1], std[:1]
            elif len(before) == 3 and before[0] != len(mean):
                raise _make_error(self.last_move or node, "reshapes an input that is normalized per channel")
            self.parts.append(f"Normalize mean={_format_numbers(mean)} std={_format_numbers(std)}\n")
        self.has_layers, self.pending_layer, self.shape = True, layer, tuple(after)

    def _flush(self, activation: str) -> None:
        """Write the pending layer."""
        if self.pending_layer is not None:
            self.parts.append(self.pending_layer.to_text(activation))
        self.pending_layer = None

    def _write_activation(self, node: Node, name: str | None) -> None:
        if name is None:
            raise _make_error(node, "is an activation that the format has no name for")
        if self.pending_layer is None:
            self._write_diagonal(node, self.shape, None, None)
        self._flush(name)

    def _write_scale(self, node: Node, op: Scale, before: Shape) -> None:
        weight, divisor, offset = op.weight, op.divisor, op.offset
        if node.shape != before:
            raise _make_error(node, "broadcasts its input")
        if weight is None and not self.has_layers and self.std is None and self.element_order is None:
            if divisor is None and offset is not None and self.mean is None:
                self.mean = _reduce_per_unit(node, -offset, before)
                return
            if offset is None and divisor is not None and (self.mean is None or before[:1] == self.mean.shape):
                self.std = _reduce_per_unit(node, divisor, before)
                return
        only_offset = weight is None and divisor is None and self.element_order is None and self.shape == before
        if only_offset and offset is not None and self.pending_layer is not None and self.pending_layer.bias is None:
            self.pending_layer = replace(self.pending_layer, bias=_reduce_per_unit(node, offset, before))
            return
        numerator, denominator = (torch.ones(1) if v is None else v.detach().cpu() for v in (weight, divisor))
        factor = numerator.double() / denominator.double()
        if len(before) != 1:
            self._require_unmoved(node, before)
        self._write_diagonal(node, before, factor, offset)

    def _write_diagonal(self, node: Node, shape: Shape, factor: Tensor | None, offset: Tensor | None) -> None:
        """Write a layer that scales and shifts each unit, or each channel of an image: a diagonal matrix."""
        scale = _reduce_per_unit(node, torch.ones(1) if factor is None else factor, shape)
        if len(scale) > MAX_DIAGONAL_UNITS:
            raise _make_error(node, f"would need a square matrix for {shape[0]:,} units")
        bias = None if offset is None else _reduce_per_unit(node, offset, shape)
        matrix = torch.diag(scale)
        if len(shape) == 1:
            self._write_dense(node, matrix, bias)
        else:
            self._begin_layer(node, _PendingLayer(matrix[:, :, None, None], bias, shape), shape, shape)

    def _write_product(self, node: Node, op: Product, before: Shape) -> None:
        weight = op.weight.detach().cpu().double()
        settings = op.settings
        is_dense = op.call is F.linear and weight.dim() == 2 and len(before) == 1
        if not is_dense and (op.name != "conv2d" or len(before) != 3 or not settings):
            raise _make_error(node, "is neither a fully connected layer on flat points nor a 2D convolution")
        bias = None if op.offset is None else _reduce_per_unit(node, op.offset, node.shape)
        if is_dense:
            self._write_dense(node, weight, bias)
            return
        padding = set(settings["padding"]) | set(settings["padding_end"])
        if settings["groups"] != 1 or set(settings["dilation"]) != {1} or len(padding) != 1:
            raise _make_error(node, "has groups, a dilation or unequal padding")
        self._require_unmoved(node, before)
        layer = _PendingLayer(weight, bias, before, settings["stride"], padding.pop())
        self._begin_layer(node, layer, before, node.shape)

    def _write_pool(self, node: Node, op: Maximum, before: Shape) -> None:
        is_pool = op.name == "max_pool2d" and op.sign > 0 and len(before) == 3
        settings = _find_pool_settings(op, before) if is_pool else None
        if settings is None:
            raise _make_error(node, "is a maximum, but not a 2D max pool with equal padding")
        self._require_unmoved(node, before)
        if op.floor:
            self._write_activation(node, "ReLU")  # ReLU and maximum commute
        self._begin_layer(node, None, before, node.shape)
        kernel, stride, padding = settings
        channels, height, width = before
        size = [height, width, channels]
        self.parts.append(f"MaxPooling2D\npool_size={kernel}, input_shape={size}, stride={stride}, padding={padding}\n")


def _find_pool_settings(op: Maximum, before: Shape) -> tuple[list[int], list[int], int] | None:
    """The kernel, stride and padding of a max pool, found by comparing its windows; None if nothing fits."""
    channels, *size = before
    out, count = op.shape[1:], op.table.shape[1]
    for height in (k for k in range(1, count + 1) if count % k == 0):
        kernel = [height, count // height]
        for padding in range(min(kernel) // 2 + 1):
            spans = [n + 2 * padding - k for n, k in zip(size, kernel, strict=True)]
            if min(spans) < 0:
                continue
            stride = [_list_strides(span, n, k) for span, n, k in zip(spans, out, kernel, strict=True)]
            for pair in ([a, b] for a in stride[0] for b in stride[1]):
                table = windows.pool_windows(size, out, kernel, pair, [padding] * 2, [1, 1])
                if torch.equal(windows.repeat_for_channels(table, channels, size), op.table.cpu()):
                    return kernel, pair, padding
    return None


def _list_strides(span: int, out: int, kernel: int) -> list[int]:
    """The strides with which a kernel fits ``out`` times; for a single window any stride will do."""
    if out == 1:
        return [max(kernel, span + 1)]
    return [s for s in range(max(span // out, 1), span // (out - 1) + 1) if span // s + 1 == out]


def _find_activation_name(op: Pointwise) -> str | None:
    key: Any = (op.knots, op.slopes, op.value)
    return None if any(isinstance(v, Tensor) for v in (*op.knots, *op.slopes, op.value)) else ACTIVATION_NAMES.get(key)


def _reduce_per_unit(node: Node, value: Tensor, shape: Shape) -> Tensor:
    """Reduce a constant to one number for each unit of a flat point, or for each channel of an image."""
    if len(shape) not in (1, 3) or not prod(shape):
        raise _make_error(node, f"has the shape {shape}, but the format has only flat points and images")
    rows = value.detach().cpu().double().expand(1, *shape)[0].reshape(shape[0], prod(shape[1:]))
    if not bool((rows == rows[:, :1]).all()):
        raise _make_error(node, "treats the pixels of an image differently")
    return rows[:, 0].contiguous()


def _format_numbers(values: Tensor) -> str:
    """Format a tensor as nested lists; each number reads back exactly."""
    return str(values.tolist())


def _make_error(node: Node, reason: str) -> UnsupportedError:
    op: Op = node.op
    return UnsupportedError(
        f"{node.name} ({op.title}) {reason}, so the network cannot be written as ERAN text.",
        nodes=(node.name,),
        where=node.path or node.name,
        hint="Save it as .onnx.",
    )
