"""A line inside a plane, read off the polygons."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Ints

SHARE_TOLERANCE = 64 * float(np.finfo(np.float64).eps)


def edges_crossed(
    places: Floats,  # (corners, 2)
    ends: Ints,  # (edges, 2)
    sides: Ints,  # (edges, 2)
    start: Floats,  # (2,)
    stop: Floats,  # (2,)
) -> tuple[Floats, Ints, Ints]:
    """Where a segment meets edges: alphas strictly between 0 and 1 in order, an edge for each, and how many meet there.

    Passing a corner is one meeting; an edge that the segment runs along is none, but its ends are met.
    """
    extent = float(np.ptp(places, axis=0).max()) + float(np.abs(places).max())
    way = stop - start
    length = float(np.hypot(*way))
    if length == 0:
        return np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    away = ((places - start) @ np.array([-way[1], way[0]])) / length
    along = ((places - start) @ way) / length**2
    away = np.where(np.abs(away) <= SHARE_TOLERANCE * extent, 0.0, away)
    inner = np.flatnonzero((sides >= 0).all(1))
    one, two = away[ends[inner, 0]], away[ends[inner, 1]]
    part = np.zeros(len(inner))
    clean = ((one > 0) & (two < 0)) | ((one < 0) & (two > 0))
    part[clean] = np.abs(one[clean]) / (np.abs(one[clean]) + np.abs(two[clean]))
    touches = (one == 0) ^ (two == 0)
    part[touches & (two == 0)] = 1.0
    met = np.flatnonzero(clean | touches)
    edge = inner[met]
    alpha = along[ends[edge, 0]] * (1 - part[met]) + along[ends[edge, 1]] * part[met]
    slack = SHARE_TOLERANCE * extent / length
    keep = (alpha > slack) & (alpha < 1 - slack)
    alpha, edge = alpha[keep], edge[keep]
    order = np.argsort(alpha, kind="stable")
    alpha, edge = alpha[order], edge[order]
    lead = np.ones(len(alpha), dtype=bool)
    lead[1:] = alpha[1:] - alpha[:-1] > slack
    place = np.flatnonzero(lead)
    count = np.diff(np.append(place, len(alpha)))
    return alpha[place], edge[place], count
