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
from ...numerics.plan import plan
from ...numerics.roundoff_probes import PROBES, TINY, Walk
from ...numerics.static_filter import Size
from ...ops.base import Noise, flat
from ...ops.masks import on_host
from .state import State, on

SAFETY = 16.0  # estimates are multiplied by this before they decide
MANY = 64  # points in doubt before errors are kept: a few tell nothing of those to come
LOOK = 1 << 27  # bytes of a walk over doubtful points
TRAIL = 1 << 28  # bytes of a walk that is kept along with a state


def estimate(
    network: Network,
    place: int,
    points: list[Tensor],  # each (k, *in)
    errors: list[Tensor],  # each (k, *in)
) -> Tensor:
    """Estimated error (k, *shape) of one node, evaluated from the input."""
    return Walk(network, points, errors).to(place)


def fuzz_of(
    errors: Tensor,  # (k, *shape) at the input of the node that bore the points
    element: Ints,  # (k,)
    partner: Ints,  # (k,) or -1
    rates: Floats,  # (k,)
) -> Floats:
    """How far in alpha breaks may be from the truth, (k,)."""
    elements, device = flat(errors), errors.device
    size = elements.gather(1, on(device, element[:, None]))[:, 0]
    other = elements.gather(1, on(device, partner.clip(min=0)[:, None]))[:, 0]
    both = size + other * on(device, partner >= 0)
    with np.errstate(all="ignore"):  # a rate may be as small as it likes
        return SAFETY * both.to(torch.float64).cpu().numpy() / rates


class StateNoise(Noise):
    """The noise at the input of one breaking node, for the points of a state."""

    def __init__(
        self,
        network: Network,
        state: State,
        place: int,
        largest: float,
        size: Size,
        nearest: Sequence[float] | None = None,
    ) -> None:
        self.network, self.state, self.place = network, state, place
        self.largest, self.nearest = largest, nearest
        on_device = not on_host(state.live[place])
        self.gaps = state.rows.gaps if on_device else on(state.device, np.flatnonzero(~state.joined))
        self.broken = len(self.gaps) > 0
        self.doubtful = state.usual.doubtful(state.node, state.dtype, largest, size, state.live[place].numel())

    @cached_property
    def joined(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        line = self.state.tensors()[0][:, 0]
        return line[:-1] == line[1:]

    @property
    def widths(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.tensors()[1][:, 0].diff()

    def bound(self, rows: Tensor) -> Tensor:
        many = len(rows) >= MANY and 2 * len(rows) >= len(self.state)
        if self.state.trail is None and many and self._small():
            # most points are doubtful: errors are kept from node to node rather than found again each time
            every = torch.arange(len(self.state), device=rows.device)
            self.state.trail = Walk(self.network, *self.state.line_points(every))
        if self.state.trail is not None:
            return flat(self.state.trail.to(self.place))[rows] * SAFETY
        return self._errors(self.place, rows) * SAFETY

    def doubtful_at(self, elements: Tensor) -> Tensor | float:
        shares = plan(self.network).shares.get(self.place)
        return self.doubtful if shares is None else self.doubtful * shares[elements] + 64 * TINY

    def fuzz(self, rows: Ints) -> Floats:
        """How far in alpha the breaks at some points may be from the truth, (rows,); found once for each."""
        state = self.state
        unknown = rows[state.sharp[rows] == 0]
        born = state.born[unknown]
        for node in np.unique(born[:, 0]).tolist():
            of_node = born[:, 0] == node
            some = unknown[of_node]
            state.spots[some, 2] = 0.0
            if node >= 0:
                errors = self._errors(self.network.nodes[node].inputs[0], on(state.device, some))
                state.spots[some, 2] = fuzz_of(errors, born[of_node, 3], born[of_node, 4], state.rates[some])
        state.marks[unknown, 7] = 1
        return state.fuzz[rows]

    def _errors(self, place: int, rows: Tensor) -> Tensor:
        parts = rows.split(max(1, LOOK // self._bytes()))
        found = [flat(estimate(self.network, place, *self.state.line_points(some))) for some in parts]
        return torch.cat(found)

    def _small(self) -> bool:
        return len(self.state) * self._bytes() <= TRAIL

    def _bytes(self) -> int:
        """What a walk holds for each point."""
        return (PROBES + 1) * plan(self.network).bytes_live
