"""One polygon of a plane, on which the network is a single affine map."""

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
    """A convex polygon of a plane. It lies in one linear region of the network.

    >>> import exactline as xl
    >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> polygon = plane.polygon(0)
    >>> len(plane), polygon.area, len(polygon.corners), [m.shape for m in polygon.affine()]
    (4, 1.0, 4, [torch.Size([2, 2]), torch.Size([2])])
    """

    plane: PlaneRestriction
    index: int  # number of the polygon in its plane

    @property
    def indices(self) -> Tensor:
        """Indices (corners,) into the plane's corners, counterclockwise."""
        first, last = self.plane.offsets[self.index : self.index + 2].tolist()
        return self.plane.rings[first:last]

    @property
    def corners(self) -> Tensor:
        """Plane coordinates of the corners, (corners, 2)."""
        return self.plane.corners[self.indices]

    @property
    def weights(self) -> Tensor:
        """The corners as convex combinations of the plane's vertices, (corners, k)."""
        return self.plane.weights[self.indices]

    @property
    def points(self) -> Values:
        """Input points of the corners, (corners, *in)."""
        return self.plane.combine_vertices(self.weights)

    @property
    def values(self) -> Values:
        """The network's values at the corners, (corners, *out), before any smooth tail."""
        return self.plane.values_at(self.indices)

    @property
    def area(self) -> float:
        """The area in squared units of the input space."""
        return float(self.plane.areas[self.index])

    @property
    def centre(self) -> Tensor:
        """The mean of the corners, (2,), in plane coordinates."""
        return self.corners.mean(0)

    def pattern(self) -> dict[str, Tensor]:
        """The activation pattern: the branch of every unit, by the name of the node; see `Piece.pattern`."""
        return self._piece().pattern()

    def affine(self) -> tuple[Tensor | tuple[Tensor, ...], Tensor | tuple[Tensor, ...]]:
        """The affine map of the network here: A (*out, *in) and b (*out) with f(x) = A x + b; see `Piece.affine`."""
        return self._piece().affine()

    def _piece(self) -> Piece:
        """A line inside the polygon through its centre: its activation pattern is that of the polygon."""
        weights = self.weights.numpy()
        centre = weights.mean(0)
        far = int(np.abs(weights - centre).max(1).argmax())
        ends = torch.from_numpy(np.stack([0.75 * weights[far] + 0.25 * centre, 1.25 * centre - 0.25 * weights[far]]))
        starts, stops = zip(*((p[:1], p[1:]) for p in self.plane.input_points(ends)), strict=True)
        return Piece(
            network=self.plane.require_network("polygon.affine"),
            lines=Lines(tuple(starts), tuple(stops)),
            index=self.index,
            start=0.0,
            stop=1.0,
            ambiguous=0,
        )
