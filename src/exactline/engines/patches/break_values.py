"""Values of a tensor at the breaks of a segment, from its values at both ends and its slope jumps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...budget import check_deadline
from .patch import MapShape, PatchGroup, as_patch_group, crop, is_whole, real_tensor
from .segment import SegmentBreaks, TensorOnSegment
from .timeline import BLOCK_NUMBERS, cumulative_sum


def values_at(breaks: SegmentBreaks, tensor: TensorOnSegment, map_shape: MapShape, shape: tuple[int, ...]) -> Tensor:
    """Values (n, *shape) of a tensor at the breaks of a segment, and at the ends of the line if the segment has them.

    They are sums from the start of the segment. Their drift at its stop is distributed linearly.
    """
    flat = tensor.ends.flatten(1)
    first, count = int(breaks.start == 0.0), len(breaks.alphas)
    out = flat.new_empty(first + count + int(breaks.stop == 1.0), *map_shape)
    ends = tensor.ends.reshape(2, *map_shape)
    out[:first], out[first + count :] = ends[:1], ends[1:]
    position = torch.empty_like(breaks.order)
    position[breaks.order] = torch.arange(len(position), device=position.device)
    counts = [len(alphas) for alphas in breaks.break_alphas.values()]
    position_by_node = dict(zip(breaks.break_alphas, position.split(counts), strict=True))
    groups = [
        (torch.cat([position_by_node[source.node] for source in sources]), as_patch_group(group, map_shape))
        for sources, group in tensor.groups.items()
    ]
    slope = tensor.slope.reshape(1, *map_shape)
    for channels, rows in _map_blocks(map_shape, len(breaks.crossing_alphas), flat.device):
        block = (slice(None), channels, rows)
        jumps = flat.new_zeros(len(breaks.crossing_alphas), *slope[block].shape[1:])
        for index, patches in groups:
            jumps[index] = _crop_rows(patches, channels, rows, map_shape).to(flat.dtype)
        out[first : first + count][block] = _sum_jumps(breaks, ends[block], slope[block], jumps)
    return out.view(len(out), *shape)


def _map_blocks(map_shape: MapShape, count: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Ranges of channels and rows whose values at ``count`` crossings are computed at a time."""
    max_elements = max(1, BLOCK_NUMBERS.get(device.type, 1 << 18) // (count + 1))
    channel_step = min(map_shape.channels, max(1, max_elements // map_shape.columns))
    row_step = max(1, max_elements // (map_shape.columns * channel_step))
    for channel in range(0, map_shape.channels, channel_step):
        for row in range(0, map_shape.rows, row_step):
            check_deadline()
            yield slice(channel, channel + channel_step), slice(row, min(row + row_step, map_shape.rows))


def _crop_rows(patches: PatchGroup, channels: slice, rows: slice, map_shape: MapShape) -> Tensor:
    """The jumps of patches in some channels and rows of the map, (n, channels, rows, columns)."""
    some = PatchGroup(patches.corner, patches.jump[..., channels])
    if is_whole(patches, map_shape):
        return some.jump[:, rows].permute(0, 3, 1, 2)
    corner = torch.zeros_like(patches.corner)
    corner[:, 0] = rows.start
    return crop(some, corner, (rows.stop - rows.start, map_shape.columns)).permute(0, 3, 1, 2)


def _sum_jumps(
    breaks: SegmentBreaks,
    ends: Tensor,  # (2, ...)
    slope: Tensor,  # (1, ...) at the start
    jumps: Tensor,  # (m, ...) of the slope at the crossings
) -> Tensor:
    """Values (n, ...) at the breaks of a segment."""
    shape, flat = ends.shape[1:], ends.flatten(1)
    slopes = cumulative_sum(torch.cat([slope.flatten(1), jumps.flatten(1)])[None])[0]
    ends = real_tensor((breaks.start, breaks.stop), flat.device).to(flat.dtype)
    edges = torch.cat([ends[:1], breaks.crossing_alphas, ends[1:]])
    values = cumulative_sum(slopes.mul((edges[1:] - edges[:-1])[:, None])[None])[0] + flat[0]
    drift = flat[1] - values[-1]
    fraction = ((breaks.alphas - breaks.start) / (breaks.stop - breaks.start))[:, None]
    return (values[breaks.representative] + fraction * drift).view(len(breaks.alphas), *shape)
