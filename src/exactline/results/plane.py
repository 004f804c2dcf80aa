"""The result for a plane: its polygons, the values at their corners, and methods to analyse them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index as as_index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..engines.polygons.polygon_input import as_coordinate_rows, as_coordinates
from ..engines.polygons.state import PlaneFrame
from ..errors import ArgumentError, LineError, PlaneError
from ..fp_context import full_precision
from ..humanize import count_noun, format_seconds, format_units
from ..lines import as_points
from ..network.graph import Network
from . import methods
from .check import PlaneCheck, check_plane
from .errors import PlaneErrors
from .evaluate import evaluate_in_batches, require_network, require_values
from .origins import Origins
from .plane_geometry import PlaneGeometry
from .polygon import Polygon
from .restriction import Restriction, Values
from .transversal import line_in_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.regions import Regions
    from ..measures.plane_metrics import PlaneMetrics


@dataclass(frozen=True, eq=False)
class PlaneRestriction:
    """A network restricted to a convex polygon: ``len(plane)`` convex polygons, on each of which it is affine.

    Each polygon lies in one linear region of the network. Plane coordinates are orthonormal, in the units of the input
    space.

    >>> import exactline as xl
    >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> len(plane), plane.areas.tolist(), plane.at([[1.5, 0.5]]).tolist()
    (4, [1.0, 1.0, 1.0, 1.0], [[0.5, 0.0]])
    """

    vertices: tuple[Tensor, ...]  # (k, *in) for each input: the corners of the whole
    outline: Tensor  # (k, 2) plane coordinates of the vertices
    origin: Tensor  # (n,) the point, all inputs flattened and concatenated, whose plane coordinates are 0
    axes: Tensor  # (2, n) the directions of the plane coordinates
    weights: Tensor  # (corners, k) every corner as a convex combination of the vertices
    edges: Tensor  # (edges, 2) corners at both ends
    origin_table: Tensor  # (edges, 3) node or -1, unit, count: see `origins`
    sides: Tensor  # (edges, 2) polygons to the left and to the right of an edge, -1 outside
    offsets: Tensor  # (polygons + 1,) first entry of each polygon in rings
    rings: Tensor  # corners of all polygons, counterclockwise, concatenated
    stored_values: tuple[Tensor, ...] | None  # (corners, *out) for each output; None if values=False
    names: tuple[str, ...]  # names of the network's nodes
    network: Network | None = None  # None after loading without the model
    units: dict[str, int] = field(default_factory=dict)  # number of units that can break, by kind of operator
    several_inputs: bool = False  # whether points are tuples of tensors
    several_outputs: bool = False  # whether values are tuples of tensors
    dtype: torch.dtype = torch.float64  # precision of the sweep
    seconds: float = 0.0  # duration of the sweep
    setup_seconds: float = field(default=0.0, kw_only=True)  # before it: capturing the model and planning
    ambiguous: int = 0  # pairs of a polygon and a unit whose side of a knot rounding hides on it
    rewrite: bool = True  # option of the sweep
    until: str | None = None  # option of the sweep
    checksum: str = ""  # of the network's weights, where the network is not known

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Polygon]:
        return (self.polygon(i) for i in range(len(self)))

    @property
    def status(self) -> Literal["exact"]:
        """How far the result can be trusted: always "exact".

        Exact means that the polygons are all intersections of the plane with linear regions of the network, that values
        are computed in float64 (or `dtype`), and that units whose side of a knot rounding hides are counted in
        `ambiguous`; `error_at` estimates how far rounding moves the function. Nothing is sampled.
        """
        return "exact"

    def polygon(self, index: int) -> Polygon:
        """One polygon: its corners, its activation pattern and its affine map.

        Args:
            index: From 0 to ``len(plane) - 1``; negative numbers count from the end.

        Raises ArgumentError.
        """
        try:
            number = as_index(index)  # integers of any type, such as the tensors of locate()
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
        """Plane coordinates of the corners of all polygons, (corners, 2)."""
        return self.weights @ self.outline

    @property
    def points(self) -> Values:
        """Input points of the corners, (corners, *in)."""
        return self.combine_vertices(self.weights)

    @property
    def values(self) -> Values:
        """The network's values at the corners, (corners, *out), before any smooth tail.

        Raises MissingError if the plane was restricted with values=False.
        """
        hint = "Call restrict_plane with values=True, or use plane.at(points)."
        values = require_values(self.stored_values, where="plane.values", hint=hint)
        return values if self.several_outputs else values[0]

    @property
    def origins(self) -> Origins:
        """The node and the unit that gave rise to each edge; None on the outline."""
        return Origins(self.origin_table, self.names)

    @property
    def areas(self) -> Tensor:
        """The area of each polygon, (polygons,), in squared units of the input space."""
        return self.geometry.unit_areas * self.extent * self.extent

    @property
    def shares(self) -> Tensor:
        """The area of each polygon as a share of the whole, (polygons,)."""
        return self.geometry.unit_areas / self.geometry.unit_area

    @property
    def area(self) -> float:
        """The area of the whole polygon, in squared units of the input space."""
        return self.geometry.unit_area * self.extent * self.extent

    def coordinates(self, points: Any) -> Tensor:
        """Plane coordinates of input points, projected orthogonally onto the plane, (n, 2).

        Args:
            points: Input points, (n, *in); a tuple of such tensors if the model takes several inputs.

        Raises PlaneError.
        """
        try:
            inputs = as_points(points, "points")
        except LineError as problem:
            raise PlaneError(problem.problem, where=problem.where, hint=problem.hint) from problem
        if any(p.dim() == 0 for p in inputs) or len({len(p) for p in inputs}) != 1:
            raise PlaneError(
                "The number of points is missing or differs between inputs.",
                where="argument points",
                hint="Give points of shape (n, *in).",
            )
        rows = torch.cat([p.reshape(len(p), p.shape[1:].numel()) for p in inputs], 1)
        if rows.shape[1] != len(self.origin):
            raise PlaneError(
                f"Input points have {len(self.origin)} numbers, not {rows.shape[1]}.",
                where="argument points",
                hint="Give points of shape (n, *in).",
            )
        return (rows - self.origin) @ self.axes.T

    def locate(self, points: Any) -> Tensor:
        """The polygon that contains each point, (n,); on an edge, one of the two.

        Args:
            points: Plane coordinates, (n, 2).

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.locate(plane.coordinates([[0.5, -0.5]]))
        tensor([2])

        Raises PlaneError for points outside the plane.
        """
        return torch.from_numpy(self.geometry.locate(as_coordinate_rows(points)))

    def at(self, points: Any, *, tail: bool = False) -> Values:
        """The network's values at points of the plane, (n, *out).

        Args:
            points: Plane coordinates, (n, 2).
            tail: Whether to apply the smooth last operator of the network, such as a softmax.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.at(plane.coordinates([[0.5, -0.5]]))
        tensor([[0.5000, 0.0000]], dtype=torch.float64)

        Raises PlaneError for points outside the plane, MissingError.
        """
        triangle, weight = self.geometry.corner_weights(as_coordinate_rows(points))
        tables = zip(*(self._outputs(triangle[:, k]) for k in range(3)), strict=True)
        outputs = tuple(_combine_rows(three, weight) for three in tables)
        if tail:
            tails = self.require_network("plane.at(tail=True)").tails
            outputs = tuple(o if t is None else t.apply(o) for o, t in zip(outputs, tails, strict=True))
        return outputs if self.several_outputs else outputs[0]

    @cached_property
    def errors(self) -> Tensor:
        """The estimated error at every corner, (corners,): the largest over all outputs. See `error_at`."""
        with full_precision():
            network = self.require_network("plane.errors").to(dtype=self.dtype)
            vertices = tuple(v.to(self.dtype) for v in self.vertices)
            frame = PlaneFrame(vertices, self.outline.numpy())
            tables = self.weights, self.edges, self.offsets, self.rings
            return PlaneErrors(network, frame, *tables, self.stored_values).estimate()

    @property
    def error(self) -> float:
        """The largest estimated error anywhere on the plane: the maximum of `error_at`."""
        return float(self.errors.max())

    def error_at(self, points: Any) -> Tensor:
        """Estimate how far `at` may be from the exact value of the network, (n,).

        The estimate covers rounding errors of the values and of the positions of edges, and is the largest over all
        outputs.

        Args:
            points: Plane coordinates, (n, 2).

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> bool(plane.error_at([[1.5, 0.5]]) < 1e-12)
        True

        Raises PlaneError for points outside the plane, MissingError without the network.
        """
        triangle, _ = self.geometry.corner_weights(as_coordinate_rows(points))
        return self.errors[triangle].amax(1)

    def combine_vertices(self, weights: Tensor) -> Values:
        """Convex combinations of the vertices with weights (n, k): input points (n, *in)."""
        points = self.input_points(weights)
        return tuple(points) if self.several_inputs else points[0]

    def input_points(self, weights: Tensor) -> list[Tensor]:
        """Convex combinations of the vertices with weights (n, k): a list with (n, *in) for each input."""
        return [(weights @ v.reshape(len(v), -1)).view(len(weights), *v.shape[1:]) for v in self.vertices]

    def values_at(self, corners: Tensor) -> Values:
        """The network's values at some corners (n,), (n, *out)."""
        values = tuple(v[row] for v, row in self._outputs(corners))
        return values if self.several_outputs else values[0]

    def lift(self, points: Any) -> Values:
        """Input points of points of the plane, (n, *in).

        Args:
            points: Plane coordinates, (n, 2).

        Raises PlaneError for points outside the plane.
        """
        return self.combine_vertices(self.geometry.vertex_weights(as_coordinate_rows(points)))

    def line(self, a: Any, b: Any) -> Restriction:
        """Restrict the network to the line between two points of the plane, without a new sweep.

        Args:
            a: Plane coordinates of the start, (2,).
            b: Plane coordinates of the end, (2,).

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> len(plane.line([0.1, 0.2], [1.9, 1.7]))
        3

        Raises PlaneError for points outside the plane.
        """
        ends = as_coordinate_rows([as_coordinates(a, "a"), as_coordinates(b, "b")])
        return line_in_plane(self, ends)

    def decisions(
        self,
        order: str = "max",
        *,
        output: str | int | None = None,
        threshold: float | None = None,
        rivals: Sequence[int] | None = None,
    ) -> Regions:
        """The regions on which each output leads, with exact boundaries; neighbouring polygons of a class are merged.

        Args:
            order: "max" if the largest output decides, "min" for the smallest.
            output: Which output tensor decides, by its name or index, if the network has several.
            threshold: For a network with one output, which has no rival: class 1 is where the output is above it (below
                it with "min"), class 0 elsewhere. Behind a sigmoid it is a probability, 0.5 by default.
            rivals: The outputs that compete, if not all do; a single one needs a threshold.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> plane.decisions().totals
        {0: 2.5, 1: 1.5}
        >>> plane.decisions(rivals=[0], threshold=0.5).totals
        {0: 3.0, 1: 1.0}

        Raises ArgumentError, also for one output without a threshold; MissingError.
        """
        return methods.decide_plane(self, order, output, threshold, rivals)

    def metrics(self) -> PlaneMetrics:
        """Exact measures of the plane: regions, their areas and perimeters, boundaries, slopes and variation.

        >>> import exactline as xl
        >>> plane = xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> found = plane.metrics()
        >>> found.regions, found.areas.tolist(), found.perimeters.tolist(), found.boundary_lengths
        (4, [1.0, 1.0, 1.0, 1.0], [4.0, 4.0, 4.0, 4.0], {'relu': 4.0})

        Raises MissingError without values.
        """
        return methods.measure_plane(self)

    def check(self, samples: int = 1000, seed: int = 0) -> PlaneCheck:
        """The largest difference between this result and the network's own forward pass in float64.

        Also compares the sum of the polygons' areas with the area of the whole.

        Args:
            samples: The largest number of points of each kind: corners, centres of polygons, random.
            seed: For the random points.
        """
        return check_plane(self, samples, seed)

    def save(self, path: str | Path) -> None:
        """Write everything but the network to a safetensors file, atomically.

        Args:
            path: The file to write.

        Raises FileError.
        """
        methods.save_plane(self, path)

    @staticmethod
    def load(path: str | Path, model: Any = None) -> PlaneRestriction:
        """Read a saved plane.

        Args:
            path: The file.
            model: The model that was restricted, for methods that need the network; it must have the same weights.

        Raises FileError.
        """
        return methods.load_plane(path, model)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        style: str = "regions",
        order: str = "max",
        labels: Sequence[str] | None = None,
        colors: Sequence[str] | None = None,
        points: Any = None,
        threshold: float | None = None,
        features: Sequence[str] | None = None,
    ) -> Axes:
        """Plot the polygons with matplotlib.

        Args:
            ax: The axes to draw into; None makes new ones.
            style: "regions" colours edges by the node of their origin, "decisions" fills the regions of each class.
            order: "max" if the largest output decides, "min" for the smallest.
            labels: Names of the outputs.
            colors: Colours of the outputs.
            points: Input points to mark, by name.
            threshold: Between the two classes of a network with one output; see `decisions`.
            features: Names of the input's features, with their units; two of them name the axes.
        """
        options = {"style": style, "order": order, "labels": labels, "colors": colors, "threshold": threshold}
        return methods.plot_plane(self, ax, points=points, features=features, **options)

    def to_html(self, path: str | Path, **options: Any) -> Path:
        """Write a self-contained web page to pan and zoom in the plane.

        Args:
            path: The file to write.
            **options: The options of `plot` except ax, and title; image: False shows the input under the pointer as a
                table, a shape such as ``(28, 28)`` as a picture of that shape.
        """
        return methods.write_plane_page(self, path, **options)

    def with_network(self, network: Network) -> PlaneRestriction:
        """Attach a network, for methods that need it.

        Args:
            network: The network that was restricted.
        """
        return replace(self, network=network)

    def require_network(self, where: str) -> Network:
        """The network; raises MissingError if it is not known. ``where`` names the method that needs it."""
        hint = "Load with PlaneRestriction.load(path, model), or attach it with plane.with_network(network)."
        return require_network(self.network, where=where, hint=hint)

    def __str__(self) -> str:
        return ", ".join(
            [
                count_noun(len(self), "polygon"),
                f"{len(self.weights):,} corners",
                format_units(self.units),
                format_seconds(self.seconds),
                f"{self.ambiguous:,} ambiguous",
            ]
        )

    def __repr__(self) -> str:
        return f"<PlaneRestriction: {self}>"

    def _repr_html_(self) -> str:
        return methods.plane_html(self)

    @cached_property
    def geometry(self) -> PlaneGeometry:
        """The polygons without the network's values."""
        return PlaneGeometry(self.outline, self.weights, self.edges, self.sides, self.offsets, self.rings)

    @property
    def extent(self) -> float:
        """The larger side of the bounding box of the whole, in plane coordinates."""
        return self.geometry.extent

    def _outputs(self, corners: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each output, a table of values and the rows of some corners (n,) in it."""
        if self.stored_values is not None:
            return [(v, corners) for v in self.stored_values]
        network = self.require_network("plane.at")
        distinct, rows = torch.unique(corners, return_inverse=True)
        return [(v, rows) for v in evaluate_in_batches(network, self.input_points(self.weights[distinct]))]


def _combine_rows(tables: tuple[tuple[Tensor, Tensor], ...], weights: Tensor) -> Tensor:
    """Combine rows of three tables of values with weights (n, 3), to (n, *out); a table comes with its rows (n,)."""
    terms = (
        weights[:, k].to(values.dtype).view(-1, *[1] * (values.dim() - 1)) * values[rows]
        for k, (values, rows) in enumerate(tables)
    )
    return torch.as_tensor(sum(terms))
