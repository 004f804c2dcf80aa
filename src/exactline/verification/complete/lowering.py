"""Translates a network into a program of affine maps and ramps, with the exact rationals that its weights are.

A pointwise function is a line plus a ramp for every knot; a maximum is a tournament of max(a, b) = b + ramp(a - b);
order statistics are an odd-even transposition sort of such exchanges.
"""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import accumulate
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...errors import NumberError, UnsupportedError
from ...network.graph import Network, Node, Shape
from ...ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from ...ops.base import Input
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Number, Pointwise
from ...tolerances import FRACTION_TOLERANCE
from .errors import NetworkTooLarge, OutOfTime
from .program import Coefficients, Floats, Numbers, Program

PROBE_ELEMENTS = 1 << 22  # of one-hot inputs, or of their outputs, at a time
MAX_COEFFICIENTS = 1 << 26  # nonzero coefficients of one operator
MAX_AVERAGE_DENOMINATOR = 10**6  # of the coefficient of an average
Indices = NDArray[np.int64]


def lower_network(network: Network, ramp_scale: int = 1, deadline: float = inf) -> Program:
    """Translate a network.

    Args:
        network: The network.
        ramp_scale: The factor of the denominators of ramps.
        deadline: When to stop, by `time.monotonic`.

    Raises NumberError for weights that are not finite, UnsupportedError for an operator without a translation,
    NetworkTooLarge, OutOfTime.
    """
    network = network.to("cpu", torch.float64)
    sizes = [_count(network.nodes[i].shape) for i in network.inputs]
    lowering = _Lowering(network, Program(sum(sizes), ramp_scale), deadline)
    starts = [0, *accumulate(sizes)]
    needed = network.last_use(network.outputs)
    for i, start, size in zip(network.inputs, starts, sizes, strict=False):
        alone = len(sizes) == 1
        lowering.steps[i] = 0 if alone else lowering.select(0, np.arange(start, start + size))
    for i, node in enumerate(network.nodes):
        if i in needed and not isinstance(node.op, Input):
            lowering.steps[i] = lowering.lower(node)
    outputs = [lowering.steps[i] for i in network.outputs]
    lowering.program.output = outputs[0] if len(outputs) == 1 else lowering.concatenate(outputs)
    return lowering.program


class _Lowering:
    """Appends the steps of one node after the other."""

    def __init__(self, network: Network, program: Program, deadline: float) -> None:
        self.network, self.program, self.deadline = network, program, deadline
        self.steps: dict[int, int] = {}  # by node

    def lower(self, node: Node) -> int:
        """Append the steps of a node; return the last one."""
        sources = [self.steps[j] for j in node.inputs]
        shapes = [self.network.nodes[j].shape for j in node.inputs]
        match node.op:
            case Reshape():
                return sources[0]
            case Rearrange() as op:
                return self._rearrange(op, sources)
            case Combine() as op:
                terms = [
                    (s, _diagonal(_broadcast_index(shape, node.shape), self.program.sizes[s], np.full(1, float(f))))
                    for s, shape, f in zip(sources, shapes, op.factors, strict=True)
                ]
                return self.program.add_affine(terms)
            case Scale() as op:
                return self._scale(op, sources[0], shapes[0], node)
            case Product() | Average() as op:
                bias = None
                if isinstance(op, Product) and op.offset is not None:
                    bias = _expand(op.offset, node.shape, repr(node))
                return self.program.add_affine([(sources[0], _probe(op, shapes[0], repr(node), self.deadline))], bias)
            case Pointwise() as op:
                return self._pointwise(op, sources[0], shapes[0], repr(node))
            case Maximum() as op:
                return self._maximum(op, sources[0])
            case Order() as op:
                return self._order(op, sources[0])
            case op:
                raise UnsupportedError(
                    f"Complete verification has no rule for {op.title}.",
                    nodes=(node.name,),
                    where=repr(node),
                    hint="Use the falsifier: xl.falsify.",
                )

    def select(self, source: int, index: Indices, factor: float = 1.0) -> int:
        """Append a step that reads some elements of another."""
        return self.program.add_affine([(source, _diagonal(index, self.program.sizes[source], np.full(1, factor)))])

    def concatenate(self, sources: list[int]) -> int:
        """Append a step that joins others."""
        total, terms, first = sum(self.program.sizes[s] for s in sources), [], 0
        for s in sources:
            size = self.program.sizes[s]
            terms.append(
                (s, Coefficients((total, size), np.arange(first, first + size), np.arange(size), np.ones(size)))
            )
            first += size
        return self.program.add_affine(terms)

    def _rearrange(self, op: Rearrange, sources: list[int]) -> int:
        index, total = op.index.cpu().numpy(), len(op.index)
        terms, first = [], 0
        for s in sources:
            size = self.program.sizes[s]
            rows = np.flatnonzero((index >= first) & (index < first + size))
            terms.append((s, Coefficients((total, size), rows, index[rows] - first, np.ones(len(rows)))))
            first += size
        bias = None
        if op.constant is not None:
            constant = _finite(op.constant, "a constant").reshape(-1)
            bias = np.where(index < 0, np.broadcast_to(constant, index.shape), 0.0)
        return self.program.add_affine(terms, bias)

    def _scale(self, op: Scale, source: int, shape: Shape, node: Node) -> int:
        weight: Numbers = np.ones(1) if op.weight is None else _expand(op.weight, node.shape, repr(node))
        if op.divisor is not None:
            divisor = _expand(op.divisor, node.shape, repr(node))
            if not divisor.all():
                raise NumberError("The network divides by zero.", where=repr(node), hint="Give another divisor.")
            top = np.broadcast_to(weight, divisor.shape).tolist()
            weight = _make_array([Fraction(w) / Fraction(d) for w, d in zip(top, divisor.tolist(), strict=True)])
        matrix = _diagonal(_broadcast_index(shape, node.shape), self.program.sizes[source], weight)
        bias = None if op.offset is None else _expand(op.offset, node.shape, repr(node))
        return self.program.add_affine([(source, matrix)], bias)

    def _pointwise(self, op: Pointwise, source: int, shape: Shape, where: str) -> int:
        size = self.program.sizes[source]
        knots = [_expand_number(k, shape, where) for k in op.knots]
        slopes = [_expand_number(s, shape, where) for s in op.slopes]
        value = _expand_number(op.value, shape, where)
        offset = _make_array(
            [v - s * k for v, s, k in zip(value.tolist(), slopes[0].tolist(), knots[0].tolist(), strict=True)]
        )
        identity = np.arange(size)
        terms: list[tuple[int, Coefficients]] = []
        for knot, left, right in zip(knots, slopes, slopes[1:], strict=False):
            shifted = source
            if any(knot.tolist()):
                shifted = self.program.add_affine([(source, _diagonal(identity, size, np.ones(1)))], -knot)
            ramp = self.program.add_ramp(shifted)
            jump = right - left
            if (
                not any(slopes[0].tolist())
                and not any(offset.tolist())
                and len(knots) == 1
                and all(j == 1 for j in jump)
            ):
                return ramp
            terms.append((ramp, _diagonal(identity, size, jump)))
        line = (source, _diagonal(identity, size, slopes[0]))
        return self.program.add_affine([line, *terms], offset)

    def _maximum(self, op: Maximum, source: int) -> int:
        table = op.table.cpu().numpy()
        windows, size = table.shape
        current = self.select(source, table.T.reshape(-1), float(op.sign))  # (size, windows)
        while size > 1:
            pairs = size // 2
            first, second = np.arange(pairs * windows), np.arange(pairs * windows, 2 * pairs * windows)
            rest = np.arange(2 * pairs * windows, size * windows)
            ramp = self._compare(current, first, second)
            kept, length = np.concatenate([second, rest]), (size - pairs) * windows
            lower = _diagonal(kept, size * windows, np.ones(1))
            gain = Coefficients((length, len(first)), first, first, np.ones(len(first)))
            current = self.program.add_affine([(current, lower), (ramp, gain)])
            size -= pairs
        if op.floor:
            current = self.program.add_ramp(current)
        return current if op.sign > 0 else self.select(current, np.arange(windows), -1.0)

    def _order(self, op: Order, source: int) -> int:
        table = op.table.cpu().numpy()
        windows, size = table.shape
        current, places = self.select(source, table.T.reshape(-1)), np.arange(size * windows).reshape(size, windows)
        for stage in range(size if size > 1 else 0):
            upper, lower = places[stage % 2 : -1 : 2].reshape(-1), places[stage % 2 + 1 :: 2].reshape(-1)
            if not len(upper):
                continue
            ramp = self._compare(current, lower, upper)  # how far the lower place exceeds the upper one
            rows, count = np.concatenate([upper, lower]), len(upper)
            signs = np.concatenate([np.ones(count), -np.ones(count)])
            swap = Coefficients((size * windows, count), rows, np.tile(np.arange(count), 2), signs)
            current = self.program.add_affine(
                [(current, _diagonal(places.reshape(-1), size * windows, np.ones(1))), (ramp, swap)]
            )
        ranks = op.ranks.cpu().numpy()
        return self.select(current, places[ranks].T.reshape(-1))

    def _compare(self, source: int, first: Indices, second: Indices) -> int:
        """Append the ramp of the differences of some elements."""
        count = len(first)
        same = first == second
        rows = np.concatenate([np.arange(count)[~same]] * 2)
        values = np.concatenate([np.ones(count - same.sum()), -np.ones(count - same.sum())])
        columns = np.concatenate([first[~same], second[~same]])
        difference = Coefficients((count, self.program.sizes[source]), rows, columns, values)
        return self.program.add_ramp(self.program.add_affine([(source, difference)]))


def _probe(op: Product | Average, shape: Shape, where: str, deadline: float) -> Coefficients:
    """Find the exact coefficients of a linear operator from its outputs for one-hot inputs."""
    if isinstance(op, Product):
        weight = _finite(op.weight, where)
        if op.call is F.linear and len(shape) == 1:
            return Coefficients.from_dense(weight)
        if op.call is torch.matmul and len(shape) == 1 and weight.ndim == 2:
            return Coefficients.from_dense(weight.T)
    width = _count(shape)
    with torch.no_grad():
        height = op.linear(torch.zeros(1, *shape, dtype=torch.float64)).numel()
        step = max(1, PROBE_ELEMENTS // max(width, height, 1))
        found: list[tuple[Indices, Indices, Floats]] = []
        total = 0
        for first in range(0, width, step):
            if time.monotonic() > deadline:
                raise OutOfTime
            x = torch.eye(min(step, width - first), width, dtype=torch.float64).roll(first, 1)
            out = op.linear(x.view(len(x), *shape)).reshape(len(x), -1).numpy()
            columns, rows = np.nonzero(out)
            found.append((rows, columns + first, out[columns, rows]))
            total += len(rows)
            if total > MAX_COEFFICIENTS:
                raise NetworkTooLarge
    rows, columns, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if isinstance(op, Product):
        if not np.isin(np.abs(values), np.abs(_finite(op.weight, where))).all():
            raise NumberError(
                "A product adds several weights for one coefficient, so its coefficients are rounded.",
                where=where,
                hint="Add the weights beforehand, and use the sums as the weights of the network.",
            )
        return Coefficients((height, width), rows, columns, values)
    return Coefficients((height, width), rows, columns, _average_weights(op, values, where))


def _average_weights(op: Average, values: Floats, where: str) -> Numbers:
    """The coefficients of an average: fractions such as 1/3, or the floats themselves for an interpolation."""
    if not op.rational_coefficients:
        return values
    distinct, index = np.unique(values, return_inverse=True)
    fractions = [Fraction(v).limit_denominator(MAX_AVERAGE_DENOMINATOR) for v in distinct.tolist()]
    if any(abs(f - Fraction(v)) > FRACTION_TOLERANCE for f, v in zip(fractions, distinct.tolist(), strict=True)):
        raise NumberError("An average has a coefficient that is not a small fraction.", where=where)
    return _make_array(fractions)[index]


def _diagonal(index: Indices, width: int, factor: Numbers) -> Coefficients:
    """The matrix that reads one element for every row, times a factor."""
    rows = np.arange(len(index))
    return Coefficients((len(index), width), rows, index, np.broadcast_to(factor, index.shape))


def _expand(tensor: Tensor, shape: Shape, where: str) -> Floats:  # (elements,)
    return np.broadcast_to(_finite(tensor, where), (1, *shape)).reshape(-1)


def _expand_number(number: Number, shape: Shape, where: str) -> NDArray[np.object_]:  # (elements,)
    if isinstance(number, Fraction):
        return _make_array([number] * _count(shape))
    return _make_array([Fraction(v) for v in _expand(number, shape, where).tolist()])


def _make_array(numbers: list[Fraction]) -> NDArray[np.object_]:
    out = np.empty(len(numbers), dtype=object)
    out[:] = numbers
    return out


def _finite(tensor: Tensor, where: str) -> Floats:
    values = tensor.detach().cpu().to(torch.float64).numpy()
    if not np.isfinite(values).all():
        raise NumberError("A constant is NaN or infinite.", where=where, hint="Give finite weights.")
    return values


def _broadcast_index(shape: Shape, larger: Shape) -> Indices:
    """The flat index in a shape that each element of a larger shape reads after broadcasting."""
    index = np.arange(_count(shape)).reshape(1, *shape)
    return np.broadcast_to(index, (1, *larger)).reshape(-1)


def _count(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))
