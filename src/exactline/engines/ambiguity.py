"""The number of ambiguous units on every piece: counted at the breaks themselves, so that all engines count alike.

A sweep computes values at points of its own, whose rounding differs between engines and memory budgets. It only marks
pieces on which units may be ambiguous, with a margin; very short pieces need no mark. The values and errors that decide
are evaluated here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..budget import Budget, DeadlineReached, enforce_budget
from ..lines import Lines
from ..network.graph import Network
from ..numerics.equal_units import breaking_op
from ..numerics.plan import sweep_plan
from ..numerics.point_errors import PointErrors, RecentErrors, is_short_line, points_per_estimate
from ..numerics.repeated_units import repeated_units
from ..ops.base import Breaking, PieceEnds, flatten_units
from ..tolerances import ERROR_SAMPLES, MAX_ALPHA_ERROR, MIDDLE_REACH, ROUNDING_FREE_SHARE, SHARED_REACH
from .dense.points import to_device
from .dense.sweep import SweepLimits

POINTS_PER_PIECE = 3  # both ends and the middle
COPIES_PER_PIECE = 6  # of an estimate's numbers: values at both ends, which operators compare with the bounds at once
SHARED_COPIES_PER_PIECE = 3  # of the same where all points share one estimate


@dataclass(frozen=True)
class BreakRows:
    """Breaks of lines in order, as parallel tensors; a piece starts at every row whose successor is on its line."""

    line: Tensor  # (n,)
    alphas: Tensor  # (n,)
    nodes: Tensor  # (n,) the node that each originates from, -1 for ends of lines
    candidates: Tensor  # (n,) not 0 where units may be ambiguous on the piece that starts here


def count_ambiguous(network: Network, lines: Lines, rows: BreakRows, limits: SweepLimits) -> Tensor:
    """Count the units that are ambiguous on the piece that starts at each break, (n,).

    Where the deadline is reached before they are counted, the candidates are returned.
    """
    # a unit that is on its knot at both ends of a longer piece crosses it so slowly that the sweep has marked the piece
    is_narrow = rows.alphas.diff() <= 2 * MAX_ALPHA_ERROR
    is_piece = ((rows.candidates[:-1] != 0) | is_narrow) & (rows.line[1:] == rows.line[:-1])
    pieces, counts = is_piece.nonzero()[:, 0], torch.zeros_like(rows.candidates)
    if not len(pieces):
        return counts
    try:
        with enforce_budget(Budget(limits.deadline, limits.memory)):
            is_short = len(lines) == 1 and is_short_line(lines, 0)
            last_nodes = torch.zeros_like(pieces)
            for shares in (True,) if is_short else (True, False):  # quickly first, then more closely what is left
                copies = SHARED_COPIES_PER_PIECE if shares else COPIES_PER_PIECE
                parts = pieces.split(max(1, points_per_estimate(network, 0) // copies)) if len(pieces) else ()
                found = [_PieceErrors(network, lines, rows, some).find(shares) for some in parts]
                last_nodes = torch.cat([last_nodes[:0], *found])
                pieces, last_nodes = pieces[last_nodes >= 0], last_nodes[last_nodes >= 0]
            last_nodes, order = last_nodes.sort(stable=True)  # pieces of early nodes together
            pieces = pieces[order]
            step = max(1, points_per_estimate(network) // POINTS_PER_PIECE)
            for some, nodes in zip(pieces.split(step), last_nodes.split(step), strict=True) if len(pieces) else ():
                counts[some] = _PieceErrors(network, lines, rows, some).count(int(nodes.max()))
    except DeadlineReached:
        return rows.candidates
    return counts


class _PieceErrors:
    """Values and errors on some pieces."""

    def __init__(self, network: Network, lines: Lines, rows: BreakRows, pieces: Tensor) -> None:
        device, last_use = lines.starts[0].device, sweep_plan(network).last_use
        self.network, self.lines, self.device = network, lines, device
        self.nodes = [i for i in network.breaking_nodes if i in last_use]
        breaks, where = torch.stack([pieces, pieces + 1]).unique(return_inverse=True)
        self.line, self.alphas, self.origin = (
            to_device(device, column[breaks].numpy()) for column in (rows.line, rows.alphas, rows.nodes)
        )
        self.before, self.after = where.to(device)
        self.widths = self.alphas[self.after] - self.alphas[self.before]

    def find(self, shares: bool) -> Tensor:
        """(k,) the last node at which a piece may have ambiguous units, on the CPU; -1 if there is none.

        The errors at both ends are taken to be `MIDDLE_REACH` deviations in the middle or, if all points share one
        estimate, `SHARED_REACH` times those.
        """
        last_nodes = torch.full((len(self.widths),), -1, dtype=torch.int64, device=self.device)
        ends = self._shared_ends() if shares else self._ends(samples=0)
        estimate, factor = (ends, SHARED_REACH) if shares else (self._middle(), MIDDLE_REACH)
        for i in self.nodes:
            op, source = self._node(i)
            bounds = _drop_rounding_free(flatten_units(estimate.advance_to(source)))
            bounds = bounds.expand(len(self.widths), -1)
            ends.advance_to(source)
            reach = factor * bounds
            is_counted = (bounds > 0) & self._is_own(i)
            found = op.count_ambiguous(self._piece_ends(i, ends.values[source], (reach, reach), is_counted)) > 0
            last_nodes.masked_fill_(found, i)
        return last_nodes.cpu()

    def count(self, last_node: int) -> Tensor:
        """(k,) the number of ambiguous units on every piece, on the CPU; none are at nodes after ``last_node``."""
        counts = torch.zeros(len(self.widths), dtype=torch.int64, device=self.device)
        middle, ends = self._middle(), self._ends()
        for i in self.nodes:
            if i > last_node:
                break
            op, source = self._node(i)
            bounds, values = flatten_units(ends.advance_to(source)), ends.values[source]
            both = bounds[self.before], bounds[self.after]
            is_own = self._is_own(i)
            if not bool(op.count_ambiguous(self._piece_ends(i, values, both, is_own.expand_as(both[0]))).any()):
                continue
            deviations = _drop_rounding_free(flatten_units(middle.advance_to(source)))
            counts += op.count_ambiguous(self._piece_ends(i, values, both, (deviations > 0) & is_own))
        return counts.cpu()

    def _piece_ends(
        self,
        i: int,
        values: Tensor,  # (points, *in) at the input of breaking node i
        bounds: tuple[Tensor, Tensor],  # (k, elements) at both ends of every piece
        is_counted: Tensor,  # (k, elements)
    ) -> PieceEnds:
        """What decides at a breaking node."""
        is_earlier = self.origin < i
        return PieceEnds(
            values=(values[self.before], values[self.after]),
            bounds=bounds,
            is_counted=is_counted,
            is_earlier=(is_earlier[self.before], is_earlier[self.after]),
            widths=self.widths,
        )

    def _is_own(self, i: int) -> Tensor:
        """(1, elements) whether the units of breaking node ``i`` are not those of an earlier node again."""
        repeated = repeated_units(self.network).get(i)
        return torch.ones(1, 1, dtype=torch.bool, device=self.device) if repeated is None else ~repeated[None]

    def _ends(self, samples: int = ERROR_SAMPLES) -> PointErrors:
        """Values and errors at the ends of the pieces."""
        return PointErrors(self.network, *self.lines.at(self.line, self.alphas), samples)

    def _shared_ends(self) -> PointErrors:
        """Values at the ends of the pieces, and one estimate of the errors of all of them."""
        points, errors = self.lines.at(self.line, self.alphas)
        return PointErrors(self.network, points, [error.amax(0, keepdim=True) for error in errors])

    def _node(self, i: int) -> tuple[Breaking, int]:
        """The operator of a breaking node, and the node that it reads."""
        return breaking_op(self.network, i), self.network.nodes[i].inputs[0]

    def _middle(self) -> RecentErrors:
        """The standard deviations of the errors in the middle of every piece."""
        alphas = self.alphas[self.before] + self.widths / 2
        return RecentErrors.at_points(self.network, *self.lines.at(self.line[self.before], alphas))


def _drop_rounding_free(bounds: Tensor) -> Tensor:
    """Error bounds (k, elements), 0 where they are so small that no term of the value can be rounded."""
    if not bounds.numel():
        return bounds
    least = (bounds.amax(1, keepdim=True) * ROUNDING_FREE_SHARE).clamp(min=torch.finfo(bounds.dtype).tiny)
    return bounds.masked_fill(bounds <= least, 0.0)
