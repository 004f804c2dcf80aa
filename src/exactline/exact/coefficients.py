"""The exact coefficients of a linear operator, found by applying it to one-hot inputs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NumberError
from ..network.graph import Shape
from ..ops.affine import Average, Product
from ..tolerances import FRACTION_TOLERANCE
from .integers import IntegerArray, IntegerMatrix, Rationals, make_zeros, read_rationals, to_common_denominator

ONE_HOT_CHUNK_ELEMENTS = 1 << 22  # of one-hot inputs, or of their outputs, at a time
MIN_DENSE_SHARE = 0.25  # of nonzero coefficients, from which a single dense block is fastest (empirical)
MAX_AVERAGE_DENOMINATOR = 10**6  # of the coefficient of an average


@dataclass(frozen=True, eq=False)
class CoefficientBlock:
    """The coefficients of outputs that read the same inputs, such as all channels of a convolution at one pixel."""

    rows: NDArray[np.int64]  # (r,) outputs
    columns: NDArray[np.int64]  # (c,) inputs
    weights: IntegerMatrix  # (r, c)


@dataclass(frozen=True, eq=False)
class CoefficientMatrix:
    """A sparse matrix of rationals, as blocks of integers over one denominator."""

    row_count: int
    blocks: tuple[CoefficientBlock, ...]
    denominator: int

    def __matmul__(self, x: IntegerArray) -> IntegerArray:  # (columns, 2, pieces) -> (rows, 2, pieces)
        """Numerators of the product, which are computed once where a block's inputs agree on neighbouring pieces."""
        differs = (x[:, :, 1:] != x[:, :, :-1]).any(1)  # (columns, pieces - 1)
        out = make_zeros(self.row_count, *x.shape[1:])
        for block in self.blocks:
            is_new = np.concatenate([[True], differs[block.columns].any(0)])
            part = x[block.columns][:, :, is_new]
            product = block.weights @ part.reshape(len(part), -1)
            out[block.rows] = product.reshape(-1, *part.shape[1:])[:, :, is_new.cumsum() - 1]
        return out


def compute_coefficients(op: Product | Average, shape: Shape, where: str) -> CoefficientMatrix:
    """The matrix of the linear part of an operator, for inputs of one shape.

    Raises NumberError where a coefficient is rounded.
    """
    found = _probe_one_hot(op, shape)
    if isinstance(op, Average):
        exact = _read_average_weights(op, found.values, where)
    else:
        exact = _read_product_weights(op, found.values, where)
    order = np.lexsort((found.columns, found.rows))
    rows, columns, numerators = found.rows[order], found.columns[order], exact.numerators[order]
    row_count, width = found.row_count, torch.Size(shape).numel()
    if len(rows) >= MIN_DENSE_SHARE * row_count * width:
        dense = make_zeros(row_count, width)
        dense[rows, columns] = numerators
        blocks = (CoefficientBlock(np.arange(row_count), np.arange(width), IntegerMatrix(dense)),)
    else:
        blocks = _group_rows(rows, columns, numerators)
    return CoefficientMatrix(row_count, blocks, exact.denominator)


class _NonzeroCoefficients(NamedTuple):
    """The nonzero coefficients of a linear operator, in coordinate format."""

    rows: NDArray[np.int64]  # (n,)
    columns: NDArray[np.int64]  # (n,)
    values: Tensor  # (n,)
    row_count: int


@torch.no_grad()
def _probe_one_hot(op: Product | Average, shape: Shape) -> _NonzeroCoefficients:
    """Find the nonzero coefficients of an operator for inputs of one shape.

    For a product they are exact: every output is one weight times 1, plus zeros.
    """
    width = torch.Size(shape).numel()
    row_count = op.linear(torch.zeros(1, *shape, dtype=torch.float64)).numel()
    rows, columns, values = [], [], []
    step = max(1, ONE_HOT_CHUNK_ELEMENTS // max(width, row_count, 1))
    for first in range(0, width, step):
        count = min(step, width - first)
        x = torch.zeros(count, width, dtype=torch.float64)
        x[torch.arange(count), torch.arange(count) + first] = 1
        out = op.linear(x.view(count, *shape)).reshape(count, -1)
        column, row = torch.nonzero(out, as_tuple=True)
        rows.append(row)
        columns.append(column + first)
        values.append(out[column, row])
    if not values:
        empty = np.zeros(0, dtype=np.int64)
        return _NonzeroCoefficients(empty, empty, torch.zeros(0, dtype=torch.float64), row_count)
    return _NonzeroCoefficients(torch.cat(rows).numpy(), torch.cat(columns).numpy(), torch.cat(values), row_count)


def _read_product_weights(op: Product, values: Tensor, where: str) -> Rationals:
    """The coefficients of a product, each of which must be one of its weights."""
    if not np.isin(values.abs().numpy(), op.weight.detach().to(torch.float64).abs().numpy()).all():
        raise NumberError(
            "A product adds several weights for one coefficient, so its coefficients are rounded.",
            where=where,
            hint="Add the weights beforehand, and use the sums as the weights of the network.",
        )
    return read_rationals(values, where)


def _read_average_weights(op: Average, values: Tensor, where: str) -> Rationals:
    """The coefficients of an average: fractions such as 1/3, or the floats themselves for an interpolation."""
    if not op.rational_coefficients:
        return read_rationals(values, where)
    distinct, index = torch.unique(values, return_inverse=True)
    floats = distinct.tolist()
    fractions = [Fraction(v).limit_denominator(MAX_AVERAGE_DENOMINATOR) for v in floats]
    errors = (abs(float(fraction - Fraction(v))) for fraction, v in zip(fractions, floats, strict=True))
    if any(error > FRACTION_TOLERANCE for error in errors):
        raise NumberError("An average has a coefficient that is not a small fraction.", where=where)
    return to_common_denominator(fractions)[index.numpy()]


def _group_rows(
    rows: NDArray[np.int64],  # (n,) sorted
    columns: NDArray[np.int64],  # (n,)
    numerators: IntegerArray,  # (n,)
) -> tuple[CoefficientBlock, ...]:
    """Group the rows with nonzero coefficients in the same columns."""
    if not len(rows):
        return ()
    row_indices, starts = np.unique(rows, return_index=True)
    stops = [*starts[1:].tolist(), len(rows)]
    groups: dict[bytes, list[tuple[int, slice]]] = {}  # rows and their entries
    for row, start, stop in zip(row_indices.tolist(), starts.tolist(), stops, strict=True):
        groups.setdefault(columns[start:stop].tobytes(), []).append((row, slice(start, stop)))
    blocks: list[CoefficientBlock] = []
    for members in groups.values():
        group_rows = np.array([row for row, _ in members])
        weights = np.stack([numerators[entries] for _, entries in members])
        blocks.append(CoefficientBlock(group_rows, columns[members[0][1]], IntegerMatrix(weights)))
    return tuple(blocks)
