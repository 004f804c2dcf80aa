"""Validation of results that were read from files: their arrays must be consistent before anything uses them."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import torch

from ..tolerances import GEOMETRY_TOLERANCE, OFF_PLANE_TOLERANCE
from .codec import LAYER_ARRAYS, LINE_ARRAYS, LINE_FACTS, PLANE_ARRAYS, PLANE_FACTS, Fact
from .plane import PlaneRestriction
from .restriction import Restriction


def check_line_arrays(line: Restriction) -> None:
    """Raise ValueError if the arrays of a line are inconsistent."""
    count = len(line.alphas)
    for field in LINE_ARRAYS[1:]:
        tensor = getattr(line, field.attribute)
        rows = max(count - 1, 0) if field.attribute == "ambiguous_per_piece" else count
        if tensor.shape != (rows, *field.row_shape) or tensor.dtype != field.dtype:
            raise ValueError(f"{field.name} is {tuple(tensor.shape)}, not {(rows, *field.row_shape)}")
    is_ascending = bool((line.alphas[1:] > line.alphas[:-1]).all()) and bool(torch.isfinite(line.alphas).all())
    if line.alphas.dtype != torch.float64 or line.alphas.dim() != 1 or not is_ascending:
        raise ValueError("alphas are not in ascending order")
    errors = line.stored_errors
    if errors is not None and (errors.shape != (count,) or errors.dtype != torch.float64 or bool((errors < 0).any())):
        raise ValueError("errors does not match the breaks")
    values = line.stored_values
    if values is not None and (not values or any(len(v) != count for v in values)):
        raise ValueError("the number of values is not the number of breaks")
    starts, ends = line.lines.starts, line.lines.ends
    if not starts or [t.shape for t in starts] != [t.shape for t in ends] or any(len(t) != 1 for t in starts):
        raise ValueError("the end points of the line are missing")
    if not all(bool(torch.isfinite(t).all()) for t in (*starts, *ends, *(values or ()))):
        raise ValueError("values or end points are not finite")
    _check_origins(line, count)
    _check_layers(line)
    _check_facts(line, LINE_FACTS)


def check_plane_arrays(plane: PlaneRestriction) -> None:
    """Raise ValueError if the arrays of a plane are inconsistent."""
    if not plane.vertices or any(len(v) != len(plane.outline) for v in plane.vertices) or len(plane.outline) < 3:
        raise ValueError("the vertices are missing")
    width = sum(v[0].numel() for v in plane.vertices)
    corners, edges, count = len(plane.weights), len(plane.edges), len(plane.offsets) - 1
    shapes = {
        "outline": (len(plane.vertices[0]), 2),
        "origin": (width,),
        "axes": (2, width),
        "weights": (corners, len(plane.outline)),
        "edges": (edges, 2),
        "births": (edges, 3),
        "sides": (edges, 2),
        "offsets": (count + 1,),
        "rings": (len(plane.rings),),
    }
    for field in PLANE_ARRAYS:
        tensor, shape = getattr(plane, field.attribute), shapes[field.name]
        if tuple(tensor.shape) != shape or tensor.dtype != field.dtype:
            raise ValueError(f"{field.name} is {tuple(tensor.shape)}, not {shape}")
        if field.dtype == torch.float64 and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{field.name} holds numbers that are not finite")
    sizes = plane.offsets.diff()
    if count < 1 or int(plane.offsets[0]) != 0 or int(plane.offsets[-1]) != len(plane.rings) or bool((sizes < 3).any()):
        raise ValueError("offsets and rings are inconsistent")
    for name, low, high in (("edges", 0, corners), ("rings", 0, corners), ("sides", -1, count)):
        tensor = getattr(plane, name)
        if tensor.numel() and (int(tensor.min()) < low or int(tensor.max()) >= high):
            raise ValueError(f"{name} has indices out of range")
    values = plane.stored_values
    if values is not None and (not values or any(len(v) != corners or v.dtype != plane.dtype for v in values)):
        raise ValueError("the values do not match the corners")
    _check_origins(plane, edges)
    _check_facts(plane, PLANE_FACTS)
    _check_rings(plane)
    _check_geometry(plane)


def _check_origins(result: Restriction | PlaneRestriction, count: int) -> None:
    nodes = result.origin_table[:, 0]
    if count and (int(nodes.min()) < -1 or int(nodes.max()) >= len(result.names)):
        raise ValueError("births has node indices out of range")


def _check_layers(line: Restriction) -> None:
    if line.layers is None:
        return
    columns = [getattr(line.layers, name) for name in LAYER_ARRAYS]
    count = len(columns[0]) if columns[0].dim() == 1 else -1
    if any(c.shape != (count,) or c.dtype != torch.int64 or bool((c < 0).any()) for c in columns):
        raise ValueError("layers are not columns of counts")
    if count and int(line.layers.node.max()) >= len(line.names):
        raise ValueError("layers has node indices out of range")
    if bool((line.layers.dead + line.layers.always_on > line.layers.units).any()):
        raise ValueError("layers has more units than there are")


def _check_facts(result: Any, facts: tuple[Fact, ...]) -> None:
    wrong = [fact.name for fact in facts if not isinstance(getattr(result, fact.attribute), fact.types)]
    wrong += ["names"] * (not all(isinstance(name, str) for name in (*result.names, *result.units)))
    wrong += ["units"] * (not all(isinstance(count, int) and count >= 0 for count in result.units.values()))
    if wrong or not isfinite(result.seconds):
        raise ValueError(f"{(wrong or ['seconds'])[0]} has a wrong type or value")


def _check_rings(plane: PlaneRestriction) -> None:
    """Raise ValueError unless the edges are exactly the sides of the polygons."""
    offsets, rings, ends, sides = (getattr(plane, n).numpy() for n in ("offsets", "rings", "edges", "sides"))
    successor = np.arange(len(rings)) + 1
    successor[offsets[1:] - 1] = offsets[:-1]
    by_ring = np.stack([np.arange(len(offsets) - 1).repeat(np.diff(offsets)), rings, rings[successor]], 1)
    by_edge = np.concatenate([np.column_stack([sides[:, 0], ends]), np.column_stack([sides[:, 1], ends[:, ::-1]])])
    by_edge = by_edge[by_edge[:, 0] >= 0]
    if len(by_ring) != len(by_edge) or (by_ring[np.lexsort(by_ring.T)] != by_edge[np.lexsort(by_edge.T)]).any():
        raise ValueError("edges and polygons are inconsistent")
    if (sides[:, 0] == sides[:, 1]).any() or (ends[:, 0] == ends[:, 1]).any():
        raise ValueError("an edge is degenerate")


def _check_geometry(plane: PlaneRestriction) -> None:
    """Raise ValueError if the outline does not match the vertices, or the polygons do not fill it."""
    if any(v.dtype != torch.float64 or not bool(torch.isfinite(v).all()) for v in plane.vertices):
        raise ValueError("the vertices are not finite float64 numbers")
    if not plane.extent > 0:
        raise ValueError("the outline has no extent")
    flat = torch.cat([v.flatten(1) for v in plane.vertices], 1) / plane.extent
    gap = (flat - plane.origin / plane.extent) @ plane.axes.T - plane.outline / plane.extent
    if not float(gap.abs().max()) <= GEOMETRY_TOLERANCE + OFF_PLANE_TOLERANCE * float(flat.abs().max()):
        raise ValueError("the outline does not match the vertices")
    excess, low = (plane.weights.sum(1) - 1).abs().max(), plane.weights.min()
    if not float(excess) <= GEOMETRY_TOLERANCE or float(low) < -GEOMETRY_TOLERANCE:
        raise ValueError("the weights are not convex combinations")
    if not abs(float(plane.shares.sum()) - 1) <= GEOMETRY_TOLERANCE or float(plane.shares.min()) < -GEOMETRY_TOLERANCE:
        raise ValueError("the polygons do not fill the outline")
