"""Where which output decides: the polygons cut once more where two outputs meet, and those of one class joined."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..engines.dense.error_model import PROBE_SAFETY, estimate_errors
from ..engines.dense.state import input_magnitudes
from ..engines.polygons.error_model import plane_filter, sample_weights
from ..engines.polygons.growable import GrowableArray, connected_components
from ..engines.polygons.merge import centroid_values, centroid_weights
from ..engines.polygons.mesh import OUTSIDE, Mesh, ring_order
from ..engines.polygons.state import MeshState, PlaneFrame
from ..engines.polygons.sweep import subdivide_at_node
from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..network.graph import Network, Node
from ..numerics.plan import sweep_plan
from ..numerics.static_filter import Magnitude
from ..ops.maximum import Maximum

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction

MORE = 16.0  # how much larger than at a few points a value may be elsewhere


@dataclass(frozen=True)
class Region:
    """A connected part of the plane where one output decides."""

    label: int  # the output; of a tie the lowest
    tied: tuple[int, ...]  # all outputs that share the decision throughout; () where one decides alone
    area: float
    share: float  # of the whole plane's area
    rings: tuple[Tensor, ...]  # (n, 2) each: the outer boundary counterclockwise, then holes clockwise


@dataclass(frozen=True)
class Tiles:
    """Convex polygons with a label each."""

    corners: Tensor  # (corners, 2) plane coordinates
    offsets: Tensor  # (polygons + 1,)
    rings: Tensor  # corners of all polygons, counterclockwise
    labels: Tensor  # (polygons,)
    regions: Tensor  # (polygons,) the region each belongs to


@dataclass(frozen=True, eq=False)
class Regions(Sequence[Region]):
    """All regions, the largest first."""

    regions: tuple[Region, ...]
    cells: Tiles
    boundaries: Tensor  # (m, 2, 2) segments between different classes, in plane coordinates
    order: str

    def __len__(self) -> int:
        return len(self.regions)

    @overload
    def __getitem__(self, index: int) -> Region: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Region, ...]: ...
    def __getitem__(self, index: int | slice) -> Region | tuple[Region, ...]:
        return self.regions[index]

    def __iter__(self) -> Iterator[Region]:
        return iter(self.regions)

    @property
    def labels(self) -> list[int]:
        """Outputs that decide somewhere."""
        return sorted({r.label for r in self.regions})

    @property
    def totals(self) -> dict[int, float]:
        """The area where each output decides."""
        return {label: sum(r.area for r in self.regions if r.label == label) for label in self.labels}

    @property
    def shares(self) -> dict[int, float]:
        """The same as a share of the whole, which huge and tiny planes have too."""
        return {label: sum(r.share for r in self.regions if r.label == label) for label in self.labels}

    def __repr__(self) -> str:
        shares = ", ".join(f"{label}: {area:.4g}" for label, area in self.totals.items())
        return f"<Regions: {len(self)} of {len(self.labels)} classes, areas {shares}>"


def regions(plane: PlaneRestriction, order: str) -> Regions:
    """The classes of a plane, exactly."""
    if order not in ("max", "min"):
        raise ArgumentError(f"There is no order {order!r}.", where="argument order", hint="Give 'max' or 'min'.")
    network = plane.require_network("plane.decisions")
    if len(network.outputs) != 1:
        raise ArgumentError(
            f"The network has {len(network.outputs)} outputs; which one decides?",
            where="plane.decisions",
            hint="Capture a network with a single output.",
        )
    output = network.nodes[network.outputs[0]]
    if prod(output.shape) == 0:
        raise MissingError("The output is empty: nothing decides.", where="plane.decisions", hint="Give outputs.")
    with full_precision():
        judge = _judged(network, 1 if order == "max" else -1)
        state = _state(plane, judge)
        op = judge.nodes[state.node].op
        if not isinstance(op, Maximum):
            raise TypeError("the last node judges")
        subdivide_at_node(judge, state, op, sys.maxsize)
        labels, tied = _labels(judge, state, judge.nodes[state.node].inputs[0], 1 if order == "max" else -1)
    return _joined(plane, state, labels, tied, order)


def _judged(network: Network, sign: int) -> Network:
    """The network with one more node, the maximum of all outputs."""
    output = network.outputs[0]
    table = torch.arange(prod(network.nodes[output].shape))[None]
    node = Node("decision", Maximum(table, (1,), sign), (output,), (1,))
    return replace(network, nodes=(*network.nodes, node), outputs=(len(network.nodes),), tails=(None,), moved={})


def _state(plane: PlaneRestriction, judge: Network) -> MeshState:
    """Where the cutting stood when the plane was finished."""
    source = judge.nodes[-1].inputs[0]
    everywhere = torch.arange(len(plane.weights))
    values = plane.values_at(everywhere)
    live = {source: (values if isinstance(values, Tensor) else values[0]).to(torch.float64)}
    extent = float(np.ptp(plane.outline.numpy(), axis=0).max())
    places = plane.outline.numpy() / extent - plane.outline[0].numpy() / extent
    births = np.zeros((len(plane.weights), 4), dtype=np.int64)
    births[:, 0], births[:, 3] = -1, 1
    spots = np.zeros((len(plane.weights), 2))
    rows = (GrowableArray(plane.weights.numpy().copy()), GrowableArray(births), GrowableArray(spots))
    frame = PlaneFrame(plane.vertices, places)
    sizes = {source: _size(judge, frame, source)}
    return MeshState(frame, len(judge.nodes) - 1, _mesh(plane), *rows, live, sizes, plane_filter(judge, frame))


def _size(judge: Network, frame: PlaneFrame, source: int) -> Magnitude:
    """How large the outputs and their errors can be, told by the values at a few points."""
    facts, eps = sweep_plan(judge), torch.finfo(torch.float64).eps
    points, _ = frame.points(sample_weights(frame))
    sizes = input_magnitudes(dict(zip(judge.inputs, points, strict=True)))
    inputs = [judge.nodes[i].inputs[0] for i in judge.breaking if i in facts.last_use]
    seen = judge.evaluate(points, inputs)
    for i, node in enumerate(judge.nodes[: source + 1]):
        if i in sizes or i not in facts.last_use:
            continue
        if i in judge.breaking:
            largest = MORE * float(seen[node.inputs[0]].abs().max()) if seen[node.inputs[0]].numel() else 0.0
            sizes[i] = Magnitude(largest * facts.value_gain[i], sizes[node.inputs[0]].errors * facts.error_gain[i])
        else:
            sizes[i] = Magnitude.after(facts, i, [sizes[j] for j in node.inputs], eps)
    return sizes[source]


def _mesh(plane: PlaneRestriction) -> Mesh:
    ends, sides = plane.edges.numpy().copy(), plane.sides.numpy().copy()
    offsets, rings = plane.offsets.numpy(), plane.rings.numpy().copy()
    count = np.diff(offsets)
    after = np.arange(len(rings)) + 1
    after[offsets[1:] - 1] = offsets[:-1]
    width = len(plane.weights)
    owner = np.arange(len(count)).repeat(count)
    # an edge is known by its ends and the polygon beside it: two polygons may share several edges, never one twice
    key = np.concatenate([ends[:, 0] * width + ends[:, 1], ends[:, 1] * width + ends[:, 0]])
    beside = np.concatenate([sides[:, 0], sides[:, 1]])
    number = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((key, beside))
    asked = np.lexsort((rings * width + rings[after], owner))
    inside = order[beside[order] != OUTSIDE]
    rims = np.empty(len(rings), dtype=np.int64)
    rims[asked] = number[inside]
    return Mesh(ends, plane.origin_table.numpy().copy(), sides, offsets[:-1].copy(), count, rings, rims)


def _labels(judge: Network, state: MeshState, source: int, sign: int) -> tuple[Ints, dict[int, tuple[int, ...]]]:
    """The output that decides on each polygon, (polygons,), and those that are tied with it there."""
    polygons = np.arange(len(state.mesh))
    inside = sign * centroid_values(state.live[source], state, polygons).flatten(1)
    best = inside.amax(1, keepdim=True)
    gap = best - inside
    rough = state.filter.threshold(state.node, torch.float64, float(inside.abs().max()), state.sizes[source])
    rows = torch.nonzero((gap <= rough).sum(1) > 1)[:, 0]
    equal = gap == 0
    if len(rows):
        points, errors = state.frame.points(centroid_weights(state, rows.numpy()))
        blur = PROBE_SAFETY * estimate_errors(judge, source, points, errors).flatten(1)
        top = blur.gather(1, inside[rows].argmax(1, keepdim=True))
        equal[rows] |= gap[rows] <= blur + top
    several = torch.nonzero(equal.sum(1) > 1)[:, 0].tolist()
    tied = {p: tuple(torch.nonzero(equal[p])[:, 0].tolist()) for p in several}
    return equal.to(torch.int8).argmax(1).numpy(), tied


def _joined(
    plane: PlaneRestriction, state: MeshState, labels: Ints, tied: dict[int, tuple[int, ...]], order: str
) -> Regions:
    mesh = state.mesh
    kinds: dict[tuple[int, ...], int] = {}
    kind = labels.copy()
    for p, group in tied.items():
        kind[p] = -1 - kinds.setdefault(group, len(kinds))
    inner = mesh.inner_edges()
    one, two = mesh.sides[inner].T
    same = kind[one] == kind[two]
    company = connected_components(len(mesh), one[same], two[same])
    leads, region = np.unique(company, return_inverse=True)
    corners = state.weights.all @ plane.outline.numpy()
    shares, rings = _rings(mesh, region, corners, len(leads), plane.extent)
    with np.errstate(over="ignore"):  # the area of what is huge is infinite, as that of the plane is
        areas = shares * plane.extent * plane.extent
    order_ = np.argsort(-shares, kind="stable")
    parts = shares / shares.sum()
    made = tuple(
        Region(int(labels[leads[i]]), tied.get(int(leads[i]), ()), float(areas[i]), float(parts[i]), rings[i])
        for i in order_.tolist()
    )
    rank = np.empty_like(order_)
    rank[order_] = np.arange(len(order_))
    mesh.pack()
    arrays = (corners, np.append(mesh.first, len(mesh.corners)), mesh.corners.copy(), labels, rank[region])
    between = corners[mesh.ends[inner[~same]]]
    return Regions(made, Tiles(*map(torch.from_numpy, arrays)), torch.from_numpy(between), order)


def _rings(
    mesh: Mesh, region: Ints, corners: Floats, count: int, extent: float
) -> tuple[Floats, list[tuple[Tensor, ...]]]:
    """The area of every region, as if the extent were 1, and its boundary: the outer ring first."""
    places, sizes = mesh.places(np.arange(len(mesh)))
    start, edge = mesh.corners[places], mesh.edges[places]
    owner = region[np.arange(len(mesh)).repeat(sizes)]
    beside = np.where(mesh.ends[edge, 0] == start, mesh.sides[edge, 1], mesh.sides[edge, 0])
    rim = (beside == OUTSIDE) | (region[beside] != owner)
    start, edge, owner = start[rim], edge[rim], owner[rim]
    stop = mesh.ends[edge].sum(1) - start
    following = _following(owner, start, stop, corners)
    loop = connected_components(len(start), np.arange(len(start)), following)
    order = ring_order(loop, following)
    start, loop, owner = start[order], loop[order], owner[order]
    first = np.flatnonzero(np.insert(loop[1:] != loop[:-1], 0, True))
    length = np.diff(np.append(first, len(start)))
    spot = corners[start]
    base = (spot - spot[first].repeat(length, 0)) / extent  # products of what is huge would overflow
    after = np.arange(len(start)) + 1
    after[first + length - 1] = first
    cross = base[:, 0] * base[after, 1] - base[:, 1] * base[after, 0]
    area = np.add.reduceat(cross, first) / 2
    areas = np.zeros(count)
    np.add.at(areas, owner[first], area)
    found: list[list[Tensor]] = [[] for _ in range(count)]
    for k in np.argsort(-area, kind="stable").tolist():
        found[int(owner[first[k]])].append(torch.from_numpy(spot[first[k] : first[k] + length[k]].copy()))
    return areas, [tuple(group) for group in found]


def _following(owner: Ints, start: Ints, stop: Ints, corners: Floats) -> Ints:
    """The side that follows each on its region's boundary: where several leave a corner, the first clockwise."""
    width = len(corners)
    order = np.lexsort((start, owner))
    code = owner[order] * width + start[order]
    asked = owner * width + stop
    first, last = np.searchsorted(code, asked), np.searchsorted(code, asked, side="right")
    following = order[first]
    for i in np.flatnonzero(last - first > 1).tolist():  # corners where a region touches itself are rare
        choices = order[first[i] : last[i]]
        back = corners[start[i]] - corners[stop[i]]
        out = corners[stop[choices]] - corners[stop[i]]
        turn = (np.arctan2(back[1], back[0]) - np.arctan2(out[:, 1], out[:, 0])) % (2 * np.pi)
        following[i] = choices[np.where(turn <= 0, 2 * np.pi, turn).argmin()]
    return following
