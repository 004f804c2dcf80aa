"""Adjoints of activations on a segment: units follow the branch they have at its start, until they switch.

A pointwise unit scales the jumps of its input by the slope of its branch, a max window reads those of its leader. Where
a unit switches, the new break's jump is the slope of the input times the change of the unit's slope, or the slope of
the new leader minus that of the old one: the sum of the slope at the start and all jumps before. Switches are few, so
they are added one by one to what the branches at the start give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...budget import block_bytes, check_deadline
from ...numerics.plan import BYTES_PER_NUMBER
from ...ops.masks import is_on_host
from .patch import BreakSource, MapShape
from .positions import Adjoints, GroupPositions, PositionsBySources
from .timeline import BreakAlphas, CrossingsAtEntries, NewPatchBreaks, nonzero, to_host

MAX_PAIRS = 1 << 22  # of a switch and a patch that are compared at a time
MAX_COUNTED_PAIRS = 1 << 28  # of all groups of a node that a GPU compares together, to be read in one synchronization
COPIES_PER_SCATTER = 4  # of the numbers of a group, held while they are added to the leaders


@dataclass(frozen=True, eq=False)
class ActivationNode:
    """A breaking node of a swept segment."""

    number: int
    source_shape: MapShape
    map_shape: MapShape
    # (output pixels, channels) just after the start: slopes of pointwise units, or input pixels of the leaders of
    # windows, -1 for the constant 0
    pattern: Tensor
    floor_pixels: Tensor | None  # see `MaximumPatchRule`
    new_breaks: NewPatchBreaks | None
    at_entries: CrossingsAtEntries | None
    inputs: PositionsBySources
    output: PositionsBySources
    break_alphas: BreakAlphas


@dataclass(frozen=True, eq=False)
class _PartChanges:
    """From an alpha on, an input element has a larger or smaller part in an output element."""

    alpha: Tensor  # (s,)
    input_pixel: Tensor  # (s,)
    output_pixel: Tensor  # (s,)
    channel: Tensor  # (s,)
    step: Tensor  # (s,) change of the derivative of the output by the input
    row: Tensor  # (s,) of the new break

    def select(self, mask: Tensor) -> _PartChanges:
        """Some of the switches."""
        rows = mask.nonzero()[:, 0]
        return _PartChanges(
            *(t[rows] for t in (self.alpha, self.input_pixel, self.output_pixel, self.channel, self.step, self.row))
        )


def pointwise_adjoint(node: ActivationNode, base: Tensor, adjoint: Adjoints) -> tuple[Tensor, Adjoints]:
    """The adjoint of the input's slope at the start, (pixels, channels), and of its jumps.

    Args:
        node: The node.
        base: (pixels, channels) the adjoint of the output's slope at the start.
        adjoint: The adjoint of the output's jumps.
    """
    switches = _unit_switches([c for c in (node.new_breaks, node.at_entries) if c is not None], base.dtype)
    slopes = torch.cat([node.pattern.to(base.dtype), base.new_zeros(1, base.shape[1])])  # the last row: outside
    new_adjoint = torch.cat([_new_adjoint(node, adjoint), _adjoint_at_entries(node, adjoint)])
    results: Adjoints = {}
    pairs = _find_pairs(node, switches)
    for sources, positions, numbers in _by_input_groups(node, adjoint):
        if positions.channel is not None:
            pixel = positions.flat_pixel(node.source_shape)
            scaled = _at_points(positions.channel, numbers) * slopes[pixel, positions.channel]
        elif positions.is_whole(node.source_shape):
            scaled = numbers * slopes[:-1].view(1, *positions.size, -1)
        else:
            pixels = positions.pixels(node.source_shape)
            scaled = slopes.index_select(0, pixels.flatten()).view(numbers.shape).mul_(numbers)
        if switches is not None:
            alphas = node.break_alphas.of(sources)
            _add_switches(node, switches, next(pairs), new_adjoint, alphas, positions, positions, numbers, scaled)
        results[sources] = scaled
    base = base * slopes[:-1]
    if switches is not None:
        base.index_put_((switches.input_pixel, switches.channel), switches.step * new_adjoint, accumulate=True)
    return base, results


def maximum_adjoint(node: ActivationNode, base: Tensor, adjoint: Adjoints) -> tuple[Tensor, Adjoints]:
    """`pointwise_adjoint` of maxima over windows."""
    switches = None if node.new_breaks is None else _leader_switches(node.new_breaks, node.source_shape)
    new_adjoint, channels = _new_adjoint(node, adjoint), base.shape[1]
    results: Adjoints = {}
    pairs = _find_pairs(node, switches)
    for (sources, positions, numbers), output in zip(
        _by_input_groups(node, adjoint), _outputs_by_input(node), strict=True
    ):
        full = base.new_zeros(len(positions), positions.size[0] * positions.size[1], channels)
        _scatter_to_leaders(node, positions, output, numbers, full)
        patches = full.view(len(positions), *positions.size, channels)
        if switches is not None:
            alphas = node.break_alphas.of(sources)
            _add_switches(node, switches, next(pairs), new_adjoint, alphas, positions, output, numbers, patches)
        results[sources] = patches if positions.channel is None else _at_points(positions.channel, patches)
    total = base.new_zeros(node.source_shape.pixels + 1, channels)  # the last row: windows led by the constant 0
    total.scatter_add_(0, node.pattern.masked_fill(node.pattern < 0, node.source_shape.pixels), base)
    if switches is not None:
        steps = switches.step * new_adjoint[switches.row]
        total.index_put_((switches.input_pixel, switches.channel), steps, accumulate=True)
    return total[:-1], results


@dataclass(frozen=True, eq=False)
class FloorShare:
    """The part of the gradient at windows that falls to the constant 0, where elements of the input get it."""

    gradients: tuple[Tensor, Tensor]  # (pixels, channels) of the input: as it is, and on the other side
    changes: Tensor  # (switches,) windows that leave the constant 0, -1, or fall to it, 1
    alphas: Tensor  # (switches,) where they do
    windows: int  # that the constant 0 leads at the start
    """Windows count if their two elements differ."""


def floor_share(node: ActivationNode, base: Tensor, adjoint: Adjoints) -> FloorShare | None:
    """What `maximum_adjoint` leaves out: the gradient while the constant 0 leads; None where nothing gets it."""
    pixels = node.floor_pixels
    if pixels is None:
        return None
    at_start = node.pattern < 0
    share, differs = base * at_start, pixels[0] != pixels[1]
    changes, alphas = base.new_zeros(0), base.new_zeros(0)
    if node.new_breaks is not None:
        new = node.new_breaks
        rises = (new.partner < 0) & (new.slope_change >= 0)
        falls = (new.partner < 0) & (new.slope_change < 0)
        changes = falls.to(base.dtype) - rises.to(base.dtype)
        share.index_put_((new.pixel, new.channel), changes * _new_adjoint(node, adjoint), accumulate=True)
        counts = (changes != 0) & differs[new.pixel, new.channel]
        changes, alphas = changes[counts], new.alpha[counts]
    sides = list[Tensor]()
    for side in pixels:
        total = base.new_zeros(node.source_shape.pixels + 1, base.shape[1])  # the last row: nothing gets it
        total.scatter_add_(0, side.masked_fill(side < 0, node.source_shape.pixels), share)
        sides.append(total[:-1])
    return FloorShare((sides[0], sides[1]), changes, alphas, int((at_start & differs).sum()))


def _unit_switches(crossings: Sequence[NewPatchBreaks | CrossingsAtEntries], dtype: torch.dtype) -> _PartChanges | None:
    """Where pointwise units change their branch; None if none does."""
    if not crossings:
        return None
    columns = ((c.alpha, c.pixel, c.pixel, c.channel, c.slope_change.to(dtype)) for c in crossings)
    alpha, input_pixel, output_pixel, channel, step = (torch.cat(column) for column in zip(*columns, strict=True))
    return _PartChanges(alpha, input_pixel, output_pixel, channel, step, torch.arange(len(alpha), device=alpha.device))


def _leader_switches(new: NewPatchBreaks, source_shape: MapShape) -> _PartChanges:
    """Where leaders change: the new leader gains what the old one loses; the constant 0 does neither."""
    row = torch.arange(len(new.alpha), device=new.pixel.device)
    has_old, has_new = new.partner >= 0, new.slope_change >= 0
    is_fall = ~has_old & ~has_new  # to the constant 0
    gains = torch.ones_like(new.alpha).masked_fill_(is_fall, -1.0)
    first = _PartChanges(new.alpha, new.element % source_shape.pixels, new.pixel, new.channel, gains, row)
    losers = new.partner.clamp(min=0) % source_shape.pixels
    second = _PartChanges(new.alpha, losers, new.pixel, new.channel, -torch.ones_like(gains), row).select(has_old)
    columns = ("alpha", "input_pixel", "output_pixel", "channel", "step", "row")
    return _PartChanges(*(torch.cat([getattr(first, name), getattr(second, name)]) for name in columns))


def _new_adjoint(node: ActivationNode, adjoint: Adjoints) -> Tensor:
    """(n,) the adjoint of the jumps of the node's new breaks."""
    count = 0 if node.new_breaks is None else len(node.new_breaks.alpha)
    return adjoint[BreakSource(node.number, count),] if count else node.pattern.new_zeros(0, dtype=torch.float64)


def _adjoint_at_entries(node: ActivationNode, adjoint: Adjoints) -> Tensor:
    """(n,) the adjoint of the jumps of crossings at entries, which are part of the patches there."""
    if node.at_entries is None:
        return node.pattern.new_zeros(0, dtype=torch.float64)
    entry, channel, first = node.at_entries.entry, node.at_entries.channel, 0
    found = torch.zeros_like(entry, dtype=torch.float64)
    for _, _, numbers in _by_input_groups(node, adjoint):
        rows = numbers.reshape(-1, numbers.shape[-1])
        is_here = (entry >= first) & (entry < first + len(rows))
        found = torch.where(is_here, rows[(entry - first).clamp(0, len(rows) - 1), channel].to(found.dtype), found)
        first += len(rows)
    return found


def _by_input_groups(
    node: ActivationNode, adjoint: Adjoints
) -> Iterator[tuple[tuple[BreakSource, ...], GroupPositions, Tensor]]:
    """The groups of the input with the adjoint of their output; adjacent ones of one size are one group there."""
    outputs = [(s, t) for s, t in adjoint.items() if s[0].node != node.number]
    at, group = 0, 0
    for sources, positions in node.inputs.items():
        numbers = outputs[group][1][at : at + len(positions)]
        yield sources, positions, numbers
        at += len(positions)
        if at == len(outputs[group][1]):
            at, group = 0, group + 1


def _outputs_by_input(node: ActivationNode) -> Iterator[GroupPositions]:
    """The positions of the output's patches for every group of the input."""
    outputs = [p for s, p in node.output.items() if s[0].node != node.number]
    at, group = 0, 0
    for positions in node.inputs.values():
        rows = slice(at, at + len(positions))
        yield GroupPositions(outputs[group].corner[rows], outputs[group].size, None)
        at += len(positions)
        if at == len(outputs[group]):
            at, group = 0, group + 1


def _at_points(channel: Tensor, patches: Tensor) -> Tensor:
    """The numbers (n,) of patches of one pixel (n, 1, 1, channels) in the channels (n,) of single numbers."""
    return patches.reshape(len(channel), -1).gather(1, channel[:, None])[:, 0]


def _scatter_to_leaders(
    node: ActivationNode,
    positions: GroupPositions,  # of the input
    output: GroupPositions,
    numbers: Tensor,  # (n, rows, columns, channels) of the output
    full: Tensor,  # (n, input patch pixels, channels), written
) -> None:
    """Add numbers of the output to those of the windows' leaders at the start."""
    columns, (rows, width) = node.source_shape.columns, positions.size
    leaders = torch.cat([node.pattern, node.pattern.new_full((1, node.pattern.shape[1]), -1)])  # the last: outside
    flat = numbers.flatten(1, 2)
    step = max(1, block_bytes() // max(1, COPIES_PER_SCATTER * BYTES_PER_NUMBER * flat[:1].numel()))
    pixels = output.pixels(node.map_shape)
    for at in range(0, len(flat), step):
        check_deadline()
        some = slice(at, at + step)
        leader = leaders[pixels[some]]  # (n, windows, channels)
        y = torch.div(leader, columns, rounding_mode="floor") - positions.corner[some, 0, None, None]
        x = leader.remainder(columns) - positions.corner[some, 1, None, None]
        inside = (leader >= 0) & (y >= 0) & (y < rows) & (x >= 0) & (x < width)
        index = (y * width + x).masked_fill_(~inside, 0)
        full[some].scatter_add_(1, index, flat[some] * inside)


def _find_pairs(node: ActivationNode, switches: _PartChanges | None) -> Iterator[Iterator[tuple[Tensor, ...]]]:
    """For every group of the input, in blocks: the switches and the patches, (k,) each, that hold their elements."""
    if switches is None:
        return
    groups, columns = list(node.inputs.values()), node.source_shape.columns
    pairs = len(switches.alpha) * sum(map(len, groups))
    if is_on_host(switches.alpha) or pairs > min(MAX_COUNTED_PAIRS, block_bytes()):  # a byte for each pair
        for positions in groups:
            blocks = _compare_positions(switches, positions, columns)
            found = ((first, inside.nonzero(as_tuple=True)) for first, inside in blocks)
            yield ((first + rows, patch) for first, (rows, patch) in found if len(rows))
        return
    compared = [list(_compare_positions(switches, positions, columns)) for positions in groups]
    masks = [inside for blocks in compared for _, inside in blocks]
    counts = iter(to_host(*(inside.sum() for inside in masks)) if masks else ())
    for blocks in compared:
        found = [(first, nonzero(inside, int(n))) for (first, inside), n in zip(blocks, counts, strict=False) if n]
        yield ((first + rows, patch) for first, (rows, patch) in found)


def _compare_positions(switches: _PartChanges, positions: GroupPositions, columns: int) -> Iterator[tuple[int, Tensor]]:
    """Blocks of switches: the first one, and which patches hold the input elements of each, (s, n)."""
    step = max(1, MAX_PAIRS // max(1, len(positions)))
    for first in range(0, len(switches.alpha), step):
        check_deadline()
        some = slice(first, first + step)
        y = switches.input_pixel[some, None] // columns - positions.corner[None, :, 0]  # (s, n)
        x = switches.input_pixel[some, None] % columns - positions.corner[None, :, 1]
        inside = (y >= 0) & (y < positions.size[0]) & (x >= 0) & (x < positions.size[1])
        if positions.channel is not None:
            inside &= positions.channel[None] == switches.channel[some, None]
        yield first, inside


def _add_switches(
    node: ActivationNode,
    switches: _PartChanges,
    pairs: Iterator[tuple[Tensor, ...]],  # of this group, see `_find_pairs`
    new_adjoint: Tensor,  # (new breaks,)
    alphas: Tensor,  # (n,) of the group's breaks
    positions: GroupPositions,  # of the input
    output: GroupPositions,
    numbers: Tensor,  # (n, rows, columns, channels) or (n,) of the output
    result: Tensor,  # of the input, written
) -> None:
    """Add what switches contribute: to breaks before them by the new break, to later ones by the changed branch."""
    columns, output_columns = node.source_shape.columns, node.map_shape.columns
    channels = numbers.shape[-1]
    for s, patch in pairs:
        pixel, window, channel = switches.input_pixel[s], switches.output_pixel[s], switches.channel[s]
        v, u = window // output_columns - output.corner[patch, 0], window % output_columns - output.corner[patch, 1]
        is_later = alphas[patch] >= switches.alpha[s]
        if numbers.dim() == 1:
            there = numbers[patch]
        else:
            index = ((patch * output.size[0] + v) * output.size[1] + u) * channels + channel
            there = numbers.reshape(-1)[index]
        change = switches.step[s] * torch.where(is_later, there, new_adjoint[switches.row[s]])
        if result.dim() == 1:
            result.index_add_(0, patch, change)
        else:
            y, x = pixel // columns - positions.corner[patch, 0], pixel % columns - positions.corner[patch, 1]
            flat = ((patch * positions.size[0] + y) * positions.size[1] + x) * channels + channel
            result.view(-1).index_add_(0, flat, change)
