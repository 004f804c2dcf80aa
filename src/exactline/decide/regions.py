"""The regions of a plane where each output decides.

The polygons of the plane are subdivided once more, where two outputs meet, and neighbours of one class are merged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..engines.dense.state import input_magnitudes
from ..engines.polygons.corners import CornerTable
from ..engines.polygons.error_model import plane_filter, sample_weights
from ..engines.polygons.growable import connected_components
from ..engines.polygons.merge import centroid_values, centroid_weights
from ..engines.polygons.mesh import OUTSIDE, Mesh, ring_order
from ..engines.polygons.state import MeshState, PlaneFrame
from ..engines.polygons.sweep import subdivide_at_node
from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..network.graph import Network, Node
from ..network.outputs import describe_outputs, find_output
from ..numerics.plan import sweep_plan
from ..numerics.point_errors import estimate_errors
from ..numerics.static_filter import Magnitude
from ..ops.maximum import Maximum
from ..tolerances import PLANE_SAMPLE_HEADROOM
from .comparison import Comparison

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction


@dataclass(frozen=True)
class Region:
    """A connected part of the plane where one output decides, or several are tied."""

    label: int  # the output; in a tie, the one with the lowest index
    tied: tuple[int, ...]  # all outputs tied on the whole region; () where one decides alone
    area: float  # in plane coordinates
    share: float  # fraction of the area of the plane
    rings: tuple[Tensor, ...]  # (n, 2) each: the outer boundary, counterclockwise, then holes, clockwise


@dataclass(frozen=True)
class LabeledPolygons:
    """Convex polygons, each with the output that decides on it."""

    corners: Tensor  # (corners, 2) plane coordinates
    offsets: Tensor  # (polygons + 1,)
    rings: Tensor  # (n,) corners of all polygons, counterclockwise; polygon i has offsets[i] to offsets[i + 1]
    labels: Tensor  # (polygons,)
    regions: Tensor  # (polygons,) the region each belongs to


@dataclass(frozen=True, eq=False)
class Regions(Sequence[Region]):
    """The regions of a plane as a sequence, the largest first."""

    regions: tuple[Region, ...]
    polygons: LabeledPolygons
    boundaries: Tensor  # (m, 2, 2) segments between different classes, in plane coordinates
    order: str  # "max" or "min": whether the largest or the smallest output decides
    comparison: Comparison  # which outputs were compared

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
        """The outputs that decide somewhere, ascending."""
        return sorted({r.label for r in self.regions})

    @property
    def totals(self) -> dict[int, float]:
        """The area where each output decides."""
        return {label: sum(r.area for r in self.regions if r.label == label) for label in self.labels}

    @property
    def shares(self) -> dict[int, float]:
        """The fraction of the plane where each output decides; finite also for planes whose area overflows."""
        return {label: sum(r.share for r in self.regions if r.label == label) for label in self.labels}

    def describe(self) -> str:
        """The rule of the decision in words."""
        return self.comparison.describe(self.order)

    def __repr__(self) -> str:
        shares = ", ".join(f"{label}: {area:.4g}" for label, area in self.totals.items())
        return f"<Regions: {len(self)} of {len(self.labels)} classes, areas {shares}>"


def find_regions(
    plane: PlaneRestriction, order: str, output: str | int | None = None, threshold: Any = None, rivals: Any = None
) -> Regions:
    """Find the regions of a plane; see `PlaneRestriction.decisions`.

    Raises ArgumentError, MissingError.
    """
    if order not in ("max", "min"):
        raise ArgumentError(f"There is no order {order!r}.", where="argument order", hint="Give 'max' or 'min'.")
    network = plane.require_network("plane.decisions")
    if output is None and len(network.outputs) != 1:
        raise ArgumentError(
            f"The network has {describe_outputs(network.list_output_names())}.",
            where="plane.decisions",
            hint=f"Choose one with output=0 to output={len(network.outputs) - 1}.",
        )
    selected = 0 if output is None else find_output(network, output)
    if prod(network.nodes[network.outputs[selected]].shape) == 0:
        raise MissingError("The output has no elements.", where="plane.decisions", hint="Give a network with outputs.")
    comparison = Comparison.check(network, selected, threshold, rivals, "plane.decisions")
    with full_precision():
        decider = _append_decision(network, selected, comparison, 1 if order == "max" else -1)
        state = _restore_state(plane, decider, selected, comparison)
        op = decider.nodes[state.node].op
        if not isinstance(op, Maximum):
            raise TypeError("the last node is not the maximum of the outputs")
        subdivide_at_node(decider, state, op, sys.maxsize)
        labels, tied = _label_polygons(decider, state, decider.nodes[state.node].inputs[0], 1 if order == "max" else -1)
    merged = {p: tuple(comparison.map_labels(np.array(group)).tolist()) for p, group in tied.items()}
    return _merge_polygons(plane, state, comparison.map_labels(labels), merged, order, comparison)


def _append_decision(network: Network, output: int, comparison: Comparison, sign: int) -> Network:
    """Append a node to the network: the maximum of the compared outputs, or their minimum if the sign is -1."""
    network, source = comparison.append_to(network, network.outputs[output])
    table = torch.arange(prod(network.nodes[source].shape))[None]
    node = Node("decision", Maximum(table, (1,), sign), (source,), (1,))
    return replace(
        network,
        nodes=(*network.nodes, node),
        outputs=(len(network.nodes),),
        tails=(None,),
        several_outputs=False,
        output_names=(),
        device_copies={},
    )


def _restore_state(plane: PlaneRestriction, decider: Network, output: int, comparison: Comparison) -> MeshState:
    """Rebuild the mesh state that the sweep had when it finished the plane."""
    source = decider.nodes[-1].inputs[0]
    everywhere = torch.arange(len(plane.weights))
    values = plane.values_at(everywhere)
    outputs = (values if isinstance(values, Tensor) else values[output]).to(torch.float64)
    if not comparison.is_whole:
        outputs = decider.nodes[source].op.evaluate(outputs)
    live = {source: outputs}
    extent = float(np.ptp(plane.outline.numpy(), axis=0).max())
    places = plane.outline.numpy() / extent - plane.outline[0].numpy() / extent
    corners = CornerTable.of_vertices(plane.weights.numpy().copy(), refined=True)
    frame = PlaneFrame(plane.vertices, places)
    sizes = {source: _estimate_magnitude(decider, frame, source)}
    return MeshState(
        frame, len(decider.nodes) - 1, _restore_mesh(plane), corners, live, sizes, plane_filter(decider, frame)
    )


def _estimate_magnitude(decider: Network, frame: PlaneFrame, source: int) -> Magnitude:
    """Estimate the largest outputs and their errors from the values at a few points."""
    facts, eps = sweep_plan(decider), torch.finfo(torch.float64).eps
    points, _ = frame.points(sample_weights(frame))
    sizes = input_magnitudes(dict(zip(decider.inputs, points, strict=True)))
    inputs = [decider.nodes[i].inputs[0] for i in decider.breaking_nodes if i in facts.last_use]
    seen = decider.evaluate(points, inputs)
    for i, node in enumerate(decider.nodes[: source + 1]):
        if i in sizes or i not in facts.last_use:
            continue
        if i in decider.breaking_nodes:
            largest = (
                PLANE_SAMPLE_HEADROOM * float(seen[node.inputs[0]].abs().max()) if seen[node.inputs[0]].numel() else 0.0
            )
            sizes[i] = Magnitude(largest * facts.value_gain[i], sizes[node.inputs[0]].errors * facts.error_gain[i])
        else:
            sizes[i] = Magnitude.after(facts, i, [sizes[j] for j in node.inputs], eps)
    return sizes[source]


def _restore_mesh(plane: PlaneRestriction) -> Mesh:
    ends, sides = plane.edges.numpy().copy(), plane.sides.numpy().copy()
    offsets, rings = plane.offsets.numpy(), plane.rings.numpy().copy()
    count = np.diff(offsets)
    after = np.arange(len(rings)) + 1
    after[offsets[1:] - 1] = offsets[:-1]
    width = len(plane.weights)
    owner = np.arange(len(count)).repeat(count)
    # its ends and the polygon beside it identify an edge: two polygons can share several edges, but never one twice
    key = np.concatenate([ends[:, 0] * width + ends[:, 1], ends[:, 1] * width + ends[:, 0]])
    beside = np.concatenate([sides[:, 0], sides[:, 1]])
    number = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((key, beside))
    sorted_corners = np.lexsort((rings * width + rings[after], owner))
    inside = order[beside[order] != OUTSIDE]
    ring_edges = np.empty(len(rings), dtype=np.int64)
    ring_edges[sorted_corners] = number[inside]
    return Mesh(ends, plane.origin_table.numpy().copy(), sides, offsets[:-1].copy(), count, rings, ring_edges)


def _label_polygons(
    decider: Network, state: MeshState, source: int, sign: int
) -> tuple[Ints, dict[int, tuple[int, ...]]]:
    """Find the output that decides on each polygon, (polygons,), and all outputs of the polygons with a tie."""
    polygons = np.arange(len(state.mesh))
    inside = sign * centroid_values(state.live[source], state, polygons).flatten(1)
    best = inside.amax(1, keepdim=True)
    gap = best - inside
    threshold = state.filter.threshold(state.node, torch.float64, float(inside.abs().max()), state.bounds[source])
    rows = torch.nonzero((gap <= threshold).sum(1) > 1)[:, 0]
    equal = gap == 0
    if len(rows):
        points, errors = state.frame.points(centroid_weights(state, rows.numpy()))
        error = estimate_errors(decider, source, points, errors).flatten(1)
        best_error = error.gather(1, inside[rows].argmax(1, keepdim=True))
        equal[rows] |= gap[rows] <= error + best_error
    several = torch.nonzero(equal.sum(1) > 1)[:, 0].tolist()
    tied = {p: tuple(torch.nonzero(equal[p])[:, 0].tolist()) for p in several}
    return equal.to(torch.int8).argmax(1).numpy(), tied


def _merge_polygons(
    plane: PlaneRestriction,
    state: MeshState,
    labels: Ints,  # (polygons,)
    tied: dict[int, tuple[int, ...]],  # by polygon
    order: str,
    comparison: Comparison,
) -> Regions:
    """Merge neighbouring polygons of one class into regions."""
    mesh = state.mesh
    kinds: dict[tuple[int, ...], int] = {}
    kind = labels.copy()
    for p, group in tied.items():
        kind[p] = -1 - kinds.setdefault(group, len(kinds))
    inner = mesh.inner_edges()
    one, two = mesh.edge_sides[inner].T
    same = kind[one] == kind[two]
    component = connected_components(len(mesh), one[same], two[same])
    representatives, region = np.unique(component, return_inverse=True)
    corners = state.corners.weights @ plane.outline.numpy()
    shares, rings = _trace_boundaries(mesh, region, corners, len(representatives), plane.extent)
    with np.errstate(over="ignore"):  # the area of a huge plane is infinite
        areas = shares * plane.extent * plane.extent
    by_area = np.argsort(-shares, kind="stable")
    fractions = shares / shares.sum()
    regions = tuple(
        Region(
            label=int(labels[representatives[i]]),
            tied=tied.get(int(representatives[i]), ()),
            area=float(areas[i]),
            share=float(fractions[i]),
            rings=rings[i],
        )
        for i in by_area.tolist()
    )
    rank = np.empty_like(by_area)
    rank[by_area] = np.arange(len(by_area))
    mesh.pack()
    arrays = (
        corners,
        np.append(mesh.ring_start, len(mesh.ring_corners)),
        mesh.ring_corners.copy(),
        labels,
        rank[region],
    )
    between = corners[mesh.edge_ends[inner[~same]]]
    return Regions(
        regions, LabeledPolygons(*map(torch.from_numpy, arrays)), torch.from_numpy(between), order, comparison
    )


def _trace_boundaries(
    mesh: Mesh,
    region: Ints,  # (polygons,) the region of each
    corners: Floats,  # (corners, 2) plane coordinates
    count: int,  # of regions
    extent: float,  # of the plane
) -> tuple[Floats, list[tuple[Tensor, ...]]]:
    """Compute the area of every region, scaled to extent 1, and its boundary rings, the outer one first."""
    places, sizes = mesh.ring_indices(np.arange(len(mesh)))
    start, edge = mesh.ring_corners[places], mesh.ring_edges[places]
    owner = region[np.arange(len(mesh)).repeat(sizes)]
    beside = np.where(mesh.edge_ends[edge, 0] == start, mesh.edge_sides[edge, 1], mesh.edge_sides[edge, 0])
    rim = (beside == OUTSIDE) | (region[beside] != owner)
    start, edge, owner = start[rim], edge[rim], owner[rim]
    stop = mesh.edge_ends[edge].sum(1) - start
    following = _find_next_sides(owner, start, stop, corners)
    loop = connected_components(len(start), np.arange(len(start)), following)
    order = ring_order(loop, following)
    start, loop, owner = start[order], loop[order], owner[order]
    first = np.flatnonzero(np.insert(loop[1:] != loop[:-1], 0, True))
    length = np.diff(np.append(first, len(start)))
    position = corners[start]
    base = (position - position[first].repeat(length, 0)) / extent  # products of huge coordinates would overflow
    after = np.arange(len(start)) + 1
    after[first + length - 1] = first
    cross = base[:, 0] * base[after, 1] - base[:, 1] * base[after, 0]
    area = np.add.reduceat(cross, first) / 2
    areas = np.zeros(count)
    np.add.at(areas, owner[first], area)
    by_region: list[list[Tensor]] = [[] for _ in range(count)]
    for k in np.argsort(-area, kind="stable").tolist():
        ring = position[first[k] : first[k] + length[k]].copy()
        by_region[int(owner[first[k]])].append(torch.from_numpy(ring))
    return areas, [tuple(group) for group in by_region]


def _find_next_sides(
    owner: Ints,  # (sides,) the region
    start: Ints,  # (sides,) first corner
    stop: Ints,  # (sides,) second corner
    corners: Floats,  # (corners, 2)
) -> Ints:  # (sides,)
    """Find the next side on the boundary of the region; if several leave a corner, the first clockwise one."""
    width = len(corners)
    order = np.lexsort((start, owner))
    code = owner[order] * width + start[order]
    wanted = owner * width + stop
    first, last = np.searchsorted(code, wanted), np.searchsorted(code, wanted, side="right")
    following = order[first]
    for i in np.flatnonzero(last - first > 1).tolist():  # a region rarely touches itself at a corner
        choices = order[first[i] : last[i]]
        back = corners[start[i]] - corners[stop[i]]
        out = corners[stop[choices]] - corners[stop[i]]
        turn = (np.arctan2(back[1], back[0]) - np.arctan2(out[:, 1], out[:, 0])) % (2 * np.pi)
        following[i] = choices[np.where(turn <= 0, 2 * np.pi, turn).argmin()]
    return following
