"""The answer for a plane: its polygons, the values at their corners, and what one asks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index as as_index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..engines.polygons.polygon_input import as_coordinate_rows, as_coordinates
from ..errors import ArgumentError, LineError, MissingError, PlaneError
from ..humanize import count_noun, format_seconds, format_units
from ..lines import Lines, as_points
from ..network.graph import Network
from . import methods
from .locate import Locator
from .polygon import Polygon
from .restriction import Origins, Restriction
from .triangles import polygon_area, triangulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.regions import Regions
    from .plane_check import PlaneCheck

Values = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class PlaneRestriction:
    """A network on a convex polygon of a plane, exactly: ``len(plane)`` convex polygons on which it is affine.

    Plane coordinates are orthonormal, in the units of the input space.

    >>> import exactline as xl
    >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> len(plane), plane.areas.tolist(), plane.at([[1.5, 0.5]]).tolist()
    (4, [1.0, 1.0, 1.0, 1.0], [[0.5, 0.0]])
    """

    vertices: tuple[Tensor, ...]  # (k, *in) each: the corners of the whole
    outline: Tensor  # (k, 2) the same in plane coordinates
    origin: Tensor  # (n,) all inputs in one row: where plane coordinates are 0
    axes: Tensor  # (2, n)
    weights: Tensor  # (corners, k) every corner as a mixture of the vertices
    edges: Tensor  # (edges, 2) corners
    origin_table: Tensor  # (edges, 3) node or -1, unit, count
    sides: Tensor  # (edges, 2) polygons to the left and to the right of an edge, -1 outside
    offsets: Tensor  # (polygons + 1,) where the corners of each polygon begin
    rings: Tensor  # corners of all polygons, counterclockwise, one polygon after another
    stored_values: tuple[Tensor, ...] | None  # (corners, *out) each; None where values were not kept
    names: tuple[str, ...]  # of the network's nodes
    network: Network | None = None
    units: dict[str, int] = field(default_factory=dict)
    several_inputs: bool = False
    several_outputs: bool = False
    dtype: torch.dtype = torch.float64
    seconds: float = 0.0
    ambiguous: int = 0  # pairs of a polygon and a unit that cannot be told from a knot on it
    rewrite: bool = True
    until: str | None = None
    checksum: str = ""  # of the network's numbers, where the network itself is not known

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Polygon]:
        return (self.polygon(i) for i in range(len(self)))

    def polygon(self, index: int) -> Polygon:
        """One polygon: where it lies, its values and its affine map."""
        try:
            number = as_index(index)  # whole numbers of any kind, as locate() gives them
        except TypeError:
            number = len(self)
        if not -len(self) <= number < len(self):
            raise ArgumentError(
                f"There are {len(self)} polygons; {index!r} is not one of them.",
                where="argument index",
                hint=f"Count from 0 to {len(self) - 1}.",
            )
        return Polygon(self, number % len(self))

    @cached_property
    def corners(self) -> Tensor:
        """(corners, 2) plane coordinates."""
        return self.weights @ self.outline

    @property
    def points(self) -> Values:
        """(corners, *in) input points of the corners."""
        return self.mix(self.weights)

    @property
    def values(self) -> Values:
        """(corners, *out) the network's values there, before any smooth tail."""
        if self.stored_values is None:
            raise MissingError(
                "The values were not kept.",
                where="plane.values",
                hint="Call restrict_plane with values=True, or ask plane.at(points).",
            )
        return self.stored_values if self.several_outputs else self.stored_values[0]

    @property
    def origins(self) -> Origins:
        """Which node and unit gave rise to each edge; None on the outline."""
        return Origins(self.origin_table, self.names)

    @property
    def areas(self) -> Tensor:
        """(polygons,) in squared units of the input space."""
        return self._unit_areas * self.extent * self.extent

    @property
    def shares(self) -> Tensor:
        """(polygons,) each area as a share of the whole."""
        return self._unit_areas / polygon_area(self.outline / self.extent)

    @cached_property
    def _unit_areas(self) -> Tensor:
        ring, first = self._unit[self.rings.numpy()], self.offsets[:-1].numpy()
        count = np.diff(self.offsets.numpy())
        base = ring - ring[first].repeat(count, 0)  # about one of its corners, so that small polygons keep their digits
        after = np.arange(len(ring)) + 1
        after[first + count - 1] = first
        cross = base[:, 0] * base[after, 1] - base[:, 1] * base[after, 0]
        return torch.from_numpy(np.add.reduceat(cross, first) / 2)

    @property
    def area(self) -> float:
        """Of the whole."""
        return polygon_area(self.outline / self.extent) * self.extent * self.extent

    def coordinates(self, points: Any) -> Tensor:
        """Plane coordinates (n, 2) of input points (n, *in), dropped straight onto the plane."""
        try:
            given = as_points(points, "points")
        except LineError as problem:
            raise PlaneError(problem.problem, where=problem.where, hint=problem.hint) from problem
        if any(p.dim() == 0 for p in given) or len({len(p) for p in given}) != 1:
            raise PlaneError("How many points?", where="argument points", hint="Give points of shape (n, *in).")
        rows = torch.cat([p.reshape(len(p), p.shape[1:].numel()) for p in given], 1)
        if rows.shape[1] != len(self.origin):
            raise PlaneError(
                f"Input points have {len(self.origin)} numbers, not {rows.shape[1]}.",
                where="argument points",
                hint="Give points of shape (n, *in).",
            )
        return (rows - self.origin) @ self.axes.T

    def locate(self, points: Any) -> Tensor:
        """The polygon that holds each point (n, 2) of the plane, (n,); on an edge one of its two.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.locate(plane.coordinates([[0.5, -0.5]]))
        tensor([2])
        """
        return torch.from_numpy(self._locate(as_coordinate_rows(points)))

    def at(self, points: Any, *, tail: bool = False) -> Values:
        """The network's exact values (n, *out) at points (n, 2) of the plane.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.at(plane.coordinates([[0.5, -0.5]]))
        tensor([[0.5000, 0.0000]], dtype=torch.float64)
        """
        places = as_coordinate_rows(points)
        triangle, share = self._triangles(places, self._locate(places))
        outs = tuple(
            sum((share[:, k].to(v.dtype).view(-1, *[1] * (v.dim() - 1)) * v[i] for k, (v, i) in enumerate(row)))
            for row in zip(*(self._outputs(triangle[:, k]) for k in range(3)), strict=True)
        )
        found = tuple(torch.as_tensor(o) for o in outs)
        if tail:
            tails = self.require_network("plane.at(tail=True)").tails
            found = tuple(o if t is None else t.apply(o) for o, t in zip(found, tails, strict=True))
        return found if self.several_outputs else found[0]

    def mix(self, weights: Tensor) -> Values:
        """Input points (n, *in) as mixtures (n, k) of the vertices."""
        points = self.input_points(weights)
        return tuple(points) if self.several_inputs else points[0]

    def input_points(self, weights: Tensor) -> list[Tensor]:
        """The same, one tensor for each input."""
        return [(weights @ v.reshape(len(v), -1)).view(len(weights), *v.shape[1:]) for v in self.vertices]

    def values_at(self, corners: Tensor) -> Values:
        """Values (n, *out) at some corners."""
        found = tuple(v[i] for v, i in self._outputs(corners))
        return found if self.several_outputs else found[0]

    def lift(self, points: Any) -> Values:
        """Input points (n, *in) of points (n, 2) of the plane."""
        return self.mix(torch.from_numpy(self._shares(as_coordinate_rows(points))))

    def line(self, a: Any, b: Any) -> Restriction:
        """The network on the line between two points (2,) of the plane, read off the polygons.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> len(plane.line([0.1, 0.2], [1.9, 1.7]))
        3
        """
        from .transversal import edges_crossed

        ends = as_coordinate_rows([as_coordinates(a, "a"), as_coordinates(b, "b")])
        self._locate(ends)
        unit = ends / self.extent
        alpha, edge, count = edges_crossed(self._unit, self.edges.numpy(), self.sides.numpy(), unit[0], unit[1])
        alphas = torch.from_numpy(np.concatenate([[0.0], alpha, [1.0]]))
        births = torch.tensor([[-1, 0, 0]]).repeat(len(alphas), 1)
        births[1:-1] = self.origin_table[torch.from_numpy(edge)]
        births[1:-1, 2] = torch.maximum(births[1:-1, 2], torch.from_numpy(count) // 2)
        starts, stops = zip(
            *((p[:1], p[1:]) for p in self.input_points(torch.from_numpy(self._shares(ends)))), strict=True
        )
        places = ends[0] + alphas.numpy()[:, None] * (ends[1] - ends[0])
        values = self.at(places) if self.stored_values is not None else None
        kept = None if values is None else values if isinstance(values, tuple) else (values,)
        return Restriction(
            alphas,
            Lines(tuple(starts), tuple(stops)),
            births,
            torch.zeros(len(alphas) - 1, dtype=torch.int64),
            kept,
            self.names,
            network=self.network,
            units=self.units,
            several_inputs=self.several_inputs,
            several_outputs=self.several_outputs,
            dtype=self.dtype,
            rewrite=self.rewrite,
            until=self.until,
            weights=self.checksum,
        )

    def decisions(self, order: str = "max") -> Regions:
        """Where which output is the largest (or smallest): exact regions, those of one class that touch merged.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.decisions().totals
        {0: 2.5, 1: 1.5}
        """
        return methods.decide_plane(self, order)

    def check(self, samples: int = 1000, seed: int = 0) -> PlaneCheck:
        """How far this answer is from the network's own forward pass, and whether its polygons fill the whole."""
        from .plane_check import check_plane

        return check_plane(self, samples, seed)

    def save(self, path: str | Path) -> None:
        """Write everything but the network to a safetensors file, atomically."""
        from .storage import save_plane

        save_plane(self, Path(path))

    @staticmethod
    def load(path: str | Path, model: Any = None) -> PlaneRestriction:
        """Read a saved plane; give the model again for what needs the network."""
        from .storage import load_plane

        return load_plane(Path(path), model)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        style: str = "regions",
        order: str = "max",
        labels: Sequence[str] | None = None,
        colors: Sequence[str] | None = None,
        points: Any = None,
    ) -> Axes:
        """Draw the polygons: their edges by the node that bore them, or the classes with ``style="decisions"``."""
        return methods.plot_plane(self, ax, style=style, order=order, labels=labels, colors=colors, points=points)

    def to_html(self, path: str | Path, **options: Any) -> Path:
        """Write one web page to move and zoom in; the options are those of ``plot``, and ``title``."""
        return methods.write_plane_page(self, path, **options)

    def with_network(self, network: Network) -> PlaneRestriction:
        """The same answer, with the network to ask further."""
        return replace(self, network=network)

    def require_network(self, what: str) -> Network:
        if self.network is None:
            raise MissingError(
                "The network is not known: neither a saved file nor a server sends it along.",
                where=what,
                hint="Load with PlaneRestriction.load(path, model), or give it with plane.with_network(network).",
            )
        return self.network

    def __str__(self) -> str:
        return ", ".join(
            [
                count_noun(len(self), "polygon"),
                f"{len(self.weights):,} corners",
                format_units(self.units),
                format_seconds(self.seconds),
                f"{self.ambiguous:,} unresolved",
            ]
        )

    def __repr__(self) -> str:
        return f"<PlaneRestriction: {self}>"

    def _repr_html_(self) -> str:
        return methods.plane_html(self)

    @cached_property
    def extent(self) -> float:
        """The larger side of the box around the whole, in plane coordinates."""
        return float((self.outline.amax(0) - self.outline.amin(0)).max())

    @cached_property
    def _unit(self) -> Floats:
        """(corners, 2) scaled so that the whole has an extent of 1: products of what is huge would overflow."""
        return (self.weights @ (self.outline / self.extent)).numpy()

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._unit, *(t.numpy() for t in (self.edges, self.sides, self.offsets, self.rings)))

    def _locate(self, places: Floats) -> Ints:
        found, deep = self._locator(places / self.extent)
        slack = 1e-12
        if (deep < -slack).any():
            where = places[deep < -slack][0].tolist()
            raise PlaneError(
                f"The point ({where[0]:g}, {where[1]:g}) is outside the polygon.",
                where="argument points",
                hint="Points off the polygon are not covered; plane.outline has its corners.",
            )
        return found

    def _triangles(self, places: Floats, polygon: Ints) -> tuple[Tensor, Tensor]:
        """Three corners of the polygon around each point, (n, 3), and the shares of each, (n, 3)."""
        rings, offsets = self.rings.numpy(), self.offsets.numpy()
        count = offsets[polygon + 1] - offsets[polygon]
        return triangulate(places / self.extent, rings, offsets[polygon], count, self._unit)

    def _shares(self, places: Floats) -> Floats:
        """Mixtures (n, k) of the vertices for points of the plane."""
        self._locate(places)
        count = len(self.outline)
        ring, none = np.arange(count), np.zeros(len(places), dtype=np.int64)
        outline = (self.outline / self.extent).numpy()
        triangle, share = triangulate(places / self.extent, ring, none, none + count, outline)
        made = np.zeros((len(places), count))
        np.put_along_axis(made, triangle.numpy(), share.numpy(), 1)
        return made

    def _outputs(self, corners: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each output a table of values and the rows in it of some corners."""
        if self.stored_values is not None:
            return [(v, corners) for v in self.stored_values]
        from .check import evaluate_in_batches

        network = self.require_network("plane.at")
        some, rows = torch.unique(corners, return_inverse=True)
        return [(v, rows) for v in evaluate_in_batches(network, self.input_points(self.weights[some]))]
