"""How far the values that reach a breaking node can be trusted: an estimate, made from each point alone.

Only points that hold a value close to a knot are looked at.
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
from ...numerics.roundoff_probes import PROBE_COUNT, SMALLEST_SUBNORMAL, RoundoffProbes
from ...numerics.static_filter import Magnitude
from ...ops.base import ErrorBounds, flatten_units
from ...ops.masks import is_on_host
from .state import SweepState, to_device

PROBE_SAFETY = 16.0  # estimates are multiplied by this before they decide
MIN_KEPT_PROBE_POINTS = 64  # points in doubt before errors are kept: a few tell nothing of those to come
MAX_PROBE_BYTES = 1 << 27  # bytes of a walk over doubtful points
MAX_KEPT_PROBE_BYTES = 1 << 28  # bytes of a walk that is kept along with a state


def estimate_errors(
    network: Network,
    place: int,
    points: list[Tensor],  # each (k, *in)
    errors: list[Tensor],  # each (k, *in)
) -> Tensor:
    """Estimated error (k, *shape) of one node, evaluated from the input."""
    return RoundoffProbes(network, points, errors).advance_to(place)


def alpha_errors(
    errors: Tensor,  # (k, *shape) at the input of the node that bore the points
    element: Ints,  # (k,)
    partner: Ints,  # (k,) or -1
    rates: Floats,  # (k,)
) -> Floats:
    """How far in alpha breaks may be from the truth, (k,)."""
    elements, device = flatten_units(errors), errors.device
    size = elements.gather(1, to_device(device, element[:, None]))[:, 0]
    other = elements.gather(1, to_device(device, partner.clip(min=0)[:, None]))[:, 0]
    both = size + other * to_device(device, partner >= 0)
    with np.errstate(all="ignore"):  # a rate may be as small as it likes
        return PROBE_SAFETY * both.to(torch.float64).cpu().numpy() / rates


class PointErrorBounds(ErrorBounds):
    """The noise at the input of one breaking node, for the points of a state."""

    def __init__(
        self,
        network: Network,
        state: SweepState,
        place: int,
        largest: float,
        size: Magnitude,
        nearest: Sequence[float] | None = None,
    ) -> None:
        self.network, self.state, self.source = network, state, place
        self.magnitude, self.knot_distances = largest, nearest
        on_device = not is_on_host(state.live[place])
        self.line_ends = (
            state.device_points.gaps if on_device else to_device(state.device, np.flatnonzero(~state.same_line))
        )
        self.several_lines = len(self.line_ends) > 0
        self.threshold = state.filter.threshold(state.node, state.dtype, largest, size, state.live[place].numel())

    @cached_property
    def same_line(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        line = self.state.point_tensors()[0][:, 0]
        return line[:-1] == line[1:]

    @property
    def widths(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.point_tensors()[1][:, 0].diff()

    def bound(self, rows: Tensor) -> Tensor:
        many = len(rows) >= MIN_KEPT_PROBE_POINTS and 2 * len(rows) >= len(self.state)
        if self.state.probes is None and many and self._probes_fit():
            # most points are doubtful: errors are kept from node to node rather than found again each time
            every = torch.arange(len(self.state), device=rows.device)
            self.state.probes = RoundoffProbes(self.network, *self.state.line_points(every))
        if self.state.probes is not None:
            return flatten_units(self.state.probes.advance_to(self.source))[rows] * PROBE_SAFETY
        return self._errors(self.source, rows) * PROBE_SAFETY

    def thresholds_at(self, elements: Tensor) -> Tensor | float:
        shares = sweep_plan(self.network).error_shares.get(self.source)
        return self.threshold if shares is None else self.threshold * shares[elements] + 64 * SMALLEST_SUBNORMAL

    def alpha_errors(self, rows: Ints) -> Floats:
        """How far in alpha the breaks at some points may be from the truth, (rows,); found once for each."""
        state = self.state
        unknown = rows[state.has_sharp_error[rows] == 0]
        born = state.origins[unknown]
        for node in np.unique(born[:, 0]).tolist():
            of_node = born[:, 0] == node
            some = unknown[of_node]
            state.spots[some, 2] = 0.0
            if node >= 0:
                errors = self._errors(self.network.nodes[node].inputs[0], to_device(state.device, some))
                state.spots[some, 2] = alpha_errors(errors, born[of_node, 3], born[of_node, 4], state.slopes[some])
        state.marks[unknown, 7] = 1
        return state.alpha_errors[rows]

    def _errors(self, place: int, rows: Tensor) -> Tensor:
        parts = rows.split(max(1, MAX_PROBE_BYTES // self._bytes_per_point()))
        found = [flatten_units(estimate_errors(self.network, place, *self.state.line_points(some))) for some in parts]
        return torch.cat(found)

    def _probes_fit(self) -> bool:
        return len(self.state) * self._bytes_per_point() <= MAX_KEPT_PROBE_BYTES

    def _bytes_per_point(self) -> int:
        """What a walk holds for each point."""
        return (PROBE_COUNT + 1) * sweep_plan(self.network).bytes_live
