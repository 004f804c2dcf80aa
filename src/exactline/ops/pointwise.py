"""Elementwise breaking operators: every one is a list of knots and the slopes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from .base import OVERFLOW_GUARD, Breaking, Crossings, ErrorBounds, KnotPasses, SnappedInput
from .masks import all_true, greater, less, nonzero, xor

MAX_ALPHA_SHIFT = 1e-10  # in alpha: breaks that rounding moves by more are counted as unresolved
Number = Fraction | Tensor  # exact, or broadcastable to (1, *shape); knots have exactly that shape


@dataclass(frozen=True, eq=False)
class Pointwise(Breaking):
    """A continuous piecewise-linear function of each coordinate.

    >>> relu = Pointwise((Fraction(0),), (Fraction(0), Fraction(1)), Fraction(0))
    >>> relu.evaluate(torch.tensor([[-2.0, 0.0, 3.0]]))
    tensor([[0., 0., 3.]])
    """

    knots: tuple[Number, ...]  # ascending
    slopes: tuple[Number, ...]  # one more than knots
    value: Number  # at the first knot
    fn: Callable[[Tensor], Tensor] | None = None  # a faster way to the same values
    inplace_fn: Callable[[Tensor], Tensor] | None = None  # the same, written over its input
    name: str = "pointwise"
    flat_slope: Fraction | None = None  # on a knot along a whole piece; None: that of the left branch

    @property
    def title(self) -> str:
        return self.name

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

    def jvp(self, x: Tensor, errors: Tensor) -> Tensor:
        reach = errors.abs().amax(0) * 8
        if (_shared_numbers(self.knots), _shared_numbers(self.slopes)) == ([0], [0, 1]):
            return errors * (x + reach >= 0)
        slope = torch.zeros_like(x)
        for j, each in enumerate(self.slopes):
            here = torch.ones_like(x, dtype=torch.bool)
            if j > 0:
                here &= x + reach >= _as_number(self.knots[j - 1])
            if j < len(self.knots):
                here &= x - reach <= _as_number(self.knots[j])
            steep = torch.as_tensor(_as_number(each), dtype=x.dtype, device=x.device)
            slope = torch.where(here & (steep.abs() >= slope.abs()), steep, slope)
        return errors * slope

    def units(self, shape: tuple[int, ...]) -> int:
        return torch.Size(shape).numel()

    def knot_distances(self, x: Tensor) -> Tensor | None:
        gaps = (x - _as_number(k) if isinstance(k, Tensor) or k else x for k in self.knots)
        return torch.stack([torch.linalg.vector_norm(gap, -torch.inf) for gap in gaps])

    def snap_to_knots(self, x: Tensor, noise: ErrorBounds) -> SnappedInput:
        flat = x.reshape(len(x), -1)
        sides = []
        unresolved = None
        owned = False
        for place, knot in enumerate(self.knots):
            level = knot_level(knot, x)
            if noise.knot_distances is not None and noise.knot_distances[place] > noise.threshold:
                sides.append((greater(flat, level), None))
                continue
            above, below = greater(flat, level + noise.threshold), less(flat, level - noise.threshold)
            clear = xor(above, below)
            if not all_true(clear):
                rows, columns = nonzero(~clear)
                if not owned:
                    flat, owned = flat.clone(), True
                snapped = _snap(flat, level, rows, columns, above, below, noise)
                if snapped is None and all_true(xor(above, below)):
                    below = None
                elif snapped is not None and len(flat) > 1:
                    extra = snapped.count_along_pieces(above, below, noise) + snapped.count_slow_crossings(
                        flat, level, above, below, noise
                    )
                    unresolved = extra if unresolved is None else unresolved + extra
            else:
                below = None
            sides.append((above, below))
        return SnappedInput(flat, tuple(sides), unresolved)

    def crossings(self, settled: SnappedInput, noise: ErrorBounds) -> Crossings:
        parts = []
        x = settled.x
        for knot, (above, below) in zip(self.knots, settled.sides, strict=True):
            if below is None:
                crossed = xor(above[:-1], above[1:])
            else:
                crossed = below[:-1] & above[1:]
                crossed |= above[:-1] & below[1:]
            if noise.several_lines:
                crossed.index_fill_(0, noise.line_ends, False)
            piece, unit = nonzero(crossed)
            level = _knot_level_at(knot, unit, x)
            before, after = x[piece, unit], x[piece + 1, unit]
            if noise.magnitude > OVERFLOW_GUARD:
                before, after = before * 0.25 - level * 0.25, after * 0.25 - level * 0.25
            elif isinstance(knot, Tensor) or knot:
                before, after = before - level, after - level
            parts.append(Crossings(piece, unit, before, after, unit, torch.full_like(unit, -1), level))
        return Crossings.join(parts)

    def knot_passes(self, settled: SnappedInput, noise: ErrorBounds) -> KnotPasses | None:
        if all(below is None for _, below in settled.sides):
            return None
        counts = torch.zeros(len(settled.x), dtype=torch.int64, device=settled.x.device)
        first, last = [counts.new_zeros(0, 3)], [counts.new_zeros(0, 3)]
        for knot, (above, below) in enumerate(settled.sides):
            if below is None:
                continue
            rows, units = nonzero(~(above ^ below))
            kinds = torch.full_like(units, knot)
            for edge, here, there in ((first, 0, 1), (last, len(above) - 1, len(above) - 2)):
                at = rows == here
                edge.append(
                    torch.stack([kinds[at], units[at], _side(above, below, rows[at] * 0 + there, units[at])], 1)
                )
            inner = (rows > 0) & (rows < len(above) - 1)
            rows, units = rows[inner], units[inner]
            both = noise.same_line[rows - 1] & noise.same_line[rows]
            turned = _side(above, below, rows - 1, units) * _side(above, below, rows + 1, units) < 0
            counts.index_add_(0, rows, (both & turned).to(torch.int64))
        return KnotPasses(counts, torch.cat(first), torch.cat(last))

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        if _shared_numbers(self.knots) == [0] and self.flat_slope is None:
            # both ends are on one side but for rounding, so the larger decides; a sum that overflows keeps its sign
            return (before + after > 0).to(torch.int16)
        pattern = torch.zeros(before.shape, dtype=torch.int16, device=before.device)
        for j, knot in enumerate(self.knots):
            level = _as_number(knot)
            start, stop = before - level, after - level
            # compared, not added: a sum could overflow or absorb the smaller
            rises = torch.where(start.abs() >= stop.abs(), start, stop) > 0
            pattern += rises
            if self.flat_slope is not None:
                flat = (start == 0) & (stop == 0)
                pattern = torch.where(flat, torch.full_like(pattern, len(self.slopes) + j), pattern)
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
                at, height = (knot, value) if j == 0 else _next_knot(self, j, knot, value)
                level = (x - at) * float(self.flat_slope) + height
                out = torch.where(pattern == len(self.slopes) + j, level, out)
        return out

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        pattern, found = self.activation_pattern(before, after), False
        for j, knot in enumerate(self.knots):
            level = _as_number(knot)
            stuck = (before == level) & (after == level)
            if bool(stuck.any()):
                other = torch.full_like(pattern, j + 1)
                pattern, found = torch.where(stuck, other, pattern), True
        return pattern if found else None

    def vjp(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        if self.flat_slope is None and _shared_numbers(self.slopes) == [0, 1]:
            return grad.masked_fill(pattern == 0, 0.0)
        slopes = torch.zeros_like(grad)
        for j, slope in enumerate(self.slopes):  # numbers fill: as tensors a device would wait for each
            here, steep = pattern == j, _as_number(slope)
            slopes = torch.where(here, steep, slopes) if isinstance(steep, Tensor) else slopes.masked_fill_(here, steep)
        if self.flat_slope is not None:
            slopes.masked_fill_(pattern >= len(self.slopes), float(self.flat_slope))
        return grad * slopes


def _side(above: Tensor, below: Tensor, rows: Tensor, units: Tensor) -> Tensor:
    """1 above the knot, -1 below it, 0 on it."""
    return above[rows, units].to(torch.int64) - below[rows, units].to(torch.int64)


def _next_knot(
    op: Pointwise, j: int, knot: float | Tensor, value: float | Tensor
) -> tuple[float | Tensor, float | Tensor]:
    """The knot that ends segment j, and the function there."""
    stop = _as_number(op.knots[j])
    return stop, value + _as_number(op.slopes[j]) * (stop - knot)


def _as_number(value: Number) -> float | Tensor:
    return float(value) if isinstance(value, Fraction) else value


def _shared_numbers(values: tuple[Number, ...]) -> list[Fraction]:
    """Those that are the same for every unit."""
    return [v for v in values if isinstance(v, Fraction)] if all(isinstance(v, Fraction) for v in values) else []


def knot_level(knot: Number, x: Tensor) -> float | Tensor:
    """A knot as a number, or as one number per flat unit."""
    if isinstance(knot, Fraction):
        return float(knot)
    return knot.expand(1, *x.shape[1:]).reshape(1, -1)


def _knot_level_at(knot: Number, unit: Tensor, x: Tensor) -> Tensor:
    if isinstance(knot, Fraction):
        return torch.full(unit.shape, float(knot), dtype=x.dtype, device=x.device)
    return knot.reshape(-1)[unit]


def _snap(
    flat: Tensor,  # (points, units), written
    level: float | Tensor,
    rows: Tensor,  # (k,) the values that need a closer look
    columns: Tensor,  # (k,)
    above: Tensor,  # (points, units), written
    below: Tensor,  # (points, units), written
    noise: ErrorBounds,
) -> _SnappedValues | None:
    """Put values that cannot be told from the knot on it; the entries that were moved."""
    at = level[0, columns] if isinstance(level, Tensor) else level
    gap = flat[rows, columns] - at
    clear = gap.abs() > noise.thresholds_at(columns)
    if bool(clear.any()):  # units that training left with tiny weights are near the knot everywhere, and yet clear
        above[rows[clear], columns[clear]] = gap[clear] > 0
        below[rows[clear], columns[clear]] = gap[clear] < 0
    near = (gap != 0) & ~clear
    if not bool(near.any()):
        return None
    rows, columns, gap = rows[near], columns[near], gap[near]
    points, place = torch.unique(rows, return_inverse=True)
    bound = noise.bound(points)[place, columns]
    on_knot = gap.abs() <= bound
    above[rows, columns] = (gap > 0) & ~on_knot
    below[rows, columns] = (gap < 0) & ~on_knot
    rows, columns = rows[on_knot], columns[on_knot]
    flat[rows, columns] = level[0, columns] if isinstance(level, Tensor) else level
    return _SnappedValues(rows, columns, bound[on_knot])


@dataclass(frozen=True)
class _SnappedValues:
    """Values that were put on a knot because they could not be told from it."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    bound: Tensor  # (k,)

    def count_along_pieces(self, above: Tensor, below: Tensor, noise: ErrorBounds) -> Tensor:
        """Units per piece that are on the knot at both ends, by rounding rather than exactly."""
        on_knot = ~(above ^ below)
        moved = torch.zeros_like(above)
        moved[self.rows, self.columns] = True
        whole = on_knot[:-1] & on_knot[1:] & (moved[:-1] | moved[1:])
        return whole.sum(1) * noise.same_line

    def count_slow_crossings(
        self, flat: Tensor, level: float | Tensor, above: Tensor, below: Tensor, noise: ErrorBounds
    ) -> Tensor:
        """Units per piece that leave the knot so slowly that rounding may hide where."""
        counts = torch.zeros_like(noise.same_line, dtype=torch.int64)
        for step in (-1, 0):  # the piece to the left, then the one to the right
            piece = self.rows + step
            there = self.rows + (1 if step == 0 else -1)
            inside = (there >= 0) & (there < len(flat))
            piece, there, columns, bound = (v[inside] for v in (piece, there, self.columns, self.bound))
            at = level[0, columns] if isinstance(level, Tensor) else level
            away = (flat[there, columns] - at).abs()
            blurred = (bound * noise.widths[piece] > MAX_ALPHA_SHIFT * away) & (above ^ below)[there, columns]
            counts.index_add_(0, piece, (blurred & noise.same_line[piece]).to(torch.int64))
        return counts
