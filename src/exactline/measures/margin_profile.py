"""The margin along a line: how far the largest output is ahead of the next one, as a function of alpha."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..decide.decisions import order_block
from ..decide.values import values_of_line

if TYPE_CHECKING:
    from ..results.restriction import Restriction

MAX_BLOCK_NUMBERS = 1 << 22  # values whose two largest are found at a time


@dataclass(frozen=True, eq=False)
class MarginProfile:
    """A piecewise-linear function of alpha: the largest output minus the second largest; 0 where the class changes.

    >>> import exactline as xl
    >>> margin = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).metrics().margin
    >>> [round(alpha, 6) for alpha in margin.alphas.tolist()], round(margin.smallest, 12), round(margin.mean, 6)
    ([0.0, 0.5, 0.666667, 1.0], 0.0, 0.583333)
    """

    alphas: Tensor  # (knots,) float64, ascending: breaks of the line, and where the order of the best two changes
    margins: Tensor  # (knots,) at each of them; affine between neighbours

    @property
    def smallest(self) -> float:
        """The smallest margin on the line: 0 if the class changes."""
        return float(self.margins.min())

    @property
    def argmin(self) -> float:
        """Where the margin is smallest."""
        return float(self.alphas[self.margins.argmin()])

    @property
    def mean(self) -> float:
        """The mean margin over alpha."""
        widths = self.alphas.diff()
        return float(((self.margins[:-1] / 2 + self.margins[1:] / 2) * widths).sum() / widths.sum())

    def to_dict(self) -> dict[str, Any]:
        """The profile and its summary as plain lists and numbers, for JSON."""
        summary = {"smallest": self.smallest, "argmin": self.argmin, "mean": self.mean}
        return summary | {"alphas": self.alphas.tolist(), "margins": self.margins.tolist()}


def measure_margin(line: Restriction, output: str | int | None, values: Floats) -> MarginProfile:
    """The margin profile of a line with values (breaks, outputs) at its breaks.

    An output that is the largest at both ends of a piece is so on all of it, and likewise the second largest: only
    pieces on which the two change are split.
    """
    best, margins = _two_largest(values)
    alphas = line.alphas.numpy()
    changed = np.flatnonzero((best[1:] != best[:-1]).any(1))
    if len(changed):
        outputs = values_of_line(line, output, "line.metrics")
        filter_width = outputs.errors.filter_width(float(np.abs(outputs.values).max(initial=0.0)))
        points = order_block(outputs, changed, min(3, values.shape[1]), filter_width).points
        scale = outputs.errors.scale_of(points.line_index)
        is_tied = (points.ranks == 0).sum(1) > 1
        inner_margins = np.where(is_tied, 0.0, _two_largest(points.values)[1] / scale)
        alphas, first = np.unique(np.concatenate([points.alphas, alphas]), return_index=True)
        margins = np.concatenate([inner_margins, margins])[first]  # of equal alphas the first: with ties
    return MarginProfile(torch.from_numpy(alphas.copy()), torch.from_numpy(margins.copy()))


def _two_largest(values: Floats) -> tuple[Floats, Floats]:
    """The largest and the second largest output at each point, (points, 2), and how far they are apart, (points,)."""
    step = max(1, MAX_BLOCK_NUMBERS // values.shape[1])
    found = [torch.from_numpy(values[at : at + step]).topk(2, 1) for at in range(0, len(values), step)]
    best, index = (torch.cat(parts) for parts in zip(*found, strict=True))
    return index.numpy(), (best[:, 0] - best[:, 1]).numpy()
