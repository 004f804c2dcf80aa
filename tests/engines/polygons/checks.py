"""Properties of every restriction to a polygon, each as a function of assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import exactline as xl
from exactline.network.graph import Network
from tests.oracle import polygons as pg
from tests.oracle.plane import ExactPlane

AREA_TOLERANCE = 1e-10  # relative to the whole
VALUE_TOLERANCE = 1e-11  # relative to the largest value
POSITION_TOLERANCE = 1e-9  # of a corner relative to the polygon's extent, and of a break in alpha


def plane_axes(vertices: Tensor) -> Tensor:  # (k, *in) -> (2, in)
    """The axes of the plane: towards the second vertex, and perpendicular to it towards the third."""
    flat = vertices.reshape(len(vertices), -1)
    one, two = flat[1] - flat[0], flat[2] - flat[0]
    first = one / one.norm()
    second = two - (two @ first) * first
    second = second - (second @ first) * first  # a second time, because of rounding
    return torch.stack([first, second / second.norm()])


def coordinates(vertices: Tensor, points: Tensor) -> Tensor:  # (n, *in) -> (n, 2)
    """Plane coordinates of inputs that lie in the plane."""
    return (points - vertices[0]).reshape(len(points), -1) @ plane_axes(vertices).T


def sample_points(vertices: Tensor, count: int, generator: torch.Generator) -> Tensor:  # (count, *in)
    """Random inputs inside a polygon."""
    weights = -torch.rand(count, len(vertices), generator=generator, dtype=torch.float64).clamp(min=1e-9).log()
    return torch.tensordot(weights / weights.sum(1, keepdim=True), vertices, 1)


def rings(plane: Any) -> list[Tensor]:
    """The corners (c, 2) of every polygon."""
    return [torch.as_tensor(plane.polygon(i).corners) for i in range(len(plane))]


def signed_area(ring: Tensor) -> float:  # (c, 2)
    x, y = (ring - ring[0]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)


def check_areas(plane: Any, vertices: Tensor) -> None:
    """Areas are positive, sum to the area of the given polygon, and agree with the corners."""
    whole = abs(signed_area(coordinates(vertices, vertices)))
    own = torch.tensor([signed_area(ring) for ring in rings(plane)], dtype=torch.float64)
    assert len(plane.areas) == len(plane)
    assert bool((plane.areas > 0).all()), "a polygon without area"
    assert float((own - plane.areas).abs().max()) <= 1e-13 * whole, "areas are not those of the corners"
    assert abs(float(plane.areas.sum()) - whole) <= AREA_TOLERANCE * whole


def check_convexity(plane: Any) -> None:
    """Every polygon turns left or goes straight at every corner."""
    for i, ring in enumerate(rings(plane)):
        side = ring.roll(-1, 0) - ring
        turn = side.roll(1, 0)[:, 0] * side[:, 1] - side.roll(1, 0)[:, 1] * side[:, 0]
        slack = 1e-12 * float((ring.amax(0) - ring.amin(0)).square().sum()) + 1e-14 * float(ring.abs().max()) ** 2
        assert bool((turn >= -slack).all()), f"polygon {i} is not convex"


def check_edges(plane: Any) -> None:
    """Every edge has a polygon on each side or is on the outline, and Euler's formula holds."""
    edges, sides, corners = plane.edges, plane.sides, plane.corners
    count = torch.zeros(len(plane), dtype=torch.int64)
    centroid = torch.stack([ring.mean(0) for ring in rings(plane)])
    for column, sign in ((0, 1.0), (1, -1.0)):
        here = sides[:, column] >= 0
        a, b, c = corners[edges[here, 0]], corners[edges[here, 1]], centroid[sides[here, column]]
        cross = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
        assert bool((sign * cross > 0).all()), "a polygon is on the wrong side of its edge"
        count.index_add_(0, sides[here, column], torch.ones(int(here.sum()), dtype=torch.int64))
    assert bool(((sides >= 0).sum(1) >= 1).all())
    assert count.tolist() == [len(ring) for ring in rings(plane)], "polygons and edges have different numbers of sides"
    assert len(corners) - len(edges) + len(plane) == 1, "Euler's formula"
    for e in range(len(edges)):
        outer = bool((sides[e] < 0).any())
        assert (plane.origins[e] is None) == outer, f"edge {e}: origin {plane.origins[e]}, sides {sides[e].tolist()}"


def check_disjoint(plane: Any, generator: torch.Generator, max_polygons: int = 400) -> None:
    """A point inside a polygon is located there, and is strictly inside no other polygon."""
    shapes = rings(plane)
    weights = [torch.rand(len(ring), generator=generator, dtype=torch.float64) + 0.2 for ring in shapes]
    inside = torch.stack([(w / w.sum()) @ ring for w, ring in zip(weights, shapes, strict=True)])
    assert plane.locate(inside).tolist() == list(range(len(plane))), "points are located in other polygons"
    extent = float((plane.corners.amax(0) - plane.corners.amin(0)).max())
    for i in torch.randperm(len(shapes), generator=generator)[:max_polygons].tolist():
        ring = shapes[i]
        side = ring.roll(-1, 0) - ring
        offset = inside[:, None] - ring
        depth = (side[:, 0] * offset[..., 1] - side[:, 1] * offset[..., 0]) / side.norm(dim=1)
        contains = torch.nonzero((depth > 1e-13 * extent).all(1))[:, 0].tolist()
        assert set(contains) <= {i}, f"polygons {i} and {contains} overlap"


def check_values(plane: Any, network: Network, vertices: Tensor, generator: torch.Generator, count: int) -> None:
    """At random points, the located polygon contains the point and interpolates the network's value."""
    points = sample_points(vertices, count, generator)
    positions = coordinates(vertices, points)
    truth = network(points)
    assert isinstance(truth, Tensor)
    size = 1e-300 + float(truth.abs().max())
    assert float((plane.at(positions) - truth).abs().max()) <= VALUE_TOLERANCE * size
    assert float((plane.values - network(plane.points)).abs().max()) <= VALUE_TOLERANCE * size
    extent = float((plane.corners.amax(0) - plane.corners.amin(0)).max())
    shapes = rings(plane)
    for i, position in zip(plane.locate(positions[:200]).tolist(), positions[:200], strict=True):
        side = shapes[i].roll(-1, 0) - shapes[i]
        offset = position - shapes[i]
        depth = (side[:, 0] * offset[:, 1] - side[:, 1] * offset[:, 0]) / side.norm(dim=1)
        assert float(depth.min()) >= -1e-12 * extent, f"located in polygon {i}, which does not contain the point"


def check_affine_maps(plane: Any, network: Network, vertices: Tensor, max_polygons: int = 8) -> None:
    """The affine map A x + b of a polygon is the network at its corners and inside it."""
    largest = 1e-300 + float(plane.values.abs().max())
    for i in range(0, len(plane), max(1, len(plane) // max_polygons)):
        piece = plane.polygon(i)
        A, b = piece.affine()
        points = plane.points[piece.indices]
        points = torch.cat([points, points.mean(0, keepdim=True)])
        truth = network(points)
        assert isinstance(truth, Tensor)
        mapped = points.reshape(len(points), -1) @ A.reshape(truth[0].numel(), -1).T + b.reshape(-1)
        size = largest + float(A.abs().sum() * points.abs().max())
        assert float((mapped - truth.reshape(len(truth), -1)).abs().max()) <= VALUE_TOLERANCE * size
        assert float((piece.values - truth[:-1]).abs().max()) <= VALUE_TOLERANCE * size


def check_weights(plane: Any, vertices: Tensor) -> None:
    """Convex weights and plane coordinates give the same points."""
    scale = float(vertices.abs().max())
    assert plane.weights.shape == (len(plane.corners), len(vertices))
    assert float(plane.weights.min()) >= -1e-14
    assert float((plane.weights.sum(1) - 1).abs().max()) <= 1e-13
    points = torch.tensordot(plane.weights, vertices, 1)
    assert float((points - plane.points).abs().max()) <= 1e-13 * scale
    assert float((coordinates(vertices, points) - plane.corners).abs().max()) <= 1e-12 * scale * vertices[0].numel()


def check_lines(plane: Any, network: Network, vertices: Tensor, generator: torch.Generator, count: int) -> None:
    """Lines through the polygons have exactly the breaks of a restriction to the line."""
    starts, ends = sample_points(vertices, count, generator), sample_points(vertices, count, generator)
    positions = coordinates(vertices, starts), coordinates(vertices, ends)
    truths = xl.restrict_many(network, starts, ends)
    for k in range(count):
        line, truth = plane.line(positions[0][k], positions[1][k]), truths[k]
        assert len(line.alphas) == len(truth.alphas), f"line {k}: {line.alphas.tolist()} and {truth.alphas.tolist()}"
        assert float((line.alphas - truth.alphas).abs().max()) <= POSITION_TOLERANCE
        size = 1e-300 + float(truth.values.abs().max())
        assert float((line.values - truth.values).abs().max()) <= POSITION_TOLERANCE * size


def check_against_oracle(plane: Any, exact: ExactPlane, vertices: Tensor) -> None:
    """The polygons are those of the rational oracle, with their areas, corners and values."""
    assert len(plane) == len(exact), f"{len(plane)} polygons where the truth has {len(exact)}"
    frame = torch.stack([vertices[1] - vertices[0], vertices[2] - vertices[0]])
    axes = coordinates(vertices, vertices[0] + frame)  # plane coordinates of the unit vectors of s and of t
    unit = abs(float(torch.linalg.det(axes)))
    areas = torch.tensor([float(area) for area in exact.areas], dtype=torch.float64) * unit
    whole = float(areas.sum())
    assert float((areas.sort().values - plane.areas.sort().values).abs().max()) <= AREA_TOLERANCE * whole
    centroids = torch.tensor([[float(v) for v in pg.centre(shape)] for shape in exact.polygons], dtype=torch.float64)
    located = plane.locate(centroids @ axes)
    assert sorted(located.tolist()) == list(range(len(plane))), "polygons do not match one to one"
    assert float((plane.areas[located] - areas).abs().max()) <= AREA_TOLERANCE * whole
    extent = float(np.ptp(plane.corners.numpy(), axis=0).max())
    for i, j in enumerate(located.tolist()):
        piece = plane.polygon(j)
        corners = torch.tensor([[float(v) for v in at] for at in exact.corners(i)], dtype=torch.float64) @ axes
        # where regions of an order statistic were merged, a neighbour's corner may lie on a straight side
        assert len(piece.corners) >= len(corners), f"polygon {j} has {len(piece.corners)} corners, not {len(corners)}"
        distance, which = torch.cdist(corners, piece.corners).min(1)
        assert float(distance.max()) <= POSITION_TOLERANCE * extent
        values = torch.tensor([[float(v) for v in row] for row in exact.values(i)], dtype=torch.float64)
        actual = piece.values.reshape(len(piece.corners), -1)[which]
        assert float((actual - values).abs().max()) <= POSITION_TOLERANCE * (1e-300 + float(values.abs().max()) + 1)
