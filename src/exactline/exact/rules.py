"""The interface of a breaking operator in rational arithmetic, and lines of a single element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .forms import AffineForms

ActivationPattern: TypeAlias = NDArray[np.int64]  # (units, ..., pieces): the branch of every unit on every piece


@dataclass(frozen=True, slots=True)
class ExactCrossing:
    """A unit changes its branch strictly inside a piece."""

    piece: int
    unit: int
    alpha: Fraction
    branch: int | tuple[int, ...]  # after the crossing


class ExactRule(ABC):
    """One breaking node in rational arithmetic."""

    @abstractmethod
    def find_crossings(
        self,
        x: AffineForms,
        alphas: Sequence[Fraction],  # (pieces + 1,)
    ) -> tuple[ActivationPattern, list[ExactCrossing]]:
        """The activation pattern where each piece begins, and all crossings in order of alpha."""

    @abstractmethod
    def find_changes(self, pattern: ActivationPattern, x: AffineForms) -> NDArray[np.bool_]:  # (units, pieces - 1)
        """Whether each unit changes its branch at each inner break."""

    @abstractmethod
    def apply_affine(self, pattern: ActivationPattern, x: AffineForms) -> AffineForms:
        """The output where every unit keeps its branch on every piece."""

    @abstractmethod
    def activation_pattern(self, pattern: ActivationPattern) -> Tensor:  # (pieces, ...)
        """Convert a pattern to that of the float operator, as its ``apply_affine`` takes it."""


class ExactLine(NamedTuple):
    """One element on one piece: (offset + slope * alpha) / denominator of the forms."""

    offset: int
    slope: int


ZERO_LINE = ExactLine(0, 0)


def get_line(x: AffineForms, element: int, piece: int) -> ExactLine:
    """The line of one element on one piece; element -1 is the constant 0."""
    if element < 0:
        return ZERO_LINE
    return ExactLine(int(x.numerators[element, 0, piece]), int(x.numerators[element, 1, piece]))


def intersect(one: ExactLine, other: ExactLine) -> Fraction:
    """The alpha where two lines of different slope meet."""
    return Fraction(one.offset - other.offset, other.slope - one.slope)


def is_same_line(
    x: AffineForms,
    elements: Sequence[int],  # (size,) of a window
    piece: int,
    left: int,  # the leading column on this piece ...
    right: int,  # ... and on the next
) -> bool:
    """Whether some element of a window has the leading line on two neighbouring pieces.

    The leading column can change between elements whose lines are identical, which is not a break.
    """
    before, after = get_line(x, elements[left], piece), get_line(x, elements[right], piece + 1)
    return any(get_line(x, e, piece) == before and get_line(x, e, piece + 1) == after for e in elements)
