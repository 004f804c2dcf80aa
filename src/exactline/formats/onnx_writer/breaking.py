"""Write breaking operators: as the ONNX operator if there is one, otherwise as ReLUs or as maxima of windows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops import windows
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Number, Pointwise
from .graph import OnnxGraphWriter

ZERO, ONE = Fraction(0), Fraction(1)


def write_pointwise(graph: OnnxGraphWriter, op: Pointwise, x: str, before: Shape) -> str:
    """Write a pointwise operator, and return the name of its value.

    Args:
        graph: the ONNX graph.
        op: the operator.
        x: the name of its input.
        before: the shape of its input, without the batch dimension.
    """
    knots, slopes, value = op.knots, op.slopes, op.value
    bends_at_zero = knots == (ZERO,) and value == ZERO
    if bends_at_zero and slopes == (ZERO, ONE):
        return graph.add_node("Relu", x)
    if bends_at_zero and slopes == (-ONE, ONE) and op.flat_slope == ZERO:
        return graph.add_node("Abs", x)
    if bends_at_zero and (slopes[1] is ONE or slopes[1] == ONE):
        output = _write_leaky_relu(graph, slopes[0], x, before)
        if output is not None:
            return output
    if _are_equal(value, knots[0]) and slopes in ((ZERO, ONE, ZERO), (ZERO, ONE), (ONE, ZERO), (ZERO, ZERO)):
        low = knots[0] if slopes[0] == ZERO else None
        return _write_clip(graph, x, low, knots[-1] if slopes[-1] == ZERO else None)
    if len(knots) == 2 and _has_only_fractions(op):
        if slopes == (ONE, ZERO, ONE) and value == ZERO and knots[0] == -knots[1]:
            return graph.add_node("Sub", x, _write_clip(graph, x, *knots))
        if slopes[0] == slopes[2] == ZERO:
            return _write_ramp(graph, x, op)
    return _write_relu_sum(graph, op, x)


def _write_leaky_relu(graph: OnnxGraphWriter, slope: Number, x: str, before: Shape) -> str | None:
    """Write LeakyRelu, whose slope is a float32, or PRelu; None in double, where onnxruntime has neither."""
    if graph.double:
        return None
    if isinstance(slope, Tensor):
        return graph.add_node("PRelu", x, graph.add_constant(slope[0] if slope.dim() > len(before) else slope))
    number = torch.tensor([float(slope)], dtype=torch.float64)
    if float(number.float()) == float(slope):
        return graph.add_node("LeakyRelu", x, alpha=float(slope))
    return graph.add_node("PRelu", x, graph.add_constant(number))


def _write_clip(graph: OnnxGraphWriter, x: str, low: Number | None, high: Number | None) -> str:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        for operator, bound in (("Max", low), ("Min", high)):
            x = x if bound is None else graph.add_node(operator, x, _add_number(graph, bound))
        return x
    return graph.add_node("Clip", x, *("" if b is None else _add_number(graph, b) for b in (low, high)))


def _write_ramp(graph: OnnxGraphWriter, x: str, op: Pointwise) -> str:
    """Write a function that is flat, then has one slope, then is flat again, such as a hard sigmoid."""
    slope = op.slopes[1]
    x = _write_sum(graph, x, _multiply(op.knots[0], -ONE))
    x = _write_clip(graph, x, ZERO, _subtract(op.knots[1], op.knots[0]))
    if isinstance(slope, Fraction) and slope.numerator == 1:
        x = graph.add_node("Div", x, _add_number(graph, Fraction(slope.denominator)))
    else:
        x = graph.add_node("Mul", x, _add_number(graph, slope))
    return _write_sum(graph, x, op.value)


def _write_relu_sum(graph: OnnxGraphWriter, op: Pointwise, x: str) -> str:
    """Write first slope * x + constant + sum over knots of (change of slope) * relu(x - knot)."""
    total = graph.add_node("Mul", x, _add_number(graph, op.slopes[0])) if not _are_equal(op.slopes[0], ZERO) else ""
    for j, knot in enumerate(op.knots):
        relu = graph.add_node("Relu", _write_sum(graph, x, _multiply(knot, -ONE)))
        term = graph.add_node("Mul", relu, _add_number(graph, _subtract(op.slopes[j + 1], op.slopes[j])))
        total = graph.add_node("Add", total, term) if total else term
    return _write_sum(graph, total, _subtract(op.value, _multiply(op.slopes[0], op.knots[0])))


def write_maximum(graph: OnnxGraphWriter, op: Maximum, x: str, before: Shape) -> str:
    """Write a maximum as MaxPool, as a reduction over dimensions, or as a reduction of gathered windows."""
    reduction = "ReduceMax" if op.sign > 0 else "ReduceMin"
    pool = _find_pool_attributes(op, before) if op.name.startswith("max_pool") and op.sign > 0 else None
    dims = _find_reduced_dims(op.table, before)
    if pool is not None:
        output, shape = graph.add_node("MaxPool", x, **pool), list(op.shape)
    elif dims is not None:
        output = graph.add_node(reduction, x, axes=[d + 1 for d in dims], keepdims=0)
        shape = [n for d, n in enumerate(before) if d not in dims]
    else:
        gathered = _gather_windows(graph, op.table, x, before)  # (N, windows, size)
        output, shape = graph.add_node(reduction, gathered, axes=[2], keepdims=0), [len(op.table)]
    if op.floor:  # next to the maximum, so that readers can fuse them
        output = graph.add_node("Relu", output)
    return graph.reshape(output, op.shape, shape)


def write_order(graph: OnnxGraphWriter, op: Order, x: str, before: Shape) -> str:
    """Write order statistics as a TopK of the largest or smallest elements, whichever are fewer, and a Gather."""
    size = op.table.shape[1]
    gathered = _gather_windows(graph, op.table, x, before)  # (N, windows, size)
    largest = int(op.ranks.max()) + 1 <= size - int(op.ranks.min())
    ranks = op.ranks if largest else size - 1 - op.ranks
    count = int(ranks.max()) + 1
    k = graph.add_ints([count])
    output = graph.add_node("TopK", gathered, k, outputs=2, axis=2, largest=int(largest), sorted=1)
    if not torch.equal(ranks, torch.arange(count)):
        output = graph.gather(output, ranks, 2)
    return graph.reshape(output, op.shape, (len(op.table), len(op.ranks)))


def _gather_windows(graph: OnnxGraphWriter, table: Tensor, x: str, before: Shape) -> str:
    """Gather windows as (N, windows, size); a reshape will do where they follow one another."""
    if torch.equal(table.flatten(), torch.arange(prod(before))):
        return graph.reshape(x, table.shape, before)
    return graph.gather(graph.flatten(x, before), table, 1)


def _find_reduced_dims(table: Tensor, before: Shape) -> list[int] | None:
    """The dimensions whose reduction has the windows of a table (windows, size), or None."""
    if table.numel() != prod(before) or len(before) > 6:
        return None
    for count in range(1, len(before) + 1):
        for dims in combinations(range(len(before)), count):
            fits = prod(before[d] for d in dims) == table.shape[1]
            if fits and torch.equal(windows.reduction_windows(before, dims), table):
                return list(dims)
    return None


def _find_pool_attributes(op: Maximum, before: Shape) -> dict[str, Any] | None:
    """The attributes of a MaxPool with the windows of an operator, found by trial; None if there are none."""
    channels, size, out = before[0], before[1:], op.shape[1:]
    if len(op.table) != channels * prod(out) or len(out) != len(size):
        return None
    table = op.table[: prod(out)]
    for kernel in _list_kernels(table.shape[1], len(size)):
        choices = [list(_list_window_settings(n, m, k)) for n, m, k in zip(size, out, kernel, strict=True)]
        for choice in product(*choices):
            strides, dilations = [c.stride for c in choice], [c.dilation for c in choice]
            before_pads, after_pads = [c.before for c in choice], [c.after for c in choice]
            if torch.equal(windows.pool_windows(size, out, kernel, strides, before_pads, dilations), table):
                pads = [*before_pads, *after_pads]
                return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    return None


class _WindowSettings(NamedTuple):
    """How windows are placed in one dimension."""

    stride: int
    before: int  # padding
    dilation: int
    after: int  # padding


def _list_window_settings(size: int, out: int, kernel: int) -> Iterator[_WindowSettings]:
    """The settings with which a kernel makes ``out`` windows of ``size`` elements."""
    for dilation in range(1, 4 if kernel > 1 else 2):
        span = (kernel - 1) * dilation + 1
        for padding in range(kernel // 2 + 1):
            strides = [kernel, *range(1, size + 1)] if out > 1 else [kernel, size]
            for stride in dict.fromkeys(strides):
                after = (out - 1) * stride + span - size - padding
                unused = -after  # elements after the last window
                if unused < stride and after < kernel and (out - 1) * stride < size + padding:
                    yield _WindowSettings(stride, padding, dilation, max(after, 0))


def _list_kernels(count: int, dims: int) -> Iterator[list[int]]:
    """The kernels of ``count`` elements in so many dimensions, the most nearly square first."""
    divisors = [f for f in range(1, count + 1) if count % f == 0]
    kernels = (list(k) for k in product(divisors, repeat=dims))
    yield from sorted((k for k in kernels if prod(k) == count), key=lambda k: max(k) - min(k))


def _has_only_fractions(op: Pointwise) -> bool:
    return all(isinstance(v, Fraction) for v in (*op.knots, *op.slopes, op.value))


def _are_equal(one: Number, two: Number) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return bool((one == two).all())  # after broadcasting
    return isinstance(one, Fraction) and isinstance(two, Fraction) and one == two


def _add_number(graph: OnnxGraphWriter, value: Number) -> str:
    return graph.add_constant(value if isinstance(value, Tensor) else float(value))


def _write_sum(graph: OnnxGraphWriter, x: str, value: Number) -> str:
    return x if _are_equal(value, ZERO) else graph.add_node("Add", x, _add_number(graph, value))


def _multiply(one: Number, two: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one * two
    return _to_tensor(one) * _to_tensor(two)


def _subtract(one: Number, two: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one - two
    return _to_tensor(one) - _to_tensor(two)


def _to_tensor(value: Number) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
