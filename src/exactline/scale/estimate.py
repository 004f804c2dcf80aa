"""What lines will cost, learnt from those that are finished: so much for each, and so much for each unit of length."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import Floats

FADE = 0.8  # what was learnt from a batch counts so much less after each further one
FEW = 1e-6  # of what was seen, so that one batch alone can be learnt from


@dataclass
class Estimate:
    """Seconds = a lines + b lengths, by least squares that forget slowly; neither a nor b is negative.

    >>> learnt = Estimate()
    >>> for lines, length in ((10, 5.0), (20, 30.0), (10, 40.0)):
    ...     learnt.learn(lines, length, 0.1 * lines + 0.01 * length, breaks=3 * lines)
    >>> round(learnt.seconds(100, 100.0), 3), round(learnt.breaks, 9)
    (11.0, 3.0)
    """

    gram: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    seen: Floats = field(default_factory=lambda: np.zeros(2))
    lines: float = 0.0  # fading counts
    total: float = 0.0  # breaks
    spent: float = 0.0  # seconds

    @property
    def known(self) -> bool:
        """Whether anything was learnt yet."""
        return self.lines > 0

    @property
    def breaks(self) -> float:
        """Of one line, on average."""
        return self.total / self.lines if self.known else 0.0

    @property
    def each(self) -> float:
        """Seconds of one line, on average; 0 as long as nothing is known."""
        return self.spent / self.lines if self.known else 0.0

    def learn(self, lines: int, length: float, seconds: float, breaks: int) -> None:
        """Take account of a finished batch; large ones count as much for each line as small ones."""
        if not lines or not np.isfinite(length):
            return
        row = np.array([lines, length]) / np.sqrt(lines)
        self.gram = FADE * self.gram + np.outer(row, row)
        self.seen = FADE * self.seen + row * (seconds / np.sqrt(lines))
        self.lines, self.total = FADE * self.lines + lines, FADE * self.total + breaks
        self.spent = FADE * self.spent + seconds

    def seconds(self, lines: int, length: float) -> float:
        """What so many lines of so much length together will take; 0 as long as nothing is known."""
        a, b = self._rates()
        return float(a * lines + b * length)

    def _rates(self) -> tuple[float, float]:
        if not self.known:
            return 0.0, 0.0
        scale = np.sqrt(np.maximum(np.diag(self.gram), 1e-300))
        gram = self.gram / np.outer(scale, scale) + FEW * np.eye(2)
        a, b = np.linalg.solve(gram, self.seen / scale) / scale
        if a < 0:
            a, b = 0.0, self.seen[1] / max(self.gram[1, 1], 1e-300)
        elif b < 0:
            a, b = self.seen[0] / self.gram[0, 0], 0.0
        return float(a), float(b)
