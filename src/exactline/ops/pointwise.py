"""Elementwise breaking operators: piecewise-linear functions, given by their knots and the slopes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ..tolerances import AMBIGUITY_WIDTH, CANDIDATE_SHARE, HUGE_VALUE_SCALE, MAX_ALPHA_ERROR, OVERFLOW_GUARD
from .base import (
    Breaking,
    Crossings,
    ErrorBounds,
    KnotPasses,
    PieceEnds,
    SnappedInput,
    flatten_units,
)
from .masks import all_true, greater, less, nonzero, xor

Number = Fraction | Tensor  # one exact number, or a tensor broadcastable to (1, *shape); knots have exactly that shape


@dataclass(frozen=True, eq=False)
class Pointwise(Breaking):
    """A continuous piecewise-linear function of one variable, applied to each element.

    >>> relu = Pointwise((Fraction(0),), (Fraction(0), Fraction(1)), Fraction(0))
    >>> relu.evaluate(torch.tensor([[-2.0, 0.0, 3.0]]))
    tensor([[0., 0., 3.]])
    """

    knots: tuple[Number, ...]  # in ascending order
    slopes: tuple[Number, ...]  # one more than knots
    value: Number  # of the function at the first knot
    fn: Callable[[Tensor], Tensor] | None = None  # torch's own kernel, if there is one
    inplace_fn: Callable[[Tensor], Tensor] | None = None  # torch's kernel that overwrites its input
    name: str = "pointwise"
    flat_slope: Fraction | None = None  # slope of a unit that stays on a knot along a piece; None: the left branch's

    @property
    def title(self) -> str:
        return self.name

    @property
    def is_relu(self) -> bool:
        """Whether this is a plain ReLU."""
        return self._has_shared_numbers and (self.knots, self.slopes, self.value) == ((0,), (0, 1), 0)

    @property
    def _has_shared_numbers(self) -> bool:
        """Whether knots, slopes and value are the same for all elements."""
        return all(isinstance(v, Fraction) for v in (*self.knots, *self.slopes, self.value))

    def evaluate(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        if self.fn is not None:
            return self.fn(x)
        knots = [_as_number(k) for k in self.knots]
        total = _as_number(self.value) + _as_number(self.slopes[0]) * (x - knots[0]).clamp(max=0)
        for j, slope in enumerate(self.slopes[1:]):
            run = (x - knots[j]).clamp(min=0)
            if j + 1 < len(knots):
                run = run.clamp(max=knots[j + 1] - knots[j])
            total = total + _as_number(slope) * run
        return total

    @property
    def max_slope(self) -> float:
        return max(float(s.abs().max()) if isinstance(s, Tensor) else abs(float(s)) for s in self.slopes)

    def evaluate_inplace(self, x: Tensor) -> Tensor:
        return self.evaluate(x) if self.inplace_fn is None else self.inplace_fn(x)

    def count_ambiguous(self, ends: PieceEnds) -> Tensor:
        counts = torch.zeros_like(ends.widths, dtype=torch.int64)
        for knot in self.knots:
            level = knot_level(knot, ends.values[0])
            gaps = [flatten_units(values) - level for values in ends.values]
            side = [gap.masked_fill(gap.abs() <= bound, 0.0) for gap, bound in zip(gaps, ends.bounds, strict=True)]
            ambiguous = (side[0] == 0) & (side[1] == 0)
            changes_side = side[0].sign() != side[1].sign()  # also up to its own break, where it is on the knot
            change = (gaps[1] - gaps[0]).abs()
            for near in (0, 1):  # units that leave the knot so slowly that rounding hides where
                bound = ends.bounds[near]
                is_near = (gaps[near].abs() <= AMBIGUITY_WIDTH * bound) & ends.is_earlier[near][:, None]
                is_slow = bound * ends.widths[:, None] > MAX_ALPHA_ERROR * change
                ambiguous |= is_near & changes_side & is_slow
            counts += (ambiguous & ends.is_counted).sum(1)
        return counts

    def propagate_errors(self, low: Tensor, high: Tensor, errors: Tensor) -> Tensor:
        if self.is_relu:
            return errors * (high >= 0)
        slope = torch.zeros_like(low)
        for j, branch_slope in enumerate(self.slopes):
            is_reached = torch.ones_like(low, dtype=torch.bool)
            if j > 0:
                is_reached &= high >= _as_number(self.knots[j - 1])
            if j < len(self.knots):
                is_reached &= low <= _as_number(self.knots[j])
            candidate = _as_number(branch_slope)
            if isinstance(candidate, Tensor):
                slope = torch.where(is_reached & (candidate.abs() >= slope.abs()), candidate, slope)
            elif candidate:  # filled in, see `vjp`
                slope.masked_fill_(is_reached & (slope.abs() <= abs(candidate)), candidate)
        propagated = errors * slope
        propagated[:1].abs_()  # a deviation has no sign
        return propagated

    def units(self, shape: tuple[int, ...]) -> int:
        return torch.Size(shape).numel()

    def knot_distances(self, x: Tensor) -> Tensor | None:
        gaps = (x - _as_number(k) if isinstance(k, Tensor) or k else x for k in self.knots)
        return torch.stack([torch.linalg.vector_norm(gap, -torch.inf) for gap in gaps])

    def snap_to_knots(self, x: Tensor, errors: ErrorBounds) -> SnappedInput:
        flat = x.reshape(len(x), -1)
        sides = []
        ambiguous = None
        is_copy = False
        for index, knot in enumerate(self.knots):
            level = knot_level(knot, x)
            if errors.knot_distances is not None and errors.knot_distances[index] > errors.threshold:
                sides.append((greater(flat, level), None))
                continue
            above, below = greater(flat, level + errors.threshold), less(flat, level - errors.threshold)
            clear = xor(above, below)
            if not all_true(clear):
                rows, columns = nonzero(~clear)
                if not is_copy:
                    flat, is_copy = flat.clone(), True
                values = _Values(flat, level, above, below)
                snapped = values.snap(rows, columns, errors)
                if snapped is None and all_true(xor(above, below)):
                    below = None
                elif len(flat) > 1:
                    found = values.find_ambiguous(snapped, errors)
                    if found is not None:
                        ambiguous = found if ambiguous is None else ambiguous | found
            else:
                below = None
            sides.append((above, below))
        return SnappedInput(flat, tuple(sides), ambiguous)

    def crossings(self, snapped: SnappedInput, errors: ErrorBounds) -> Crossings:
        parts = []
        x = snapped.x
        for knot, (above, below) in zip(self.knots, snapped.sides, strict=True):
            if below is None:
                crossed = xor(above[:-1], above[1:])
            else:
                crossed = below[:-1] & above[1:]
                crossed |= above[:-1] & below[1:]
            if errors.several_lines:
                crossed.index_fill_(0, errors.line_ends, False)
            piece, unit = nonzero(crossed)
            level = _knot_level_at(knot, unit, x)
            before, after = x[piece, unit], x[piece + 1, unit]
            if errors.magnitude > OVERFLOW_GUARD:
                before, after = (v * HUGE_VALUE_SCALE - level * HUGE_VALUE_SCALE for v in (before, after))
            elif isinstance(knot, Tensor) or knot:
                before, after = before - level, after - level
            parts.append(Crossings(piece, unit, before, after, unit, torch.full_like(unit, -1), level))
        return Crossings.join(parts)

    def knot_passes(
        self, snapped: SnappedInput, errors: ErrorBounds, *, with_switches: bool = False
    ) -> KnotPasses | None:
        if len(snapped.x) < 2 or all(below is None for _, below in snapped.sides):
            return None
        counts = torch.zeros(len(snapped.x), dtype=torch.int64, device=snapped.x.device)
        first, last, switches = [counts.new_zeros(0, 4)], [counts.new_zeros(0, 4)], [counts.new_zeros(0, 3)]
        for knot, (above, below) in enumerate(snapped.sides):
            if below is None:
                continue
            rows, units = nonzero(~(above ^ below))
            knots = torch.full_like(units, knot)
            for end, point, neighbour in ((first, 0, 1), (last, len(above) - 1, len(above) - 2)):
                at = rows == point
                side = _side(above, below, rows[at] * 0 + neighbour, units[at])
                end.append(torch.stack([knots[at], units[at], torch.zeros_like(side), side], 1))
            is_inner = (rows > 0) & (rows < len(above) - 1)
            rows, units = rows[is_inner], units[is_inner]
            same_line = errors.same_line[rows - 1] & errors.same_line[rows]
            before, after = _side(above, below, rows - 1, units), _side(above, below, rows + 1, units)
            passes = (same_line & (before * after < 0)).to(torch.int64)
            counts.index_add_(0, rows, passes)
            if with_switches:
                switches.append(torch.stack([rows, units, passes], 1)[same_line & ((before > 0) != (after > 0))])
        return KnotPasses(counts, torch.cat(first), torch.cat(last), torch.cat(switches) if with_switches else None)

    def branch_at(self, x: Tensor) -> Tensor:
        if _shared_numbers(self.knots) == [0] and self.flat_slope is None:
            return x > 0
        pattern = torch.zeros(x.shape, dtype=torch.int16, device=x.device)
        for j, knot in enumerate(self.knots):  # in fewer passes than on a piece
            level = _as_number(knot)
            pattern += x > level
            if self.flat_slope is not None:
                pattern = torch.where(x == level, torch.full_like(pattern, len(self.slopes) + j), pattern)
        return pattern

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        if _shared_numbers(self.knots) == [0] and self.flat_slope is None:
            # up to rounding both ends are on the same side, so the larger decides; a sum that overflows keeps its sign
            return (before + after > 0).to(torch.int16)
        pattern = torch.zeros(before.shape, dtype=torch.int16, device=before.device)
        for j, knot in enumerate(self.knots):
            level = _as_number(knot)
            start, stop = before - level, after - level
            # compared, not added: a sum could overflow or absorb the smaller
            is_above = torch.where(start.abs() >= stop.abs(), start, stop) > 0
            pattern += is_above
            if self.flat_slope is not None:
                on_knot = (start == 0) & (stop == 0)
                pattern = torch.where(on_knot, torch.full_like(pattern, len(self.slopes) + j), pattern)
        return pattern

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        value = _as_number(self.value)
        for j, slope in enumerate(self.slopes):
            knot = _as_number(self.knots[max(j - 1, 0)])
            if j > 1:
                width = knot - _as_number(self.knots[j - 2])
                value = value + _as_number(self.slopes[j - 1]) * width
            out = torch.where(pattern == j, (x - knot) * _as_number(slope) + value, out)
            if self.flat_slope is not None and j < len(self.knots):
                flat_knot, knot_value = (knot, value) if j == 0 else _next_knot(self, j, knot, value)
                flat = (x - flat_knot) * float(self.flat_slope) + knot_value
                out = torch.where(pattern == len(self.slopes) + j, flat, out)
        return out

    def is_flat(self, pattern: Tensor) -> Tensor:
        flat = torch.zeros(pattern.shape, dtype=torch.bool, device=pattern.device)
        for j, slope in enumerate(self.slopes):
            is_zero = slope == 0 if isinstance(slope, Tensor) else bool(slope == 0)
            flat |= (pattern == j) & is_zero
        if self.flat_slope is not None and self.flat_slope == 0:
            flat |= pattern >= len(self.slopes)
        return flat.flatten(1)

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        pattern, any_on_knot = self.activation_pattern(before, after), False
        for j, knot in enumerate(self.knots):
            level = _as_number(knot)
            on_knot = (before == level) & (after == level)
            if bool(on_knot.any()):
                right_branch = torch.full_like(pattern, j + 1)
                pattern, any_on_knot = torch.where(on_knot, right_branch, pattern), True
        return pattern if any_on_knot else None

    def vjp(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        if self.flat_slope is None and _shared_numbers(self.slopes) == [0, 1]:
            return grad.masked_fill(pattern == 0, 0.0)
        slopes = torch.zeros_like(grad)
        for j, branch_slope in enumerate(self.slopes):
            here, slope = pattern == j, _as_number(branch_slope)
            # a number is filled in: as a tensor it would be copied to the device, which synchronises
            slopes = torch.where(here, slope, slopes) if isinstance(slope, Tensor) else slopes.masked_fill_(here, slope)
        if self.flat_slope is not None:
            slopes.masked_fill_(pattern >= len(self.slopes), float(self.flat_slope))
        return grad * slopes


def _side(above: Tensor, below: Tensor, rows: Tensor, units: Tensor) -> Tensor:
    """1 above the knot, -1 below it, 0 on it; (k,) for k points and units."""
    return above[rows, units].to(torch.int64) - below[rows, units].to(torch.int64)


def _next_knot(
    op: Pointwise, j: int, knot: float | Tensor, value: float | Tensor
) -> tuple[float | Tensor, float | Tensor]:
    """The knot at the right end of branch j, and the value of the function there."""
    stop = _as_number(op.knots[j])
    return stop, value + _as_number(op.slopes[j]) * (stop - knot)


def _as_number(value: Number) -> float | Tensor:
    return float(value) if isinstance(value, Fraction) else value


def _shared_numbers(values: tuple[Number, ...]) -> list[Fraction]:
    """The numbers, if none of them differs between units; otherwise an empty list."""
    return [v for v in values if isinstance(v, Fraction)] if all(isinstance(v, Fraction) for v in values) else []


def knot_level(knot: Number, x: Tensor) -> float | Tensor:
    """A knot as one number, or as one number for each unit, (1, units); ``x`` is the input (points, *shape)."""
    if isinstance(knot, Fraction):
        return float(knot)
    return knot.expand(1, *x.shape[1:]).reshape(1, -1)


def _knot_level_at(knot: Number, unit: Tensor, x: Tensor) -> Tensor:
    if isinstance(knot, Fraction):
        return torch.full(unit.shape, float(knot), dtype=x.dtype, device=x.device)
    return knot.reshape(-1)[unit]


@dataclass(frozen=True)
class _Values:
    """The values of all units at all points, and the side of one knot on which each is."""

    x: Tensor  # (points, units)
    level: float | Tensor  # the knot; (1, units) where it differs between units
    above: Tensor  # (points, units)
    below: Tensor  # (points, units); a value that is neither above nor below is on the knot

    def level_at(self, columns: Tensor) -> float | Tensor:
        """The knot of some units (k,)."""
        return self.level[0, columns] if isinstance(self.level, Tensor) else self.level

    def snap(self, rows: Tensor, columns: Tensor, errors: ErrorBounds) -> _NearValues | None:
        """Set those of some values (k,) that are within their error of the knot to the knot, in place.

        Returns the values near the knot; None if all of them are on a known side or exactly on the knot.
        """
        gap = self.x[rows, columns] - self.level_at(columns)
        clear = gap.abs() > errors.thresholds_at(columns)
        if bool(clear.any()):  # units of tiny weights are near the knot everywhere, and yet on a known side
            self.above[rows[clear], columns[clear]] = gap[clear] > 0
            self.below[rows[clear], columns[clear]] = gap[clear] < 0
        near = (gap != 0) & ~clear
        if not bool(near.any()):
            return None
        rows, columns, gap = rows[near], columns[near], gap[near]
        points, point = torch.unique(rows, return_inverse=True)
        values, bounds = errors.evaluate(points)
        bound, level = bounds[point, columns], self.level_at(columns)
        gap = values[point, columns] - level
        on_knot = gap.abs() <= bound
        self.above[rows, columns] = (gap > 0) & ~on_knot
        self.below[rows, columns] = (gap < 0) & ~on_knot
        self.x[rows, columns] = values[point, columns].masked_fill(on_knot, 0.0) + on_knot * level
        near = gap.abs() <= AMBIGUITY_WIDTH / CANDIDATE_SHARE * bound
        return _NearValues(rows[near], columns[near], bound[near]) if bool(near.any()) else None

    def find_ambiguous(self, near: _NearValues | None, errors: ErrorBounds) -> Tensor | None:
        """Pieces (points - 1,) on which units may be ambiguous; None if there are none.

        The others certainly have none, at whichever points of the line the values were computed.
        """
        is_on = ~(self.above ^ self.below)
        if errors.repeats is not None:
            is_on &= ~errors.repeats
            near = None if near is None else near.without(errors.repeats)
        is_near = is_on
        if near is not None:
            is_near = is_on.clone()
            is_near[near.rows, near.columns] = True
        found = (is_near[:-1] & is_near[1:]).any(1)
        for step in (0, 1):  # units exactly on the knot at the left, then at the right end only
            piece, column = nonzero(is_on[step : len(is_on) - 1 + step] & ~is_on[1 - step : len(is_on) - step])
            self._find_slow(found, piece, piece + 1 - step, column, errors.thresholds_at(column), errors)
        if near is not None:
            for step in (-1, 0):  # the piece to the left, then the one to the right
                piece, neighbour = near.rows + step, near.rows + (1 if step == 0 else -1)
                inside = (neighbour >= 0) & (neighbour < len(self.x))
                piece, neighbour, columns, bound = (t[inside] for t in (piece, neighbour, near.columns, near.bound))
                self._find_slow(found, piece, neighbour, columns, bound, errors)
        found &= errors.same_line
        return found if bool(found.any()) else None

    def _find_slow(
        self, found: Tensor, piece: Tensor, far: Tensor, column: Tensor, bound: Tensor | float, errors: ErrorBounds
    ) -> None:
        """Add pieces (k,) on which a unit leaves the knot so slowly that rounding may hide where.

        Args:
            found: (points - 1,) is written.
            piece: (k,) the pieces.
            far: (k,) their ends further away from the knot.
            column: (k,) the units.
            bound: (k,) or one for all: the error at the end near the knot.
            errors: The errors.
        """
        distance = (self.x[far, column] - self.level_at(column)).abs()
        is_slow = bound * errors.widths[piece] > CANDIDATE_SHARE * MAX_ALPHA_ERROR * distance
        found[piece[is_slow]] = True


@dataclass(frozen=True)
class _NearValues:
    """Values near a knot; those within their error of it were set to it."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    bound: Tensor  # (k,)

    def without(self, units: Tensor) -> _NearValues:
        """The values of all but some units, (units,) of bool."""
        others = ~units[self.columns]
        return _NearValues(self.rows[others], self.columns[others], self.bound[others])
