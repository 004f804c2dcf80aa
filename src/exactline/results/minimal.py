"""The fewest pieces on which the outputs are affine along the line."""

from __future__ import annotations

import torch
from torch import Tensor

from ..engines.dense.error_model import PROBE_SAFETY, estimate_errors
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..ops.base import flatten_units

MAX_ESTIMATED_BREAKS = 1 << 12  # breaks whose error is estimated together


def minimal_breaks(
    network: Network,
    lines: Lines,
    alphas: Tensor,  # (breaks,)
    values: tuple[Tensor, ...],  # (breaks, *out) each
) -> Tensor:
    """Which breaks stay, leftmost-greedy: one goes while every value left out is within its bound of the chord."""
    count = len(alphas)
    if count <= 2:
        return torch.arange(count)
    height = torch.cat([flatten_units(v) for v in values], 1)
    bound = torch.cat([_bound(network, lines, alphas, i) for i in network.outputs], 1)
    sure = _required(alphas, height, bound)
    kept = [0]
    start = 0
    for stop in [*(torch.nonzero(sure)[:, 0] + 1).tolist(), count - 1]:
        kept.extend(_greedy(alphas, height, bound, start, stop))
        start = stop
    return torch.tensor(kept)


def _required(alphas: Tensor, height: Tensor, bound: Tensor) -> Tensor:
    """Inner breaks whose bend is more than the bounds of three neighbours can explain, (breaks - 2,)."""
    part = ((alphas[1:-1] - alphas[:-2]) / (alphas[2:] - alphas[:-2]))[:, None]
    bend = (torch.lerp(height[:-2], height[2:], part) - height[1:-1]).abs()
    return (bend > bound[:-2] + bound[1:-1] + bound[2:]).any(1)


def _greedy(alphas: Tensor, height: Tensor, bound: Tensor, start: int, stop: int) -> list[int]:
    """Chords from ``start`` that end as late as they can, the last at ``stop``."""
    ends: list[int] = []
    while start < stop:
        low = torch.full_like(height[start], -torch.inf)
        high = torch.full_like(height[start], torch.inf)
        reach = start + 1
        for i in range(start + 1, stop + 1):
            width = alphas[i] - alphas[start]
            slope = (height[i] - height[start]) / width
            if bool(((slope >= low) & (slope <= high)).all()):
                reach = i
            low = torch.maximum(low, slope - bound[i] / width)
            high = torch.minimum(high, slope + bound[i] / width)
            if bool((low > high).any()):
                break
        ends.append(reach)
        start = reach
    return ends


def _bound(network: Network, lines: Lines, alphas: Tensor, place: int) -> Tensor:
    found = []
    with full_precision():
        for some in alphas.split(MAX_ESTIMATED_BREAKS):
            points, errors = lines.at(torch.zeros(len(some), dtype=torch.int64), some)
            found.append(flatten_units(estimate_errors(network, place, points, errors)) * PROBE_SAFETY)
    return torch.cat(found)
