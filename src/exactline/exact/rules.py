"""What a breaking operator tells the oracle: the branches on each piece and where they turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .forms import Forms

Pattern: TypeAlias = NDArray[np.int64]  # (units, ..., pieces): a branch for every unit and piece


@dataclass(frozen=True, slots=True)
class Turn:
    """One unit takes another branch strictly inside a piece, and keeps it until its next turn."""

    piece: int
    unit: int
    alpha: Fraction
    branch: int | tuple[int, ...]


class Rule(ABC):
    """The exact counterpart of one breaking node."""

    @abstractmethod
    def split(
        self,
        x: Forms,
        alphas: Sequence[Fraction],  # (pieces + 1,)
    ) -> tuple[Pattern, list[Turn]]:
        """The branch of every unit where each piece begins, and all turns in order of alpha."""

    @abstractmethod
    def changed(self, pattern: Pattern, x: Forms) -> NDArray[np.bool_]:  # (units, pieces - 1)
        """Whether a unit's branch strictly differs left and right of each inner break."""

    @abstractmethod
    def follow(self, pattern: Pattern, x: Forms) -> Forms:
        """The output's forms when every unit keeps its branch on every piece."""

    @abstractmethod
    def branch(self, pattern: Pattern) -> Tensor:  # (pieces, ...)
        """The pattern in the words of the operator's own ``branch``."""


def line(x: Forms, element: int, piece: int) -> tuple[int, int]:
    """One element's p and q on one piece, over the forms' denominator; element -1 is the constant 0."""
    if element < 0:
        return 0, 0
    return int(x.top[element, 0, piece]), int(x.top[element, 1, piece])


def meet(one: tuple[int, int], other: tuple[int, int]) -> Fraction:
    """The alpha where two lines of different slope meet."""
    return Fraction(one[0] - other[0], other[1] - one[1])


def kept(
    x: Forms,
    places: Sequence[int],  # (size,) the elements of a window
    piece: int,
    left: int,  # the column that leads on this piece ...
    right: int,  # ... and the one that leads on the next
) -> bool:
    """Whether one line leads on both pieces, though identical lines may hide it under another column."""
    before, after = line(x, places[left], piece), line(x, places[right], piece + 1)
    return any(line(x, e, piece) == before and line(x, e, piece + 1) == after for e in places)
