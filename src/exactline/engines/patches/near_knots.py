"""Units near a knot: which of them are on it, and on which side they are before and after."""

from __future__ import annotations

import torch
from torch import Tensor

from .timeline import Block, NeedsDenseFallback, NodeInput

SMALLEST_SUBNORMAL = 5e-324
MAX_ALPHA_SHIFT = 1e-10  # in alpha: breaks that rounding moves by more are counted where points are


def refine_sides(
    stage: NodeInput, block: Block, gaps: Tensor, slopes: Tensor, left: Tensor, right: Tensor, knot: float
) -> tuple[Tensor, Tensor]:
    """Which side of a knot values are on and which pieces cross it, where some lie near it; gaps are written."""
    blur = torch.zeros_like(gaps)  # error bounds of values that are put on the knot
    _snap_ends(stage, block, gaps, left, right, blur)
    near = gaps.abs() <= stage.thresholds[block.pixels][:, None]
    still = gaps == 0
    still[:, 1:-1] &= (slopes[:, :-1] == 0) | ~block.here[:, :, None]  # a unit that stays on a knot
    near &= ~still
    if bool(near.any()):
        row, place, channel = near.nonzero(as_tuple=True)
        element = channel * (stage.map_shape[1] * stage.map_shape[2]) + block.pixels[row]
        told, bounds = stage.refine(block.times[row, place], element, torch.full_like(element, -1), knot)
        moved = (
            (told == 0) & (gaps[row, place, channel] != 0) & ~_stays_on_knot(stage, block, slopes, row, place, channel)
        )
        blur[row[moved], place[moved], channel[moved]] = bounds[moved]
        gaps[row, place, channel] = told
        _check_resolved(block, gaps, slopes, blur)
        inside = (told == 0) & (place > 0) & (place <= block.counts[row])
        _passes_through(block, gaps, row[inside], place[inside], channel[inside])
    else:
        _check_resolved(block, gaps, slopes, blur)
    _check_ends(stage, gaps, slopes)
    inner = gaps[:, 1:-1]
    if stage.records_patterns and bool(
        ((inner == 0) & block.here[:, :, None]).any() | ((gaps[:, 0] == 0) & (gaps[:, 1] == 0)).any()
    ):
        raise NeedsDenseFallback(0.5 * (stage.start + stage.stop))
    above, below = gaps > 0, gaps < 0
    crossed = (above[:, :-1] & below[:, 1:]) | (below[:, :-1] & above[:, 1:])
    later = above.clone()  # a unit that leaves the knot is on the side it goes to
    later[:, :-1] |= (gaps[:, :-1] == 0) & above[:, 1:]
    return later, crossed


def _stays_on_knot(
    stage: NodeInput, block: Block, slopes: Tensor, row: Tensor, place: Tensor, channel: Tensor
) -> Tensor:
    """Units that do not move where a line is cut: what rounding makes of them there says nothing of the line."""
    before, after = stage.end_bounds
    cut = torch.zeros_like(place, dtype=torch.bool)
    if before is None:
        cut |= place == 0
    if after is None:
        cut |= place > block.counts[row]
    return cut & (slopes[row, (place - 1).clamp(min=0), channel] == 0)


def _passes_through(block: Block, gaps: Tensor, row: Tensor, place: Tensor, channel: Tensor) -> None:
    """Units on a knot when breaks reach them cross it there, or turn back, as they do after the last of those."""
    alphas = block.times[row, place]
    last = torch.searchsorted(block.times[row], alphas[:, None], right=True)[:, 0] - 1
    after = gaps[row, last + 1, channel]
    stays = after == 0
    if bool(stays.any()):
        raise NeedsDenseFallback(float(alphas[stays][0]))
    gaps[row, place, channel] = torch.copysign(torch.full_like(after, SMALLEST_SUBNORMAL), after)


def _check_resolved(block: Block, gaps: Tensor, slopes: Tensor, blur: Tensor) -> None:
    """Doubt where a unit stays on a knot, or leaves it so slowly that rounding hides where: points count those."""
    unclear = torch.maximum(blur[:, :-1], blur[:, 1:])
    flat = (unclear > 0) & (gaps[:, :-1] == 0) & (gaps[:, 1:] == 0)
    lost = (flat | (unclear > MAX_ALPHA_SHIFT * slopes.abs())) & (block.widths > 0)[:, :, None]
    if bool(lost.any()):
        row, piece, _ = lost.nonzero()[0].tolist()
        raise NeedsDenseFallback(float(block.times[row, piece : piece + 2].mean()))


def _check_ends(stage: NodeInput, gaps: Tensor, slopes: Tensor) -> None:
    """Where a line is cut no unit may be just about to turn: neither side would see it."""
    before, after = stage.end_bounds
    if before is None and bool(((gaps[:, 0] == 0) & (slopes[:, 0] != 0)).any()):
        raise NeedsDenseFallback(stage.start)
    if after is None and bool(((gaps[:, -1] == 0) & (slopes[:, -1] != 0)).any()):
        raise NeedsDenseFallback(stage.stop)


def _snap_ends(stage: NodeInput, block: Block, gaps: Tensor, left: Tensor, right: Tensor, blur: Tensor) -> None:
    """At the ends of the line itself units may sit on a knot: they come from there or go there."""
    before, after = stage.end_bounds
    if before is not None:
        bound = before[block.pixels]
        on = (left.abs() <= bound) & (left != 0)
        gaps[:, 0] = torch.where(on, 0.0, gaps[:, 0])
        blur[:, 0] = bound * on
    if after is not None:
        bound = after[block.pixels]
        on = right.abs() <= bound
        last = block.counts  # padding follows the last entry: it is at the end too
        steps = torch.arange(1, gaps.shape[1], device=gaps.device)
        ends = (steps > last[:, None])[:, :, None] & on[:, None, :]
        gaps[:, 1:].masked_fill_(ends, 0.0)
        blur[:, 1:] += ends * (bound * (right != 0))[:, None, :]
