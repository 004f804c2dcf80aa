"""A ReLU and the linear layer after it in one pass: new points get the linear layer's values without a product.

Between two points that exist before the ReLU, its output is affine except for the units that cross there. So the
linear layer is evaluated at the old points only. At a new point it is the interpolation between the two ends of the
piece, less the column of the weights of each crossing unit times the distance of that unit from its chord. Two running
sums over the crossings of a piece serve all its new points, so a new point costs as much as a few rows instead of the
whole matrix.

Rounding errors of the interpolation are relative to the values at the ends of the piece, and of the order of the errors
of the products there. Points whose values are much smaller than both ends (`MAX_SHRINKAGE`) go through the product, so
that error estimates of single points hold.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...arrays import Ints
from ...budget import block_bytes
from ...numerics.plan import SweepPlan
from ...numerics.static_filter import Magnitude
from ...ops.affine import Product
from ...tolerances import MAX_SHRINKAGE, OVERFLOW_GUARD
from ..loops import CompiledLoops
from .points import PointTable
from .state import SweepState
from .workspace import empty

MIN_WEIGHTS = 1 << 13  # of the linear layer: products with smaller ones cost less than the pass
MIN_UNITS = 128  # of the ReLU
MAX_PRODUCT_SHARE = 0.5  # of the new points that may need the product: with more, nothing is gained
MAX_KEPT_COLUMNS = 1 << 24  # weights of all layers that are kept transposed: 128 MiB of float64
KEPT_DIVISOR = 8  # kept columns may take one part in so many of the memory
GATHER_DIVISOR = 32  # columns that are gathered at a time may do so, twice while they are transposed
PRODUCT_LOOPS = CompiledLoops(
    lambda: import_module(".kernels", __package__),
    ("place_sign_changes", "interpolate_products"),
)
_kept_columns: weakref.WeakKeyDictionary[Product, Tensor] = weakref.WeakKeyDictionary()


def suits_fused_product(op: object) -> bool:
    """Whether an operator is a linear layer of a size for which the pass pays."""
    return (
        isinstance(op, Product)
        and op.call is F.linear
        and op.weight.dim() == 2
        and op.weight.shape[1] >= MIN_UNITS
        and op.weight.numel() >= MIN_WEIGHTS
    )


def insert_product_breaks(
    plan: SweepPlan,
    state: SweepState,
    product: Product,
    x: Tensor,  # (n, w) the input of the ReLU
    counts: Ints,  # (n,) sign changes between a point and the next one
    threshold: float,
    max_points: int,
) -> SweepState | None:
    """The state after the ReLU at ``state.node`` and the linear layer after it; None if only the ReLU can be done."""
    i, values, old = state.node, x.numpy(), state.points
    rows, width = len(x) + int(counts.sum()), len(product.weight)
    is_last = i + 2 == len(plan.value_gain)  # then only the outputs are kept
    bound = Magnitude.after(plan, i + 1, [state.bounds[i]], state.eps)
    if rows > max_points * max(1, x.shape[1] // width if is_last else 1) or not bound.values <= OVERFLOW_GUARD:
        return None
    kernels = PRODUCT_LOOPS.request(x.numel())
    if kernels is None:
        return None
    new, hats = PointTable.empty(rows), np.zeros((rows, 3))
    table = (values, old.integers, old.alpha, counts, i, threshold, MAX_SHRINKAGE)
    shrunken = kernels.place_sign_changes(*table, new.integers, new.alpha, hats)
    if not 0 <= shrunken <= MAX_PRODUCT_SHARE * (rows - len(x)):
        return None
    z, out = product.evaluate(x.relu()), empty((rows, width), x)
    for first, columns, column in _column_blocks(product, np.where(new.node == i, new.unit, 0)):
        kernels.interpolate_products(z.numpy(), columns.numpy(), first, column, counts, hats, out.numpy())
    if shrunken:
        h, at = empty((shrunken, x.shape[1]), x), np.empty(shrunken, dtype=np.int64)
        kernels.relu_at_new_points(values, counts, new.integers, hats, at, h.numpy())
        out.numpy()[at] = product.evaluate(h).numpy()
    return replace(
        state, node=i + 2, table=new, live={i + 1: out}, bounds={i + 1: bound}, magnitudes={}, is_unambiguous=True
    )


def _column_blocks(product: Product, units: Ints) -> Iterator[tuple[int, Tensor, Ints]]:
    """The weights of the units of points (m,), a few outputs at a time.

    Yields the first output of a block, its weights (columns, outputs) and the column (m,) of each point. A layer whose
    columns are not kept is never copied as a whole: it may be larger than the memory.
    """
    columns = _kept_columns.get(product)
    if columns is None and _may_be_kept(product):
        columns = _kept_columns[product] = product.weight.T.contiguous()
    if columns is not None:
        yield 0, columns, units
        return
    some, column = np.unique(units, return_inverse=True)
    step = max(1, block_bytes(GATHER_DIVISOR) // (product.weight.element_size() * max(1, len(some))))
    for first in range(0, len(product.weight), step):
        block = product.weight[first : first + step].index_select(1, torch.from_numpy(some))
        yield first, block.T.contiguous(), column


def _may_be_kept(product: Product) -> bool:
    """Whether the columns of a linear layer fit into the memory beside those that are kept already."""
    numbers = product.weight.numel() + sum(t.numel() for t in _kept_columns.values())
    return numbers <= min(MAX_KEPT_COLUMNS, block_bytes(KEPT_DIVISOR) // product.weight.element_size())
