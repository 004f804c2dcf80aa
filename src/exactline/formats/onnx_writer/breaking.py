"""Breaking operators: by their ONNX names where they have one, in general as ReLUs or as maxima of gathered windows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops import windows
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Number, Pointwise
from .graph import Sheet

ZERO, ONE = Fraction(0), Fraction(1)


def pointwise(sheet: Sheet, op: Pointwise, x: str, before: Shape) -> str:
    """One node for the functions that ONNX has; any other is a sum of ReLUs, one for each knot."""
    knots, slopes, value = op.knots, op.slopes, op.value
    at_zero = knots == (ZERO,) and value == ZERO
    if at_zero and slopes == (ZERO, ONE):
        return sheet.node("Relu", x)
    if at_zero and slopes == (-ONE, ONE) and op.flat_slope == ZERO:
        return sheet.node("Abs", x)
    if (at_zero and slopes[1] is ONE) or (at_zero and slopes[1] == ONE):
        made = _leaky(sheet, slopes[0], x, before)
        if made is not None:
            return made
    if _same(value, knots[0]) and slopes in ((ZERO, ONE, ZERO), (ZERO, ONE), (ONE, ZERO), (ZERO, ZERO)):
        low = knots[0] if slopes[0] == ZERO else None
        return _clip(sheet, x, low, knots[-1] if slopes[-1] == ZERO else None)
    if len(knots) == 2 and _fractions(op):
        if slopes == (ONE, ZERO, ONE) and value == ZERO and knots[0] == -knots[1]:
            return sheet.node("Sub", x, _clip(sheet, x, *knots))
        if slopes[0] == slopes[2] == ZERO:
            return _ramp(sheet, x, op)
    return _relus(sheet, op, x)


def _leaky(sheet: Sheet, slope: Number, x: str, before: Shape) -> str | None:
    """LeakyRelu, whose slope is a float32, or PRelu; onnxruntime has neither in double."""
    if sheet.double:
        return None
    if isinstance(slope, Tensor):
        return sheet.node("PRelu", x, sheet.const(slope[0] if slope.dim() > len(before) else slope))
    number = torch.tensor([float(slope)], dtype=torch.float64)
    if float(number.float()) == float(slope):
        return sheet.node("LeakyRelu", x, alpha=float(slope))
    return sheet.node("PRelu", x, sheet.const(number))


def _clip(sheet: Sheet, x: str, low: Number | None, high: Number | None) -> str:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        for operator, bound in (("Max", low), ("Min", high)):
            x = x if bound is None else sheet.node(operator, x, _number(sheet, bound))
        return x
    return sheet.node("Clip", x, *("" if b is None else _number(sheet, b) for b in (low, high)))


def _ramp(sheet: Sheet, x: str, op: Pointwise) -> str:
    """Flat, a slope, flat again: hard sigmoids."""
    slope = op.slopes[1]
    x = _plus(sheet, x, _times(op.knots[0], -ONE))
    x = _clip(sheet, x, ZERO, _minus(op.knots[1], op.knots[0]))
    if isinstance(slope, Fraction) and slope.numerator == 1:
        x = sheet.node("Div", x, _number(sheet, Fraction(slope.denominator)))
    else:
        x = sheet.node("Mul", x, _number(sheet, slope))
    return _plus(sheet, x, op.value)


def _relus(sheet: Sheet, op: Pointwise, x: str) -> str:
    """first slope * x + constant + sum over knots of (change of slope) * relu(x - knot)."""
    total = sheet.node("Mul", x, _number(sheet, op.slopes[0])) if not _same(op.slopes[0], ZERO) else ""
    for j, knot in enumerate(op.knots):
        bend = sheet.node("Relu", _plus(sheet, x, _times(knot, -ONE)))
        bend = sheet.node("Mul", bend, _number(sheet, _minus(op.slopes[j + 1], op.slopes[j])))
        total = sheet.node("Add", total, bend) if total else bend
    return _plus(sheet, total, _minus(op.value, _times(op.slopes[0], op.knots[0])))


def maximum(sheet: Sheet, op: Maximum, x: str, before: Shape) -> str:
    """MaxPool or a reduction over dims where the windows are theirs, in general a reduction of gathered windows."""
    reduction = "ReduceMax" if op.sign > 0 else "ReduceMin"
    pool = _pool(op, before) if op.name.startswith("max_pool") and op.sign > 0 else None
    dims = _reduced(op.table, before)
    if pool is not None:
        made, shape = sheet.node("MaxPool", x, **pool), list(op.shape)
    elif dims is not None:
        made = sheet.node(reduction, x, axes=[d + 1 for d in dims], keepdims=0)
        shape = [n for d, n in enumerate(before) if d not in dims]
    else:
        opened = _opened(sheet, op.table, x, before)  # (N, windows, size)
        made, shape = sheet.node(reduction, opened, axes=[2], keepdims=0), [len(op.table)]
    made = sheet.node("Relu", made) if op.floor else made  # next to the maximum, for readers that fuse the two
    return sheet.reshape(made, op.shape, shape)


def order(sheet: Sheet, op: Order, x: str, before: Shape) -> str:
    """TopK from the end that needs fewer, and the ranks that are wanted."""
    size = op.table.shape[1]
    opened = _opened(sheet, op.table, x, before)  # (N, windows, size)
    largest = int(op.ranks.max()) + 1 <= size - int(op.ranks.min())
    places = op.ranks if largest else size - 1 - op.ranks
    count = int(places.max()) + 1
    made = sheet.node("TopK", opened, sheet.ints([count]), outputs=2, axis=2, largest=int(largest), sorted=1)
    if not torch.equal(places, torch.arange(count)):
        made = sheet.gather(made, places, 2)
    return sheet.reshape(made, op.shape, (len(op.table), len(op.ranks)))


def _opened(sheet: Sheet, table: Tensor, x: str, before: Shape) -> str:
    """(N, windows, size); nothing is gathered where the windows lie in a row."""
    if torch.equal(table.flatten(), torch.arange(prod(before))):
        return sheet.reshape(x, table.shape, before)
    return sheet.gather(sheet.flat(x, before), table, 1)


def _reduced(table: Tensor, before: Shape) -> list[int] | None:
    """The dims whose reduction has these windows."""
    if table.numel() != prod(before) or len(before) > 6:
        return None
    for count in range(1, len(before) + 1):
        for dims in combinations(range(len(before)), count):
            fits = prod(before[d] for d in dims) == table.shape[1]
            if fits and torch.equal(windows.reduction_windows(before, dims), table):
                return list(dims)
    return None


def _pool(op: Maximum, before: Shape) -> dict[str, Any] | None:
    """The settings of the pool that has these windows, found by trying those that fit the shapes."""
    channels, size, out = before[0], before[1:], op.shape[1:]
    if len(op.table) != channels * prod(out) or len(out) != len(size):
        return None
    table = op.table[: prod(out)]
    for kernel in _factors(table.shape[1], len(size)):
        choices = [list(_fits(n, m, k)) for n, m, k in zip(size, out, kernel, strict=True)]
        for picked in product(*choices):
            stride, padding, dilation, after = ([p[i] for p in picked] for i in range(4))
            if torch.equal(windows.pool_windows(size, out, kernel, stride, padding, dilation), table):
                pads = [*padding, *after]
                return {"kernel_shape": kernel, "strides": stride, "pads": pads, "dilations": dilation}
    return None


def _fits(size: int, out: int, kernel: int) -> Iterator[tuple[int, int, int, int]]:
    """Stride, padding, dilation and padding at the end that make ``out`` windows of ``size``."""
    for dilation in range(1, 4 if kernel > 1 else 2):
        reach = (kernel - 1) * dilation + 1
        for padding in range(kernel // 2 + 1):
            strides = [kernel, *range(1, size + 1)] if out > 1 else [kernel, size]
            for stride in dict.fromkeys(strides):
                after = (out - 1) * stride + reach - size - padding
                left = -after  # elements that no window reaches
                if left < stride and after < kernel and (out - 1) * stride < size + padding:
                    yield stride, padding, dilation, max(after, 0)


def _factors(count: int, dims: int) -> Iterator[list[int]]:
    """Kernels of this many elements, those of even sides first."""
    found = [list(k) for k in product([f for f in range(1, count + 1) if count % f == 0], repeat=dims)]
    yield from sorted((k for k in found if prod(k) == count), key=lambda k: max(k) - min(k))


def _fractions(op: Pointwise) -> bool:
    return all(isinstance(v, Fraction) for v in (*op.knots, *op.slopes, op.value))


def _same(one: Number, two: Number) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return bool((one == two).all())  # the same once they are broadcast
    return isinstance(one, Fraction) and isinstance(two, Fraction) and one == two


def _number(sheet: Sheet, value: Number) -> str:
    return sheet.const(value if isinstance(value, Tensor) else float(value))


def _plus(sheet: Sheet, x: str, value: Number) -> str:
    return x if _same(value, ZERO) else sheet.node("Add", x, _number(sheet, value))


def _times(one: Number, two: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one * two
    return _tensor(one) * _tensor(two)


def _minus(one: Number, two: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one - two
    return _tensor(one) - _tensor(two)


def _tensor(value: Number) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
