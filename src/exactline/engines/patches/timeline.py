"""The breaks that reach every pixel of a map along a segment, in order of alpha, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from ...budget import check_deadline
from ...ops.masks import is_on_host
from .patch import Groups, MapShape, Sources

BLOCK_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 27}  # by device: numbers in a block; on a CPU they stay in its cache
MIN_UNEVEN_DEPTH = 8  # entries per pixel: shallower blocks may mix pixels of any number of entries

# torch 2.6 has `nonzero_static` on a CPU only
HAS_STATIC_NONZERO = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7)

MAX_FLAT_SUM = 2048  # terms: longer cumulative sums are computed in two levels
SUM_STRIDE = 256  # terms summed at the lower level
MIN_ROW_NUMBERS = 1 << 11  # numbers from which on adding one row to the next costs less than torch's cumulative sum
# Distance of rows, in numbers, whose multiples fall into few sets of a CPU's cache: torch's cumulative sums, which go
# from row to row, then take up to twenty times as long.
COLLIDING_STRIDE = 1 << 8

# (alphas, elements, partners or -1, knot) -> (differences, error bounds), (k,) each: refined differences at the input
# of a breaking node, exactly zero where the error hides their sign. May raise `NeedsDenseFallback`.
RefineDifferences = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


class BreakAlphas(dict[int, Tensor]):
    """By node: the alphas of the breaks that originate from it."""

    def of(self, sources: Sources) -> Tensor:
        """The alphas of all breaks of a group, (n,)."""
        alphas = [self[source.node] for source in sources]
        return alphas[0] if len(alphas) == 1 else torch.cat(alphas)


class ValueOverflow(Exception):
    """A value overflows or is not a number."""


class SegmentTooLarge(Exception):
    """A segment needs more numbers than the memory budget allows."""


class NeedsDenseFallback(Exception):
    """Patches cannot decide something in this segment; the dense engine must sweep the part around an alpha."""

    def __init__(self, alpha: float, everywhere: bool = False) -> None:
        super().__init__(f"undecided near alpha {alpha!r}")
        self.alpha, self.everywhere = alpha, everywhere  # everywhere: the whole segment is affected


@dataclass(frozen=True, eq=False)
class NodeInput:
    """The input of a breaking node along a segment: values at both ends, the slope at the start, and its jumps."""

    map_shape: MapShape
    start: float  # alpha
    stop: float  # alpha
    left: Tensor  # (pixels, channels) values at the start
    right: Tensor  # (pixels, channels) values at the stop
    slope: Tensor  # (pixels, channels) just after the start
    groups: Groups
    break_alphas: BreakAlphas
    threshold: float  # values further than this from a knot are unambiguous
    thresholds: Tensor  # (pixels, channels) `threshold` for each value
    min_difference: Tensor  # (pixels, channels) values closer to each other than the sum of theirs count as equal
    max_drift: float  # how far cumulative sums may be from the values at the stop
    refine: RefineDifferences
    least_errors: Callable[[Tensor, Tensor], Tensor]  # lower bounds (k,) of the errors at alphas of elements, (k,) each
    max_numbers: float  # numbers of a block above which `SegmentTooLarge` is raised
    records_patterns: bool  # whether the activation pattern is recorded; a unit that stays on a knot then has none
    records_switches: bool  # whether units are recorded that change their branch without a crossing
    end_bounds: Callable[[], tuple[Tensor, Tensor]]  # error bounds (pixels, channels) at both ends of the line
    candidates: list[Tensor]  # written: (2, k) alphas between which units may be ambiguous
    repeated: Tensor | None = None  # (pixels, channels) units that repeat earlier ones: no candidates

    def mark_candidates(self, block: Block, pieces: Tensor) -> None:
        """Mark pieces (p, depth + 1) of the pixels of a block on which units may be ambiguous."""
        row, piece = (pieces & (block.widths > 0)).nonzero(as_tuple=True)
        if len(row):
            self.candidates.append(torch.stack([block.alphas[row, piece], block.alphas[row, piece + 1]]))


@dataclass(frozen=True, eq=False)
class NewPatchBreaks:
    """The new breaks of one node, in any order."""

    alpha: Tensor  # (n,)
    pixel: Tensor  # (n,) of the output
    channel: Tensor  # (n,)
    jump: Tensor  # (n,) slope jump of the output
    slope: Tensor  # (n,) slope of the difference that crosses zero: of the element minus its partner or the knot
    element: Tensor  # (n,) flat index of the input element that crosses
    partner: Tensor  # (n,) the element it crosses, -1 if it crosses a knot
    slope_change: Tensor  # (n,) jump of the output's derivative by the element
    has_partners: bool = False  # whether some partner is not -1

    @staticmethod
    def join(parts: list[NewPatchBreaks]) -> NewPatchBreaks:
        """Concatenate several sets of breaks."""
        if len(parts) == 1:
            return parts[0]
        names = ("alpha", "pixel", "channel", "jump", "slope", "element", "partner", "slope_change")
        columns = (torch.cat([getattr(p, name) for p in parts]) for name in names)
        return NewPatchBreaks(*columns, has_partners=any(p.has_partners for p in parts))

    @staticmethod
    def empty(like: Tensor) -> NewPatchBreaks:
        """No breaks, on the device of a tensor."""
        reals, integers = like.new_zeros(0, dtype=torch.float64), like.new_zeros(0, dtype=torch.int64)
        return NewPatchBreaks(reals, integers, integers, reals, reals, integers, integers, reals)


@dataclass(frozen=True, eq=False)
class CrossingsAtEntries:
    """Units that cross a knot at the alpha of an entry: their slope jumps are added to the patch of its break."""

    alpha: Tensor  # (n,)
    pixel: Tensor  # (n,) of the output
    channel: Tensor  # (n,)
    jump: Tensor  # (n,) slope jump of the output
    slope_change: Tensor  # (n,) jump of the output's derivative by the element
    entry: Tensor  # (n,) index

    @staticmethod
    def join(parts: list[CrossingsAtEntries]) -> CrossingsAtEntries | None:
        """Concatenate several sets of crossings; None if there are none."""
        if not parts:
            return None
        names = ("alpha", "pixel", "channel", "jump", "slope_change", "entry")
        return CrossingsAtEntries(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class PatchSwitches:
    """Units that change their branch without a crossing, such as one that leaves a knot it has stayed on."""

    alpha: Tensor  # (n,)
    unit: Tensor  # (n,) flat index

    @staticmethod
    def find(block: Block, changes: Tensor, stop: float, pixels: int) -> PatchSwitches:
        """The units that change at the end of a piece, (p, depth + 1, channels), before the end of the segment."""
        row, piece, channel = changes.nonzero(as_tuple=True)
        alpha = block.alphas[row, piece + 1]
        inside = alpha < stop  # padding is at the stop
        return PatchSwitches(alpha[inside], (channel * pixels + block.pixels[row])[inside])

    @staticmethod
    def join(parts: list[PatchSwitches]) -> PatchSwitches | None:
        """Concatenate several sets of switches; None if there are none."""
        if not parts:
            return None
        return PatchSwitches(torch.cat([p.alpha for p in parts]), torch.cat([p.unit for p in parts]))


@dataclass(frozen=True, eq=False)
class ActivationOutput:
    """The output of a breaking node along a segment."""

    groups: Groups  # slope jumps at the breaks that existed before
    slope: Tensor  # (pixels, channels) just after the start
    new_breaks: NewPatchBreaks
    pattern: Tensor | None = None  # if recorded: see `Segment.patterns`
    switches: PatchSwitches | None = None  # if recorded
    # (k, 2) input elements that lead together all along, if patterns are recorded; -1 for the constant 0
    tied: Tensor | None = None
    at_entries: CrossingsAtEntries | None = None


class ActivationPatchRule(Protocol):
    """How a breaking operator transforms patches."""

    @property
    def map_shape(self) -> MapShape:
        """The shape of the operator's output."""
        ...

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of an output patch, given those of the input patches."""
        ...

    def apply(self, node_input: NodeInput) -> ActivationOutput:
        """Evaluate the operator along a segment."""
        ...


class Timeline:
    """Entries, one for each pixel that a break reaches, sorted by pixel and then by alpha.

    Args:
        parts: Pairs of pixels (n, places) that n breaks reach, and of their alphas (n,). Pixel ``pixels`` stands for
            positions outside the map, which have no entry.
        pixels: Number of pixels.
        start: Alpha at the start of the segment.
        stop: Alpha at its stop.
        device: Device of all tensors.
    """

    def __init__(
        self, parts: list[tuple[Tensor, Tensor]], pixels: int, start: float, stop: float, device: torch.device
    ) -> None:
        self.start, self.stop, self.device = start, stop, device
        none = torch.zeros(0, dtype=torch.int64, device=device)
        reached, alphas = [pixel for pixel, _ in parts], [alpha for _, alpha in parts]
        break_alphas = _concatenate(alphas, none.to(torch.float64))
        total = len(break_alphas)
        rank = torch.empty(total, dtype=torch.int64, device=device)  # of each break in the order of alpha
        rank[break_alphas.sort(stable=True).indices] = torch.arange(total, device=device)
        ranks = rank.split([len(a) for a in alphas]) if parts else ()
        keys = [torch.add(r[:, None], pixel, alpha=total).view(-1) for r, pixel in zip(ranks, reached, strict=True)]
        keys, order = _concatenate(keys, none).sort()  # pixel first, then rank: unique, except outside the map
        self.pixel = _concatenate([pixel.reshape(-1) for pixel in reached], none)
        entry_alphas = [a[:, None].expand_as(pixel).reshape(-1) for a, pixel in zip(alphas, reached, strict=True)]
        self.alpha = torch.cat([*entry_alphas, break_alphas.new_full((1,), stop)])  # the last one is for padding
        self.order = torch.cat([order, order.new_full((1,), len(order))])
        edges = torch.searchsorted(keys, torch.arange(0, pixels + 1, device=device) * total)
        self.starts, self.counts = edges[:-1], edges[1:] - edges[:-1]

    def blocks(self, width: int) -> Iterator[Block]:
        """Blocks of pixels with similar numbers of entries, of bounded size at ``width`` numbers per entry."""
        counts, pixels, depths = self._by_depth
        max_numbers = BLOCK_NUMBERS.get(self.device.type, 1 << 18)
        at = 0
        while at < len(depths):
            check_deadline()
            depth = depths[at]
            stop = at + max(1, max_numbers // ((depth + 2) * width))
            if depth > MIN_UNEVEN_DEPTH:  # pixels with far fewer entries go to another block: padding costs time too
                while stop > at + 1 and stop <= len(depths) and depths[min(stop, len(depths)) - 1] < depth // 2:
                    stop = at + max(1, (stop - at) // 2)
            stop = min(stop, len(depths))
            yield self._block(pixels[at:stop], counts[at:stop], depth)
            at = stop

    @property
    def max_depth(self) -> int:
        """The largest number of entries of a pixel."""
        return max(self._by_depth[2][:1], default=0)

    @cached_property
    def _by_depth(self) -> tuple[Tensor, Tensor, list[int]]:
        """The numbers of entries in descending order, on the device and on the host, and their pixels in between."""
        counts, pixels = torch.sort(self.counts, descending=True)
        return counts, pixels, counts.tolist()

    def _block(self, pixels: Tensor, counts: Tensor, depth: int) -> Block:
        steps = torch.arange(depth, device=self.device)
        is_entry = steps < counts[:, None]
        index = (self.starts[pixels, None] + steps).clamp_(max=len(self.order) - 1)
        entries = self.order[index].masked_fill_(~is_entry, len(self.order) - 1)
        alphas = self.alpha.new_full((len(pixels), depth + 2), self.stop)
        alphas[:, 0] = self.start
        alphas[:, 1:-1] = self.alpha[entries]
        return Block(pixels, entries, is_entry, alphas, counts)


def _concatenate(parts: list[Tensor], none: Tensor) -> Tensor:
    return (parts[0] if len(parts) == 1 else torch.cat(parts)) if parts else none


@dataclass(frozen=True, eq=False)
class Block:
    """Some pixels with their entries, padded to the largest number of entries; padding is at the stop."""

    pixels: Tensor  # (p,)
    entries: Tensor  # (p, depth) index of the entry, or the total number of entries for padding
    is_entry: Tensor  # (p, depth) False for padding
    alphas: Tensor  # (p, depth + 2) of the start, the entries and the stop
    counts: Tensor  # (p,) number of entries of each pixel

    @property
    def depth(self) -> int:
        """The largest number of entries of a pixel."""
        return self.entries.shape[1]

    @cached_property
    def widths(self) -> Tensor:
        """(p, depth + 1) widths of the pieces between neighbouring alphas."""
        return self.alphas[:, 1:] - self.alphas[:, :-1]


def cumulative_sum(x: Tensor) -> Tensor:
    """Cumulative sums along dim 1, in place where it is short; otherwise in two levels, for speed and accuracy."""
    depth = x.shape[1]
    if depth <= MAX_FLAT_SUM:
        return _add_up(x, 1)
    count = -(-depth // SUM_STRIDE)
    padded = x.new_zeros(len(x), count * SUM_STRIDE, *x.shape[2:])
    padded[:, :depth] = x
    parts = padded.view(len(x), count, SUM_STRIDE, *x.shape[2:])
    _add_up(parts, 2)
    before = cumulative_sum(parts[:, :-1, -1].contiguous())
    parts[:, 1:] += before[:, :, None]
    return padded[:, :depth]


def _add_up(x: Tensor, dim: int) -> Tensor:
    """Cumulative sums along a dim, in place: row by row where that is faster than torch's kernel, to the same bits."""
    collides = x.stride(dim) % COLLIDING_STRIDE == 0
    is_long = x.numel() >= (COLLIDING_STRIDE if collides else MIN_ROW_NUMBERS) * x.shape[dim]
    if not is_on_host(x) or x.dtype != torch.float64 or not is_long:
        return torch.cumsum(x, dim, out=x)
    for before, row in pairwise(x.unbind(dim)):
        row.add_(before)
    return x


def values_at_entries(
    block: Block,
    left: Tensor,  # (p, ...) at the start
    slopes: Tensor,  # (p, depth + 1, ...) on the pieces
) -> Tensor:
    """Values (p, depth + 2, ...) at the start, the entries and the stop, by summation from the start."""
    out = slopes.new_empty(slopes.shape[0], slopes.shape[1] + 1, *slopes.shape[2:])
    out[:, 0] = left
    widths = block.widths.view(*block.widths.shape, *[1] * (slopes.dim() - 2))
    torch.mul(slopes, widths, out=out[:, 1:])
    return cumulative_sum(out)


def correct_drift(
    node_input: NodeInput,
    block: Block,
    values: Tensor,  # (p, depth + 2, ...)
    right: Tensor,  # (p, ...) the directly evaluated values at the stop
) -> Tensor:
    """The largest drift: how far summed values are from the directly evaluated ones at the stop.

    For float32 patches, which allow more drift than the threshold, it is distributed over ``values`` in place.
    """
    drift = right - values[:, -1]
    if node_input.max_drift > node_input.threshold:
        fraction = (block.alphas - node_input.start) / (node_input.stop - node_input.start)
        values += fraction.view(*fraction.shape, *[1] * (values.dim() - 2)) * drift[:, None]
    return drift.abs().amax() if drift.numel() else drift.new_zeros(())


def max_straight_drift(node_input: NodeInput) -> Tensor:
    """The largest drift of an input that no break reaches."""
    width = node_input.stop - node_input.start
    drift = torch.add(node_input.left, node_input.slope, alpha=width).sub_(node_input.right)
    return drift.abs_().amax() if drift.numel() else drift.new_zeros(())


def check_drift(node_input: NodeInput, drift: float) -> None:
    """Raise `NeedsDenseFallback` if the drift is too large, or `ValueOverflow` if it is not finite."""
    if drift <= node_input.max_drift:
        return
    if not bool(torch.isfinite(node_input.left.sum() + node_input.right.sum() + node_input.slope.sum())):
        raise ValueOverflow
    raise NeedsDenseFallback(0.5 * (node_input.start + node_input.stop), everywhere=True)


def min_or_inf(numbers: Tensor) -> Tensor:
    """The minimum of a tensor; infinity if it is empty."""
    return numbers.amin() if numbers.numel() else numbers.new_full((), torch.inf)


def to_host(*scalars: Tensor) -> list[float]:
    """Scalar tensors as floats, read from their device in one synchronization."""
    return torch.stack([n.to(torch.float64) for n in scalars]).tolist()


def nonzero(mask: Tensor, count: int | None) -> tuple[Tensor, ...]:
    """Indices (count,) per dim where a mask holds; a known count saves a synchronization on a GPU."""
    if count == 0:
        return tuple(torch.zeros(0, dtype=torch.int64, device=mask.device) for _ in mask.shape)
    if count is None or is_on_host(mask) or not HAS_STATIC_NONZERO:
        return mask.nonzero(as_tuple=True)
    return torch.nonzero_static(mask, size=count).unbind(1)


def zero_crossing(left: Tensor, right: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The alphas (k,) where differences that go from ``before`` to ``after`` between two alphas are zero.

    Each is measured from the nearer end, so that a crossing close to it keeps its digits.
    """
    before, after, width = before.abs(), after.abs(), right - left
    total = before + after
    return torch.where(before <= after, left + width * (before / total), right - width * (after / total))
