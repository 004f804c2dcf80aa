"""Subdivision with compiled loops, for polygons without ties: the answer of `Subdivision`, bit for bit.

Every step looks first whether rounding could change one of its decisions. If so, NumPy does this step.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ...arrays import Ints
from ...network.graph import Network
from ...ops.masks import is_on_host
from ...tolerances import OVERFLOW_GUARD
from ..loops import CompiledLoops
from .growable import GrowableArray
from .separators import Separator
from .state import MeshState, NewCorners, PendingCuts
from .subdivide import Subdivision

MIN_NUMBERS_TO_LOAD = 1 << 15  # numbers in a layer (corners times units) before the loops are loaded, which takes time
LOOPS = (
    "scan_differences",
    "select_columns",
    "count_sign_changes",
    "find_edge_crossings",
    "split_edges",
    "find_cut_pairs",
    "find_starts",
    "find_chords",
    "split_polygons",
    "set_levels",
    "interpolate_rows",
)


def _import_loops() -> Any:
    from . import chord_kernels, kernels

    return SimpleNamespace(**(vars(kernels) | vars(chord_kernels)))


CUT_LOOPS = CompiledLoops(_import_loops, LOOPS)


def make_subdivision(
    network: Network,
    state: MeshState,
    number: int,
    separator: Separator,
    *,
    magnitude: float,
    threshold: float,
) -> Subdivision:
    """The subdivision along one separator, compiled where that is possible and worth its start; see `Subdivision`."""
    source = state.live[network.nodes[state.node].inputs[0]]
    is_large = CUT_LOOPS.is_ready or source.numel() >= MIN_NUMBERS_TO_LOAD
    loops = CUT_LOOPS.request(source.numel()) if is_large and magnitude <= OVERFLOW_GUARD else None
    if loops is not None:
        kind = CompiledSubdivision
        subdivision = kind(network, state, number, separator, magnitude=magnitude, threshold=threshold)
        subdivision.loops = loops
        return subdivision
    return Subdivision(network, state, number, separator, magnitude=magnitude, threshold=threshold)


class CompiledSubdivision(Subdivision):
    """A subdivision that tries compiled loops first."""

    loops: Any

    def _start(self) -> PendingCuts:
        """Evaluate the differences, split all edges, and find which polygons are cut by which difference."""
        differences = self.separator.differences(self.state.live[self.source]).cpu().to(torch.float64).numpy()
        differences = np.ascontiguousarray(differences)
        low, high = np.zeros(differences.shape[1]), np.zeros(differences.shape[1])
        if not self.loops.scan_differences(differences, self.threshold, low, high):
            differences, snapped = self._snap(differences)
            if len(snapped[0]):
                self._count_ambiguous(differences, *snapped)
                self._set_crossing_values(*snapped)
                low, high = differences.min(0, initial=0), differences.max(0, initial=0)
        self.columns = np.flatnonzero((low < 0) & (high > 0))
        shape = len(differences), len(self.columns)
        selected, signs = np.empty(shape), np.empty(shape, dtype=np.int8)
        self.loops.select_columns(differences, self.columns, selected, signs)
        self.differences, self.signs = GrowableArray(selected), GrowableArray(signs)
        self._split_edges()
        polygon, column = self.loops.find_cut_pairs(self.state.mesh.arrays, self.signs.array)
        return PendingCuts(self.number, self.columns, self.differences, self.signs, polygon=polygon, column=column)

    def _cuts(self) -> Any:
        """The differences at all corners, for the loops."""
        units = self.units[self.columns]
        origin = self.state.node, self.number, self.threshold
        return self.loops.CutArrays(self.differences.array, self.signs.array, self.columns, units, *origin)

    def _crossings_of(self, counts: Ints, total: int) -> Any:
        """Space for so many crossings."""
        column, first, second = (np.empty(total, dtype=np.int64) for _ in range(3))
        return self.loops.CrossingArrays(counts, column, np.empty(total), np.empty(total), first, second)

    def _extend_corners(self, found: Any) -> int:
        """Append a corner for every crossing, to be written; returns the number of the first."""
        count = len(found.column)
        for table in (self.differences, self.signs):
            table.extend(count)
        if count:
            self.new_corners.append(NewCorners(found.first, found.second, found.fraction))
        return self.state.corners.extend(count)

    def _split_edges(self) -> None:
        """Insert a corner wherever a difference changes sign along an edge."""
        mesh, corners = self.state.mesh, self.state.corners
        counts = np.empty(len(mesh.edge_ends), dtype=np.int64)
        total = self.loops.count_sign_changes(mesh.edge_ends, self.signs.array, counts)
        if not total:
            return
        found = self._crossings_of(counts, total)
        if not self.loops.find_edge_crossings(mesh.edge_ends, self._cuts(), corners.arrays, found):
            super()._split_edges()
            return
        first_corner, pool = self._extend_corners(found), len(mesh.ring_corners)
        mesh.extend(total, 0, int(mesh.ring_size.sum()) + 2 * total)  # every edge has two sides at most
        scratch = np.empty(len(counts), dtype=np.int64)
        end = self.loops.split_edges(mesh.arrays, self._cuts(), corners.arrays, found, first_corner, scratch, pool)
        mesh.truncate_pools(end)

    def _split_round(self, polygon: Ints, column: Ints) -> tuple[Ints, Ints]:
        """Split every polygon that is cut along one chord; returns the pairs that are still cut, sorted."""
        mesh, corners, frame = self.state.mesh, self.state.corners, self.state.frame.coordinates
        pairs = self.loops.Pairs(polygon, column, self.loops.find_starts(polygon))
        count = len(pairs.start) - 1
        chords = self.loops.ChordArrays(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64))
        found = self._crossings_of(np.empty(count, dtype=np.int64), len(polygon))
        extent = float(np.ptp(frame, axis=0).max())
        found_chords = self.loops.find_chords(
            mesh.arrays, self._cuts(), corners.arrays, frame, extent, pairs, chords, found
        )
        if found_chords < 0:
            return super()._split_round(polygon, column)
        found = self.loops.CrossingArrays(found.counts, *(array[:found_chords] for array in found[1:]))
        sizes = len(corners), len(mesh.edge_ends), len(mesh), len(mesh.ring_corners)
        self._extend_corners(found)
        entries = int(mesh.ring_size[polygon[pairs.start[:-1]]].sum()) + 2 * (count + found_chords)
        mesh.extend(count + found_chords, count, entries)
        polygon, column, end = self.loops.split_polygons(
            mesh.arrays, self._cuts(), corners.arrays, pairs, chords, found, sizes
        )
        mesh.truncate_pools(end)
        return polygon, column

    def _interpolate(self) -> None:
        """Extend every live tensor to the new corners."""
        for i, old in self.state.live.items():
            if len(old) < len(self.state.corners) and _is_plain(old):
                self.state.live[i] = self._extend_tensor(old)
        super()._interpolate()

    def _set_zeros(self) -> None:
        """Set elements whose difference is zero to exactly their knot."""
        x = self.state.live[self.source]
        if self.levels is None or not _is_plain(x):
            super()._set_zeros()
            return
        x = self.state.live[self.source] = x if self.new_corners else x.clone()
        self.loops.set_levels(x.numpy(), self.signs.array, self.units[self.columns], self.levels[self.columns])

    def _extend_tensor(self, old: torch.Tensor) -> torch.Tensor:
        """A tensor with interpolated rows for the new corners."""
        extended = torch.empty(len(self.state.corners), *old.shape[1:], dtype=old.dtype)
        extended[: len(old)] = old
        rows, at = extended.numpy(), len(old)
        for new in self.new_corners:
            self.loops.interpolate_rows(rows, at, new.first, new.second, new.fraction)
            at += len(new.first)
        if not bool(torch.isfinite(extended[len(old) :].sum())):  # `interpolate` avoids an overflow
            return old
        return extended


def _is_plain(x: torch.Tensor) -> bool:
    """Whether the loops can read a tensor (corners, units)."""
    return x.dim() == 2 and is_on_host(x) and x.dtype == torch.float64 and x.is_contiguous()
