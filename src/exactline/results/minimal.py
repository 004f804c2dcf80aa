"""The minimal partition of a line: the fewest pieces on which the outputs are affine in alpha."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..numerics.point_errors import estimate_errors
from ..ops.base import flatten_units
from .evaluate import values_at_breaks

if TYPE_CHECKING:
    from .restriction import Restriction

ERROR_BATCH_BREAKS = 1 << 12  # breaks whose error is estimated together


def minimal_restriction(line: Restriction) -> Restriction:
    """Remove the breaks at which no output bends by more than its error."""
    network = line.require_network("line.minimal")
    with full_precision():
        values = values_at_breaks(line, torch.arange(len(line.alphas)))
        breaks = _minimal_breaks(network, line.lines, line.alphas, values)
        ambiguous = torch.zeros(max(len(breaks) - 1, 0), dtype=torch.int64)
        merged_piece = torch.searchsorted(breaks, torch.arange(len(line)), right=True) - 1
        ambiguous.index_add_(0, merged_piece, line.ambiguous_per_piece)
        return replace(
            line,
            alphas=line.alphas[breaks],
            origin_table=line.origin_table[breaks],
            ambiguous_per_piece=ambiguous,
            stored_values=tuple(v[breaks] for v in values),
            is_minimal=True,
            stored_errors=None,
        )


def _minimal_breaks(
    network: Network,
    lines: Lines,
    alphas: Tensor,  # (breaks,)
    values: tuple[Tensor, ...],  # (breaks, *out) each
) -> Tensor:
    """Indices of the breaks that remain, leftmost-greedy: all removed values are within their bound of the chord."""
    count = len(alphas)
    if count <= 2:
        return torch.arange(count)
    heights = torch.cat([flatten_units(v) for v in values], 1)  # (breaks, elements)
    bounds = torch.cat([_error_bounds(network, lines, alphas, output) for output in network.outputs], 1)
    is_bend = _find_bends(alphas, heights, bounds)
    breaks = [0]
    start = 0
    for stop in [*(torch.nonzero(is_bend)[:, 0] + 1).tolist(), count - 1]:
        breaks.extend(_cover_with_chords(alphas, heights, bounds, start, stop))
        start = stop
    return torch.tensor(breaks)


def _find_bends(alphas: Tensor, heights: Tensor, bounds: Tensor) -> Tensor:
    """Which inner breaks bend by more than the bounds of them and their neighbours allow, (breaks - 2,)."""
    part = ((alphas[1:-1] - alphas[:-2]) / (alphas[2:] - alphas[:-2]))[:, None]
    bend = (torch.lerp(heights[:-2], heights[2:], part) - heights[1:-1]).abs()
    return (bend > bounds[:-2] + bounds[1:-1] + bounds[2:]).any(1)


def _cover_with_chords(alphas: Tensor, heights: Tensor, bounds: Tensor, start: int, stop: int) -> list[int]:
    """Ends of consecutive chords from ``start`` to ``stop``, each as long as the bounds of its inner values allow."""
    ends: list[int] = []
    while start < stop:
        low = torch.full_like(heights[start], -torch.inf)
        high = torch.full_like(heights[start], torch.inf)
        end = start + 1
        for i in range(start + 1, stop + 1):
            width = alphas[i] - alphas[start]
            slope = (heights[i] - heights[start]) / width
            if bool(((slope >= low) & (slope <= high)).all()):
                end = i
            low = torch.maximum(low, slope - bounds[i] / width)
            high = torch.minimum(high, slope + bounds[i] / width)
            if bool((low > high).any()):
                break
        ends.append(end)
        start = end
    return ends


def _error_bounds(network: Network, lines: Lines, alphas: Tensor, output: int) -> Tensor:
    """Error bounds of one output at all breaks, (breaks, elements)."""
    batches = []
    for batch in alphas.split(ERROR_BATCH_BREAKS):
        points, errors = lines.at_alphas(batch)
        batches.append(flatten_units(estimate_errors(network, output, points, errors)))
    return torch.cat(batches)
