"""Adjoints of the affine patch rules: from the slope jumps of an operator's output back to those of its inputs.

With fixed activation patterns, a sweep by patches is a linear map from the slope of the inputs to the slope jumps of
the outputs. Its adjoint turns numbers that belong to the jumps of a node's output into those of its inputs' jumps, at
the same positions. It takes as many multiplications as the sweep itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...budget import block_bytes, check_deadline
from ...numerics.plan import BYTES_PER_NUMBER
from ...ops.base import Affine
from ...ops.masks import is_on_host
from .adjoint_convolve import convolution_adjoint
from .channelwise import ChannelwiseRule
from .combine import AddRule, ConcatRule
from .convolve import ConvolutionRule
from .linear import ChannelScaleRule, LinearRule
from .patch import AffinePatchRule, BreakSource, MapShape, PatchGroup, Sources, covers
from .positions import Adjoints, GroupPositions, PositionsBySources, read_at, whole_adjoint


@dataclass(frozen=True, eq=False)
class AffineNode:
    """An affine node of a swept segment."""

    op: Affine
    rule: AffinePatchRule
    input_shapes: list[tuple[int, ...]]
    output_shape: tuple[int, ...]
    input_maps: list[MapShape]
    map_shape: MapShape
    inputs: list[PositionsBySources]
    output: PositionsBySources


def affine_adjoint(node: AffineNode, adjoint: Adjoints) -> list[Adjoints]:
    """The adjoints of every input's jumps, given those of the output's."""
    rule = node.rule
    if isinstance(rule, AddRule):
        return [
            {sources: numbers if factor == 1 else numbers * factor for sources, numbers in branch.items()}
            for branch, factor in zip(
                _split_branches(node, adjoint, (0,) * len(node.inputs)), rule.factors, strict=True
            )
        ]
    if isinstance(rule, ConcatRule):
        if rule.channels is not None:
            adjoint = {sources: _unselect(rule, node.output[sources], x) for sources, x in adjoint.items()}
        return _split_branches(node, adjoint, rule.first_channels, rule.output_channels)
    for kind, make in _GROUP_ADJOINTS.items():
        if isinstance(rule, kind):
            return [
                {
                    sources: make(rule, positions, node.output[sources], adjoint[sources])
                    for sources, positions in node.inputs[0].items()
                }
            ]
    return _whole_map_adjoint(node, adjoint)


def _unselect(rule: ConcatRule, output: GroupPositions, adjoint: Tensor) -> Tensor:
    """The adjoint of selected channels as one of all channels of the concatenation; single numbers stay as they are."""
    if rule.channels is None or output.channel is not None:
        return adjoint
    out = adjoint.new_zeros(*adjoint.shape[:3], rule.total_channels)
    return out.index_add_(3, rule.channels, adjoint)


def _split_branches(
    node: AffineNode, adjoint: Adjoints, first_channels: Sequence[int], output_channels: Tensor | None = None
) -> list[Adjoints]:
    """The adjoints of branches that were summed or concatenated, read from the common patches of the output.

    Args:
        node: The node.
        adjoint: The adjoint of its output.
        first_channels: The first channel of every branch.
        output_channels: See `ConcatRule.output_channels`.
    """
    rows = _rows_by_source(node.output)
    branches: list[Adjoints] = []
    for k, groups in enumerate(node.inputs):
        branch: Adjoints = {}
        for sources, positions in groups.items():
            key, index = _find_rows(rows, sources, positions.corner.device)
            output, numbers = node.output[key], adjoint[key]
            if output.channel is not None:  # single numbers stay single numbers
                branch[sources] = numbers if key == sources else numbers[index]
                if output_channels is not None and positions.channel is not None:
                    branch[sources] = branch[sources] * (output_channels[positions.channel + first_channels[k]] >= 0)
                continue
            corner = output.corner if key == sources else output.corner[index]
            jump = numbers if key == sources else numbers[index]
            branch[sources] = read_at(positions, PatchGroup(corner, jump), node.input_maps[k], first_channels[k])
        branches.append(branch)
    return branches


def _rows_by_source(groups: PositionsBySources) -> dict[BreakSource, tuple[Sources, int]]:
    """By source: the group that holds its breaks, and the row of its first break there."""
    rows: dict[BreakSource, tuple[Sources, int]] = {}
    for sources in groups:
        at = 0
        for source in sources:
            rows[source] = sources, at
            at += source.count
    return rows


def _find_rows(
    rows: dict[BreakSource, tuple[Sources, int]], sources: Sources, device: torch.device
) -> tuple[Sources, slice | Tensor]:
    """The group that holds the breaks of some sources, and their rows in it."""
    key, first = rows[sources[0]]
    ranges = [(rows[s][1], rows[s][1] + s.count) for s in sources]
    if all(stop == start for (_, stop), (start, _) in pairwise(ranges)):
        return key, slice(first, ranges[-1][1])
    return key, torch.cat([torch.arange(start, stop, device=device) for start, stop in ranges])


def _scale_adjoint(
    rule: ChannelScaleRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor
) -> Tensor:
    if rule.weight is None:
        return adjoint
    return adjoint * (rule.weight if positions.channel is None else rule.weight[positions.channel])


def _linear_adjoint(rule: LinearRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor) -> Tensor:
    """Only the rows of the matrix that a patch covers are multiplied."""
    numbers, source, n = adjoint.reshape(len(adjoint), -1), rule.source_shape, len(adjoint)
    if positions.channel is not None:
        row = positions.flat_pixel(source) * source.channels + positions.channel
        return (rule.flat_weight.index_select(0, row) * numbers).sum(1)
    if covers(positions.size, source) or not is_on_host(numbers):
        whole = (numbers @ rule.flat_weight.T).view(n, *source.size, source.channels)
        return read_at(positions, PatchGroup(torch.zeros_like(positions.corner), whole), source)
    jump = numbers.new_zeros(n, *positions.size, source.channels)
    order = torch.argsort(positions.corner[:, 0] * (1 << 20) + positions.corner[:, 1])
    corners, counts = torch.unique_consecutive(positions.corner[order], dim=0, return_counts=True)
    rows, columns = positions.size
    at = 0
    for (top, left), count in zip(corners.tolist(), counts.tolist(), strict=True):
        index = order[at : at + count]
        at += count
        y0, y1 = max(top, 0), min(top + rows, source.rows)
        x0, x1 = max(left, 0), min(left + columns, source.columns)
        weight = rule.pixel_weight[y0:y1, x0:x1].reshape(-1, rule.map_shape.channels)
        inside = (numbers[index] @ weight.T).view(count, y1 - y0, x1 - x0, source.channels)
        part = jump.new_zeros(count, *positions.size, source.channels)
        part[:, y0 - top : y1 - top, x0 - left : x1 - left] = inside
        jump.index_copy_(0, index, part)
    return jump


def _channelwise_adjoint(
    rule: ChannelwiseRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor
) -> Tensor:
    source, target, n = rule.source_shape, rule.map_shape, len(adjoint)
    numbers = adjoint.reshape(n, -1, target.channels)
    if positions.is_whole(source) and output.is_whole(target):
        return (rule.matrix.T.to(numbers.dtype) @ numbers).view(n, *source.size, source.channels)
    output_pixels = output.pixels(target)
    input_pixels = positions.pixels(source)
    table = rule.padded_matrix.to(numbers.dtype)
    bytes_per_patch = 2 * output_pixels.shape[1] * input_pixels.shape[1] * BYTES_PER_NUMBER
    step = max(1, block_bytes() // max(1, bytes_per_patch)) if is_on_host(table) else n
    out = numbers.new_empty(n, input_pixels.shape[1], source.channels)
    for at in range(0, n, max(step, 1)):
        some = slice(at, at + step)
        matrices = table[output_pixels[some, None, :], input_pixels[some, :, None]]  # (n, patch pixels, output)
        torch.matmul(matrices, numbers[some], out=out[some])
    if positions.channel is not None:
        return out[torch.arange(n, device=out.device), 0, positions.channel]
    return out.view(n, *positions.size, source.channels)


def _whole_map_adjoint(node: AffineNode, adjoint: Adjoints) -> list[Adjoints]:
    """The adjoint of any affine operator: its VJP on whole maps."""
    rows = _rows_by_source(node.output)
    results: list[Adjoints] = [{} for _ in node.inputs]
    for k, groups in enumerate(node.inputs):
        for sources, positions in groups.items():
            device = positions.corner.device
            key, found = _find_rows(rows, sources, device)
            index = torch.arange(len(node.output[key]), device=device)[found]
            parts: list[Tensor] = []
            step = max(1, block_bytes() // (BYTES_PER_NUMBER * max(1, node.map_shape.pixels * node.map_shape.channels)))
            for some in index.split(step):
                check_deadline()
                local = slice(sum(map(len, parts)), sum(map(len, parts)) + len(some))
                here = node.output[key].rows(some)
                whole = whole_adjoint(here, adjoint[key][some], node.map_shape)
                points = whole.permute(0, 3, 1, 2).reshape(len(some), *node.output_shape)
                gradient = node.op.vjp(points, node.input_shapes)[k]
                maps = gradient.reshape(len(some), *node.input_maps[k]).permute(0, 2, 3, 1)
                there = positions.rows(local)
                parts.append(read_at(there, PatchGroup(torch.zeros_like(there.corner), maps), node.input_maps[k]))
            results[k][sources] = torch.cat(parts)
    return results


GroupAdjoint = Callable[..., Tensor]  # (rule, input positions, output positions, adjoint of the output's jumps)
_GROUP_ADJOINTS: dict[type, GroupAdjoint] = {
    ChannelScaleRule: _scale_adjoint,
    LinearRule: _linear_adjoint,
    ChannelwiseRule: _channelwise_adjoint,
    ConvolutionRule: convolution_adjoint,
}
