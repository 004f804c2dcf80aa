"""A fused fast path for ReLU layers on a CPU: compiled loops do in one pass what the general path does in many.

It applies if the layer's input is the only live tensor and nothing is ambiguous, and gives the same results bit for
bit, unless the linear layer after it is evaluated in the same pass (`fused_product`).
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import torch

from ...numerics.plan import SweepPlan
from ...numerics.static_filter import Magnitude
from ...ops.affine import Product
from ...ops.base import Breaking
from ...ops.masks import is_on_host
from ...ops.pointwise import Pointwise
from ...tolerances import OVERFLOW_GUARD
from ..loops import CompiledLoops
from .fused_product import insert_product_breaks
from .points import PointTable
from .state import PatternRecord, SweepState
from .workspace import empty

MIN_LAYER_NUMBERS = 1 << 11  # numbers in a layer (points times units): smaller layers gain nothing
MIN_FIRST_LAYER_NUMBERS = 1 << 15  # the same before the compiled loops are loaded, which takes time

RELU_LOOPS = CompiledLoops(lambda: import_module(".kernels", __package__), ("scan_signs", "insert_sign_changes"))
PATTERN_LOOPS = CompiledLoops(lambda: import_module(".kernels", __package__), ("record_pattern",))


def insert_relu_breaks(
    plan: SweepPlan, state: SweepState, op: Breaking, source: int, max_points: int, product: Product | None = None
) -> SweepState | None:
    """The state after a breaking node, or None if the general path must be taken.

    Args:
        plan: The plan of the network.
        state: The state before the node; it is not modified.
        op: The operator of the node.
        source: The node's input.
        max_points: The number of points a state may hold.
        product: The next node's operator if it alone reads this node; the state may then be the one after both.
    """
    x, i = state.live[source], state.node
    min_numbers = MIN_FIRST_LAYER_NUMBERS
    if RELU_LOOPS.is_ready:
        min_numbers = MIN_LAYER_NUMBERS if product is None else 1
    if x.numel() < min_numbers or x.dim() != 2 or not is_on_host(x) or x.dtype != torch.float64:
        return None
    only_live = len(state.live) == 1 and plan.last_use[source] == i
    if (
        not only_live
        or state.point_errors is not None
        or not x.is_contiguous()
        or not (isinstance(op, Pointwise) and op.is_relu)
    ):
        return None
    loops = RELU_LOOPS.request(x.numel())
    if loops is None or (state.records_patterns and PATTERN_LOOPS.request(x.numel()) is None):
        return None
    values, counts = x.numpy(), np.empty(len(x), dtype=np.int64)
    low, high = np.array(loops.scan_signs(values.view(np.int64), state.line, counts)).view(np.float64).tolist()
    if not high <= OVERFLOW_GUARD:
        return None
    bound = state.bounds[source]
    threshold = state.filter.threshold(i, x.dtype, high, bound, x.numel())
    rows = len(x) + int(counts.sum())
    if low <= threshold:
        return None
    bounds = {**state.bounds, i: Magnitude(high * plan.value_gain[i], bound.errors * plan.error_gain[i])}
    if product is not None:
        after = insert_product_breaks(plan, replace(state, bounds=bounds), product, x, counts, threshold, max_points)
        if after is not None:
            return after
    if rows > max_points:
        return None
    out = empty((rows, x.shape[1]), x)
    old, new = state.points, PointTable.empty(rows)
    inputs = (values, old.integers, old.alpha, counts, i, threshold)
    if not loops.insert_sign_changes(*inputs, out.numpy(), new.integers, new.alpha):
        return None
    record = None
    if state.records_patterns:
        pattern, source_point = torch.empty(rows - 1, x.shape[1], dtype=torch.int16), np.empty(rows, dtype=np.int64)
        loops.record_pattern(values, counts, new.integers, pattern.numpy(), source_point)
        record = PatternRecord(torch.from_numpy(source_point), len(x), rows > len(x), pattern, None)
    return replace(state, table=new, live={i: out}, bounds=bounds, record=record, is_unambiguous=True)
