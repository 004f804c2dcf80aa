"""Tensors on a line in rational arithmetic: every element is an affine function of alpha on every piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from .integers import IntegerArray, Rationals, make_fraction, make_integers


@dataclass(frozen=True, eq=False)
class AffineForms:
    """(offset + slope * alpha) / denominator for each element and piece, with one denominator for the whole tensor.

    With a common denominator an affine layer is a product of integer matrices, and needs no gcd.
    """

    numerators: IntegerArray  # (elements, 2, pieces): offsets, then slopes
    denominator: int

    @property
    def offsets(self) -> IntegerArray:  # (elements, pieces)
        return self.numerators[:, 0]

    @property
    def slopes(self) -> IntegerArray:  # (elements, pieces)
        return self.numerators[:, 1]

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def piece_count(self) -> int:
        return self.numerators.shape[2]

    def select_pieces(self, pieces: NDArray[np.int64]) -> AffineForms:  # (n,)
        """The forms on some pieces; a piece that is split repeats."""
        return AffineForms(self.numerators[:, :, pieces], self.denominator)

    def with_denominator(self, denominator: int) -> AffineForms:
        """The forms over a multiple of their denominator."""
        if denominator == self.denominator:
            return self
        return AffineForms(self.numerators * (denominator // self.denominator), denominator)

    def numerators_at(self, alphas: Sequence[Fraction]) -> IntegerArray:  # (pieces,) -> (elements, pieces)
        """Numerators of the values at one alpha for each piece, over denominator * alphas[k].denominator."""
        return self.offsets * list_denominators(alphas) + self.slopes * list_numerators(alphas)

    def numerators_at_breaks(
        self,
        alphas: Sequence[Fraction],  # (pieces + 1,)
    ) -> IntegerArray:  # (elements, pieces + 1)
        """Numerators of the values at every break and at both ends of the line."""
        piece = np.arange(self.piece_count + 1).clip(max=self.piece_count - 1)
        return self.select_pieces(piece).numerators_at(alphas)

    def values_at(self, piece: int, alpha: Fraction) -> list[Fraction]:
        """The value of every element at one point of one piece."""
        denominator = self.denominator * alpha.denominator
        numerators = self.numerators[:, 0, piece] * alpha.denominator + self.numerators[:, 1, piece] * alpha.numerator
        return [make_fraction(n, denominator) for n in numerators.tolist()]


def make_line_forms(start: Rationals, end: Rationals) -> AffineForms:
    """start + alpha (end - start) on a single piece from 0 to 1."""
    denominator = lcm(start.denominator, end.denominator)
    first = start.numerators * (denominator // start.denominator)
    last = end.numerators * (denominator // end.denominator)
    return AffineForms(np.stack([first, last - first], axis=1)[:, :, None], denominator)


def list_numerators(alphas: Sequence[Fraction]) -> IntegerArray:
    return make_integers([alpha.numerator for alpha in alphas])


def list_denominators(alphas: Sequence[Fraction]) -> IntegerArray:
    return make_integers([alpha.denominator for alpha in alphas])
