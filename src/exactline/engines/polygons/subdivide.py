"""Subdivision of polygons along the zero sets of many differences at once.

First, every edge is split where a difference changes sign. The two ends of each chord are then among the corners of
its polygon, so that which chords cross each other is decided by their order on the outline, not by rounding. Then, in
rounds, every polygon that is still cut by some difference is split along one of its chords, and the new edge is split
where other chords cross it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...arrays import Bools, Floats, Ints
from ...lines import interpolate
from ...network.graph import Network
from ...ops.base import Crossings
from ...tolerances import MIN_RELATIVE_WIDTH
from ..dense.breaks import NewBreaks, place_breaks
from .error_model import EdgeErrorBounds, recent_separator_errors, separator_errors
from .growable import GrowableArray, Signs, count_within
from .merge import MAX_BATCH_NUMBERS, centroid_values
from .separators import Separator
from .state import MeshState, NewCorners, PendingCuts

MAX_SIGN_TABLE_ENTRIES = 1 << 26  # signs of ring corners that are gathered at a time, for all polygons
MAX_PAIR_CORNERS = 1 << 24  # corners of pairs of a polygon and a difference that are gathered at a time


class Subdivision:
    """The subdivision along one separator of the node that a state is at.

    Args:
        network: The network.
        state: The state, modified in place.
        number: Index of the separator at its node.
        separator: The separator.
        magnitude: The largest absolute value of the node's input.
        threshold: Differences further than this from zero are unambiguous.
    """

    def __init__(
        self,
        network: Network,
        state: MeshState,
        number: int,
        separator: Separator,
        *,
        magnitude: float,
        threshold: float,
    ) -> None:
        self.network, self.state, self.number, self.separator = network, state, number, separator
        self.magnitude, self.threshold = magnitude, threshold
        self.source = network.nodes[state.node].inputs[0]
        self.units = separator.units.numpy()
        self.levels = None if separator.levels is None else separator.levels.numpy()
        self.new_corners: list[NewCorners] = []

    def run(self, max_corners: int, watch: Callable[[], None] = lambda: None) -> bool:
        """Split polygons until no difference changes sign inside one, or until there are too many corners.

        Returns whether it is finished; otherwise the remaining cuts are pending in the state.

        Args:
            max_corners: How many corners are too many.
            watch: Called in every round of cuts; what it raises ends the sweep.
        """
        cuts = self._start() if self.state.pending is None else self.state.pending
        self.state.pending = None
        self.columns, self.differences, self.signs = cuts.columns, cuts.differences, cuts.signs
        polygon, column = self._split_polygons(cuts.polygon, cuts.column, max_corners, watch)
        self._interpolate()
        if len(polygon):
            self.state.pending = PendingCuts(
                self.number, self.columns, self.differences, self.signs, polygon=polygon, column=column
            )
            return False
        self._set_zeros()
        return True

    def _interpolate(self) -> None:
        """Extend every live tensor to the new corners."""
        self.state.interpolate_new_corners(self.new_corners)

    def _set_zeros(self) -> None:
        """Set elements whose difference is zero to exactly their knot."""
        corner, column = np.nonzero(self.signs.array == 0)
        self._set_crossing_values(corner, self.columns[column])

    def _start(self) -> PendingCuts:
        """Evaluate the differences, split all edges, and find which polygons are cut by which difference."""
        differences = self.separator.differences(self.state.live[self.source]).cpu().to(torch.float64).numpy()
        differences, snapped = self._snap(differences)
        if len(snapped[0]):
            self._count_ambiguous(differences, *snapped)
            self._set_crossing_values(*snapped)
        changes_sign = (differences.max(0, initial=0) > 0) & (differences.min(0, initial=0) < 0)
        self.columns = np.flatnonzero(changes_sign)
        self.differences = GrowableArray(differences[:, self.columns])
        self.signs = GrowableArray(_signs(self.differences.array))
        self._split_edges()
        polygon, column = self._cut_pairs()
        return PendingCuts(self.number, self.columns, self.differences, self.signs, polygon=polygon, column=column)

    def _snap(self, differences: Floats) -> tuple[Floats, tuple[Ints, Ints]]:
        """Set differences within their error of zero to zero; also the rows and columns that were changed."""
        size = np.abs(differences)
        near = (size <= self.threshold) & (differences != 0)
        if not near.any():
            none = np.zeros(0, dtype=np.int64)
            return differences, (none, none)
        snapped = np.zeros_like(near)
        rows = np.flatnonzero(near.any(1))
        arguments = self.network, self.state, self.state.node, self.separator
        if (certain := recent_separator_errors(*arguments, rows)) is not None:
            snapped[rows] = near[rows] & (size[rows] <= certain.numpy())
            rows = rows[(near[rows] & ~snapped[rows]).any(1)]
        if len(rows):
            snapped[rows] = near[rows] & (size[rows] <= separator_errors(*arguments, rows).numpy())
        differences = np.where(snapped, 0.0, differences)
        row, column = np.nonzero(snapped)
        return differences, (row, column)

    def _count_ambiguous(self, differences: Floats, row: Ints, column: Ints) -> None:
        """Count pairs of a polygon and a difference that was snapped to zero at all of its corners.

        Differences that are exactly zero inside the polygon, such as between equal functions, do not count.
        """
        mesh = self.state.mesh
        index, size = mesh.ring_indices(np.arange(len(mesh)))
        start, corners = size.cumsum() - size, mesh.ring_corners[index]
        columns, which = np.unique(column, return_inverse=True)
        was_snapped = np.zeros((len(differences), len(columns)), dtype=bool)
        was_snapped[row, which] = True
        is_zero = np.logical_and.reduceat(differences[:, columns][corners] == 0, start)
        polygon, k = np.nonzero(is_zero & np.logical_or.reduceat(was_snapped[corners], start))
        polygons, position = np.unique(polygon, return_inverse=True)
        x = self.state.live[self.source]
        step = max(1, MAX_BATCH_NUMBERS // max(1, x[0].numel()))
        for at in range(0, len(polygons), step):
            centroids = centroid_values(x, self.state, polygons[at : at + step])
            inside = self.separator.differences(centroids).cpu().numpy()
            here = (position >= at) & (position < at + step)
            self.state.ambiguous += int((inside[position[here] - at, columns[k[here]]] != 0).sum())

    def _split_edges(self) -> None:
        """Insert a corner wherever a difference changes sign along an edge."""
        ends, signs = self.state.mesh.edge_ends, self.signs.array
        edge, column = np.nonzero((signs[ends[:, 0]] * signs[ends[:, 1]]) < 0)
        self._insert_crossings(edge, column)

    def _insert_crossings(self, edge: Ints, column: Ints) -> None:
        """Insert corners where some differences, (k,), cross zero on some edges, (k,)."""
        mesh, state = self.state.mesh, self.state
        while len(edge):
            edges, which = np.unique(edge, return_inverse=True)
            ends = mesh.edge_ends[edges]
            errors = EdgeErrorBounds(
                self.network,
                state,
                self.separator,
                self.columns,
                threshold=self.threshold,
                magnitude=self.magnitude,
                edge_ends=ends,
            )
            breaks = place_breaks(self._crossings(ends[which], which, column), errors)
            on_corner = breaks.old_point >= 0
            if not on_corner.any():
                self._append_corners(edges, breaks, errors)
                return
            # a crossing that falls on an existing corner makes the difference zero there: sort out the others again
            corner = errors.corners[breaks.old_point[on_corner]]
            self.differences.array[corner, breaks.crossings.element[on_corner]] = 0.0
            self.signs.array[corner, breaks.crossings.element[on_corner]] = 0
            ends = mesh.edge_ends[edge]
            still = (self.signs.array[ends[:, 0], column] * self.signs.array[ends[:, 1], column]) < 0
            edge, column = edge[still], column[still]

    def _crossings(self, ends: Ints, which: Ints, column: Ints) -> Crossings:
        """Crossings on edges with ends (k, 2), of which edge ``i`` has points 2i and 2i + 1 of `EdgeErrorBounds`."""
        differences = self.differences.array
        before, after = differences[ends[:, 0], column], differences[ends[:, 1], column]
        original_column = self.columns[column]
        level = np.zeros(len(column)) if self.levels is None else self.levels[original_column]
        arrays = (2 * which, self.units[original_column], before, after, column, np.full_like(column, -1), level)
        return Crossings(*map(torch.from_numpy, arrays))

    def _append_corners(self, edges: Ints, breaks: NewBreaks, errors: EdgeErrorBounds) -> None:
        """Append a corner for every break on the edges (k,), in order."""
        state, edge_index = self.state, breaks.piece // 2
        first, second = errors.corners[2 * edge_index], errors.corners[2 * edge_index + 1]
        fraction = torch.from_numpy(breaks.alpha)[:, None]
        differences, weights = (
            interpolate(torch.from_numpy(old[first]), torch.from_numpy(old[second]), fraction).numpy()
            for old in (self.differences.array, state.corners.weights)
        )
        self.differences.append(differences)
        first_new = len(self.signs)
        owned = breaks.break_of >= 0
        self.differences.array[first_new + breaks.break_of[owned], breaks.crossings.element[owned]] = 0.0
        self.signs.append(_signs(self.differences.array[first_new:]))
        difference = self.columns[breaks.crossings.element[breaks.representative]]
        with np.errstate(all="ignore"):
            slope = breaks.slope / errors.length[edge_index]
            state.corners.append(
                weights,
                node=state.node,
                separator=self.number,
                difference=difference,
                slope=slope,
                error=self.threshold / slope,
            )
        self.new_corners.append(NewCorners(first, second, breaks.alpha))
        count = np.bincount(edge_index, minlength=len(edges))
        is_split = count > 0
        state.mesh.insert_corners(edges[is_split], count[is_split], first_new + np.arange(len(breaks)))

    def _cut_pairs(self) -> tuple[Ints, Ints]:
        """All pairs of a polygon and a difference that cuts it, sorted."""
        mesh, signs = self.state.mesh, self.signs.array
        width = len(self.columns)
        # edges are split already, so a difference that cuts a polygon is zero at two of its corners
        columns = np.flatnonzero((signs == 0).any(0))
        index, size = mesh.ring_indices(np.arange(len(mesh)))
        starts = size.cumsum() - size
        keys = []
        step = max(1, MAX_SIGN_TABLE_ENTRIES // max(len(index), 1))
        for at in range(0, len(columns), step):
            some = columns[at : at + step]
            polygon, k = np.nonzero(_have_both_signs(signs[:, some][mesh.ring_corners[index]], starts))
            keys.append(polygon * width + some[k])
        key = np.sort(np.concatenate(keys)) if keys else np.zeros(0, dtype=np.int64)
        return key // width, key % width

    def _split_polygons(
        self, polygon: Ints, column: Ints, max_corners: int, watch: Callable[[], None]
    ) -> tuple[Ints, Ints]:
        """Split every polygon along one chord per round; returns the pairs that are left if corners get too many."""
        state = self.state
        while len(polygon) and not (len(state.corners) > max_corners and len(state.mesh) > 1):
            watch()
            polygon, column = self._split_round(polygon, column)
        return polygon, column

    def _split_round(self, polygon: Ints, column: Ints) -> tuple[Ints, Ints]:
        """Split every polygon that is cut along one chord; returns the pairs that are still cut, sorted."""
        state = self.state
        start = np.flatnonzero(np.insert(polygon[1:] != polygon[:-1], 0, True))
        size = np.diff(np.append(start, len(polygon)))
        chosen = start + size // 2
        chords = self._find_chords(polygon[chosen], column[chosen])
        remaining = np.ones(len(polygon), dtype=bool)
        remaining[chosen[~chords.may_repeat]] = False
        cut = np.flatnonzero(chords.is_proper)
        units = self.units[self.columns[column[chosen[cut]]]]
        origins = np.stack([np.full(len(cut), state.node), units, np.ones_like(cut)], 1)
        split = polygon[chosen[cut]]
        new_polygons, edges = state.mesh.split(split, chords.first[cut], chords.second[cut], origins)
        return self._remaining_pairs(split, new_polygons, edges, polygon[remaining], column[remaining])

    def _remaining_pairs(
        self,
        split: Ints,  # (n,) polygons that were split
        new_polygons: Ints,  # (n,) their other parts
        edges: Ints,  # (n,) the chords
        polygon: Ints,  # (pairs,)
        column: Ints,  # (pairs,)
    ) -> tuple[Ints, Ints]:
        """Split the new edges where other chords cross them, and return the pairs that are still cut, sorted."""
        state, signs = self.state, self.signs.array
        chord_of = np.full(len(state.mesh), -1)
        chord_of[split] = np.arange(len(split))
        chord = chord_of[polygon]
        was_split = chord >= 0
        chord, split_column = chord[was_split], column[was_split]
        ends = state.mesh.edge_ends[edges[chord]]
        first_sign, second_sign = signs[ends[:, 0], split_column], signs[ends[:, 1], split_column]
        crosses = (first_sign * second_sign) < 0
        vanishes = (first_sign == 0) & (second_sign == 0)
        np.add.at(state.mesh.edge_origins[:, 2], edges[chord[vanishes]], 1)  # the difference shares the edge
        self._insert_crossings(edges[chord[crosses]], split_column[crosses])
        # a difference may cut the polygon, the one split off it, or both
        polygon, column = np.concatenate([polygon, new_polygons[chord]]), np.concatenate([column, split_column])
        is_cut = self._are_cut(polygon, column)
        width = len(self.columns)
        key = np.sort(polygon[is_cut] * width + column[is_cut])
        return key // width, key % width

    def _are_cut(self, polygon: Ints, column: Ints) -> Bools:
        """(pairs,) whether a difference has both signs on a polygon."""
        if not len(polygon):
            return np.zeros(0, dtype=bool)
        mesh = self.state.mesh
        is_cut = np.empty(len(polygon), dtype=bool)
        ends = mesh.ring_size[polygon].cumsum()
        for start, stop in _batches(ends, MAX_PAIR_CORNERS):
            index, size = mesh.ring_indices(polygon[start:stop])
            signs = self.signs.array[mesh.ring_corners[index], column[start:stop].repeat(size)]
            is_cut[start:stop] = _have_both_signs(signs, size.cumsum() - size)
        return is_cut

    def _find_chords(self, polygon: Ints, column: Ints) -> _Chords:
        """The chord along which each difference cuts its polygon: around a run of corners with negative sign.

        If one side of a chord is no wider than rounding, its corners are set to zero instead.
        """
        mesh = self.state.mesh
        index, size = mesh.ring_indices(polygon)
        corners = mesh.ring_corners[index]
        corner_column = column.repeat(size)
        signs = self.signs.array[corners, corner_column]
        start = size.cumsum() - size
        previous = np.arange(len(index)) - 1
        previous[start] = start + size - 1
        negative = signs < 0
        run_starts, run_ends = negative & ~negative[previous], ~negative & negative[previous]
        position = count_within(size)
        far = np.iinfo(np.int64).max
        run_start = np.minimum.reduceat(np.where(run_starts, position, far), start)
        offset = (position - run_start.repeat(size)) % size.repeat(size)
        run_length = np.minimum.reduceat(np.where(run_ends, offset, far), start)
        first, second = (run_start - 1) % size, (run_start + run_length) % size
        several_runs = np.add.reduceat(run_starts, start) > 1
        in_run = offset < run_length.repeat(size)
        thin_outside, thin_inside = self._thin_sides(corners, size, start, first, second, in_run)
        for side, is_thin in ((False, thin_outside), (True, thin_inside)):
            flat = is_thin.repeat(size) & (in_run == side) & (signs != 0)
            self.signs.array[corners[flat], corner_column[flat]] = 0
            self.differences.array[corners[flat], corner_column[flat]] = 0.0
        is_proper = ~(thin_outside | thin_inside)
        return _Chords(first, second, is_proper, several_runs | ~is_proper)

    def _thin_sides(
        self,
        corners: Ints,  # (ring corners,)
        size: Ints,  # (polygons,)
        start: Ints,  # (polygons,) where rings start in ``corners``
        first: Ints,  # (polygons,) ring position of a chord's first corner
        second: Ints,  # (polygons,) and of its second
        inside: Bools,  # (ring corners,) on the inner side of the chord
    ) -> tuple[Bools, Bools]:
        """(polygons,) each: whether the outer, and whether the inner side of a chord is no wider than rounding."""
        frame = self.state.frame.coordinates
        position = self.state.corners.weights[corners] @ frame
        base = position[start + first]
        along = position[start + second] - base
        away = position - base.repeat(size, 0)
        along = along.repeat(size, 0)
        width = np.abs(along[:, 0] * away[:, 1] - along[:, 1] * away[:, 0])  # times the length of the chord
        limit = MIN_RELATIVE_WIDTH * float(np.ptp(frame, axis=0).max()) * np.hypot(along[start, 0], along[start, 1])
        thin_outside = np.maximum.reduceat(np.where(inside, 0.0, width), start) <= limit
        thin_inside = np.maximum.reduceat(np.where(inside, width, 0.0), start) <= limit
        return thin_outside, thin_inside

    def _set_crossing_values(self, corner: Ints, column: Ints) -> None:
        """Set elements that are on their knot at some corners to exactly the knot."""
        if self.levels is None or not len(corner):
            return
        x = self.state.live[self.source]
        flat = x.view(len(x), -1).clone()
        where = torch.from_numpy(corner).to(x.device), torch.from_numpy(self.units[column]).to(x.device)
        flat[where] = torch.from_numpy(self.levels[column]).to(x.device, x.dtype)
        self.state.live[self.source] = flat.view(x.shape)


@dataclass(frozen=True)
class _Chords:
    """One chord for each of some polygons."""

    first: Ints  # (n,) ring position of the chord's first corner
    second: Ints  # (n,) and of its second
    is_proper: Bools  # (n,) whether both sides have an area
    may_repeat: Bools  # (n,) whether the same difference may cut the same polygon again


def _signs(differences: Floats) -> Signs:
    return (differences > 0).view(np.int8) - (differences < 0).view(np.int8)


def _have_both_signs(signs: Signs, starts: Ints) -> Bools:
    """Whether positive and negative signs occur in each of some adjacent ranges of rows."""
    return (np.minimum.reduceat(signs, starts) < 0) & (np.maximum.reduceat(signs, starts) > 0)


def _batches(ends: Ints, max_elements: int) -> list[tuple[int, int]]:
    """Divide ranges that end at ``ends`` into batches of about ``max_elements`` elements: first and last range."""
    cuts = (
        np.searchsorted(ends, np.arange(max_elements, int(ends[-1]), max_elements))
        if len(ends)
        else np.zeros(0, dtype=np.int64)
    )
    edges = np.unique(np.concatenate([[0], cuts, [len(ends)]]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
