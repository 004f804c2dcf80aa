"""What studies of breaks know of an image and a network, whatever else they look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats


@dataclass(frozen=True)
class Counted:
    """The breaks of one network along lines from one image: FGSM, then the random ones."""

    network: str
    image: int
    label: int
    predicted: int
    breaks: tuple[int, ...] = ()  # both ends counted; 0 where the line has no length
    lengths: tuple[float, ...] = ()

    @property
    def right(self) -> bool:
        """Whether the network classifies the image rightly."""
        return self.predicted == self.label

    @property
    def densities(self) -> Floats:
        """Breaks for each unit of length; NaN for a line without length."""
        lengths = np.array(self.lengths)
        return np.array(self.breaks) / np.where(lengths > 0, lengths, np.nan)
