"""Points inside polygons as mixtures of three of their corners."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..engines.polygons.growable import count_within


def polygon_area(corners: Tensor) -> float:  # (k, 2)
    """The area of one polygon, counterclockwise."""
    x, y = (corners - corners[0]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)


def triangulate(places: Floats, rings: Ints, first: Ints, count: Ints, corners: Floats) -> tuple[Tensor, Tensor]:
    """Of the triangles that a polygon's first corner makes with its sides, the one around each point."""
    which = np.arange(len(places)).repeat(count - 2)
    step = count_within(count - 2)
    base = first[which]
    triple = np.stack([rings[base], rings[base + step + 1], rings[base + step + 2]], 1)
    a, b, c = (corners[triple[:, k]] for k in range(3))
    share = _barycentric(places[which], a, b, c)
    worst = share.min(1)
    order = np.lexsort((-worst, which))
    lead = order[np.unique(which[order], return_index=True)[1]]
    kept = share[lead].clip(0)
    kept[kept.sum(1) == 0] = 1.0  # a polygon without width: any shares will do before they are fitted
    kept /= kept.sum(1, keepdims=True)
    return torch.from_numpy(triple[lead]), torch.from_numpy(_fit_triangle(places, corners[triple[lead]], kept))


def _fit_triangle(places: Floats, triangle: Floats, share: Floats) -> Floats:
    """Shares that meet their point also where the triangle is thin: what is left goes along its longest side."""
    left = places - (share[:, :, None] * triangle).sum(1)
    side = np.roll(triangle, -1, 1) - triangle
    length = (side**2).sum(2)
    longest, row = length.argmax(1), np.arange(len(places))
    way, size = side[row, longest], length[row, longest]
    step = np.divide((left * way).sum(1), size, out=np.zeros(len(places)), where=size > 0)
    share[row, (longest + 1) % 3] += step
    share[row, longest] -= step
    return share


def _barycentric(p: Floats, a: Floats, b: Floats, c: Floats) -> Floats:
    def cross(u: Floats, v: Floats) -> Floats:
        return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]

    parts = np.stack([cross(b - p, c - p), cross(c - p, a - p), cross(a - p, b - p)], 1)
    total = parts.sum(1, keepdims=True)
    flat = total[:, 0] <= 0
    with np.errstate(all="ignore"):
        found = parts / total
    found[flat] = [-np.inf, 0.0, 0.0]  # three corners on one line hold nothing
    return found
