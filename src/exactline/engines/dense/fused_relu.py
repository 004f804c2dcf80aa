"""A shorter way through a layer of ReLUs: many points, one tensor, nothing in doubt. It gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch

from ...numerics.plan import SweepPlan
from ...numerics.static_filter import Magnitude
from ...ops.base import OVERFLOW_GUARD, Breaking
from ...ops.masks import is_on_host
from ...ops.pointwise import Pointwise
from .breaks import ALPHA_RESOLUTION
from .state import PatternRecord, SweepState
from .workspace import empty

MIN_LAYER_NUMBERS, MIN_FIRST_LAYER_NUMBERS = (
    1 << 11,
    1 << 15,
)  # numbers of a layer: below, compiled loops save nothing; nor do they until loaded
RELU_NUMBERS = (Fraction(0), Fraction(0), Fraction(1), Fraction(0))  # its knot, its slopes, its value there


def insert_relu_breaks(facts: SweepPlan, state: SweepState, op: Breaking, source: int, most: int) -> SweepState | None:
    """The state after a breaking node, or None where the usual way must be gone."""
    x, i = state.live[source], state.node
    worth = MIN_LAYER_NUMBERS if _compiled_loops.cache_info().currsize else MIN_FIRST_LAYER_NUMBERS
    if x.numel() < worth or x.dim() != 2 or not is_on_host(x) or x.dtype != torch.float64:
        return None
    alone = len(state.live) == 1 and facts.last_use[source] == i
    if not alone or state.probes is not None or not x.is_contiguous() or not _is_relu(op):
        return None
    loops = _compiled_loops()
    if loops is None:
        return None
    scanned, turned, traced = loops
    values, counts = x.numpy(), np.empty(len(x), dtype=np.int64)
    low, high = np.array(scanned(values.view(np.int64), state.line, counts)).view(np.float64).tolist()
    if not high <= OVERFLOW_GUARD:
        return None
    size = state.sizes[source]
    doubtful = state.filter.threshold(i, x.dtype, high, size, x.numel())
    rows = len(x) + int(counts.sum())
    if low <= doubtful or rows > most:
        return None
    out = empty((rows, x.shape[1]), x)
    marks, spots = np.empty((rows, 8), dtype=np.int64), np.empty((rows, 3))
    if not turned(values, state.marks, state.spots, counts, i, doubtful, ALPHA_RESOLUTION, out.numpy(), marks, spots):
        return None
    step = None
    if state.records_patterns:
        pattern, origin = torch.empty(rows - 1, x.shape[1], dtype=torch.int16), np.empty(rows, dtype=np.int64)
        traced(values, counts, marks, pattern.numpy(), origin)
        step = PatternRecord(torch.from_numpy(origin), len(x), rows > len(x), pattern, None)
    sizes = {**state.sizes, i: Magnitude(high * facts.value_gain[i], size.errors * facts.error_gain[i])}
    return replace(state, facts=marks, places=spots, live={i: out}, sizes=sizes, record=step, is_unambiguous=True)


def _is_relu(op: Breaking) -> bool:
    if not isinstance(op, Pointwise):
        return False
    numbers = (*op.knots, *op.slopes, op.value)
    return all(isinstance(n, Fraction) for n in numbers) and numbers == RELU_NUMBERS


@cache
def _compiled_loops() -> tuple[Callable[..., Any], ...] | None:
    """The compiled loops, where numba is there."""
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels.scan_signs, kernels.insert_sign_changes, kernels.record_pattern
