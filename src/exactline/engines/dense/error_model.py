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
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...numerics.roundoff_probes import RoundoffProbes
from ...numerics.static_filter import Magnitude
from ...ops.base import ErrorBounds, flatten_units
from ...ops.masks import is_on_host
from ...tolerances import PROBE_COUNT, PROBE_SAFETY, SMALLEST_SUBNORMAL
from .points import PointTable, to_device
from .state import SweepState

MIN_KEPT_PROBE_POINTS = 64  # ambiguous points at one node before the probes of all points are kept
MAX_PROBE_BYTES = 1 << 27  # bytes of the probes that are evaluated at a time
MAX_KEPT_PROBE_BYTES = 1 << 28  # bytes of the probes that a state may keep


def estimate_errors(
    network: Network,
    node: int,
    points: list[Tensor],  # (k, *in) each
    errors: list[Tensor],  # (k, *in) each
) -> Tensor:
    """Estimated errors (k, *shape) of one node's values at input points, given the errors of those points."""
    return RoundoffProbes(network, points, errors).advance_to(node)


def alpha_errors(
    errors: Tensor,  # (k, *shape) at the input of the node that the breaks originate from
    element: Ints,  # (k,)
    partner: Ints,  # (k,) or -1
    slopes: Floats,  # (k,)
) -> Floats:
    """(k,) the errors of breaks in alpha, from the errors of the values that cross there."""
    elements, device = flatten_units(errors), errors.device
    own = elements.gather(1, to_device(device, element[:, None]))[:, 0]
    other = elements.gather(1, to_device(device, partner.clip(min=0)[:, None]))[:, 0]
    both = own + other * to_device(device, partner >= 0)
    with np.errstate(all="ignore"):  # slopes may be arbitrarily small
        return PROBE_SAFETY * both.to(torch.float64).cpu().numpy() / slopes


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
    def widths(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.point_tensors().alpha.diff()

    def bound(self, rows: Tensor) -> Tensor:
        most_points = len(rows) >= MIN_KEPT_PROBE_POINTS and 2 * len(rows) >= len(self.state)
        if self.state.probes is None and most_points and self._probes_fit():
            every = torch.arange(len(self.state), device=rows.device)
            self.state.probes = RoundoffProbes(self.network, *self.state.line_points(every))
        if self.state.probes is not None:
            return flatten_units(self.state.probes.advance_to(self.source))[rows] * PROBE_SAFETY
        return self._errors(self.source, rows) * PROBE_SAFETY

    def thresholds_at(self, elements: Tensor) -> Tensor | float:
        shares = sweep_plan(self.network).error_shares.get(self.source)
        return self.threshold if shares is None else self.threshold * shares[elements] + 64 * SMALLEST_SUBNORMAL

    def alpha_errors(self, rows: Ints) -> Floats:
        """(rows,) refined alpha errors of some points, cached in the point table."""
        points = self.state.points
        unknown = rows[points.is_refined[rows] == 0]
        nodes = points.node[unknown]
        for node in np.unique(nodes).tolist():
            some = unknown[nodes == node]
            points.alpha_error[some] = 0.0
            if node >= 0:
                errors = self._errors(self.network.nodes[node].inputs[0], to_device(self.state.device, some))
                crossing = points.element[some], points.partner[some], points.slope[some]
                points.alpha_error[some] = alpha_errors(errors, *crossing)
        points.is_refined[unknown] = 1
        return points.alpha_error[rows]

    def _errors(self, node: int, rows: Tensor) -> Tensor:
        """Estimated errors (rows, elements) of one node at some points."""
        parts = rows.split(max(1, MAX_PROBE_BYTES // self._bytes_per_point()))
        return torch.cat(
            [flatten_units(estimate_errors(self.network, node, *self.state.line_points(part))) for part in parts]
        )

    def _probes_fit(self) -> bool:
        return len(self.state) * self._bytes_per_point() <= MAX_KEPT_PROBE_BYTES

    def _bytes_per_point(self) -> int:
        """Bytes of the values and probes of one point."""
        return (PROBE_COUNT + 1) * sweep_plan(self.network).bytes_live
