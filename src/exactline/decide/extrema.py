"""Linear functionals of the outputs on a line: their extrema and level sets.

A functional is affine on every piece, so its extrema lie at breaks and each piece crosses a level at most once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..errors import ArgumentError, MissingError, NumberError
from ..tolerances import ALPHA_RESOLUTION, FLOAT64_EPS
from .values import OutputValues, values_of_line

if TYPE_CHECKING:
    from ..results.restriction import Restriction

FloatOrTensor: TypeAlias = Any  # a float for one functional, a tensor (k,) for k functionals


@dataclass(frozen=True, eq=False)
class Extrema:
    """The minimum and maximum of a functional on a line; tensors (k,) for k functionals.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [1.0, 1.0])
    >>> found = line.extrema([1.0, 1.0])
    >>> found.minimum, found.argmin, found.maximum, found.argmax
    (1.5, 0.5, 2.0, 0.0)
    >>> line.extrema([[1.0, 0.0], [0.0, 1.0]]).maximum
    tensor([1., 2.], dtype=torch.float64)
    """

    minimum: FloatOrTensor
    argmin: FloatOrTensor  # the first alpha where the functional has its minimum
    maximum: FloatOrTensor
    argmax: FloatOrTensor  # the first alpha where it has its maximum
    error: FloatOrTensor  # estimated error of minimum and maximum

    def __str__(self) -> str:
        if isinstance(self.minimum, Tensor):
            return f"extrema of {len(self.minimum):,} functionals"
        return f"from {self.minimum:.6g} at alpha {self.argmin:.6g} to {self.maximum:.6g} at alpha {self.argmax:.6g}"


@dataclass(frozen=True, eq=False)
class LevelSet:
    """The alphas where a functional equals a number; ``len`` counts the isolated ones.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [1.0, 1.0])
    >>> found = line.level(0, 0.5)
    >>> found.alphas, found.signs
    (tensor([0.7500], dtype=torch.float64), tensor([1]))
    >>> line.level(0, 0.0).intervals
    ((0.0, 0.5),)
    """

    alphas: Tensor  # (n,) isolated alphas, ascending; the ends of intervals are not among them
    errors: Tensor  # (n,) estimated error of each alpha
    signs: Tensor  # (n,) 1 where the functional rises through the level, -1 where it falls, 0 where it touches it
    intervals: tuple[tuple[float, float], ...]  # start and stop of each interval along which it equals the level

    def __len__(self) -> int:
        return len(self.alphas)


def find_extrema(line: Restriction, weights: Any, output: str | int | None) -> Extrema:
    """Find the extrema of linear functionals; see `Restriction.extrema`."""
    functionals = _evaluate_functionals(line, weights, output, "line.extrema")
    alphas, values = functionals.alphas, functionals.values
    if not len(alphas):
        raise MissingError(
            "The sweep was stopped before its first piece.",
            where="line.extrema",
            hint="Allow it more breaks or seconds.",
        )
    each = np.arange(len(functionals.weights))
    low, high = values.argmin(0), values.argmax(0)
    error = np.maximum(*(functionals.estimate_errors_at(at, functionals.magnitudes, each) for at in (low, high)))

    def convert(column: Floats) -> FloatOrTensor:
        return float(column[0]) if functionals.is_single else torch.from_numpy(column)

    with np.errstate(over="ignore"):
        return Extrema(
            minimum=convert(values[low, each] / functionals.scale),
            argmin=convert(alphas[low]),
            maximum=convert(values[high, each] / functionals.scale),
            argmax=convert(alphas[high]),
            error=convert(error / functionals.scale),
        )


def find_level_set(line: Restriction, weights: Any, c: Any, output: str | int | None) -> LevelSet:
    """Find where a linear functional equals ``c``; see `Restriction.level`."""
    functional = _evaluate_functionals(line, weights, output, "line.level")
    if not functional.is_single:
        raise ArgumentError("One functional at a time.", where="argument weights", hint="Give weights of shape (out,).")
    if isinstance(c, bool) or not isinstance(c, (int, float)) or not isfinite(c):
        raise ArgumentError(f"The level is {c!r}.", where="argument c", hint="Give a finite number.")
    height = functional.values[:, 0] - c * functional.scale
    magnitudes = functional.magnitudes + abs(c) * functional.scale
    near = np.flatnonzero(np.abs(height) <= functional.filter_width(float(magnitudes.max(initial=0.0))))
    sign = np.sign(height)
    sign[near[np.abs(height[near]) <= functional.estimate_errors_at(near, magnitudes)]] = 0.0
    return _build_level_set(functional, height, sign, magnitudes)


@dataclass(frozen=True, eq=False)
class _Functionals:
    """Linear functionals of the outputs at all breaks of a line."""

    outputs: OutputValues
    weights: Floats  # (functionals, outputs)
    is_single: bool  # whether the caller gave one functional rather than a list
    values: Floats  # (breaks, functionals), scaled
    magnitudes: Floats  # (breaks, functionals) sums of the absolute terms, scaled
    scale: float

    @property
    def alphas(self) -> Floats:
        return self.outputs.errors.alphas

    def estimate_errors(
        self,
        alphas: Floats,  # (points,)
        values: Floats,  # (points, outputs)
        magnitudes: Floats,  # (points,)
        functional: Ints | int = 0,  # which one, for all points or (points,)
    ) -> Floats:
        """Estimate the error of a functional at each point, (points,), scaled: the outputs' errors and its own."""
        line_index = np.zeros(len(alphas), dtype=np.int64)
        weights = np.broadcast_to(self.weights[functional], values.shape)
        from_outputs = self.outputs.errors.estimate_functionals(line_index, alphas, values, weights)
        return from_outputs + FLOAT64_EPS * magnitudes * self.weights.shape[1]

    def estimate_errors_at(
        self,
        breaks: Ints,  # (points,)
        magnitudes: Floats,  # (breaks, functionals), of all breaks
        functional: Ints | int = 0,
    ) -> Floats:
        """Estimate the error of a functional at some breaks, (points,), scaled."""
        return self.estimate_errors(
            self.alphas[breaks], self.outputs.values[breaks], magnitudes[breaks, functional], functional
        )

    def filter_width(self, largest: float) -> float:
        """Return the size, scaled, below which a value needs an error estimate."""
        weight = float(np.abs(self.weights).sum())
        return self.outputs.errors.filter_width(largest, weight)


def _evaluate_functionals(line: Restriction, weights: Any, output: str | int | None, where: str) -> _Functionals:
    outputs = values_of_line(line, output, where)
    rows, is_single = parse_weights(weights, outputs.values.shape[1])
    with np.errstate(all="ignore"):
        values, magnitudes = outputs.values @ rows.T, np.abs(outputs.values) @ np.abs(rows).T
    if not np.isfinite(magnitudes).all():
        raise NumberError("The functional overflows on this line.", where=where, hint="Give smaller weights.")
    scale = float(outputs.errors.scale_of(np.zeros(1, dtype=np.int64))[0])
    return _Functionals(outputs, rows, is_single, values, magnitudes, scale)


def parse_weights(weights: Any, count: int) -> tuple[Floats, bool]:
    """Check the weights of one or several functionals; return them as rows, and whether there was only one."""
    if not count:
        raise ArgumentError(
            "The network has no outputs.", where="argument weights", hint="Give a network with outputs."
        )
    if isinstance(weights, (int, np.integer)) and not isinstance(weights, bool):
        if not 0 <= weights < count:
            raise ArgumentError(
                f"There is no output {weights}: the network has {count}.",
                where="argument weights",
                hint=f"Give a number from 0 to {count - 1}, or an array of weights.",
            )
        return np.eye(count)[[int(weights)]], True
    try:
        raw = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else np.asarray(weights)
        array = raw.astype(np.float64) if raw.dtype.kind in "fiu" else None
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim not in (1, 2) or array.shape[-1] != count or not np.isfinite(array).all():
        given = f"{type(weights).__name__}" if array is None else f"shape {array.shape}"
        raise ArgumentError(
            f"Weights are finite numbers of shape ({count},) or (k, {count}), not {given}.",
            where="argument weights",
            hint="Give one weight for each output, or the number of one output.",
        )
    return array.reshape(-1, count), array.ndim == 1


def _build_level_set(
    functional: _Functionals,
    height: Floats,  # (breaks,) value less the level, scaled
    sign: Floats,  # (breaks,) 0 where the height is within its error
    magnitudes: Floats,  # (breaks, 1)
) -> LevelSet:
    alphas, values = functional.alphas, functional.outputs.values
    # level[i] and level[i + 1]: whether the piece before and the piece after break i lie in the level set
    level = np.concatenate([[False], (sign[:-1] == 0) & (sign[1:] == 0), [False]])
    begins, ends = np.flatnonzero(level[1:] & ~level[:-1]), np.flatnonzero(~level[1:] & level[:-1])
    crossed = np.flatnonzero(sign[:-1] * sign[1:] < 0)  # pieces with a crossing inside
    lone = np.flatnonzero((sign == 0) & ~level[1 : len(sign) + 1] & ~level[: len(sign)])  # breaks in the level set
    width, rise = np.diff(alphas), np.abs(np.diff(height))
    with np.errstate(all="ignore"):
        # alpha for each unit of height on the pieces before and after each break
        inverse_slope = np.concatenate([[0.0], width / rise, [0.0]])
        part = (height[crossed] / (height[crossed] - height[crossed + 1]))[:, None]
    # an interval that the errors and the slopes beside it explain is a single alpha
    radius = [
        functional.estimate_errors_at(at, magnitudes) * inverse_slope[side]
        for at, side in ((begins, begins), (ends, ends + 1))
    ]
    short = alphas[ends] - alphas[begins] <= radius[0] + radius[1]
    inner = np.clip(alphas[crossed] + part[:, 0] * width[crossed], alphas[crossed], alphas[crossed + 1])
    inner_values = values[crossed] + part * (values[crossed + 1] - values[crossed])
    errors = [
        functional.estimate_errors(inner, inner_values, magnitudes[crossed, 0]) * inverse_slope[crossed + 1],
        functional.estimate_errors_at(lone, magnitudes) * np.maximum(inverse_slope[lone], inverse_slope[lone + 1]),
        np.maximum(*radius)[short] + (alphas[ends] - alphas[begins])[short],
    ]
    where = np.concatenate([inner, alphas[lone], alphas[begins[short]]])
    padded = np.concatenate([[0.0], sign, [0.0]])
    before, after = np.concatenate([lone, begins[short]]), np.concatenate([lone, ends[short]]) + 2
    through = np.where(padded[before] * padded[after] < 0, padded[after], 0.0)
    order = np.argsort(where, kind="stable")
    total_error = np.minimum(np.concatenate(errors) + ALPHA_RESOLUTION * where, 1.0)
    signs = np.concatenate([sign[crossed + 1], through]).astype(np.int64)
    return LevelSet(
        alphas=torch.from_numpy(where[order]),
        errors=torch.from_numpy(total_error[order]),
        signs=torch.from_numpy(signs[order]),
        intervals=tuple(zip(alphas[begins[~short]].tolist(), alphas[ends[~short]].tolist(), strict=True)),
    )
