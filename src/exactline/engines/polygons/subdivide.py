"""Cutting every polygon along the zeros of many differences at once.

First all edges are cut where a difference changes sign; each polygon then has the two ends of every chord among its
corners, so that which chords cross is a matter of order, not of rounding. Then, round after round, every polygon that
is still cut by something is split along one of its chords, and the new edge is cut by the chords that cross it.
"""

from __future__ import annotations

import numpy as np
import torch

from ...arrays import Floats, Ints
from ...lines import interpolate
from ...network.graph import Network
from ...ops.base import Crossings
from ..dense.breaks import NewBreaks, place_breaks
from .error_model import EdgeErrorBounds, separator_errors
from .growable import GrowableArray, Mask, Signs, count_within
from .merge import MAX_BATCH_NUMBERS, centroid_values
from .separators import Separator
from .state import MeshState, NewCorners, PendingCuts

MIN_RELATIVE_WIDTH = 32 * float(
    np.finfo(np.float64).eps
)  # a cut whose one side is thinner than this, to the whole, is none


class Subdivision:
    """One contest at the node a state stands at."""

    def __init__(
        self, network: Network, state: MeshState, number: int, contest: Separator, largest: float, doubtful: float
    ) -> None:
        self.network, self.state, self.number, self.separator = network, state, number, contest
        self.magnitude, self.threshold = largest, doubtful
        self.source = network.nodes[state.node].inputs[0]
        self.units = contest.units.numpy()
        self.levels = None if contest.levels is None else contest.levels.numpy()
        self.origins: NewCorners = []

    def run(self, points: int) -> bool:
        """Cut until no difference changes sign inside a polygon, or until there are too many corners to go on at once.

        Whether it came to its end; otherwise what is left to do is the state's work.
        """
        work = self._start() if self.state.work is None else self.state.work
        self.state.work = None
        self.columns, self.differences, self.signs = work.columns, work.differences, work.signs
        polygon, column = self._cut_polygons(work.polygon, work.column, points)
        self.state.grow(self.origins)
        if len(polygon):
            self.state.work = PendingCuts(self.number, self.columns, self.differences, self.signs, polygon, column)
            return False
        row, column = np.nonzero(self.signs.all == 0)
        self._set_crossing_values(row, self.columns[column])
        return True

    def _start(self) -> PendingCuts:
        """Every edge cut, and which polygon is to be cut by which difference."""
        gaps = self.separator.differences(self.state.live[self.source]).cpu().to(torch.float64).numpy()
        gaps, snapped = self._snap(gaps)
        if len(snapped[0]):
            self._count_ambiguous(gaps, *snapped)
            self._set_crossing_values(*snapped)
        self.columns = np.flatnonzero((gaps.max(0, initial=0) > 0) & (gaps.min(0, initial=0) < 0))
        self.differences = GrowableArray(gaps[:, self.columns])
        self.signs = GrowableArray(_signs(self.differences.all))
        self._cut_edges()
        return PendingCuts(self.number, self.columns, self.differences, self.signs, *self._pending_polygons())

    def _snap(self, gaps: Floats) -> tuple[Floats, tuple[Ints, Ints]]:
        """Differences that cannot be told from 0 are 0; the entries that were changed."""
        near = (np.abs(gaps) <= self.threshold) & (gaps != 0)
        rows = np.flatnonzero(near.any(1))
        none = np.zeros(0, dtype=np.int64)
        if not len(rows):
            return gaps, (none, none)
        bound = separator_errors(self.network, self.state, self.state.node, self.separator, rows).numpy()
        row, column = np.nonzero(near[rows] & (np.abs(gaps[rows]) <= bound))
        gaps = gaps.copy()
        gaps[rows[row], column] = 0.0
        return gaps, (rows[row], column)

    def _count_ambiguous(self, gaps: Floats, row: Ints, column: Ints) -> None:
        """Count polygons on which a difference is nothing but rounding; equal functions differ by nothing at all."""
        mesh = self.state.mesh
        places, count = mesh.places(np.arange(len(mesh)))
        first, corners = count.cumsum() - count, mesh.corners[places]
        columns, which = np.unique(column, return_inverse=True)
        changed = np.zeros((len(gaps), len(columns)), dtype=bool)
        changed[row, which] = True
        flat = np.logical_and.reduceat(gaps[:, columns][corners] == 0, first)
        polygon, k = np.nonzero(flat & np.logical_or.reduceat(changed[corners], first))
        some, back = np.unique(polygon, return_inverse=True)
        x = self.state.live[self.source]
        step = max(1, MAX_BATCH_NUMBERS // max(1, x[0].numel()))
        for at in range(0, len(some), step):
            inside = self.separator.differences(centroid_values(x, self.state, some[at : at + step])).cpu().numpy()
            here = (back >= at) & (back < at + step)
            self.state.ambiguous += int((inside[back[here] - at, columns[k[here]]] != 0).sum())

    def _cut_edges(self) -> None:
        """Put a corner wherever a difference changes sign along an edge."""
        ends, signs = self.state.mesh.ends, self.signs.all
        edge, column = np.nonzero((signs[ends[:, 0]] * signs[ends[:, 1]]) < 0)
        self._cross(edge, column)

    def _cross(self, edge: Ints, column: Ints) -> None:
        """Place the crossings of some differences, (k,), on some edges, (k,), as new corners."""
        mesh, state = self.state.mesh, self.state
        while len(edge):
            edges, which = np.unique(edge, return_inverse=True)
            ends = mesh.ends[edges]
            noise = EdgeErrorBounds(
                self.network, state, self.separator, self.columns, self.threshold, self.magnitude, ends
            )
            births = place_breaks(self._crossings(ends[which], which, column), noise)
            joined = births.old_point >= 0
            if joined.any():
                corner = noise.ends[births.old_point[joined]]
                self.differences.all[corner, births.crossings.element[joined]] = 0.0
                self.signs.all[corner, births.crossings.element[joined]] = 0
                mine = mesh.ends[edge]
                still = (self.signs.all[mine[:, 0], column] * self.signs.all[mine[:, 1], column]) < 0
                edge, column = edge[still], column[still]
                continue
            self._add(edges, births, noise)
            return

    def _crossings(self, ends: Ints, which: Ints, column: Ints) -> Crossings:
        gaps = self.differences.all
        before, after = gaps[ends[:, 0], column], gaps[ends[:, 1], column]
        full = self.columns[column]
        level = np.zeros(len(column)) if self.levels is None else self.levels[full]
        arrays = (2 * which, self.units[full], before, after, column, np.full_like(column, -1), level)
        return Crossings(*map(torch.from_numpy, arrays))

    def _add(self, edges: Ints, births: NewBreaks, noise: EdgeErrorBounds) -> None:
        """New corners on edges, in order."""
        state, local = self.state, births.piece // 2
        one, two = noise.ends[2 * local], noise.ends[2 * local + 1]
        part = torch.from_numpy(births.alpha)[:, None]
        for rows in (self.differences, state.weights):
            old = rows.all
            rows.add(interpolate(torch.from_numpy(old[one]), torch.from_numpy(old[two]), part).numpy())
        first = len(self.signs)
        owned = births.break_of >= 0
        self.differences.all[first + births.break_of[owned], births.crossings.element[owned]] = 0.0
        self.signs.add(_signs(self.differences.all[first:]))
        facts = np.zeros((len(births), 4), dtype=np.int64)
        facts[:, 0], facts[:, 1] = state.node, self.number
        facts[:, 2] = self.columns[births.crossings.element[births.representative]]
        state.corner_origins.add(facts)
        with np.errstate(all="ignore"):
            rate = births.slope / noise.length[local]
            state.corner_errors.add(np.stack([rate, self.threshold / rate], 1))
        self.origins.append((one, two, births.alpha))
        count = np.bincount(local, minlength=len(edges))
        some = count > 0
        state.mesh.insert(edges[some], count[some], first + np.arange(len(births)))

    def _pending_polygons(self) -> tuple[Ints, Ints]:
        """Which polygon is cut by which difference: all pairs, in order."""
        mesh, signs = self.state.mesh, self.signs.all
        width = len(self.columns)
        # where an edge was cut, a corner is on the knot: only columns with a zero can cut
        columns = np.flatnonzero((signs == 0).any(0))
        places, count = mesh.places(np.arange(len(mesh)))
        starts = count.cumsum() - count
        keys = []
        step = max(1, (1 << 26) // max(len(places), 1))
        for at in range(0, len(columns), step):
            some = columns[at : at + step]
            taken = signs[:, some][mesh.corners[places]]
            low, high = np.minimum.reduceat(taken, starts), np.maximum.reduceat(taken, starts)
            polygon, k = np.nonzero((low < 0) & (high > 0))
            keys.append(polygon * width + some[k])
        key = np.sort(np.concatenate(keys)) if keys else np.zeros(0, dtype=np.int64)
        return key // width, key % width

    def _cut_polygons(self, polygon: Ints, column: Ints, points: int) -> tuple[Ints, Ints]:
        """Split along one chord of every polygon, until none is left or the corners are too many; the pairs left."""
        state = self.state
        while len(polygon) and not (len(state.weights) > points and len(state.mesh) > 1):
            start = np.flatnonzero(np.insert(polygon[1:] != polygon[:-1], 0, True))
            size = np.diff(np.append(start, len(polygon)))
            chosen = start + size // 2
            chords = self._chords(polygon[chosen], column[chosen])
            rest = np.ones(len(polygon), dtype=bool)
            rest[chosen[~chords.again]] = False
            cut = np.flatnonzero(chords.real)
            full = self.columns[column[chosen[cut]]]
            born = np.stack([np.full(len(cut), state.node), self.units[full], np.ones_like(cut)], 1)
            owners = polygon[chosen[cut]]
            made, edges = state.mesh.split(owners, chords.one[cut], chords.two[cut], born)
            # what else crosses the new edges
            of = np.full(len(state.mesh), -1)
            of[owners] = np.arange(len(owners))
            other, others = polygon[rest], column[rest]
            chord = of[other]
            on_cut = chord >= 0
            crossing = edges[chord[on_cut]]
            ends = state.mesh.ends[crossing]
            signs = self.signs.all
            one, two = signs[ends[:, 0], others[on_cut]], signs[ends[:, 1], others[on_cut]]
            crossed = (one * two) < 0
            self._tally(edges, chord[on_cut][(one == 0) & (two == 0)])
            self._cross(crossing[crossed], others[on_cut][crossed])
            # every pair may go on in the polygon, in the one split off it, or in both
            twin = np.concatenate([other, made[chord[on_cut]]])
            unit = np.concatenate([others, others[on_cut]])
            kept = self._needs_cut(twin, unit)
            width = len(self.columns)
            key = np.sort(twin[kept] * width + unit[kept])
            polygon, column = key // width, key % width
        return polygon, column

    def _tally(self, edges: Ints, chord: Ints) -> None:
        """Differences that vanish along a whole new edge share it."""
        np.add.at(self.state.mesh.origins[:, 2], edges[chord], 1)

    def _needs_cut(self, polygon: Ints, column: Ints) -> Mask:
        """Whether each difference has both signs on its polygon."""
        if not len(polygon):
            return np.zeros(0, dtype=bool)
        mesh = self.state.mesh
        found = np.empty(len(polygon), dtype=bool)
        ends = mesh.count[polygon].cumsum()
        for at, to in _batches(ends, 1 << 24):
            places, count = mesh.places(polygon[at:to])
            taken = self.signs.all[mesh.corners[places], column[at:to].repeat(count)]
            starts = count.cumsum() - count
            found[at:to] = (np.minimum.reduceat(taken, starts) < 0) & (np.maximum.reduceat(taken, starts) > 0)
        return found

    def _chords(self, polygon: Ints, column: Ints) -> _Chords:
        """Where each polygon is cut: from the corner before what is negative to the one after."""
        mesh = self.state.mesh
        places, count = mesh.places(polygon)
        corners = mesh.corners[places]
        signs = self.signs.all[corners, column.repeat(count)]
        first = count.cumsum() - count
        before = np.arange(len(places)) - 1
        before[first] = first + count - 1
        negative = signs < 0
        entered, left = negative & ~negative[before], ~negative & negative[before]
        position = count_within(count)
        far = np.iinfo(np.int64).max
        begin = np.minimum.reduceat(np.where(entered, position, far), first)
        after = (position - begin.repeat(count)) % count.repeat(count)
        run = np.minimum.reduceat(np.where(left, after, far), first)
        one, two = (begin - 1) % count, (begin + run) % count
        again = np.add.reduceat(entered, first) > 1
        thin = self._thin(corners, count, first, one, two, after < run.repeat(count))
        for side in (False, True):  # what is within rounding of the chord lies on it
            flat = thin[int(side)].repeat(count) & ((after < run.repeat(count)) == side) & (signs != 0)
            self.signs.all[corners[flat], column.repeat(count)[flat]] = 0
            self.differences.all[corners[flat], column.repeat(count)[flat]] = 0.0
        real = ~(thin[0] | thin[1])
        return _Chords(one, two, real, again | ~real)

    def _thin(self, corners: Ints, count: Ints, first: Ints, one: Ints, two: Ints, inside: Mask) -> tuple[Mask, Mask]:
        """Whether what is outside a chord, or inside it, is no wider than rounding."""
        frame = self.state.frame.coordinates
        spot = self.state.weights.all[corners] @ frame
        base = spot[first + one]
        along = spot[first + two] - base
        away = spot - base.repeat(count, 0)
        along = along.repeat(count, 0)
        width = np.abs(along[:, 0] * away[:, 1] - along[:, 1] * away[:, 0])
        limit = MIN_RELATIVE_WIDTH * float(np.ptp(frame, axis=0).max()) * np.hypot(along[first, 0], along[first, 1])
        outer = np.maximum.reduceat(np.where(inside, 0.0, width), first) <= limit
        inner = np.maximum.reduceat(np.where(inside, width, 0.0), first) <= limit
        return outer, inner

    def _set_crossing_values(self, row: Ints, column: Ints) -> None:
        """What sits on its knot is exactly the knot: some corners and columns."""
        if self.levels is None or not len(row):
            return
        x = self.state.live[self.source]
        flat = x.view(len(x), -1).clone()
        where = torch.from_numpy(row).to(x.device), torch.from_numpy(self.units[column]).to(x.device)
        flat[where] = torch.from_numpy(self.levels[column]).to(x.device, x.dtype)
        self.state.live[self.source] = flat.view(x.shape)


class _Chords:
    """A chord for each polygon."""

    def __init__(self, one: Ints, two: Ints, real: Mask, again: Mask) -> None:
        self.one, self.two = one, two  # places in the lists of corners
        self.real = real  # whether both sides have an area
        self.again = again  # whether the same difference may cut the same polygon once more


def _signs(gaps: Floats) -> Signs:
    return (gaps > 0).view(np.int8) - (gaps < 0).view(np.int8)


def _batches(ends: Ints, most: int) -> list[tuple[int, int]]:
    """Stretches of about ``most`` elements each, given where the elements of each end."""
    cuts = np.searchsorted(ends, np.arange(most, int(ends[-1]), most)) if len(ends) else np.zeros(0, dtype=np.int64)
    marks = np.unique(np.concatenate([[0], cuts, [len(ends)]]))
    return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))
