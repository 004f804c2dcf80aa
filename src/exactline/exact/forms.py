"""The state of the oracle: every element of a tensor as p + q alpha on every piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from .integers import Rationals, Wholes, ratio, wholes


@dataclass(frozen=True, eq=False)
class Forms:
    """(p + q alpha) / bottom for each element and piece; the bottom is one for the whole tensor.

    One denominator turns every affine layer into a product of whole numbers, without a gcd.
    """

    top: Wholes  # (elements, 2, pieces): p, then q
    bottom: int

    @property
    def p(self) -> Wholes:  # (elements, pieces)
        return self.top[:, 0]

    @property
    def q(self) -> Wholes:  # (elements, pieces)
        return self.top[:, 1]

    def __len__(self) -> int:
        return len(self.top)

    @property
    def pieces(self) -> int:
        return self.top.shape[2]

    def on(self, pieces: NDArray[np.int64]) -> Forms:  # (n,)
        """The forms on some pieces, or on the parts of them when pieces repeat."""
        return Forms(self.top[:, :, pieces], self.bottom)

    def over(self, bottom: int) -> Forms:
        """The same forms over a multiple of their denominator."""
        return self if bottom == self.bottom else Forms(self.top * (bottom // self.bottom), bottom)

    def at(self, alphas: Sequence[Fraction]) -> Wholes:  # (pieces,) -> (elements, pieces)
        """Numerators of the values, one alpha for each piece; column k is over bottom * alphas[k].denominator."""
        return self.p * denominators(alphas) + self.q * numerators(alphas)

    def at_breaks(self, alphas: Sequence[Fraction]) -> Wholes:  # (pieces + 1,) -> (elements, pieces + 1)
        """Numerators of the values at every end of a piece; neighbours agree there."""
        last = np.arange(self.pieces + 1).clip(max=self.pieces - 1)
        return self.on(last).at(alphas)

    def values(self, piece: int, alpha: Fraction) -> list[Fraction]:
        """Every element's value at one point of one piece."""
        bottom = self.bottom * alpha.denominator
        top = self.top[:, 0, piece] * alpha.denominator + self.top[:, 1, piece] * alpha.numerator
        return [ratio(n, bottom) for n in top.tolist()]


def line_forms(start: Rationals, stop: Rationals) -> Forms:
    """start + alpha (stop - start) as forms on the one piece from 0 to 1."""
    bottom = lcm(start.bottom, stop.bottom)
    p, end = start.top * (bottom // start.bottom), stop.top * (bottom // stop.bottom)
    return Forms(np.stack([p, end - p], axis=1)[:, :, None], bottom)


def numerators(alphas: Sequence[Fraction]) -> Wholes:
    return wholes([alpha.numerator for alpha in alphas])


def denominators(alphas: Sequence[Fraction]) -> Wholes:
    return wholes([alpha.denominator for alpha in alphas])
