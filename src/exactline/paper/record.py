"""Types that several studies share: break counts of one image, and the progress callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..arrays import Floats

StudyProgress: TypeAlias = Callable[[float, str], None]  # share of the work done, what is being done


@dataclass(frozen=True)
class BreakCounts:
    """Breaks of one network along lines from one image: the FGSM line first, then the random lines."""

    network: str
    image: int
    label: int
    predicted: int
    breaks: tuple[int, ...] = ()  # of each line, both ends counted; 0 for a line of length 0
    lengths: tuple[float, ...] = ()  # Euclidean, of each line

    @property
    def is_correct(self) -> bool:
        """Whether the network predicts the image's label."""
        return self.predicted == self.label

    @property
    def densities(self) -> Floats:
        """(lines,) breaks per unit of length; NaN for a line of length 0."""
        lengths = np.array(self.lengths)
        return np.array(self.breaks) / np.where(lengths > 0, lengths, np.nan)
