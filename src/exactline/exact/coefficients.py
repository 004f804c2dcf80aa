"""The exact coefficients of a linear operator, found by giving it one-hot inputs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NumberError
from ..network.graph import Shape
from ..ops.affine import Average, Product
from .integers import Matrix, Rationals, Wholes, common, read, zeros

LOOK = 1 << 22  # elements of one-hot inputs or their outputs at a time
DENSE = 0.25  # share of coefficients that are not zero from which on one block is best
LARGEST = 10**6  # denominator of an average's coefficient


@dataclass(frozen=True, eq=False)
class Block:
    """Outputs that read the same inputs: a convolution's channels at one position."""

    rows: NDArray[np.int64]  # (r,)
    columns: NDArray[np.int64]  # (c,)
    weights: Matrix  # (r, c)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A sparse matrix of rationals, kept as blocks over one denominator."""

    size: int  # rows
    blocks: tuple[Block, ...]
    bottom: int

    def __matmul__(self, x: Wholes) -> Wholes:  # (columns, 2, pieces) -> (rows, 2, pieces), over the bottom
        """The product, made once where a block's inputs have the same forms on neighbouring pieces."""
        moved = (x[:, :, 1:] != x[:, :, :-1]).any(1)  # (columns, pieces - 1)
        out = zeros(self.size, *x.shape[1:])
        for block in self.blocks:
            fresh = np.concatenate([[True], moved[block.columns].any(0)])
            part = x[block.columns][:, :, fresh]
            product = block.weights @ part.reshape(len(part), -1)
            out[block.rows] = product.reshape(-1, *part.shape[1:])[:, :, fresh.cumsum() - 1]
        return out


def coefficients(op: Product | Average, shape: Shape, where: str) -> Coefficients:
    """The matrix of an operator's linear part for inputs of one shape."""
    rows, columns, values, size = _one_hot(op, shape)
    exact = _averaged(op, values, where) if isinstance(op, Average) else _weights(op, values, where)
    order = np.lexsort((columns, rows))
    rows, columns, top = rows[order], columns[order], exact.top[order]
    width = torch.Size(shape).numel()
    if len(rows) >= DENSE * size * width:
        dense = zeros(size, width)
        dense[rows, columns] = top
        blocks = (Block(np.arange(size), np.arange(width), Matrix(dense)),)
    else:
        blocks = _blocks(rows, columns, top)
    return Coefficients(size, blocks, exact.bottom)


@torch.no_grad()
def _one_hot(op: Product | Average, shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64], Tensor, int]:
    """Rows, columns and values of all coefficients that are not zero, and the number of rows.

    Exact for a product: every output is one weight times 1, and zeros.
    """
    width = torch.Size(shape).numel()
    size = op.linear(torch.zeros(1, *shape, dtype=torch.float64)).numel()
    rows, columns, values = [], [], []
    step = max(1, LOOK // max(width, size, 1))
    for at in range(0, width, step):
        count = min(step, width - at)
        x = torch.zeros(count, width, dtype=torch.float64)
        x[torch.arange(count), torch.arange(count) + at] = 1
        out = op.linear(x.view(count, *shape)).reshape(count, -1)
        column, row = torch.nonzero(out, as_tuple=True)
        rows.append(row)
        columns.append(column + at)
        values.append(out[column, row])
    if not values:
        none = np.zeros(0, dtype=np.int64)
        return none, none, torch.zeros(0, dtype=torch.float64), size
    return torch.cat(rows).numpy(), torch.cat(columns).numpy(), torch.cat(values), size


def _weights(op: Product, values: Tensor, where: str) -> Rationals:
    if not np.isin(values.abs().numpy(), op.weight.detach().to(torch.float64).abs().numpy()).all():
        raise NumberError(
            "A product adds several weights before it meets its input, so its coefficients are rounded.",
            where=where,
            hint="Sum the weights beforehand, so that the sum is the network's own number.",
        )
    return read(values, where)


def _averaged(op: Average, values: Tensor, where: str) -> Rationals:
    """Coefficients such as 1/3, which floats cannot hold, unless the operator says they are what they are."""
    if not op.fractions:
        return read(values, where)
    distinct, place = torch.unique(values, return_inverse=True)
    numbers = [Fraction(v).limit_denominator(LARGEST) for v in distinct.tolist()]
    if any(abs(float(number - Fraction(v))) > 1e-14 for number, v in zip(numbers, distinct.tolist(), strict=True)):
        raise NumberError("An average has a coefficient that is no small fraction.", where=where)
    return common(numbers)[place.numpy()]


def _blocks(rows: NDArray[np.int64], columns: NDArray[np.int64], top: Wholes) -> tuple[Block, ...]:
    """Group the rows (sorted) that read the same columns."""
    if not len(rows):
        return ()
    names, starts = np.unique(rows, return_index=True)
    stops = [*starts[1:].tolist(), len(rows)]
    groups: dict[bytes, list[tuple[int, int, int]]] = {}
    for name, start, stop in zip(names.tolist(), starts.tolist(), stops, strict=True):
        groups.setdefault(columns[start:stop].tobytes(), []).append((name, start, stop))
    blocks: list[Block] = []
    for members in groups.values():
        _, start, stop = members[0]
        weights = np.stack([top[a:b] for _, a, b in members])
        blocks.append(Block(np.array([name for name, _, _ in members]), columns[start:stop], Matrix(weights)))
    return tuple(blocks)
