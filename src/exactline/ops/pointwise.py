"""Elementwise breaking operators: every one is a list of knots and the slopes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from .base import HUGE, Breaking, Crossings, Noise, Passes, Settled
from .masks import differ, found, greater, holds, less

COARSE = 1e-10  # in alpha: breaks that rounding moves by more are counted as unresolved
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
    over: Callable[[Tensor], Tensor] | None = None  # the same, written over its input
    name: str = "pointwise"
    flat_slope: Fraction | None = None  # on a knot along a whole piece; None: that of the left branch

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        if self.fn is not None:
            return self.fn(x)
        knots = [_number(k) for k in self.knots]
        total = _number(self.value) + _number(self.slopes[0]) * (x - knots[0]).clamp(max=0)
        for j, slope in enumerate(self.slopes[1:]):
            run = (x - knots[j]).clamp(min=0)
            if j + 1 < len(knots):
                run = run.clamp(max=knots[j + 1] - knots[j])
            total = total + _number(slope) * run
        return total

    @property
    def steepness(self) -> float:
        return max(float(s.abs().max()) if isinstance(s, Tensor) else abs(float(s)) for s in self.slopes)

    def overwrite(self, x: Tensor) -> Tensor:
        return self.evaluate(x) if self.over is None else self.over(x)

    def carry(self, x: Tensor, errors: Tensor) -> Tensor:
        reach = errors.abs().amax(0) * 8
        if (_numbers(self.knots), _numbers(self.slopes)) == ([0], [0, 1]):
            return errors * (x + reach >= 0)
        slope = torch.zeros_like(x)
        for j, each in enumerate(self.slopes):
            here = torch.ones_like(x, dtype=torch.bool)
            if j > 0:
                here &= x + reach >= _number(self.knots[j - 1])
            if j < len(self.knots):
                here &= x - reach <= _number(self.knots[j])
            steep = torch.as_tensor(_number(each), dtype=x.dtype, device=x.device)
            slope = torch.where(here & (steep.abs() >= slope.abs()), steep, slope)
        return errors * slope

    def units(self, shape: tuple[int, ...]) -> int:
        return torch.Size(shape).numel()

    def nearest(self, x: Tensor) -> Tensor | None:
        gaps = (x - _number(k) if isinstance(k, Tensor) or k else x for k in self.knots)
        return torch.stack([torch.linalg.vector_norm(gap, -torch.inf) for gap in gaps])

    def settle(self, x: Tensor, noise: Noise) -> Settled:
        flat = x.reshape(len(x), -1)
        sides = []
        unresolved = None
        owned = False
        for place, knot in enumerate(self.knots):
            level = level_of(knot, x)
            if noise.nearest is not None and noise.nearest[place] > noise.doubtful:
                sides.append((greater(flat, level), None))
                continue
            above, below = greater(flat, level + noise.doubtful), less(flat, level - noise.doubtful)
            clear = differ(above, below)
            if not holds(clear):
                rows, columns = found(~clear)
                if not owned:
                    flat, owned = flat.clone(), True
                snapped = _snap(flat, level, rows, columns, above, below, noise)
                if snapped is None and holds(differ(above, below)):
                    below = None
                elif snapped is not None and len(flat) > 1:
                    extra = snapped.along(above, below, noise) + snapped.beside(flat, level, above, below, noise)
                    unresolved = extra if unresolved is None else unresolved + extra
            else:
                below = None
            sides.append((above, below))
        return Settled(flat, tuple(sides), unresolved)

    def crossings(self, settled: Settled, noise: Noise) -> Crossings:
        parts = []
        x = settled.x
        for knot, (above, below) in zip(self.knots, settled.sides, strict=True):
            if below is None:
                crossed = differ(above[:-1], above[1:])
            else:
                crossed = below[:-1] & above[1:]
                crossed |= above[:-1] & below[1:]
            if noise.broken:
                crossed.index_fill_(0, noise.gaps, False)
            piece, unit = found(crossed)
            level = _level_at(knot, unit, x)
            before, after = x[piece, unit], x[piece + 1, unit]
            if noise.largest > HUGE:
                before, after = before * 0.25 - level * 0.25, after * 0.25 - level * 0.25
            elif isinstance(knot, Tensor) or knot:
                before, after = before - level, after - level
            parts.append(Crossings(piece, unit, before, after, unit, torch.full_like(unit, -1), level))
        return Crossings.join(parts)

    def passes(self, settled: Settled, noise: Noise) -> Passes | None:
        if all(below is None for _, below in settled.sides):
            return None
        counts = torch.zeros(len(settled.x), dtype=torch.int64, device=settled.x.device)
        first, last = [counts.new_zeros(0, 3)], [counts.new_zeros(0, 3)]
        for knot, (above, below) in enumerate(settled.sides):
            if below is None:
                continue
            rows, units = found(~(above ^ below))
            kinds = torch.full_like(units, knot)
            for edge, here, there in ((first, 0, 1), (last, len(above) - 1, len(above) - 2)):
                at = rows == here
                edge.append(
                    torch.stack([kinds[at], units[at], _side(above, below, rows[at] * 0 + there, units[at])], 1)
                )
            inner = (rows > 0) & (rows < len(above) - 1)
            rows, units = rows[inner], units[inner]
            both = noise.joined[rows - 1] & noise.joined[rows]
            turned = _side(above, below, rows - 1, units) * _side(above, below, rows + 1, units) < 0
            counts.index_add_(0, rows, (both & turned).to(torch.int64))
        return Passes(counts, torch.cat(first), torch.cat(last))

    def branch(self, before: Tensor, after: Tensor) -> Tensor:
        if _numbers(self.knots) == [0] and self.flat_slope is None:
            # both ends are on one side but for rounding, so the larger decides; a sum that overflows keeps its sign
            return (before + after > 0).to(torch.int16)
        pattern = torch.zeros(before.shape, dtype=torch.int16, device=before.device)
        for j, knot in enumerate(self.knots):
            level = _number(knot)
            start, stop = before - level, after - level
            # compared, not added: a sum could overflow or absorb the smaller
            rises = torch.where(start.abs() >= stop.abs(), start, stop) > 0
            pattern += rises
            if self.flat_slope is not None:
                flat = (start == 0) & (stop == 0)
                pattern = torch.where(flat, torch.full_like(pattern, len(self.slopes) + j), pattern)
        return pattern

    def follow(self, pattern: Tensor, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        value = _number(self.value)
        for j, slope in enumerate(self.slopes):
            knot = _number(self.knots[max(j - 1, 0)])
            if j > 1:
                width = knot - _number(self.knots[j - 2])
                value = value + _number(self.slopes[j - 1]) * width
            out = torch.where(pattern == j, (x - knot) * _number(slope) + value, out)
            if self.flat_slope is not None and j < len(self.knots):
                at, height = (knot, value) if j == 0 else _next(self, j, knot, value)
                level = (x - at) * float(self.flat_slope) + height
                out = torch.where(pattern == len(self.slopes) + j, level, out)
        return out

    def rival(self, before: Tensor, after: Tensor) -> Tensor | None:
        pattern, found = self.branch(before, after), False
        for j, knot in enumerate(self.knots):
            level = _number(knot)
            stuck = (before == level) & (after == level)
            if bool(stuck.any()):
                other = torch.full_like(pattern, j + 1)
                pattern, found = torch.where(stuck, other, pattern), True
        return pattern if found else None

    def pull(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        if self.flat_slope is None and _numbers(self.slopes) == [0, 1]:
            return grad.masked_fill(pattern == 0, 0.0)
        slopes = torch.zeros_like(grad)
        for j, slope in enumerate(self.slopes):  # numbers fill: as tensors a device would wait for each
            here, steep = pattern == j, _number(slope)
            slopes = torch.where(here, steep, slopes) if isinstance(steep, Tensor) else slopes.masked_fill_(here, steep)
        if self.flat_slope is not None:
            slopes.masked_fill_(pattern >= len(self.slopes), float(self.flat_slope))
        return grad * slopes


def _side(above: Tensor, below: Tensor, rows: Tensor, units: Tensor) -> Tensor:
    """1 above the knot, -1 below it, 0 on it."""
    return above[rows, units].to(torch.int64) - below[rows, units].to(torch.int64)


def _next(op: Pointwise, j: int, knot: float | Tensor, value: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
    """The knot that ends segment j, and the function there."""
    stop = _number(op.knots[j])
    return stop, value + _number(op.slopes[j]) * (stop - knot)


def _number(value: Number) -> float | Tensor:
    return float(value) if isinstance(value, Fraction) else value


def _numbers(values: tuple[Number, ...]) -> list[Fraction]:
    """Those that are the same for every unit."""
    return [v for v in values if isinstance(v, Fraction)] if all(isinstance(v, Fraction) for v in values) else []


def level_of(knot: Number, x: Tensor) -> float | Tensor:
    """A knot as a number, or as one number per flat unit."""
    if isinstance(knot, Fraction):
        return float(knot)
    return knot.expand(1, *x.shape[1:]).reshape(1, -1)


def _level_at(knot: Number, unit: Tensor, x: Tensor) -> Tensor:
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
    noise: Noise,
) -> _Snapped | None:
    """Put values that cannot be told from the knot on it; the entries that were moved."""
    at = level[0, columns] if isinstance(level, Tensor) else level
    gap = flat[rows, columns] - at
    clear = gap.abs() > noise.doubtful_at(columns)
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
    return _Snapped(rows, columns, bound[on_knot])


@dataclass(frozen=True)
class _Snapped:
    """Values that were put on a knot because they could not be told from it."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    bound: Tensor  # (k,)

    def along(self, above: Tensor, below: Tensor, noise: Noise) -> Tensor:
        """Units per piece that are on the knot at both ends, by rounding rather than exactly."""
        on_knot = ~(above ^ below)
        moved = torch.zeros_like(above)
        moved[self.rows, self.columns] = True
        whole = on_knot[:-1] & on_knot[1:] & (moved[:-1] | moved[1:])
        return whole.sum(1) * noise.joined

    def beside(self, flat: Tensor, level: float | Tensor, above: Tensor, below: Tensor, noise: Noise) -> Tensor:
        """Units per piece that leave the knot so slowly that rounding may hide where."""
        counts = torch.zeros_like(noise.joined, dtype=torch.int64)
        for step in (-1, 0):  # the piece to the left, then the one to the right
            piece = self.rows + step
            there = self.rows + (1 if step == 0 else -1)
            inside = (there >= 0) & (there < len(flat))
            piece, there, columns, bound = (v[inside] for v in (piece, there, self.columns, self.bound))
            at = level[0, columns] if isinstance(level, Tensor) else level
            away = (flat[there, columns] - at).abs()
            blurred = (bound * noise.widths[piece] > COARSE * away) & (above ^ below)[there, columns]
            counts.index_add_(0, piece, (blurred & noise.joined[piece]).to(torch.int64))
        return counts
