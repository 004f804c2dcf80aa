"""One polygon of a plane: a single affine map of the whole network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..lines import Lines
from .piece import Piece

if TYPE_CHECKING:
    from .plane import PlaneRestriction, Values


@dataclass(frozen=True)
class Polygon:
    """A convex polygon on which the network is affine.

    >>> import exactline as xl
    >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> polygon = plane.polygon(0)
    >>> len(plane), polygon.area, len(polygon.corners), [m.shape for m in polygon.affine()]
    (4, 1.0, 4, [torch.Size([2, 2]), torch.Size([2])])
    """

    plane: PlaneRestriction
    index: int

    @property
    def indices(self) -> Tensor:
        """(corners,) numbers among the plane's corners, counterclockwise."""
        first, last = self.plane.offsets[self.index : self.index + 2].tolist()
        return self.plane.rings[first:last]

    @property
    def corners(self) -> Tensor:
        """(corners, 2) in plane coordinates."""
        return self.plane.corners[self.indices]

    @property
    def weights(self) -> Tensor:
        """(corners, k) as mixtures of the plane's vertices."""
        return self.plane.weights[self.indices]

    @property
    def points(self) -> Values:
        """(corners, *in) in input space."""
        return self.plane.mix(self.weights)

    @property
    def values(self) -> Values:
        """(corners, *out), before any smooth tail."""
        return self.plane.values_at(self.indices)

    @property
    def area(self) -> float:
        return float(self.plane.areas[self.index])

    @property
    def centre(self) -> Tensor:
        """(2,) the mean of the corners, a point inside."""
        return self.corners.mean(0)

    def pattern(self) -> dict[str, Tensor]:
        """The branch of every unit, by node: segment numbers, or places in a window."""
        return self._piece().pattern()

    def affine(self) -> tuple[Tensor | tuple[Tensor, ...], Tensor | tuple[Tensor, ...]]:
        """A and b with f(x) = A x + b here: A is (*out, *in) and b is (*out)."""
        return self._piece().affine()

    def _piece(self) -> Piece:
        """A stretch inside the polygon, from one side of it to the other through the middle."""
        network = self.plane.require_network("polygon.affine")
        weights = self.weights.numpy()
        middle = weights.mean(0)
        far = int(np.abs(weights - middle).max(1).argmax())
        ends = torch.from_numpy(np.stack([0.75 * weights[far] + 0.25 * middle, 1.25 * middle - 0.25 * weights[far]]))
        starts, stops = zip(*((p[:1], p[1:]) for p in self.plane.input_points(ends)), strict=True)
        return Piece(network, Lines(tuple(starts), tuple(stops)), self.index, 0.0, 1.0, 0)
