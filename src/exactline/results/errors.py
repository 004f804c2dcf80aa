"""The estimated error of lines and planes: how far the returned function may be from the exact one, everywhere.

Both functions are piecewise linear. At a break the estimate adds up

* twice the error bound of the network's value there: once for the value, and once for the breaks that the same
  errors displace,
* the difference between the stored value and a second evaluation,
* twice the largest difference between the line and the network in the middle of the adjacent pieces, plus the error
  of the network's value there: a break that is displaced into a piece shows there with at least half of its effect,
* the steepest adjacent slope times the spacing of floats at the alpha of the break.

Between breaks the estimate is interpolated, like the values. The corners of a plane's polygons are treated alike; a
displaced edge of a polygon with n corners shows at their mean with at least an nth of its largest effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..budget import MIN_MEMORY, block_bytes, limit_memory
from ..engines.polygons.state import PlaneFrame
from ..lines import Lines
from ..network.graph import Network
from ..numerics.point_errors import PointErrors, RecentErrors, points_per_estimate
from ..ops.base import flatten_units
from ..tolerances import CORNER_RESOLUTION, FLOAT64_EPS
from .evaluate import evaluate_in_batches

MAX_ESTIMATED_NUMBERS = 1 << 21  # numbers of all nodes at all breaks up to which every break is estimated
COPIES_PER_ROW = 6  # of its values, while neighbouring rows are compared
MIN_ESTIMATED_BREAKS = 48  # breaks that are estimated at least: evenly spread ones and the steepest


@dataclass(frozen=True, eq=False)
class LineErrors:
    """Estimates the errors of lines at their breaks."""

    network: Network  # in the precision of the sweep
    lines: Lines
    line: Tensor  # (breaks,) the line of each break
    alphas: Tensor  # (breaks,) in order of line and alpha
    values: tuple[Tensor, ...] | None  # (breaks, *out) for each output; None if values were not kept
    dtype: torch.dtype  # precision of the sweep
    max_numbers: int = MAX_ESTIMATED_NUMBERS  # numbers of all nodes at all breaks up to which every break is estimated

    @limit_memory(MIN_MEMORY)  # whatever memory= the sweep had: results are asked for errors later
    def estimate(self) -> Tensor:
        """The estimated error at every break, the largest over all outputs, (breaks,)."""
        if not len(self.alphas):
            return torch.zeros(0, dtype=torch.float64)
        shifts = self._spacing_errors()
        rows = _select_rows(self.network, shifts, self.max_numbers)
        errors = self._point_errors(rows)
        if self.values is not None and len(self._pieces):
            errors = errors + self._piece_errors(rows)
        if len(rows) < len(self.alphas):
            errors = self._spread_to_all(rows, errors)
        return errors + shifts

    @cached_property
    def _pieces(self) -> Tensor:
        """The breaks at which a piece starts, (pieces,)."""
        return (self.line[1:] == self.line[:-1]).nonzero()[:, 0]

    def _largest_at_ends(self, pieces: Tensor, numbers: Tensor) -> Tensor:
        """For every break the largest number (pieces,) of the pieces that start or end there, (breaks,)."""
        largest = torch.zeros(len(self.alphas), dtype=torch.float64)
        for breaks in (pieces, pieces + 1):
            largest[breaks] = torch.maximum(largest[breaks], numbers)
        return largest

    def _spacing_errors(self) -> Tensor:
        """The steepest adjacent slope times the spacing of floats at each break inside its line, (breaks,)."""
        alphas, pieces = self.alphas, self._pieces
        spacing = (torch.nextafter(alphas, torch.full_like(alphas, 2.0)) - alphas) / FLOAT64_EPS
        spacing = spacing * ((alphas > 0) & (alphas < 1))  # both ends are exact
        errors = torch.zeros_like(alphas)
        for values in self.values or ():
            flat = flatten_units(values)
            if flat.numel() and len(pieces):
                change = _compute_in_parts(
                    pieces, _rows_per_block(flat), lambda part, flat=flat: _scaled_change(flat, part)
                )
                errors += self._largest_at_ends(pieces, change / (alphas[pieces + 1] - alphas[pieces])) * spacing
        return errors

    def _point_errors(self, rows: Tensor) -> Tensor:
        """Twice the error bounds at some breaks, and the differences from a second evaluation, (rows,)."""
        return _errors_at_points(
            self.network, lambda part: self._points(self.line[part], self.alphas[part]), self.values, rows
        )

    def _piece_errors(self, rows: Tensor) -> Tensor:
        """Twice the largest possible difference in the middle of the pieces at both sides of some breaks, (rows,)."""
        pieces = self._pieces
        if len(rows) < len(self.alphas):
            pieces = pieces[torch.isin(pieces, torch.cat([rows, rows - 1]))]
        worst = _compute_in_parts(pieces, points_per_estimate(self.network, 0), self._middle_errors)
        return 2 * self._largest_at_ends(pieces, worst)[rows]

    def _middle_errors(self, pieces: Tensor) -> Tensor:
        """The largest difference between the line and the exact network in the middle of some pieces, (pieces,)."""
        left, right = self.alphas[pieces], self.alphas[pieces + 1]
        middle = left + (right - left) / 2
        share = ((middle - left) / (right - left))[:, None]
        estimate = RecentErrors.at_points(self.network, *self._points(self.line[pieces], middle))
        worst = torch.zeros(len(pieces), dtype=torch.float64)
        for number, node in sorted(enumerate(self.network.outputs), key=lambda pair: pair[1]):
            bounds, values = flatten_units(estimate.advance_to(node)), (self.values or ())[number]
            a, b, direct = (flatten_units(v) for v in (values[pieces], values[pieces + 1], estimate.values[node]))
            if direct.numel():
                difference = (a * (1 - share) + b * share - direct).abs() + bounds
                worst = torch.maximum(worst, difference.amax(1).to(torch.float64))
        return worst

    def _spread_to_all(self, rows: Tensor, errors: Tensor) -> Tensor:
        """The errors (rows,) of some breaks as errors of all: the larger one of both neighbours."""
        every = torch.arange(len(self.alphas))
        after = torch.searchsorted(rows, every).clamp(max=len(rows) - 1)
        before = torch.where(rows[after] > every, after - 1, after).clamp(min=0)
        return torch.maximum(errors[before], errors[after])

    def _points(self, line: Tensor, alphas: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Points on the lines, and the errors of their coordinates, in the precision of the sweep."""
        return self._cast_lines.at(line, alphas)

    @cached_property
    def _cast_lines(self) -> Lines:
        return self.lines.to(torch.device("cpu"), self.dtype)


@dataclass(frozen=True, eq=False)
class PlaneErrors:
    """Estimates the errors of a plane at the corners of its polygons."""

    network: Network  # in the precision of the sweep
    frame: PlaneFrame
    weights: Tensor  # (corners, k) convex weights of the vertices
    edges: Tensor  # (edges, 2) corners at both ends
    offsets: Tensor  # (polygons + 1,) first entry of each polygon in rings
    rings: Tensor  # corners of all polygons, concatenated
    values: tuple[Tensor, ...] | None  # (corners, *out) for each output; None if values were not kept

    @limit_memory(MIN_MEMORY)  # whatever memory= the sweep had: results are asked for errors later
    def estimate(self) -> Tensor:
        """The estimated error at every corner, the largest over all outputs, (corners,)."""
        shifts = self._resolution_errors()
        rows = _select_rows(self.network, shifts)
        errors = _errors_at_points(
            self.network, lambda part: self.frame.points(self.weights[part].numpy()), self.values, rows
        )
        if len(rows) < len(self.weights):
            errors = errors.amax().expand(len(self.weights))
        if self.values is not None:
            errors = errors + self._polygon_errors()
        return errors + shifts

    def _resolution_errors(self) -> Tensor:
        """The steepest slope along an adjacent edge times the resolution of corners, (corners,)."""
        start, end = self.edges.T
        length = (self.weights[start] - self.weights[end]).abs().amax(1)
        errors = torch.zeros(len(self.weights), dtype=torch.float64)
        for values in self.values or ():
            steps = CORNER_RESOLUTION * flatten_units(values).to(torch.float64)
            if steps.numel() and len(start):
                slope = (steps[start] - steps[end]).abs().amax(1) / length.clamp(min=CORNER_RESOLUTION)
                for corners in (start, end):
                    errors.scatter_reduce_(0, corners, slope, "amax")
        return errors

    def _polygon_errors(self) -> Tensor:
        """For every corner the largest difference at the mean of the corners of an adjacent polygon, (corners,)."""
        sizes = self.offsets.diff()
        polygon = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        errors = torch.zeros(len(self.weights), dtype=torch.float64)
        chosen = torch.arange(len(sizes))
        if len(_select_rows(self.network, sizes.to(torch.float64))) < len(sizes):  # a few polygons stand for all
            chosen = torch.linspace(0, len(sizes) - 1, MIN_ESTIMATED_BREAKS, dtype=torch.float64).to(torch.int64)
        points, _ = self.frame.points(self._means(self.weights, polygon, sizes)[chosen].numpy())
        for values, again in zip(self.values or (), evaluate_in_batches(self.network, points), strict=True):
            means = self._means(flatten_units(values), polygon, sizes)[chosen]
            if means.numel():
                difference = (means - flatten_units(again)).abs().amax(1).to(torch.float64) * sizes[chosen]
                if len(chosen) < len(sizes):
                    errors = torch.maximum(errors, difference.amax())
                else:
                    errors.scatter_reduce_(0, self.rings, difference[polygon], "amax")
        return errors

    def _means(self, numbers: Tensor, polygon: Tensor, sizes: Tensor) -> Tensor:
        """The means of numbers (corners, n) over the corners of every polygon, (polygons, n)."""
        total = numbers.new_zeros(len(sizes), numbers.shape[1])
        total.index_add_(0, polygon, numbers[self.rings])
        return total / sizes[:, None].to(numbers.dtype)


def _compute_in_parts(rows: Tensor, step: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """The numbers (n,) that ``compute`` returns for rows (n,), ``step`` rows at a time.

    They are written into one tensor. Kept parts, however small, would lie between the temporary tensors, and the
    allocator could not use the memory between them again.
    """
    numbers = torch.empty(len(rows), dtype=torch.float64)
    for out, part in zip(numbers.split(step), rows.split(step), strict=True):
        out.copy_(compute(part))
    return numbers


def _rows_per_block(values: Tensor) -> int:
    """How many rows of values (n, outputs) are compared together, by memory."""
    return max(1, block_bytes() // max(1, COPIES_PER_ROW * values.shape[1] * values.element_size()))


def _scaled_change(values: Tensor, pieces: Tensor) -> Tensor:
    """The largest change (pieces,) of values (breaks, outputs) along pieces, times the spacing of floats at 1."""
    # scaled, because differences and slopes of huge values overflow
    left, right = (FLOAT64_EPS * values[rows].to(torch.float64) for rows in (pieces, pieces + 1))
    return (right - left).abs().amax(1)


def _select_rows(network: Network, shifts: Tensor, max_numbers: int = MAX_ESTIMATED_NUMBERS) -> Tensor:
    """The breaks or corners that are estimated: all if that is cheap, else spread ones and the steepest."""
    count, numbers = len(shifts), sum(torch.Size(node.shape).numel() for node in network.nodes)
    most = max(MIN_ESTIMATED_BREAKS, max_numbers // max(numbers, 1))
    if count <= most:
        return torch.arange(count)
    spread = torch.linspace(0, count - 1, most // 2, dtype=torch.float64).round().to(torch.int64)
    return torch.unique(torch.cat([spread, shifts.topk(most - len(spread)).indices]))


def _errors_at_points(
    network: Network,
    points_of: Callable[[Tensor], tuple[list[Tensor], list[Tensor]]],  # of some rows: points and their errors
    values: tuple[Tensor, ...] | None,  # (n, *out) for each output
    rows: Tensor,  # (k,)
) -> Tensor:
    """Twice the error bounds at some points, and the differences of their values from a second evaluation, (k,)."""

    def compute(part: Tensor) -> Tensor:
        estimate = PointErrors(network, *points_of(part))
        worst = torch.zeros(len(part), dtype=torch.float64)
        for number, node in sorted(enumerate(network.outputs), key=lambda pair: pair[1]):
            errors = 2 * flatten_units(estimate.advance_to(node)).to(torch.float64)
            if values is not None:
                stored, again = flatten_units(values[number][part]), flatten_units(estimate.values[node])
                errors = errors + (stored - again).abs()
            if errors.numel():
                worst = torch.maximum(worst, errors.amax(1))
        return worst

    return _compute_in_parts(rows, points_per_estimate(network), compute)
