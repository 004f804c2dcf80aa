"""Metrics of a plane: its regions, their areas and perimeters, and slopes and variation of the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..humanize import count_noun
from ..tolerances import VALUE_ERROR_ROUNDINGS
from .refined_maximum import refined_maximum

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction


@dataclass(frozen=True, eq=False)
class PlaneMetrics:
    """What a network does on a polygon of a plane, exactly; lengths are in input units, areas in their squares.

    >>> import exactline as xl
    >>> square = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]
    >>> print(xl.restrict_plane(torch.nn.ReLU(), square).metrics())
    4 regions on an area of 4, 1 for each unit of area
    boundaries between them: relu 4
    """

    regions: int
    area: float  # of the whole
    region_density: float  # regions for each unit of area
    areas: Tensor  # (regions,)
    perimeters: Tensor  # (regions,)
    boundary_lengths: dict[str, float]  # by node: the length of all edges inside the plane that originate from it
    total_variation: Tensor | None  # (outputs,) the integral of the length of the gradient; None without values
    lipschitz: Tensor | None  # (outputs,) the largest length of a gradient in the plane
    mean: Tensor | None  # (outputs,) the mean over the area

    def __str__(self) -> str:
        lengths = ", ".join(f"{node} {length:.4g}" for node, length in self.boundary_lengths.items()) or "none"
        return (
            f"{count_noun(self.regions, 'region')} on an area of {self.area:.4g}, "
            f"{self.region_density:.4g} for each unit of area\nboundaries between them: {lengths}"
        )

    def __repr__(self) -> str:
        return f"<PlaneMetrics: {count_noun(self.regions, 'region')} on an area of {self.area:.4g}>"

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain lists and numbers, for JSON."""
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in vars(self).items()}


def measure_plane(plane: PlaneRestriction) -> PlaneMetrics:
    """Measure a plane; see `PlaneRestriction.metrics`."""
    ends = plane.corners[plane.edges]  # (edges, 2, 2)
    lengths = torch.linalg.vector_norm(ends[:, 1] - ends[:, 0], dim=1)
    perimeters = torch.zeros(len(plane) + 1, dtype=torch.float64)  # the last one is outside
    for side in plane.sides.unbind(1):
        perimeters.index_add_(0, torch.where(side < 0, len(plane), side), lengths)
    nodes = plane.origin_table[:, 0]
    sums = torch.zeros(len(plane.names) + 1, dtype=torch.float64).index_add_(0, nodes + 1, lengths)[1:]
    present = sorted({int(node) for node in nodes.unique() if node >= 0})
    outputs = None if plane.stored_values is None and plane.network is None else _measure_outputs(plane)
    return PlaneMetrics(
        regions=len(plane),
        area=plane.area,
        region_density=len(plane) / plane.area,
        areas=plane.areas,
        perimeters=perimeters[:-1],
        boundary_lengths={plane.names[node]: float(sums[node]) for node in present},
        total_variation=None if outputs is None else outputs[0],
        lipschitz=None if outputs is None else outputs[1],
        mean=None if outputs is None else outputs[2],
    )


def _measure_outputs(plane: PlaneRestriction) -> tuple[Tensor, Tensor, Tensor]:
    """Total variation, largest gradient and mean of all outputs, side by side, (outputs,) each."""
    every = plane.values_at(torch.arange(len(plane.weights)))
    values = torch.cat([v.reshape(len(v), -1) for v in (every if isinstance(every, tuple) else (every,))], 1)
    triangles = _Triangles.make(plane, values.to(torch.float64).numpy())
    lengths, errors = triangles.gradient_lengths(plane)
    # a sliver adds to the variation no more than the error of a value times its extent
    variation = (plane.areas.numpy()[:, None] * lengths).sum(0)
    steepest = lengths.max(0)
    if plane.network is not None:
        steepest = refined_maximum(lengths, errors, partial(_affine_gradient_lengths, plane))
    mean = triangles.integrals().sum(0) / plane.area
    return torch.from_numpy(variation), torch.from_numpy(steepest), torch.from_numpy(mean)


@dataclass(frozen=True, eq=False)
class _Triangles:
    """Every region as a fan of triangles around its first corner."""

    region: Ints  # (triangles,)
    sides: Floats  # (triangles, 2, 2) from the first corner to the two others
    rises: Floats  # (triangles, 2, outputs) of the values along the sides
    base: Floats  # (triangles, outputs) values at the first corner

    @staticmethod
    def make(plane: PlaneRestriction, values: Floats) -> _Triangles:
        offsets, rings = plane.offsets.numpy(), plane.rings.numpy()
        counts = np.diff(offsets) - 2
        region = np.arange(len(counts)).repeat(counts)
        step = np.arange(len(region)) - (counts.cumsum() - counts)[region] + 1
        first = offsets[:-1][region]
        corner = np.stack([rings[first], rings[first + step], rings[first + step + 1]], 1)
        at, value = plane.corners.numpy()[corner], values[corner]
        return _Triangles(region, at[:, 1:] - at[:, :1], value[:, 1:] - value[:, :1], value[:, 0])

    @property
    def doubled_areas(self) -> Floats:
        """(triangles,)."""
        a, b = self.sides[:, 0], self.sides[:, 1]
        return np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])

    def integrals(self) -> Floats:
        """(triangles, outputs) of the outputs over each triangle: its area times the mean of its corners."""
        return (self.doubled_areas / 2)[:, None] * (self.base + self.rises.sum(1) / 3)

    def gradient_lengths(self, plane: PlaneRestriction) -> tuple[Floats, Floats]:
        """Lengths of gradients from the largest triangle of each region, (regions, outputs), and their errors.

        Errors (regions,) are infinite for slivers whose gradient is lost in rounding.
        """
        order = np.lexsort((-self.doubled_areas, self.region))
        largest = order[np.insert(np.diff(self.region[order]) != 0, 0, True)]
        sides, rises, area = self.sides[largest], self.rises[largest], self.doubled_areas[largest]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            (a, b), (c, d) = sides[:, 0].T, sides[:, 1].T
            x = (d[:, None] * rises[:, 0] - b[:, None] * rises[:, 1]) / area[:, None]
            y = (a[:, None] * rises[:, 1] - c[:, None] * rises[:, 0]) / area[:, None]
            size = float(np.abs(self.base).max(initial=0.0) + np.abs(self.rises).max(initial=0.0))
            error = VALUE_ERROR_ROUNDINGS * float(torch.finfo(plane.dtype).eps) * size
            errors = np.nan_to_num(error * np.abs(sides).max((1, 2)) / area, nan=np.inf)
            return np.nan_to_num(np.hypot(x, y), nan=0.0, posinf=0.0), errors


def _affine_gradient_lengths(plane: PlaneRestriction, regions: Ints) -> Floats:  # (k,) -> (k, outputs)
    """Lengths of gradients in the plane, from the affine maps of some regions."""
    return np.stack([_affine_gradients(plane, region) for region in regions.tolist()])


def _affine_gradients(plane: PlaneRestriction, region: int) -> Floats:  # (outputs,)
    matrices, _ = plane.polygon(region).affine()
    outputs = matrices if plane.several_outputs else (matrices,)
    widths = [v[0].numel() for v in plane.vertices]
    rows = []
    for matrix in outputs:
        parts = matrix if isinstance(matrix, tuple) else (matrix,)
        flat = [part.reshape(-1, width) for part, width in zip(parts, widths, strict=True)]
        rows.append(torch.cat(flat, 1).to(torch.float64) @ plane.axes.T)
    return torch.linalg.vector_norm(torch.cat(rows), dim=1).numpy()
