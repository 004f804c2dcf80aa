"""Error bounds of the values at the input of a breaking node, estimated at each point independently.

Only points with a value close to a knot are estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...budget import block_bytes
from ...network.graph import Network
from ...numerics.crossing_positions import CloseCrossings, evaluate_with_errors, locate_crossings
from ...numerics.plan import sweep_plan
from ...numerics.point_errors import PointErrors, bytes_per_estimate, points_per_estimate
from ...numerics.repeated_units import repeated_units
from ...numerics.static_filter import Magnitude
from ...ops.base import ErrorBounds, flatten_units
from ...ops.masks import is_host, is_on_host
from ...tolerances import SMALLEST_SUBNORMAL
from .breaks import SortedCrossings
from .points import PointTable, to_device
from .state import SweepState

MIN_KEPT_POINTS = 64  # ambiguous points at one node before the errors of all points are kept
KEPT_ERRORS_DIVISOR = 2  # the errors that a state keeps may take one part in so many of the memory on a CPU
MAX_GPU_KEPT_BYTES = 1 << 28  # bytes of the errors that a state may keep on a GPU


class PointErrorBounds(ErrorBounds):
    """Error bounds at the input of one breaking node, for the points of a state."""

    def __init__(
        self,
        network: Network,
        state: SweepState,
        source: int,
        largest: float,
        bound: Magnitude,
        knot_distances: Sequence[float] | None = None,
    ) -> None:
        self.network, self.state, self.source = network, state, source
        self.magnitude, self.knot_distances = largest, knot_distances
        on_device = not is_on_host(state.live[source])
        self.line_ends = (
            state.device_line_ends if on_device else to_device(state.device, np.flatnonzero(~state.same_line))
        )
        self.several_lines = len(self.line_ends) > 0
        if not state.table.is_on_device and len(state):
            self.ends_inside = bool(state.alphas[0] > 0.0), bool(state.alphas[-1] < 1.0)
        self.threshold = state.filter.threshold(state.node, state.dtype, largest, bound, state.live[source].numel())

    @property
    def points(self) -> PointTable:
        """The points of the state."""
        return self.state.points

    @property
    def device(self) -> torch.device:
        """The device of the state's values."""
        return self.state.device

    @cached_property
    def same_line(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        line = self.state.point_tensors().line
        return line[:-1] == line[1:]

    @property
    def repeats(self) -> Tensor | None:
        return repeated_units(self.network).get(self.state.node)

    @property
    def widths(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.point_tensors().alpha.diff()

    def bound(self, rows: Tensor) -> Tensor:
        return self.evaluate(rows)[1]

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        most_points = len(rows) >= MIN_KEPT_POINTS and 2 * len(rows) >= len(self.state)
        if self.state.point_errors is None and most_points and self._errors_fit():
            every = torch.arange(len(self.state), device=rows.device)
            self.state.point_errors = PointErrors(self.network, *self.state.line_points(every))
        if self.state.point_errors is not None:
            bounds = self.state.point_errors.advance_to(self.source)
            return flatten_units(self.state.point_errors.values[self.source])[rows], flatten_units(bounds)[rows]
        table, parts = self.state.point_tensors(), rows.split(points_per_estimate(self.network))
        columns = [(table.line[part], table.alpha[part]) for part in parts]
        found = [evaluate_with_errors(self.network, self.source, self.state.lines, *some) for some in columns]
        values, bounds = map(torch.cat, zip(*found, strict=True))
        return values, bounds

    def locate(self, found: SortedCrossings, alpha: Floats) -> tuple[Floats, Floats]:
        piece, alphas = found.piece, self.points.alpha
        integers = self.points.line[piece], piece, found.element, found.partner
        line, rows, element, partner = (to_device(self.device, column) for column in integers)
        numbers = alpha, alphas[piece], alphas[piece + 1], found.level.astype(np.float64)
        at, left, right, level = (to_device(self.device, column) for column in numbers)
        x = flatten_units(self.state.live[self.source])
        before, after = (
            x[row, element] - torch.where(partner >= 0, x[row, partner.clamp(min=0)], level.to(x))
            for row in (rows, rows + 1)
        )
        slope = (after - before).to(torch.float64) / (right - left)
        crossings = CloseCrossings(line, at, left, right, element, partner, level[:, None], slope)
        located, bounds = locate_crossings(self.network, self.source, self.state.lines, crossings)
        return located.cpu().numpy(), bounds.cpu().numpy()

    def thresholds_at(self, elements: Tensor) -> Tensor | float:
        shares = sweep_plan(self.network).error_shares.get(self.source)
        return self.threshold if shares is None else self.threshold * shares[elements] + 64 * SMALLEST_SUBNORMAL

    def coinciding_points(self, piece: Ints, from_left: Floats, from_right: Floats) -> Ints | None:
        if (from_left > 0).all() and (from_right > 0).all():
            return None
        return np.where(from_left <= 0, piece, np.where(from_right <= 0, piece + 1, -1))

    def _errors_fit(self) -> bool:
        memory = block_bytes(KEPT_ERRORS_DIVISOR) if is_host(self.device) else MAX_GPU_KEPT_BYTES
        return len(self.state) * bytes_per_estimate(self.network) <= memory
