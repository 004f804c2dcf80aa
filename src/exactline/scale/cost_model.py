"""A running estimate of what lines cost, learnt from finished tasks: seconds per line and per unit of length."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import Floats

DECAY = 0.8  # each further task multiplies the weight of earlier ones by this
RIDGE = 1e-6  # added to the scaled normal equations, so that one task alone can be learnt from
SMALLEST = 1e-300  # divisors are at least this


@dataclass
class CostModel:
    """Seconds = a * lines + b * length, by least squares with exponential forgetting; a and b are not negative.

    >>> model = CostModel()
    >>> for lines, length in ((10, 5.0), (20, 30.0), (10, 40.0)):
    ...     model.update(lines, length, 0.1 * lines + 0.01 * length, breaks=3 * lines)
    >>> round(model.predict_seconds(100, 100.0), 3), round(model.breaks_per_line, 9)
    (11.0, 3.0)
    """

    gram: Floats = field(default_factory=lambda: np.zeros((2, 2)))  # normal equations: gram @ (a, b) = moments
    moments: Floats = field(default_factory=lambda: np.zeros(2))
    lines: float = 0.0  # decaying counts
    breaks: float = 0.0
    seconds: float = 0.0

    @property
    def is_fitted(self) -> bool:
        """Whether any task was learnt from."""
        return self.lines > 0

    @property
    def breaks_per_line(self) -> float:
        """Average number of breaks of a line; 0 before the first task."""
        return self.breaks / self.lines if self.is_fitted else 0.0

    @property
    def seconds_per_line(self) -> float:
        """Average seconds of a line; 0 before the first task."""
        return self.seconds / self.lines if self.is_fitted else 0.0

    def update(self, lines: int, length: float, seconds: float, breaks: int) -> None:
        """Learn from a finished task; a line counts the same in large and small tasks."""
        if not lines or not np.isfinite(length):
            return
        row = np.array([lines, length]) / np.sqrt(lines)
        self.gram = DECAY * self.gram + np.outer(row, row)
        self.moments = DECAY * self.moments + row * (seconds / np.sqrt(lines))
        self.lines, self.breaks = DECAY * self.lines + lines, DECAY * self.breaks + breaks
        self.seconds = DECAY * self.seconds + seconds

    def predict_seconds(self, lines: int, length: float) -> float:
        """Seconds for so many lines of so much length together; 0 before the first task."""
        a, b = self._solve()
        return float(a * lines + b * length)

    def _solve(self) -> tuple[float, float]:
        if not self.is_fitted:
            return 0.0, 0.0
        scale = np.sqrt(np.maximum(np.diag(self.gram), SMALLEST))
        gram = self.gram / np.outer(scale, scale) + RIDGE * np.eye(2)
        a, b = np.linalg.solve(gram, self.moments / scale) / scale
        if a < 0:
            a, b = 0.0, self.moments[1] / max(self.gram[1, 1], SMALLEST)
        elif b < 0:
            a, b = self.moments[0] / self.gram[0, 0], 0.0
        return float(a), float(b)
