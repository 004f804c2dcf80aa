"""What must hold for a network on a polygon: each truth as a function that tells what is wrong, by assertion."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import exactline as xl
from exactline.network.graph import Network
from tests.oracle import polygons as pg
from tests.oracle.plane import ExactPlane

AREA = 1e-10  # relative to the whole
VALUE = 1e-11  # relative to the largest value
PLACE = 1e-9  # of a corner, relative to the polygon's extent; and of a break, in alpha


def axes_of(vertices: Tensor) -> Tensor:  # (k, *in) -> (2, in)
    """The plane's own axes: towards the second vertex, and at a right angle to it towards the third."""
    flat = vertices.reshape(len(vertices), -1)
    one, two = flat[1] - flat[0], flat[2] - flat[0]
    first = one / one.norm()
    second = two - (two @ first) * first
    second = second - (second @ first) * first  # twice: what rounding left
    return torch.stack([first, second / second.norm()])


def coordinates(vertices: Tensor, points: Tensor) -> Tensor:  # (n, *in) -> (n, 2)
    """Plane coordinates of inputs that lie in the plane."""
    return (points - vertices[0]).reshape(len(points), -1) @ axes_of(vertices).T


def sample(vertices: Tensor, count: int, generator: torch.Generator) -> Tensor:  # (count, *in)
    """Inputs inside a polygon, at random."""
    weights = -torch.rand(count, len(vertices), generator=generator, dtype=torch.float64).clamp(min=1e-9).log()
    return torch.tensordot(weights / weights.sum(1, keepdim=True), vertices, 1)


def rings(plane: Any) -> list[Tensor]:
    """The corners (c, 2) of every polygon."""
    return [torch.as_tensor(plane.polygon(i).corners) for i in range(len(plane))]


def signed_area(ring: Tensor) -> float:  # (c, 2)
    x, y = (ring - ring[0]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)


def fills_the_whole(plane: Any, vertices: Tensor) -> None:
    """Areas are positive and sum to the polygon's own; each is what its corners say."""
    whole = abs(signed_area(coordinates(vertices, vertices)))
    own = torch.tensor([signed_area(ring) for ring in rings(plane)], dtype=torch.float64)
    assert len(plane.areas) == len(plane)
    assert bool((plane.areas > 0).all()), "a polygon without area"
    assert float((own - plane.areas).abs().max()) <= 1e-13 * whole, "areas are not those of the corners"
    assert abs(float(plane.areas.sum()) - whole) <= AREA * whole


def is_convex(plane: Any) -> None:
    """Every polygon turns left at every corner, or not at all."""
    for i, ring in enumerate(rings(plane)):
        way = ring.roll(-1, 0) - ring
        turn = way.roll(1, 0)[:, 0] * way[:, 1] - way.roll(1, 0)[:, 1] * way[:, 0]
        slack = 1e-12 * float((ring.amax(0) - ring.amin(0)).square().sum()) + 1e-14 * float(ring.abs().max()) ** 2
        assert bool((turn >= -slack).all()), f"polygon {i} is not convex"


def edges_fit(plane: Any) -> None:
    """Every edge has a polygon on each side or is on the outline, and the mesh is that of a disc."""
    edges, sides, corners = plane.edges, plane.sides, plane.corners
    count = torch.zeros(len(plane), dtype=torch.int64)
    centre = torch.stack([ring.mean(0) for ring in rings(plane)])
    for column, way in ((0, 1.0), (1, -1.0)):
        here = sides[:, column] >= 0
        a, b, c = corners[edges[here, 0]], corners[edges[here, 1]], centre[sides[here, column]]
        cross = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
        assert bool((way * cross > 0).all()), "a polygon is on the wrong side of its edge"
        count.index_add_(0, sides[here, column], torch.ones(int(here.sum()), dtype=torch.int64))
    assert bool(((sides >= 0).sum(1) >= 1).all())
    assert count.tolist() == [len(ring) for ring in rings(plane)], "polygons and edges do not tell of the same sides"
    assert len(corners) - len(edges) + len(plane) == 1, "Euler's formula"
    for e in range(len(edges)):
        outer = bool((sides[e] < 0).any())
        assert (plane.origins[e] is None) == outer, f"edge {e}: born {plane.origins[e]}, sides {sides[e].tolist()}"


def is_disjoint(plane: Any, generator: torch.Generator, most: int = 400) -> None:
    """A point inside one polygon is located there, and is strictly inside no other."""
    shapes = rings(plane)
    parts = [torch.rand(len(ring), generator=generator, dtype=torch.float64) + 0.2 for ring in shapes]
    inside = torch.stack([(p / p.sum()) @ ring for p, ring in zip(parts, shapes, strict=True)])
    assert plane.locate(inside).tolist() == list(range(len(plane))), "points are located in other polygons"
    extent = float((plane.corners.amax(0) - plane.corners.amin(0)).max())
    for i in torch.randperm(len(shapes), generator=generator)[:most].tolist():
        a = shapes[i]
        way = a.roll(-1, 0) - a
        gap = inside[:, None] - a
        depth = (way[:, 0] * gap[..., 1] - way[:, 1] * gap[..., 0]) / way.norm(dim=1)
        holds = torch.nonzero((depth > 1e-13 * extent).all(1))[:, 0].tolist()
        assert set(holds) <= {i}, f"polygons {i} and {holds} overlap"


def equals_the_network(plane: Any, network: Network, vertices: Tensor, generator: torch.Generator, count: int) -> None:
    """At random points the located polygon holds the point and interpolates the network's own value."""
    points = sample(vertices, count, generator)
    places = coordinates(vertices, points)
    truth = network(points)
    assert isinstance(truth, Tensor)
    size = 1e-300 + float(truth.abs().max())
    assert float((plane.at(places) - truth).abs().max()) <= VALUE * size
    assert float((plane.values - network(plane.points)).abs().max()) <= VALUE * size
    extent = float((plane.corners.amax(0) - plane.corners.amin(0)).max())
    shapes = rings(plane)
    for i, place in zip(plane.locate(places[:200]).tolist(), places[:200], strict=True):
        way = shapes[i].roll(-1, 0) - shapes[i]
        gap = place - shapes[i]
        depth = (way[:, 0] * gap[:, 1] - way[:, 1] * gap[:, 0]) / way.norm(dim=1)
        assert float(depth.min()) >= -1e-12 * extent, f"located in polygon {i}, which is elsewhere"


def maps_are_affine(plane: Any, network: Network, vertices: Tensor, most: int = 8) -> None:
    """A x + b is the network on a polygon's inside, and at its corners."""
    largest = 1e-300 + float(plane.values.abs().max())
    for i in range(0, len(plane), max(1, len(plane) // most)):
        piece = plane.polygon(i)
        A, b = piece.affine()
        points = plane.points[piece.indices]
        points = torch.cat([points, points.mean(0, keepdim=True)])
        truth = network(points)
        assert isinstance(truth, Tensor)
        found = points.reshape(len(points), -1) @ A.reshape(truth[0].numel(), -1).T + b.reshape(-1)
        size = largest + float(A.abs().sum() * points.abs().max())
        assert float((found - truth.reshape(len(truth), -1)).abs().max()) <= VALUE * size
        assert float((piece.values - truth[:-1]).abs().max()) <= VALUE * size


def corners_are_mixtures(plane: Any, vertices: Tensor) -> None:
    """Weights are shares of the vertices and tell the same points as the plane's coordinates."""
    scale = float(vertices.abs().max())
    assert plane.weights.shape == (len(plane.corners), len(vertices))
    assert float(plane.weights.min()) >= -1e-14
    assert float((plane.weights.sum(1) - 1).abs().max()) <= 1e-13
    points = torch.tensordot(plane.weights, vertices, 1)
    assert float((points - plane.points).abs().max()) <= 1e-13 * scale
    assert float((coordinates(vertices, points) - plane.corners).abs().max()) <= 1e-12 * scale * vertices[0].numel()


def lines_agree(plane: Any, network: Network, vertices: Tensor, generator: torch.Generator, count: int) -> None:
    """Lines read off the polygons have exactly the breaks that a restriction to the line finds."""
    starts, stops = sample(vertices, count, generator), sample(vertices, count, generator)
    ends = coordinates(vertices, starts), coordinates(vertices, stops)
    truths = xl.restrict_many(network, starts, stops)
    for k in range(count):
        line, truth = plane.line(ends[0][k], ends[1][k]), truths[k]
        assert len(line.alphas) == len(truth.alphas), f"line {k}: {line.alphas.tolist()} and {truth.alphas.tolist()}"
        assert float((line.alphas - truth.alphas).abs().max()) <= PLACE
        size = 1e-300 + float(truth.values.abs().max())
        assert float((line.values - truth.values).abs().max()) <= PLACE * size


def equals_the_oracle(plane: Any, exact: ExactPlane, vertices: Tensor) -> None:
    """As many polygons as the rational count, each with its area, corners and values."""
    assert len(plane) == len(exact), f"{len(plane)} polygons where the truth has {len(exact)}"
    frame = torch.stack([vertices[1] - vertices[0], vertices[2] - vertices[0]])
    turned = coordinates(vertices, vertices[0] + frame)  # plane coordinates of one unit of s and of t
    unit = abs(float(torch.linalg.det(turned)))
    areas = torch.tensor([float(area) for area in exact.areas], dtype=torch.float64) * unit
    whole = float(areas.sum())
    assert float((areas.sort().values - plane.areas.sort().values).abs().max()) <= AREA * whole
    middles = torch.tensor([[float(v) for v in pg.centre(shape)] for shape in exact.polygons], dtype=torch.float64)
    home = plane.locate(middles @ turned)
    assert sorted(home.tolist()) == list(range(len(plane))), "polygons do not match one to one"
    assert float((plane.areas[home] - areas).abs().max()) <= AREA * whole
    extent = float(np.ptp(plane.corners.numpy(), axis=0).max())
    for i, j in enumerate(home.tolist()):
        piece = plane.polygon(j)
        corners = torch.tensor([[float(v) for v in at] for at in exact.corners(i)], dtype=torch.float64) @ turned
        # where regions of an order statistic were joined, a neighbour's corner may lie on a straight side
        assert len(piece.corners) >= len(corners), f"polygon {j} has {len(piece.corners)} corners, not {len(corners)}"
        gap, which = torch.cdist(corners, piece.corners).min(1)
        assert float(gap.max()) <= PLACE * extent
        values = torch.tensor([[float(v) for v in row] for row in exact.values(i)], dtype=torch.float64)
        found = piece.values.reshape(len(piece.corners), -1)[which]
        assert float((found - values).abs().max()) <= PLACE * (1e-300 + float(values.abs().max()) + 1)
