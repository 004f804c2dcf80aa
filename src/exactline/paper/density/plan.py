"""Which lines the density study examines: their directions, their lengths and where they end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Floats
from ...errors import ArgumentError

CURVE_POINTS = 24  # lengths at which pieces are counted
CURVE_REACH = 4.0  # the longest line by default, in lengths of an additive perturbation
LEVEL_DIGITS = 9  # decimals to which levels are rounded, so that 3 % of 100 levels are exactly 3
MIN_SEED_STRIDE = 20  # direction j of image i is drawn with the seed 20 i + j, as in the paper


@dataclass(frozen=True)
class LinePlan:
    """Which lines run from an image.

    Args:
        eps: By how much each pixel moves; if ``multiplicative``, by ``eps`` times its value.
        multiplicative: Whether a pixel's step is proportional to its value.
        levels: If given, steps are rounded down to whole levels, of which the range 1 has this many.
        low: The smallest value of a pixel; ends of lines are clipped to it.
        high: The largest value of a pixel.
        random: Number of random directions per image.
        reach: The longest line of the curve of pieces against length; four perturbations by default, 0 for no curve.
        seed: Seed of the random directions.

    Raises ArgumentError for values out of range.
    """

    eps: float = 0.1
    multiplicative: bool = False
    levels: int | None = None
    low: float = 0.0
    high: float = 1.0
    random: int = 4
    reach: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = [self.eps, self.low, self.high, self.reach or 0.0, self.random, self.seed, self.levels or 1]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers):
            raise ArgumentError("A value of the plan is not a number.", where=repr(self)[:300], hint="Give numbers.")
        is_valid = {
            "eps": 0 < self.eps < float("inf"),
            "levels": self.levels is None or _is_whole(self.levels, 1, 2**31),
            "low": float("-inf") < self.low < self.high < float("inf"),
            "random": _is_whole(self.random, 1, 1000),
            "reach": self.reach is None or 0 <= self.reach < float("inf"),
            "seed": _is_whole(self.seed, 0, 2**31),
        }
        for name, valid in is_valid.items():
            if not valid:
                raise ArgumentError(
                    f"{name} cannot be {getattr(self, name)!r}.",
                    where=f"argument {name}",
                    hint="eps is above 0, reach and seed at least 0, low is below high, random is from 1 to 1000.",
                )

    def perturb(self, point: Floats, sign: Floats) -> Floats:  # (*in) each
        """Return the image at the end of a line.

        >>> plan = LinePlan(eps=0.25, multiplicative=True)
        >>> plan.perturb(np.array([0.0, 0.8, 0.9]), np.array([1.0, -1.0, 1.0])).tolist()
        [0.0, 0.6000000000000001, 1.0]
        """
        base = point if self.multiplicative else np.ones_like(point)
        if self.levels is None:
            step = self.eps * base
        else:
            step = np.floor(self.eps * np.round(base * self.levels, LEVEL_DIGITS)) / self.levels
        return np.clip(point + step * sign, self.low, self.high)

    @property
    def seed_stride(self) -> int:
        """The difference between the seeds of neighbouring images."""
        return max(MIN_SEED_STRIDE, self.random)

    def draw_sign(self, shape: tuple[int, ...], image: int, direction: int) -> Floats:
        """Draw a random direction of an image."""
        drawn = np.random.RandomState((self.seed + self.seed_stride * image + direction) % 2**32)
        return drawn.choice([-1, 1], shape).astype(np.float64)

    def curve_lengths(self, shape: tuple[int, ...]) -> Floats:
        """Return the lengths at which pieces are counted, ascending; empty without a curve."""
        reach = CURVE_REACH * self.eps * float(np.sqrt(np.prod(shape))) if self.reach is None else self.reach
        return reach * np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS if reach else np.zeros(0)


def _is_whole(value: float, low: int, high: int) -> bool:
    return isinstance(value, int) and low <= value <= high
