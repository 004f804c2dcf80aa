"""A network in rational arithmetic for the checker of proofs, written from its definition and for clarity only.

It shares no code with the engines, the oracle or the search that makes proofs: each operator is read again, as exact
maps and ramps max(t, 0), in the order in which a proof lists its pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NumberError, UnsupportedError
from ..network.graph import Network, Node, Shape
from ..ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from ..ops.base import Affine, Input
from ..ops.maximum import Maximum
from ..ops.order import Order
from ..ops.pointwise import Pointwise

ONE_HOT_ELEMENTS = 1 << 22  # of a batch of one-hot inputs, or of its outputs
MAX_FRACTION_DENOMINATOR = 10**6  # of a coefficient of an average, such as 1/9
MAX_FRACTION_ERROR = Fraction(1, 10**14)  # of the float that stands for it
Entries: TypeAlias = list[tuple[int, int, Fraction]]  # row, column, coefficient
IntegerArray: TypeAlias = NDArray[Any]  # of Python's integers


class RationalMatrix:
    """A sparse matrix of rationals: integers over one denominator."""

    def __init__(self, rows: int, entries: Entries) -> None:
        self.rows = rows
        self.denominator = lcm(*{value.denominator for _, _, value in entries})
        ordered = sorted((row, column, value) for row, column, value in entries if value)
        self.columns = np.array([column for _, column, _ in ordered], dtype=np.int64)
        self.weights = np.empty((len(ordered), 1), dtype=object)
        self.weights[:, 0] = [v.numerator * (self.denominator // v.denominator) for _, _, v in ordered]
        self.filled, self.starts = np.unique(
            np.array([row for row, _, _ in ordered], dtype=np.int64), return_index=True
        )

    def __matmul__(self, x: IntegerArray) -> IntegerArray:  # (columns, n) -> (rows, n)
        out = np.zeros((self.rows, x.shape[1]), dtype=object)
        if len(self.columns):
            out[self.filled] = np.add.reduceat(self.weights * x[self.columns], self.starts, axis=0)
        return out


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of matrices times earlier tensors, plus a bias."""

    terms: list[tuple[int, RationalMatrix]]
    bias: list[Fraction]  # (rows,)


@dataclass(frozen=True, eq=False)
class Ramp:
    """max(t, 0) of every element t of an earlier tensor."""

    source: int


class RationalNetwork:
    """All tensors of a network, as sums and ramps of earlier ones; tensor 0 is the input, all inputs in one row."""

    def __init__(self, network: Network) -> None:
        self.network = network.to("cpu", torch.float64)
        sizes = [prod(self.network.nodes[i].shape) for i in self.network.inputs]
        self.sizes = [sum(sizes)]
        self.operations: list[Sum | Ramp] = []  # of tensors 1, 2, ...
        tensors: dict[int, int] = {}  # by node
        first = 0
        for i, size in zip(self.network.inputs, sizes, strict=True):
            tensors[i] = self._add_sum([(0, [(k, first + k, Fraction(1)) for k in range(size)])], size)
            first += size
        needed = self.network.last_use(self.network.outputs)
        for i, node in enumerate(self.network.nodes):
            if i in needed and not isinstance(node.op, Input):
                tensors[i] = self._read(node, [tensors[j] for j in node.inputs])
        self.outputs = [tensors[i] for i in self.network.outputs]

    @property
    def ramp_count(self) -> int:
        """The number of elements of all ramps: the letters of a pattern."""
        return sum(self.sizes[k + 1] for k, operation in enumerate(self.operations) if isinstance(operation, Ramp))

    def _read(self, node: Node, sources: list[int]) -> int:
        shapes = [self.network.nodes[j].shape for j in node.inputs]
        match node.op:
            case Scale() as op:
                return self._read_scale(op, sources[0], shapes[0], node)
            case Product() | Average() | Combine() | Rearrange() | Reshape() as op:
                zeros = [torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes]
                bias = [Fraction(v) for v in op.evaluate(*zeros).reshape(-1).tolist()]
                terms = [(s, list(_probe(op, k, shapes, node))) for k, s in enumerate(sources)]
                return self._add_sum(terms, len(bias), bias)
            case Pointwise() as op:
                return self._read_pointwise(op, sources[0], shapes[0])
            case Maximum() as op:
                return self._read_maximum(op, sources[0])
            case Order() as op:
                return self._read_order(op, sources[0])
            case op:
                raise UnsupportedError(
                    f"The checker has no rule for {op.title}.", nodes=(node.name,), where=repr(node), hint="Add one."
                )

    def _read_scale(self, op: Scale, source: int, shape: Shape, node: Node) -> int:
        """Read x * weight / divisor + offset."""
        weight, divisor, offset = (_expand(t, node.shape) for t in (op.weight, op.divisor, op.offset))
        index = np.broadcast_to(np.arange(prod(shape)).reshape(1, *shape), (1, *node.shape)).reshape(-1).tolist()
        size = len(index)
        if divisor is not None and not all(divisor):
            raise NumberError("The network divides by zero.", where=repr(node), hint="Give another divisor.")
        top, bottom = weight or [Fraction(1)] * size, divisor or [Fraction(1)] * size
        entries = [(k, index[k], top[k] / bottom[k]) for k in range(size)]
        return self._add_sum([(source, entries)], size, offset)

    def _read_pointwise(self, op: Pointwise, source: int, shape: Shape) -> int:
        """Read a line plus a ramp for every knot."""
        size = self.sizes[source]
        knots = [_expand_number(k, shape) for k in op.knots]
        slopes = [_expand_number(s, shape) for s in op.slopes]
        value = _expand_number(op.value, shape)
        terms = [(source, [(u, u, slopes[0][u]) for u in range(size)])]
        for j, knot in enumerate(knots):
            shifted = source
            if any(knot):
                shifted = self._add_sum([(source, _identity(size))], size, [-k for k in knot])
            ramp = self._add_ramp(shifted)
            terms.append((ramp, [(u, u, slopes[j + 1][u] - slopes[j][u]) for u in range(size)]))
        bias = [value[u] - slopes[0][u] * knots[0][u] for u in range(size)]
        return self._add_sum(terms, size, bias)

    def _read_maximum(self, op: Maximum, source: int) -> int:
        """Read the rounds of a tournament in which max(a, b) is b + max(a - b, 0)."""
        sign, table = Fraction(op.sign), op.table.tolist()
        windows, size = len(table), len(table[0])
        start: Entries = [(c * windows + w, table[w][c], sign) for c in range(size) for w in range(windows)]
        current = self._add_sum([(source, start)], size * windows)
        while size > 1:
            pairs = size // 2 * windows  # the first half meets the second
            ramp = self._add_difference(current, range(pairs), range(pairs, 2 * pairs))
            rest = (size - size // 2) * windows
            kept: Entries = [(k, k + pairs, Fraction(1)) for k in range(rest)]
            current = self._add_sum([(current, kept), (ramp, _identity(pairs))], rest)
            size -= size // 2
        if op.floor:
            current = self._add_ramp(current)
        return self._add_sum([(current, [(w, w, sign) for w in range(windows)])], windows)

    def _read_order(self, op: Order, source: int) -> int:
        """Read an odd-even transposition sort: neighbours a, b become a + max(b - a, 0) and b - max(b - a, 0)."""
        table = op.table.tolist()
        windows, size = len(table), len(table[0])
        start: Entries = [(c * windows + w, table[w][c], Fraction(1)) for c in range(size) for w in range(windows)]
        current = self._add_sum([(source, start)], size * windows)
        for stage in range(size if size > 1 else 0):
            upper = [c * windows + w for c in range(stage % 2, size - 1, 2) for w in range(windows)]
            if not upper:
                continue
            lower = [k + windows for k in upper]
            ramp = self._add_difference(current, lower, upper)
            swap: Entries = [(k, j, Fraction(1)) for j, k in enumerate(upper)]
            swap += [(k, j, Fraction(-1)) for j, k in enumerate(lower)]
            current = self._add_sum([(current, _identity(size * windows)), (ramp, swap)], size * windows)
        ranks = op.ranks.tolist()
        picked: Entries = [
            (w * len(ranks) + j, rank * windows + w, Fraction(1))
            for w in range(windows)
            for j, rank in enumerate(ranks)
        ]
        return self._add_sum([(current, picked)], windows * len(ranks))

    def _add_difference(self, source: int, first: Sequence[int], second: Sequence[int]) -> int:
        """Add the ramp of the differences of some elements."""
        entries: Entries = [(k, a, Fraction(1)) for k, a in enumerate(first)]
        entries += [(k, b, Fraction(-1)) for k, b in enumerate(second)]
        return self._add_ramp(self._add_sum([(source, entries)], len(first)))

    def _add_sum(self, terms: list[tuple[int, Entries]], size: int, bias: list[Fraction] | None = None) -> int:
        matrices = [(source, RationalMatrix(size, entries)) for source, entries in terms]
        self.operations.append(Sum(matrices, bias or [Fraction(0)] * size))
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _add_ramp(self, source: int) -> int:
        self.operations.append(Ramp(source))
        self.sizes.append(self.sizes[source])
        return len(self.sizes) - 1


def _probe(op: Affine, which: int, shapes: list[Shape], node: Node) -> Iterator[tuple[int, int, Fraction]]:
    """Yield the coefficients of one input of an affine operator, from its outputs for one-hot inputs."""
    width = prod(shapes[which])
    weights = set(op.weight.detach().abs().reshape(-1).tolist()) if isinstance(op, Product) else None
    step = max(1, ONE_HOT_ELEMENTS // max(width, prod(node.shape), 1))
    for first in range(0, width, step):
        xs = [torch.zeros(min(step, width - first), *shape, dtype=torch.float64) for shape in shapes]
        xs[which].view(len(xs[which]), -1)[range(len(xs[which])), range(first, first + len(xs[which]))] = 1
        with torch.no_grad():
            out = op.linear(*xs).reshape(len(xs[which]), -1)
        places = torch.nonzero(out)
        for (column, row), number in zip(places.tolist(), out[places[:, 0], places[:, 1]].tolist(), strict=True):
            if weights is not None and abs(number) not in weights:
                raise NumberError("A coefficient is the rounded sum of several weights.", where=repr(node))
            yield row, first + column, _read_average(op, number, node) if isinstance(op, Average) else Fraction(number)


def _read_average(op: Average, number: float, node: Node) -> Fraction:
    """The fraction that a coefficient of an average stands for."""
    if not op.rational_coefficients:
        return Fraction(number)
    fraction = Fraction(number).limit_denominator(MAX_FRACTION_DENOMINATOR)
    if abs(fraction - Fraction(number)) > MAX_FRACTION_ERROR:
        raise NumberError("An average has a coefficient that is not a small fraction.", where=repr(node))
    return fraction


def _identity(size: int) -> Entries:
    return [(k, k, Fraction(1)) for k in range(size)]


def _expand(tensor: Tensor | None, shape: Shape) -> list[Fraction] | None:
    if tensor is None:
        return None
    numbers = torch.broadcast_to(tensor.detach().to(torch.float64), (1, *shape)).reshape(-1)
    if not bool(torch.isfinite(numbers).all()):
        raise NumberError("A constant is NaN or infinite.", where="the network", hint="Give finite weights.")
    return [Fraction(v) for v in numbers.tolist()]


def _expand_number(number: Fraction | Tensor, shape: Shape) -> list[Fraction]:
    if isinstance(number, Fraction):
        return [number] * prod(shape)
    return _expand(number, shape) or []
