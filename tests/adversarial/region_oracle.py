"""Class regions on a polygon in rational arithmetic: the oracle for the regions of a plane."""

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
Group = tuple[int, ...]  # the outputs that are tied for the lead, lowest first


@dataclass(frozen=True)
class ExactRegion:
    """Connected cells of one class; cells that share only a corner are not connected."""

    group: Group
    area: Fraction  # in plane coordinates of the oracle
    cells: tuple[pg.Polygon, ...]


def exact_regions(network: Network, vertices: Tensor, order: str) -> list[ExactRegion]:
    """All regions of a network with one output tensor."""
    exact = restrict_plane(network, vertices)
    sign = 1 if order == "max" else -1
    labelled = [cell for i in range(len(exact)) for cell in _decision_cells(exact, i, sign)]
    regions: list[ExactRegion] = []
    for group in sorted({group for group, _ in labelled}):
        cells = [cell for label, cell in labelled if label == group]
        for connected in _connected_groups(cells):
            regions.append(ExactRegion(group, sum(map(pg.area, connected), Fraction(0)), tuple(connected)))
    return regions


def _decision_cells(exact: ExactPlane, piece: int, sign: int) -> list[tuple[Group, pg.Polygon]]:
    """Cut a polygon into the parts where each output leads; outputs with equal affine forms are one group."""
    outputs_of: dict[Form, list[int]] = {}
    for label, form in enumerate(exact.affine(piece)):
        outputs_of.setdefault(form, []).append(label)
    parts: list[tuple[Group, pg.Polygon]] = []
    for form, group in outputs_of.items():
        part: pg.Polygon | None = exact.polygons[piece]
        for other in outputs_of:
            if part is not None and other != form:
                difference = [sign * (a - b) for a, b in zip(form, other, strict=True)]
                part = pg.halves(part, _with_integer_coefficients(difference))[1]
        if part is not None:
            parts.append((tuple(group), part))
    return parts


def _with_integer_coefficients(line: list[Fraction]) -> pg.Line:
    denominator = line[0].denominator * line[1].denominator * line[2].denominator
    c, a, b = (int(v * denominator) for v in line)
    return c, a, b


def _connected_groups(cells: list[pg.Polygon]) -> list[list[pg.Polygon]]:
    label = list(range(len(cells)))
    for i, j in combinations(range(len(cells)), 2):
        if label[i] != label[j] and _share_an_edge(cells[i], cells[j]):
            old, new = label[j], label[i]
            label = [new if k == old else k for k in label]
    return [[cell for cell, k in zip(cells, label, strict=True) if k == one] for one in sorted(set(label))]


def _share_an_edge(one: pg.Polygon, two: pg.Polygon) -> bool:
    """Whether two polygons with disjoint interiors share a part of an edge."""
    for a, b in zip(one, one[1:] + one[:1], strict=True):
        for c, d in zip(two, two[1:] + two[:1], strict=True):
            if pg.turn(a, b, c) == 0 and pg.turn(a, b, d) == 0:
                (low, high), (left, right) = sorted(map(pg.point, (a, b))), sorted(map(pg.point, (c, d)))
                if max(low, left) < min(high, right):
                    return True
    return False


def winding_numbers(ring: Tensor, points: Tensor) -> Tensor:  # (c, 2), (n, 2) -> (n,)
    """The winding number of a closed ring around each point, counterclockwise."""
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
