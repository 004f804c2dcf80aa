"""Restrict a network to a polygon in rationals: the truth in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import lcm

import numpy as np
from torch import Tensor

from exactline.exact.affine import AffineInput, evaluate_affine
from exactline.exact.forms import AffineForms
from exactline.exact.integers import make_fraction, read_rationals
from exactline.exact.maximum import MaximumRule
from exactline.exact.order import OrderRule
from exactline.exact.pointwise import PointwiseRule
from exactline.exact.registry import make_rule
from exactline.network.graph import Network
from exactline.ops.base import Breaking, Input

from . import cells
from . import polygons as pg
from .polygons import Point, Polygon


@dataclass(frozen=True, eq=False)
class ExactPlane:
    """A network on a polygon; ``len`` is the number of pieces, all convex.

    Plane coordinates (s, t) stand for V0 + s (V1 - V0) + t (V2 - V0). ``loose``: some order statistic has a
    region that is not convex, which happens where identical functions hold several ranks; there the pieces
    are all those that a full order makes, and another convex division is as good.
    """

    polygons: list[Polygon]
    loose: bool
    _output: AffineForms = field(repr=False)

    def __len__(self) -> int:
        return len(self.polygons)

    def corners(self, i: int) -> list[Point]:
        """The corners of a piece, counterclockwise."""
        return [pg.point(at) for at in self.polygons[i]]

    @property
    def areas(self) -> list[Fraction]:
        """In plane coordinates; a triangle's own is 1/2."""
        return [pg.area(shape) for shape in self.polygons]

    def affine(self, i: int) -> list[tuple[Fraction, Fraction, Fraction]]:
        """Every element of the output as (c, a, b): it is c + a s + b t on that piece."""
        rows = self._output.numerators[:, :, i].tolist()
        return [
            (
                make_fraction(c, self._output.denominator),
                make_fraction(a, self._output.denominator),
                make_fraction(b, self._output.denominator),
            )
            for c, a, b in rows
        ]

    def values(self, i: int) -> list[list[Fraction]]:
        """The output at every corner of a piece."""
        return [[c + a * s + b * t for c, a, b in self.affine(i)] for s, t in self.corners(i)]

    def breaks(self, a: Point, b: Point) -> list[Fraction]:
        """Where a line from a to b goes from one piece to another, 0 and 1 included; it may run along no edge."""
        ends = {Fraction(0), Fraction(1)}
        start, stop = pg.corner(*a), pg.corner(*b)
        for shape in self.polygons:
            low, high = Fraction(0), Fraction(1)
            for one, two in zip(shape, shape[1:] + shape[:1], strict=True):
                first, last = (Fraction(pg.turn(one, two, at), at[0]) for at in (start, stop))
                if first < 0 or last < 0:
                    meet = first / (first - last) if first != last else Fraction(-1)  # parallel: never inside
                    low, high = (max(low, meet), high) if first < last else (low, min(high, meet))
            if low < high:
                ends |= {low, high}
        return sorted(ends)


def coordinates(vertices: Tensor) -> list[Point]:  # (k, *in)
    """The plane coordinates of vertices that lie exactly in the plane of the first three; else `ValueError`."""
    rows = [read_rationals(v).fractions for v in vertices]
    origin = rows[0]
    one, two = ([x - o for x, o in zip(row, origin, strict=True)] for row in rows[1:3])
    pairs = combinations([k for k in range(len(origin)) if one[k] or two[k]], 2)
    base = next(((i, j) for i, j in pairs if one[i] * two[j] != one[j] * two[i]), None)
    if base is None:
        raise ValueError("three vertices on one line")
    i, j = base
    det = one[i] * two[j] - one[j] * two[i]
    points: list[Point] = []
    for row in rows:
        x = [a - o for a, o in zip(row, origin, strict=True)]
        s, t = (x[i] * two[j] - x[j] * two[i]) / det, (one[i] * x[j] - one[j] * x[i]) / det
        if any(v != s * a + t * b for v, a, b in zip(x, one, two, strict=True)):
            raise ValueError("vertices not in one plane")
        points.append((s, t))
    return points


def restrict_plane(network: Network, vertices: Tensor) -> ExactPlane:  # (k, *in)
    """Every piece of a network of one input on a convex polygon, exactly."""
    (start,) = network.inputs
    walk = cells.Walk({start: _plane_forms(vertices)}, [pg.polygon(coordinates(vertices))])
    (out,) = network.outputs
    last = network.last_use(network.outputs)
    for i, node in enumerate(network.nodes):
        if i not in last:
            walk.live.pop(i, None)
            continue
        if isinstance(node.op, Breaking):
            source = node.inputs[0]
            match make_rule(node, network.nodes[source].shape):
                case PointwiseRule() as rule:
                    walk.live[i] = cells.pointwise(walk, rule, source)
                case MaximumRule() as rule:
                    walk.live[i] = cells.maximum(walk, rule, source)
                case OrderRule() as rule:
                    walk.live[i] = cells.order(walk, rule, source)
        elif not isinstance(node.op, Input):
            walk.live[i] = evaluate_affine(
                node, [AffineInput(walk.live[j], network.nodes[j].shape) for j in node.inputs]
            )
        for j in set(node.inputs):
            if last[j] == i:
                del walk.live[j]
    return ExactPlane(walk.polygons, walk.loose, walk.live[out])


def _plane_forms(vertices: Tensor) -> AffineForms:
    rows = [read_rationals(v) for v in vertices[:3]]
    bottom = lcm(*(row.denominator for row in rows))
    origin, one, two = (row.numerators * (bottom // row.denominator) for row in rows)
    return AffineForms(np.stack([origin, one - origin, two - origin], axis=1)[:, :, None], bottom)
