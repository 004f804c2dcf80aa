"""Which output decides where on a polygon, in rationals: the truth that regions of a plane are held against."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import torch
from torch import Tensor

from exactline.network.graph import Network
from tests.oracle import polygons as pg
from tests.oracle.plane import ExactPlane, restrict_plane

Form = tuple[Fraction, Fraction, Fraction]
Group = tuple[int, ...]  # the outputs that share the decision, lowest first


@dataclass(frozen=True)
class ExactRegion:
    """Cells of one class that touch along more than a corner."""

    group: Group
    area: Fraction  # in plane coordinates of the oracle
    cells: tuple[pg.Polygon, ...]


def exact_regions(network: Network, vertices: Tensor, order: str) -> list[ExactRegion]:
    """All regions of a network of one output tensor."""
    exact = restrict_plane(network, vertices)
    found = [cell for i in range(len(exact)) for cell in _decided(exact, i, 1 if order == "max" else -1)]
    made: list[ExactRegion] = []
    for group in sorted({group for group, _ in found}):
        cells = [cell for mine, cell in found if mine == group]
        for company in _companies(cells):
            made.append(ExactRegion(group, sum(map(pg.area, company), Fraction(0)), tuple(company)))
    return made


def _decided(exact: ExactPlane, piece: int, sign: int) -> list[tuple[Group, pg.Polygon]]:
    """A piece cut into the parts where each output leads, outputs that are one function together."""
    forms = exact.affine(piece)
    same: dict[Form, list[int]] = {}
    for label, form in enumerate(forms):
        same.setdefault(form, []).append(label)
    parts: list[tuple[Group, pg.Polygon]] = []
    for form, group in same.items():
        left: pg.Polygon | None = exact.polygons[piece]
        for other in same:
            if left is not None and other != form:
                left = pg.halves(left, _whole([sign * (a - b) for a, b in zip(form, other, strict=True)]))[1]
        if left is not None:
            parts.append((tuple(group), left))
    return parts


def _whole(line: list[Fraction]) -> pg.Line:
    bottom = line[0].denominator * line[1].denominator * line[2].denominator
    c, a, b = (int(v * bottom) for v in line)
    return c, a, b


def _companies(cells: list[pg.Polygon]) -> list[list[pg.Polygon]]:
    label = list(range(len(cells)))
    for i, j in combinations(range(len(cells)), 2):
        if label[i] != label[j] and _touch(cells[i], cells[j]):
            old, new = label[j], label[i]
            label = [new if k == old else k for k in label]
    return [[cell for cell, k in zip(cells, label, strict=True) if k == one] for one in sorted(set(label))]


def _touch(one: pg.Polygon, two: pg.Polygon) -> bool:
    """Whether two polygons with disjoint insides share a stretch of an edge."""
    for a, b in zip(one, one[1:] + one[:1], strict=True):
        for c, d in zip(two, two[1:] + two[:1], strict=True):
            if pg.turn(a, b, c) == 0 and pg.turn(a, b, d) == 0:
                (low, high), (left, right) = sorted(map(pg.point, (a, b))), sorted(map(pg.point, (c, d)))
                if max(low, left) < min(high, right):
                    return True
    return False


def winding(ring: Tensor, points: Tensor) -> Tensor:  # (c, 2), (n, 2) -> (n,)
    """How often a closed ring goes around each point, counterclockwise."""
    a, b = ring, ring.roll(-1, 0)
    x, y = points[:, :1], points[:, 1:]
    left = (b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (x - a[:, 0]) * (b[:, 1] - a[:, 1])
    up = (a[:, 1] <= y) & (b[:, 1] > y) & (left > 0)
    down = (a[:, 1] > y) & (b[:, 1] <= y) & (left < 0)
    return up.sum(1) - down.sum(1)


def ring_area(ring: Tensor) -> float:  # (c, 2)
    x, y = (ring - ring[0]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)


def unit_area(vertices: Tensor) -> float:
    """The area in input space of the oracle's unit square."""
    one, two = ((v - vertices[0]).flatten() for v in vertices[1:3])
    return float(torch.sqrt((one @ one) * (two @ two) - (one @ two) ** 2))
