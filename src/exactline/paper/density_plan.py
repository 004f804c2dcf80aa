"""Which lines the density study runs from an image: how far, along which signs, and where they end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError

CURVE = 24  # lengths at which pieces are counted
FARTHER = 4.0  # the longest line, in lengths of an additive perturbation


@dataclass(frozen=True)
class Plan:
    """Which lines run from an image.

    Each pixel moves by ``eps`` (or, multiplicative, by ``eps`` times itself) along a sign; with ``levels`` the step is
    rounded down to whole levels of so many in the range 1, as an image file has them. The end is clipped to low..high.
    """

    eps: float = 0.1
    multiplicative: bool = False
    levels: int | None = None
    low: float = 0.0
    high: float = 1.0
    random: int = 4  # directions of each image
    reach: float | None = None  # the longest line of the curve of lengths; four perturbations if left out; 0 for none
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = [self.eps, self.low, self.high, self.reach or 0.0, self.random, self.seed, self.levels or 1]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers):
            raise ArgumentError("A plan is made of numbers.", where=repr(self)[:300], hint="Give numbers.")
        sound = {
            "eps": 0 < self.eps < float("inf"),
            "levels": self.levels is None or _whole(self.levels, 1, 2**31),
            "low": float("-inf") < self.low < self.high < float("inf"),
            "random": _whole(self.random, 1, 1000),
            "reach": self.reach is None or 0 <= self.reach < float("inf"),
            "seed": _whole(self.seed, 0, 2**31),
        }
        for name, good in sound.items():
            if not good:
                raise ArgumentError(
                    f"{name} cannot be {getattr(self, name)!r}.",
                    where=f"argument {name}",
                    hint="eps and reach are above 0, low is below high, random is from 1 to 1000, seed at least 0.",
                )

    def changed(self, point: Floats, sign: Floats) -> Floats:
        """The image at the end of a line.

        >>> Plan(eps=0.25, multiplicative=True).changed(np.array([0.0, 0.8, 0.9]), np.array([1.0, -1.0, 1.0])).tolist()
        [0.0, 0.6000000000000001, 1.0]
        """
        base = point if self.multiplicative else np.ones_like(point)
        if self.levels is None:
            step = self.eps * base
        else:  # a whole level is a whole number again, so that 3 % of 100 levels are 3
            step = np.floor(self.eps * np.round(base * self.levels, 9)) / self.levels
        return np.clip(point + step * sign, self.low, self.high)

    def sign(self, shape: tuple[int, ...], image: int, direction: int) -> Floats:
        """A random direction of an image."""
        drawn = np.random.RandomState((self.seed + max(20, self.random) * image + direction) % 2**32)
        return drawn.choice([-1, 1], shape).astype(np.float64)

    def lengths(self, shape: tuple[int, ...]) -> Floats:
        """Lengths at which pieces are counted, ascending."""
        reach = FARTHER * self.eps * float(np.sqrt(np.prod(shape))) if self.reach is None else self.reach
        return reach * np.arange(1, CURVE + 1) / CURVE if reach else np.zeros(0)


def _whole(value: float, low: int, high: int) -> bool:
    return isinstance(value, int) and low <= value <= high
