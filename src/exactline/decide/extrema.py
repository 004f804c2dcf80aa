"""Linear functionals of the outputs on a line: where they are smallest and largest, and where they have a given value.

A functional is affine on every piece, so its extrema are at breaks and each piece holds one crossing at the most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..errors import ArgumentError, MissingError, NumberError
from .decisions import ROUNDING
from .values import Given, of_line

if TYPE_CHECKING:
    from ..results.restriction import Restriction

EPS = 2.0**-52
Number = Any  # a float for one functional, a tensor (k,) for several


@dataclass(frozen=True, eq=False)
class Extrema:
    """The least and the greatest value of a functional on a line, and where; tensors (k,) where k were asked for.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [1.0, 1.0])
    >>> found = line.extrema([1.0, 1.0])
    >>> found.minimum, found.argmin, found.maximum, found.argmax
    (1.5, 0.5, 2.0, 0.0)
    >>> line.extrema([[1.0, 0.0], [0.0, 1.0]]).maximum
    tensor([1., 2.], dtype=torch.float64)
    """

    minimum: Number
    argmin: Number  # the first alpha where
    maximum: Number
    argmax: Number
    error: Number  # how far the extreme values may be off, estimated

    def __str__(self) -> str:
        if isinstance(self.minimum, Tensor):
            return f"extrema of {len(self.minimum):,} functionals"
        return f"from {self.minimum:.6g} at alpha {self.argmin:.6g} to {self.maximum:.6g} at alpha {self.argmax:.6g}"


@dataclass(frozen=True, eq=False)
class Crossings:
    """Where a functional equals a number on a line; ``len`` counts the single places.

    >>> import exactline as xl
    >>> found = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [1.0, 1.0]).level(0, 0.5)
    >>> found.alphas, found.signs
    (tensor([0.7500], dtype=torch.float64), tensor([1]))
    >>> xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [1.0, 1.0]).level(0, 0.0).stretches
    ((0.0, 0.5),)
    """

    alphas: Tensor  # (n,) ascending; ends of stretches are not among them
    errors: Tensor  # (n,) how far each may be off, estimated
    signs: Tensor  # (n,) 1 where the functional rises through the number, -1 where it falls, 0 where it touches it
    stretches: tuple[tuple[float, float], ...]  # from where to where it is equal all along

    def __len__(self) -> int:
        return len(self.alphas)


def extrema_of_line(line: Restriction, weights: Any, output: int | None) -> Extrema:
    """See `Restriction.extrema`."""
    found = _functional(line, weights, output, "line.extrema")
    alphas, heights = found.alphas, found.heights
    if not len(alphas):
        raise MissingError(
            "Nothing of the line is known: the sweep was stopped before its first piece.",
            where="line.extrema",
            hint="Allow it more breaks or seconds.",
        )
    each = np.arange(len(found.weights))
    low, high = heights.argmin(0), heights.argmax(0)
    error = np.maximum(*(found.bounds_at(at, found.sizes, each) for at in (low, high)))
    columns = heights[low, each], alphas[low], heights[high, each], alphas[high], error
    with np.errstate(over="ignore"):
        heights = [c if i in (1, 3) else c / found.scale for i, c in enumerate(columns)]
    return Extrema(*(float(c[0]) if found.single else torch.from_numpy(c) for c in heights))


def level_of_line(line: Restriction, weights: Any, c: Any, output: int | None) -> Crossings:
    """See `Restriction.level`."""
    found = _functional(line, weights, output, "line.level")
    if not found.single:
        raise ArgumentError("One functional at a time.", where="argument weights", hint="Give weights of shape (out,).")
    if isinstance(c, bool) or not isinstance(c, (int, float)) or not isfinite(c):
        raise ArgumentError(f"The level is {c!r}.", where="argument c", hint="Give a finite number.")
    height = found.heights[:, 0] - c * found.scale
    sizes = found.sizes + abs(c) * found.scale
    near = np.flatnonzero(np.abs(height) <= found.doubtful(float(sizes.max(initial=0.0))))
    sign = np.sign(height)
    sign[near[np.abs(height[near]) <= found.bounds_at(near, sizes)]] = 0.0
    return _crossings(found, height, sign, sizes)


@dataclass(frozen=True, eq=False)
class _Functional:
    """Functionals of the outputs at all breaks of a line."""

    given: Given
    weights: Floats  # (functionals, outputs)
    single: bool
    heights: Floats  # (breaks, functionals), scaled
    sizes: Floats  # (breaks, functionals) of what is added up, scaled
    scale: float

    @property
    def alphas(self) -> Floats:
        return self.given.trust.alphas

    def bounds(self, alphas: Floats, values: Floats, sizes: Floats, which: Ints | int = 0) -> Floats:
        """How far a functional may be off at each point, (points,), scaled: by the outputs' errors and by roundings."""
        owner = np.zeros(len(alphas), dtype=np.int64)
        weights = np.broadcast_to(self.weights[which], values.shape)
        return self.given.trust.functionals(owner, alphas, values, weights) + EPS * sizes * self.weights.shape[1]

    def bounds_at(self, rows: Ints, sizes: Floats, which: Ints | int = 0) -> Floats:
        """The same at some breaks; the sizes of all breaks are given, (breaks, functionals)."""
        return self.bounds(self.alphas[rows], self.given.values[rows], sizes[rows, which], which)

    def doubtful(self, largest: float) -> float:
        """Below this size, scaled, a closer look is due."""
        weight = float(np.abs(self.weights).sum())
        return self.given.trust.doubtful(largest, weight)


def _functional(line: Restriction, weights: Any, output: int | None, where: str) -> _Functional:
    given = of_line(line, output, where)
    rows, single = _weights(weights, given.values.shape[1])
    with np.errstate(all="ignore"):
        heights, sizes = given.values @ rows.T, np.abs(given.values) @ np.abs(rows).T
    if not np.isfinite(sizes).all():
        raise NumberError("The functional overflows on this line.", where=where, hint="Give smaller weights.")
    scale = float(given.trust.scale(np.zeros(1, dtype=np.int64))[0])
    return _Functional(given, rows, single, heights, sizes, scale)


def _weights(weights: Any, count: int) -> tuple[Floats, bool]:
    """A user's functionals as rows, and whether there was only one."""
    if not count:
        raise ArgumentError(
            "The network has no outputs.", where="argument weights", hint="Give a network with outputs."
        )
    if isinstance(weights, (int, np.integer)) and not isinstance(weights, bool):
        if not 0 <= weights < count:
            raise ArgumentError(
                f"There is no output {weights}: there are {count}.",
                where="argument weights",
                hint=f"Give a number from 0 to {count - 1}, or an array of weights.",
            )
        return np.eye(count)[[int(weights)]], True
    try:
        raw = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else np.asarray(weights)
        found = raw.astype(np.float64) if raw.dtype.kind in "fiu" else None
    except (TypeError, ValueError):
        found = None
    if found is None or found.ndim not in (1, 2) or found.shape[-1] != count or not np.isfinite(found).all():
        shape = "what was given" if found is None else f"shape {found.shape}"
        raise ArgumentError(
            f"Weights are finite numbers of shape ({count},) or (k, {count}), not {shape}.",
            where="argument weights",
            hint="One weight for each output, or the number of one output.",
        )
    return found.reshape(-1, count), found.ndim == 1


def _crossings(found: _Functional, height: Floats, sign: Floats, sizes: Floats) -> Crossings:
    alphas, values = found.alphas, found.given.values
    level = np.concatenate([[False], (sign[:-1] == 0) & (sign[1:] == 0), [False]])  # the piece before each break, after
    begins, ends = np.flatnonzero(level[1:] & ~level[:-1]), np.flatnonzero(~level[1:] & level[:-1])
    piece = np.flatnonzero(sign[:-1] * sign[1:] < 0)
    lone = np.flatnonzero((sign == 0) & ~level[1 : len(sign) + 1] & ~level[: len(sign)])
    width, rise = np.diff(alphas), np.abs(np.diff(height))
    with np.errstate(all="ignore"):
        run = np.concatenate([[0.0], width / rise, [0.0]])  # alpha for each unit of height, before and after each break
        part = (height[piece] / (height[piece] - height[piece + 1]))[:, None]
    # a stretch that the slopes beside it and the errors explain is one place
    reach = [found.bounds_at(at, sizes) * run[side] for at, side in ((begins, begins), (ends, ends + 1))]
    short = alphas[ends] - alphas[begins] <= reach[0] + reach[1]
    inner = np.clip(alphas[piece] + part[:, 0] * width[piece], alphas[piece], alphas[piece + 1])
    mixed = values[piece] + part * (values[piece + 1] - values[piece])
    errors = [
        found.bounds(inner, mixed, sizes[piece, 0]) * run[piece + 1],
        found.bounds_at(lone, sizes) * np.maximum(run[lone], run[lone + 1]),
        np.maximum(*reach)[short] + (alphas[ends] - alphas[begins])[short],
    ]
    where = np.concatenate([inner, alphas[lone], alphas[begins[short]]])
    beside = np.concatenate([[0.0], sign, [0.0]])
    before, after = np.concatenate([lone, begins[short]]), np.concatenate([lone, ends[short]]) + 2
    through = np.where(beside[before] * beside[after] < 0, beside[after], 0.0)
    order = np.argsort(where, kind="stable")
    off = np.minimum(np.concatenate(errors) + ROUNDING * where, 1.0)
    kinds = np.concatenate([sign[piece + 1], through]).astype(np.int64)
    columns = [torch.from_numpy(column[order]) for column in (where, off, kinds)]
    stretches = zip(alphas[begins[~short]].tolist(), alphas[ends[~short]].tolist(), strict=True)
    return Crossings(columns[0], columns[1], columns[2], tuple(stretches))
