"""Answers to the lines and polytopes of the old protocol: exact, in its own messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch

from ...api import restrict, restrict_plane
from ...arrays import Floats, Ints
from ...errors import LineError, NumberError
from ...network.graph import Network
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.triangles import triangulate
from ..limits import Limits, refuse
from ..protos import syrenn_server_pb2 as wire
from .layers import bad, numbers
from .polygon import Corners

LARGEST = float(np.finfo(np.float32).max)
ENDPOINT, FLOAT, PIECE = 24, 4, 32  # bytes of a message, at most, besides the numbers in it


@dataclass(frozen=True)
class Answerer:
    """A network, whether its largest output decides (ArgMax), and how much may be answered."""

    network: Network
    decides: bool
    limits: Limits

    @property
    def outputs(self) -> int:
        """How many numbers an answer has at each point."""
        return 1 if self.decides else self.network.nodes[self.network.outputs[0]].shape[0]

    def line(self, start: Floats, end: Floats, include_post: bool) -> Any:
        """Every break of a line as an endpoint, with the network's values where they are wanted."""
        led = self._leader(np.stack([start, end]))
        if led is not None:
            return _segmented(np.array([0.0, 1.0]), np.full((2, 1), float(led)) if include_post else None)
        each = ENDPOINT + FLOAT * self.outputs * include_post
        found = self._restricted(start, end, include_post or self.decides, each)
        return _segmented(*self._along(found, include_post))

    def upolytope(self, polytopes: Sequence[Corners], subspace: int) -> Any:
        """The convex pieces of all polytopes, one after another."""
        made = wire.UPolytope(space_dimensions=self.outputs, subspace_dimensions=subspace)
        size = 0
        for values, shares in chain.from_iterable(map(self._pieces, polytopes)):
            size += PIECE + FLOAT * (values.size + shares.size)
            self.limits.within("old_message_bytes", size, "bytes of an answer")
            made.polytopes.add(
                vertices=_small(values).ravel().tolist(),
                combinations=shares.astype(np.float32).ravel().tolist(),
                num_vertices=len(values),
            )
        return wire.TransformResponse(transformed_upolytope=made)

    def _along(self, found: Restriction, values: bool) -> tuple[Floats, Any]:
        """Ratios and, for each, the network's values in float32."""
        ratios = found.alphas.numpy()
        if self.decides:
            ratios, labels = _decided(found)
            return ratios, labels.astype(np.float32)[:, None] if values else None
        return ratios, _small(_rows(found.values)) if values else None

    def _restricted(self, start: Floats, end: Floats, values: bool, each: int) -> Restriction:
        """A line, refused where it has more breaks than may be answered with so many bytes each."""
        room = self.limits.old_message_bytes // each
        most = min(self.limits.breaks_per_line, room)
        found = restrict(self.network, start, end, values=values, max_breaks=most + 1)
        if len(found.alphas) > most:
            name = "breaks_per_line" if most == self.limits.breaks_per_line else "old_message_bytes"
            reached = float(found.alphas[most - 1])
            raise refuse(name, self.limits, f"There are {most:,} breaks up to alpha {reached:.6g}, and more.")
        return found

    def _pieces(self, corners: Corners) -> Iterator[tuple[Floats, Floats]]:
        """Each piece of a polytope: its values (k, out), and its corners as combinations (k, vertices)."""
        led = self._leader(corners.ring)
        if led is not None:
            yield np.full((len(corners.ring), 1), float(led)), corners.combinations
        elif len(corners.points) == 1:
            values = _rows(self.network(torch.from_numpy(corners.points)))
            values = values.argmax(1)[:, None].astype(np.float64) if self.decides else values
            yield values.repeat(len(corners.ring), 0), corners.combinations
        elif len(corners.points) == 2:
            yield from self._strips(corners)
        else:
            yield from self._polygons(corners)

    def _strips(self, corners: Corners) -> Iterator[tuple[Floats, Floats]]:
        """Pieces of a polygon without width: cut across its line, they have corners on both of its sides."""
        each = 2 * FLOAT * (self.outputs + corners.mixing.shape[1]) + PIECE
        found = self._restricted(corners.points[0], corners.points[1], True, each)
        ratios, values = self._along(found, True)
        for i in range(len(ratios) - 1):
            places, mixing = corners.strip(ratios[i], ratios[i + 1])
            share = ((places - ratios[i]) / (ratios[i + 1] - ratios[i]))[:, None]
            step = 0.0 if self.decides else values[i + 1] - values[i]  # a piece has one class, also at its end
            yield values[i] + share * step, mixing

    def _leader(self, points: Floats) -> int | None:
        """The class between points of a network that nowhere breaks, where it is the same at all of them.

        Clients classify so: they send the pieces of an earlier answer back, one by one, with an ArgMax alone.
        """
        if not self.decides or self.network.breaking:
            return None
        leads = _rows(self.network(torch.from_numpy(points))).argmax(1)
        return int(leads[0]) if (leads == leads[0]).all() else None

    def _polygons(self, corners: Corners) -> Iterator[tuple[Floats, Floats]]:
        plane = restrict_plane(self.network, corners.points, progress=self._watch)
        if self.decides:
            cells = plane.decisions().cells
            shares = _mixtures(plane, cells.corners.numpy()) @ corners.mixing
            labels = cells.labels.numpy()
            for i, ring in enumerate(_rings(cells.rings.numpy(), cells.offsets.numpy())):
                yield np.full((len(ring), 1), float(labels[i])), shares[ring]
        else:
            shares, values = plane.weights.numpy().clip(0) @ corners.mixing, _rows(plane.values)
            for ring in _rings(plane.rings.numpy(), plane.offsets.numpy()):
                yield values[ring], shares[ring]

    def _watch(self, share: float, polygons: int) -> None:
        """Called while a plane is cut: an answer that is too large is not waited for."""
        self.limits.within("polygons_per_plane", polygons, "polygons")
        least = polygons * (PIECE + 3 * FLOAT * (3 + self.outputs))
        self.limits.within("old_message_bytes", least, "bytes of an answer")


def ends_of(message: Any, where: str) -> tuple[Floats, Floats]:
    """The two ends of a line as it arrives: ratios 0 and 1, as many coordinates each."""
    ends = message.endpoints
    if len(ends) != 2:
        raise bad(f"The line has {len(ends)} endpoints.", where, "Give two, of preimage_ratio 0 and 1.")
    if (ends[0].preimage_ratio, ends[1].preimage_ratio) != (0.0, 1.0):
        raise bad(
            f"The ratios are {ends[0].preimage_ratio:g} and {ends[1].preimage_ratio:g}.", where, "They must be 0 and 1."
        )
    counts = [len(end.coordinates) for end in ends]
    if counts[0] != counts[1] or not counts[0]:
        raise LineError(
            f"The endpoints have {counts[0]} and {counts[1]} coordinates.",
            where=where,
            hint="Give both as many as the network takes.",
        )
    start, end = (numbers(e.coordinates, "coordinates", where).astype(np.float64) for e in ends)
    return start, end


def _segmented(ratios: Floats, values: Any) -> Any:
    made = wire.SegmentedLine()
    for i, ratio in enumerate(ratios.tolist()):
        made.endpoints.add(preimage_ratio=ratio, coordinates=None if values is None else values[i].tolist())
    return wire.TransformResponse(transformed_line=made)


def _decided(found: Restriction) -> tuple[Floats, Ints]:
    """Breaks and class boundaries together, and the class that leads from each to the next; the last has that before.

    A boundary that cannot be told from a break is that break.
    """
    alphas, table = found.alphas.numpy(), found.decisions().table
    labels = table.labels[:, 0]
    changes = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    starts, labels, errors = table.starts[changes], labels[changes], table.start_errors[changes]
    at = np.searchsorted(alphas, starts).clip(1, len(alphas) - 1)
    near = np.where(starts - alphas[at - 1] < alphas[at] - starts, alphas[at - 1], alphas[at])
    starts = np.where(np.abs(near - starts) <= errors, near, starts)
    starts[0] = alphas[0]
    ratios = np.union1d(alphas, starts)
    leads = np.searchsorted(starts, ratios, side="right") - 1
    leads[-1] = leads[max(len(leads) - 2, 0)]
    return ratios, labels[leads]


def _mixtures(plane: PlaneRestriction, places: Floats) -> Floats:
    """Points (n, 2) of a plane as mixtures (n, k) of its vertices."""
    count, none = len(plane.outline), np.zeros(len(places), dtype=np.int64)
    outline = (plane.outline / plane.extent).numpy()
    triangle, share = triangulate(places / plane.extent, np.arange(count), none, none + count, outline)
    made = np.zeros((len(places), count))
    np.put_along_axis(made, triangle.numpy(), share.numpy().clip(0), 1)
    return made


def _rings(rings: Ints, offsets: Ints) -> Iterator[Ints]:
    return (rings[start:stop] for start, stop in pairwise(offsets.tolist()))


def _rows(values: Any) -> Floats:
    return values.reshape(len(values), -1).numpy()


def _small(values: Floats) -> Any:
    """Values in float32, refused where it cannot hold them."""
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise NumberError(
            "The network has values that float32 cannot hold.",
            where="the answer",
            hint="This protocol has no others; the service exactline.v1 has float64.",
        )
    return values.astype(np.float32)
