"""Where a sweep stands: sorted points of many lines, and what every live tensor is at each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..line import Lines


@dataclass
class State:
    """All points at hand between two nodes; the points of a line stand together, in order of alpha."""

    lines: Lines
    node: int  # the next to evaluate
    line: Tensor  # (n,) which line a point is on
    alphas: Tensor  # (n,) float64
    born: Tensor  # (n, 5) node or -1, unit, count, element, partner
    rates: Tensor  # (n,) how fast the crossing that bore a point changes with alpha
    fuzz: Tensor  # (n,) a generous radius in alpha around a break
    doubts: Tensor  # (n,) units not told from a knot on the piece that starts here
    live: dict[int, Tensor] = field(default_factory=dict)  # (n, *shape) each
    levels: dict[int, float] = field(default_factory=dict)  # the size of errors to expect, by node
    cut_left: bool = False  # whether the first point was also the last of the part before

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.live.values())).dtype

    @property
    def joined(self) -> Tensor:
        """(n - 1,) whether a point and the next are on one line."""
        return self.line[:-1] == self.line[1:]

    def __len__(self) -> int:
        return len(self.alphas)

    def line_points(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Input points at some rows, and the rounding error they carry; each (rows, *in)."""
        return self.lines.at(self.line[rows], self.alphas[rows])


def begin(lines: Lines, first: int, last: int, places: tuple[int, ...], levels: dict[int, float]) -> State:
    """Both ends of the lines ``first`` to ``last``, before the first node."""
    count = last - first
    device = lines.starts[0].device
    line = torch.arange(first, last, device=device).repeat_interleave(2)
    ends = torch.stack([torch.zeros(count), torch.ones(count)], 1).to(device, torch.float64).flatten()
    born = torch.zeros(2 * count, 5, dtype=torch.int64, device=device)
    born[:, 0] = born[:, 4] = -1
    nothing = torch.zeros(2 * count, dtype=torch.float64, device=device)
    doubts = torch.zeros(2 * count, dtype=torch.int64, device=device)
    live = {
        place: torch.stack([start[first:last], end[first:last]], 1).flatten(0, 1)
        for place, start, end in zip(places, lines.starts, lines.ends, strict=True)
    }
    return State(lines, 0, line, ends, born, nothing, nothing.clone(), doubts, live, levels)
