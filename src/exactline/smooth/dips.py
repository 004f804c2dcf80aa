"""Units that come close to a kink, a bend or a pole between samples and turn back: found by parabolas, and located."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..tolerances import ALPHA_RESOLUTION
from .crossings import evaluate_units
from .features import Closeness
from .kinks import Leaders, Signs, Watched
from .line_function import LineFunction
from .tolerances import CONVERGED_DROP, DIP_MARGIN, GOLDEN_SHARE, MAX_DIP_STEPS, NOISE_SHARE


@dataclass(frozen=True)
class Dips:
    """Units whose distance from a kink has a minimum between samples, one row for each.

    A dip matters if the distance falls below ``limit``, and by more than ``change`` from the smallest sample.
    """

    alphas: Floats  # (n, 3) ascending
    heights: Floats  # (n, 3) distances there, the smallest in the middle
    side: Floats  # (n,) 1 or -1, the sign of the distance
    limit: Floats  # (n,)
    change: Floats  # (n,)
    is_kink: Bools  # (n,)
    operator: Ints  # (n,) index among the watched operators
    unit: Ints  # (n,) flat position of the argument; of the group for a selection
    first: Ints  # (n,) the selected member; -1 for signs
    second: Ints  # (n,) the member that comes close to it; -1 for signs

    def __len__(self) -> int:
        return len(self.alphas)

    def select(self, rows: Ints) -> Dips:
        """Some of the rows."""
        return Dips(*(getattr(self, f.name)[rows] for f in fields(self)))


def find_dips(alphas: Floats, intervals: Sequence[slice], watched: Sequence[Watched]) -> list[Dips]:
    """The dips of each interval between its points, which ascend."""
    found = [[_no_dips()] for _ in intervals]
    for operator, source in enumerate(watched):
        values, closeness = source.values, source.closeness
        finite = values.abs().nan_to_num(0.0, 0.0, 0.0)
        largest = float(finite.max()) if values.numel() else 0.0
        if largest == 0.0 or (closeness.has_zero and largest <= closeness.reach):
            continue
        for dips, span in zip(found, intervals, strict=True):
            if span.stop - span.start < 3:
                continue
            if isinstance(source, Signs):
                rows = values[span]
                dips.append(_select(alphas[span], [rows[:-2], rows[1:-1], rows[2:]], closeness, largest, operator))
            elif source.selected.shape[-1] == 1:
                dips.append(_select_members(alphas[span], values[span], source.selected[span], source, operator))
    return [Dips(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Dips))) for parts in found]


def _no_dips() -> Dips:
    none, nowhere, triples = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 3))
    return Dips(triples, triples, none, none, none, np.zeros(0, bool), nowhere, nowhere, nowhere, nowhere)


def _select(
    alphas: Floats,
    values: Sequence[Tensor],  # (points - 2, units) before, at and after each inner point
    closeness: Closeness,
    largest: float,
    operator: int,
) -> Dips:
    """The dips of each unit towards zero; towards smaller values if zero is nothing special."""
    before, here, after = values
    side = torch.ones_like(here)
    if closeness.has_zero:
        side = here.sign()
        before, here, after = (side * v for v in values)
        least = max(closeness.reach, NOISE_SHARE * largest)
        found = (here > least) & (before >= here) & (after >= here)
    else:
        found = (before >= here) & (after >= here)
    row, unit = (t.cpu().numpy() for t in torch.nonzero(found, as_tuple=True))
    heights = np.stack([v[row, unit].cpu().numpy() for v in (before, here, after)], 1)
    limit = np.full(len(row), closeness.reach)
    if closeness.share:
        limit = closeness.share * heights[:, 1]
    none = np.full(len(row), -1)
    dips = Dips(
        alphas=np.stack([alphas[row], alphas[row + 1], alphas[row + 2]], 1),
        heights=heights,
        side=side[row, unit].cpu().numpy(),
        limit=limit,
        change=np.full(len(row), closeness.change),
        is_kink=np.full(len(row), closeness.is_kink),
        operator=np.full(len(row), operator),
        unit=unit,
        first=none,
        second=none,
    )
    return dips.select(np.flatnonzero(_may_matter(dips, heights[:, 1])))


def _select_members(alphas: Floats, values: Tensor, selected: Tensor, source: Leaders, operator: int) -> Dips:
    """The dips of the gap between the selected member and each other one, while the same member is selected."""
    leader = selected[1:-1]  # (points - 2, groups, 1)
    is_kept = (leader == selected[:-2]) & (leader == selected[2:])
    gaps = [torch.where(is_kept, v.gather(-1, leader) - v, 0.0) for v in (values[:-2], values[1:-1], values[2:])]
    members = values.shape[-1]
    largest = float(values.abs().nan_to_num(0.0, 0.0, 0.0).max())
    dips = _select(alphas, [g.flatten(1) for g in gaps], source.closeness, largest, operator)
    row = np.searchsorted(alphas, dips.alphas[:, 1]) - 1
    group, member = dips.unit // members, dips.unit % members
    first = leader[row, group, 0].cpu().numpy()
    return replace(dips, unit=group, first=first, second=member)


def _vertex_drop(dips: Dips) -> Floats:  # (n,)
    """How far a parabola through the three points falls below the one in the middle."""
    (x0, x1, x2), (h0, h1, h2) = dips.alphas.T, dips.heights.T
    with np.errstate(all="ignore"):
        left, right = (h0 - h1) / (x1 - x0), (h2 - h1) / (x2 - x1)
        slope = (right * (x1 - x0) - left * (x2 - x1)) / (x2 - x0)
        drop = slope**2 * (x2 - x0) / (4 * (left + right))
    return np.nan_to_num(drop, nan=0.0, posinf=0.0)


def _may_matter(dips: Dips, smallest: Floats) -> Bools:  # (n,)
    """Whether the units may fall far enough between the three points.

    Args:
        dips: the points.
        smallest: the smallest sample of each unit before the search began.
    """
    drop, lowest = DIP_MARGIN * _vertex_drop(dips), dips.heights[:, 1]
    return (lowest - drop < dips.limit) & (smallest - lowest + drop > dips.change)


def locate_dips(function: LineFunction, dips: Dips) -> tuple[Ints, Floats]:
    """The dips that matter, and the alphas of their minima: any alpha beyond the kink for the dips of kinks.

    Each step evaluates the model once for every unit that is not located yet, at the vertex of a parabola or, every
    third step, at a golden section.
    """
    smallest = dips.heights[:, 1].copy()
    state = replace(dips, alphas=dips.alphas.copy(), heights=dips.heights.copy())
    active, matters = np.arange(len(dips)), np.zeros(len(dips), bool)
    for step in range(MAX_DIP_STEPS):
        part = state.select(active)
        guess = _next_position(part, step)
        value = part.side * evaluate_units(function, guess, part)
        _narrow(state, active, guess, value)
        part = state.select(active)
        lowest, before = part.heights[:, 1], smallest[active]
        matters[active] = (lowest < part.limit) & (before - lowest > part.change)
        left, middle, right = part.alphas.T
        is_narrow = right - left <= 4 * ALPHA_RESOLUTION * np.maximum(middle, ALPHA_RESOLUTION)
        gain = _vertex_drop(part)
        is_found = matters[active] & (part.is_kink | (gain <= CONVERGED_DROP * np.maximum(part.change, lowest)))
        is_hopeless = ~matters[active] & ~_may_matter(part, before)
        active = active[~(is_narrow | is_found | is_hopeless)]
        if not len(active) or function.spare_evaluations < len(active):
            break
    rows = np.flatnonzero(matters)
    return rows, state.alphas[rows, 1]


def _next_position(dips: Dips, step: int) -> Floats:  # (n,)
    """Where to evaluate next, strictly between the outer points and away from the middle one."""
    (x0, x1, x2), (h0, h1, h2) = dips.alphas.T, dips.heights.T
    golden = np.where(x2 - x1 > x1 - x0, x1 + GOLDEN_SHARE * (x2 - x1), x1 - GOLDEN_SHARE * (x1 - x0))
    with np.errstate(all="ignore"):
        left, right = (h0 - h1) / (x1 - x0), (h2 - h1) / (x2 - x1)
        curvature = (left + right) / (x2 - x0)
        vertex = x1 - (right * (x1 - x0) - left * (x2 - x1)) / (x2 - x0) / (2 * curvature)
    nearest = ALPHA_RESOLUTION * np.maximum(x1, ALPHA_RESOLUTION)
    away = np.where(np.abs(vertex - x1) < nearest, np.where(x2 - x1 > x1 - x0, x1 + nearest, x1 - nearest), vertex)
    is_inside = (away > x0) & (away < x2) & np.isfinite(away)
    return np.where(is_inside & (step % 3 < 2), away, golden)


def _narrow(dips: Dips, rows: Ints, alphas: Floats, values: Floats) -> None:
    """Replace the points of some rows in place so that the smallest of the four stays between two others."""
    (x0, x1, x2), (h0, h1, h2) = dips.alphas[rows].T, dips.heights[rows].T
    is_right, is_lower = alphas > x1, values < h1
    points = np.stack([x0, np.minimum(alphas, x1), np.maximum(alphas, x1), x2], 1)
    heights = np.stack([h0, np.where(is_right, h1, values), np.where(is_right, values, h1), h2], 1)
    first = np.where(is_right == is_lower, 1, 0)  # the new point, if lower, becomes the middle one
    columns = first[:, None] + np.arange(3)
    dips.alphas[rows] = np.take_along_axis(points, columns, 1)
    dips.heights[rows] = np.take_along_axis(heights, columns, 1)
