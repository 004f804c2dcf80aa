"""How far a plane's answer is from the network itself, measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..fp_context import full_precision
from .check import check_sample_count, reference_network

if TYPE_CHECKING:
    from .plane import PlaneRestriction


@dataclass(frozen=True)
class PlaneCheck:
    """Largest distances between interpolated values and the network's own, by kind of place."""

    corners: float
    centres: float
    random: float
    scale: float  # the largest value met
    area: float  # how far the polygons' areas are from the whole, relative to it
    points: int  # how many places were compared
    against: str  # whose forward pass: the module's or the captured network's

    @property
    def worst(self) -> float:
        return max(self.corners, self.centres, self.random)

    def __str__(self) -> str:
        return (
            f"largest distance {self.worst:.1e} from {self.against} at {self.points:,} points,"
            f" values up to {self.scale:.3g} (corners {self.corners:.1e}, centres {self.centres:.1e},"
            f" random {self.random:.1e}); areas sum to the whole within {self.area:.1e}"
        )


def check_plane(plane: PlaneRestriction, samples: int, seed: int) -> PlaneCheck:
    """Compare a plane with a forward pass at corners, at polygons' centres and at random points."""
    check_sample_count(samples)
    network = plane.require_network("plane.check")
    theirs, against = reference_network(network)
    tail = against == "the module"
    generator = np.random.default_rng(seed)
    count = len(plane.outline)
    weights = plane.weights[_spread(len(plane.weights), samples)]
    first, size = plane.offsets[:-1].numpy(), np.diff(plane.offsets.numpy())
    middle = np.add.reduceat(plane.weights[plane.rings].numpy(), first) / size[:, None]
    kinds = {
        "corners": weights,
        "centres": torch.from_numpy(middle)[_spread(len(middle), samples)],
        "random": torch.from_numpy(generator.dirichlet(np.ones(count), samples)),
    }
    worst, scale, total = dict.fromkeys(kinds, 0.0), 0.0, 0
    with full_precision():
        for kind, some in kinds.items():
            ours = plane.at(some @ plane.outline, tail=tail)
            total += len(some)
            for a, b in zip(
                ours if isinstance(ours, tuple) else (ours,), theirs(plane.input_points(some)), strict=True
            ):
                if a.numel():
                    worst[kind] = max(worst[kind], float((a - b).abs().max()))
                    scale = max(scale, float(b.abs().max()))
    area = abs(float(plane.shares.sum()) - 1)
    return PlaneCheck(**worst, scale=scale, area=area, points=total, against=against)


def _spread(count: int, most: int) -> torch.Tensor:
    """Numbers spread evenly over all."""
    if count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, max(most, 1), dtype=torch.float64).round().to(torch.int64)
