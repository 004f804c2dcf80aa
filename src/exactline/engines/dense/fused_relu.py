"""A shorter way through a layer of ReLUs: many points, one tensor, nothing in doubt. It gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch

from ...numerics.plan import Plan
from ...numerics.static_filter import Size
from ...ops.base import HUGE, Breaking
from ...ops.masks import on_host
from ...ops.pointwise import Pointwise
from .breaks import ULPS
from .state import State, Step
from .workspace import empty

WORTH, FIRST = 1 << 11, 1 << 15  # numbers of a layer: below, compiled loops save nothing; nor do they until loaded
RELU = (Fraction(0), Fraction(0), Fraction(1), Fraction(0))  # its knot, its slopes, its value there


def quickly(facts: Plan, state: State, op: Breaking, source: int, most: int) -> State | None:
    """The state after a breaking node, or None where the usual way must be gone."""
    x, i = state.live[source], state.node
    worth = WORTH if _loops.cache_info().currsize else FIRST
    if x.numel() < worth or x.dim() != 2 or not on_host(x) or x.dtype != torch.float64:
        return None
    alone = len(state.live) == 1 and facts.last[source] == i
    if not alone or state.trail is not None or not x.is_contiguous() or not _relu(op):
        return None
    loops = _loops()
    if loops is None:
        return None
    scanned, turned, traced = loops
    values, counts = x.numpy(), np.empty(len(x), dtype=np.int64)
    low, high = np.array(scanned(values.view(np.int64), state.line, counts)).view(np.float64).tolist()
    if not high <= HUGE:
        return None
    size = state.sizes[source]
    doubtful = state.usual.doubtful(i, x.dtype, high, size, x.numel())
    rows = len(x) + int(counts.sum())
    if low <= doubtful or rows > most:
        return None
    out = empty((rows, x.shape[1]), x)
    marks, spots = np.empty((rows, 8), dtype=np.int64), np.empty((rows, 3))
    if not turned(values, state.marks, state.spots, counts, i, doubtful, ULPS, out.numpy(), marks, spots):
        return None
    step = None
    if state.traced:
        pattern, origin = torch.empty(rows - 1, x.shape[1], dtype=torch.int16), np.empty(rows, dtype=np.int64)
        traced(values, counts, marks, pattern.numpy(), origin)
        step = Step(torch.from_numpy(origin), len(x), rows > len(x), pattern, None)
    sizes = {**state.sizes, i: Size(high * facts.reach[i], size.errors * facts.gain[i])}
    return replace(state, facts=marks, places=spots, live={i: out}, sizes=sizes, step=step, clear=True)


def _relu(op: Breaking) -> bool:
    if not isinstance(op, Pointwise):
        return False
    numbers = (*op.knots, *op.slopes, op.value)
    return all(isinstance(n, Fraction) for n in numbers) and numbers == RELU


@cache
def _loops() -> tuple[Callable[..., Any], ...] | None:
    """The compiled loops, where numba is there."""
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels.scanned, kernels.turned, kernels.traced
