"""Exact answers to the lines and polytopes of the legacy protocol, as its messages."""

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
from ...results.locate import enclosing_triangles
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ..limits import Limits
from ..protos import syrenn_server_pb2 as wire
from .layers import read_floats, request_error
from .polygon import Polytope

FLOAT32_MAX = float(np.finfo(np.float32).max)
ENDPOINT_BYTES, POLYTOPE_BYTES = 24, 32  # of an endpoint and of a polytope, at most, besides their numbers
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Responder:
    """Answers lines and polytopes for one network; with an ArgMax the values are classes."""

    network: Network
    has_argmax: bool
    limits: Limits

    @property
    def outputs(self) -> int:
        """How many numbers an answer has at each point."""
        return 1 if self.has_argmax else self.network.nodes[self.network.outputs[0]].shape[0]

    def transform_line(
        self,
        start: Floats,  # (in,)
        end: Floats,  # (in,)
        include_post: bool,
    ) -> Any:
        """Return every break of a line as an endpoint, with the network's values if ``include_post``."""
        label = self._constant_class(np.stack([start, end]))
        if label is not None:
            return _encode_line(np.array([0.0, 1.0]), np.full((2, 1), float(label)) if include_post else None)
        endpoint_bytes = ENDPOINT_BYTES + FLOAT_BYTES * self.outputs * include_post
        line = self._restrict_line(start, end, include_post or self.has_argmax, endpoint_bytes)
        return _encode_line(*self._line_values(line, include_post))

    def transform_polytopes(self, polytopes: Sequence[Polytope], subspace: int) -> Any:
        """Return the convex pieces of all polytopes, one after another."""
        message = wire.UPolytope(space_dimensions=self.outputs, subspace_dimensions=subspace)
        size = 0
        for values, combinations in chain.from_iterable(map(self._split_polytope, polytopes)):
            size += POLYTOPE_BYTES + FLOAT_BYTES * (values.size + combinations.size)
            self.limits.check("legacy_message_bytes", size, "bytes in the answer")
            message.polytopes.add(
                vertices=_to_float32(values).ravel().tolist(),
                combinations=combinations.astype(np.float32).ravel().tolist(),
                num_vertices=len(values),
            )
        return wire.TransformResponse(transformed_upolytope=message)

    def _line_values(self, line: Restriction, include_values: bool) -> tuple[Floats, Any]:
        """Return the ratios (n,) of the endpoints of a line, and the values (n, out) in float32 or None."""
        if self.has_argmax:
            ratios, labels = _insert_class_boundaries(line)
            return ratios, labels.astype(np.float32)[:, None] if include_values else None
        return line.alphas.numpy(), _to_float32(_flatten_rows(line.values)) if include_values else None

    def _restrict_line(self, start: Floats, end: Floats, values: bool, break_bytes: int) -> Restriction:
        """Restrict the network to a line.

        Raises LimitError if it has more breaks than allowed, or than fit an answer with so many bytes each.
        """
        max_breaks = min(self.limits.breaks_per_line, self.limits.legacy_message_bytes // break_bytes)
        line = restrict(self.network, start, end, values=values, max_breaks=max_breaks + 1)
        if len(line.alphas) > max_breaks:
            name = "breaks_per_line" if max_breaks == self.limits.breaks_per_line else "legacy_message_bytes"
            reached = float(line.alphas[max_breaks - 1])
            problem = f"There are {max_breaks:,} breaks up to alpha {reached:.6g}, and more."
            raise self.limits.error(name, problem)
        return line

    def _split_polytope(self, polytope: Polytope) -> Iterator[tuple[Floats, Floats]]:
        """Yield the values (k, out) and the combinations (k, vertices) of the corners of each piece of a polytope."""
        label = self._constant_class(polytope.vertices)
        if label is not None:
            yield np.full((len(polytope.vertices), 1), float(label)), polytope.vertex_combinations
        elif len(polytope.corners) == 1:
            values = _flatten_rows(self.network(torch.from_numpy(polytope.corners)))
            values = values.argmax(1)[:, None].astype(np.float64) if self.has_argmax else values
            yield values.repeat(len(polytope.vertices), 0), polytope.vertex_combinations
        elif len(polytope.corners) == 2:
            yield from self._split_degenerate_polygon(polytope)
        else:
            yield from self._split_polygon(polytope)

    def _split_degenerate_polygon(self, polytope: Polytope) -> Iterator[tuple[Floats, Floats]]:
        """Yield the pieces of a polygon without width: strips across its line, with corners on both of its sides."""
        break_bytes = 2 * FLOAT_BYTES * (self.outputs + polytope.corner_combinations.shape[1]) + POLYTOPE_BYTES
        line = self._restrict_line(polytope.corners[0], polytope.corners[1], True, break_bytes)
        ratios, values = self._line_values(line, True)
        for i in range(len(ratios) - 1):
            positions, combinations = polytope.cut_strip(ratios[i], ratios[i + 1])
            share = ((positions - ratios[i]) / (ratios[i + 1] - ratios[i]))[:, None]
            step = 0.0 if self.has_argmax else values[i + 1] - values[i]  # a piece has one class, also at its end
            yield values[i] + share * step, combinations

    def _constant_class(
        self,
        points: Floats,  # (n, in)
    ) -> int | None:
        """Return the class of all points between some points, if an affine network gives them all the same class.

        Clients classify the pieces of an earlier answer this way: they send them back one by one, with an ArgMax alone.
        """
        if not self.has_argmax or self.network.breaking_nodes:
            return None
        labels = _flatten_rows(self.network(torch.from_numpy(points))).argmax(1)
        return int(labels[0]) if (labels == labels[0]).all() else None

    def _split_polygon(self, polytope: Polytope) -> Iterator[tuple[Floats, Floats]]:
        """Yield the pieces of a polygon."""
        plane = restrict_plane(self.network, polytope.corners, progress=self._check_size)
        is_single = self.network.nodes[self.network.outputs[0]].shape[0] == 1
        if self.has_argmax and not is_single:
            cells = plane.decisions().polygons
            combinations = _convex_combinations(plane, cells.corners.numpy()) @ polytope.corner_combinations
            labels = cells.labels.numpy()
            for i, ring in enumerate(_iterate_rings(cells.rings.numpy(), cells.offsets.numpy())):
                yield np.full((len(ring), 1), float(labels[i])), combinations[ring]
        else:
            combinations = plane.weights.numpy().clip(0) @ polytope.corner_combinations
            values = _flatten_rows(plane.values)
            values = np.zeros_like(values) if self.has_argmax else values  # one output has one class
            for ring in _iterate_rings(plane.rings.numpy(), plane.offsets.numpy()):
                yield values[ring], combinations[ring]

    def _check_size(self, share: float, polygons: int) -> None:
        """End a plane early whose answer is too large; a progress callback."""
        self.limits.check("polygons_per_plane", polygons, "polygons")
        min_bytes = polygons * (POLYTOPE_BYTES + 3 * FLOAT_BYTES * (3 + self.outputs))
        self.limits.check("legacy_message_bytes", min_bytes, "bytes in the answer")


def read_endpoints(message: Any, where: str) -> tuple[Floats, Floats]:
    """Read the two ends (in,) of a line, which must have the ratios 0 and 1.

    Raises ArgumentError, LineError.
    """
    ends = message.endpoints
    if len(ends) != 2:
        raise request_error(f"The line has {len(ends)} endpoints.", where, "Give two, of preimage_ratio 0 and 1.")
    if (ends[0].preimage_ratio, ends[1].preimage_ratio) != (0.0, 1.0):
        raise request_error(
            f"The ratios are {ends[0].preimage_ratio:g} and {ends[1].preimage_ratio:g}.", where, "They must be 0 and 1."
        )
    counts = [len(end.coordinates) for end in ends]
    if counts[0] != counts[1] or not counts[0]:
        raise LineError(
            f"The endpoints have {counts[0]} and {counts[1]} coordinates.",
            where=where,
            hint="Give both as many as the network takes.",
        )
    start, end = (read_floats(e.coordinates, "coordinates", where).astype(np.float64) for e in ends)
    return start, end


def _encode_line(
    ratios: Floats,  # (n,)
    values: Any,  # (n, out) or None
) -> Any:
    message = wire.SegmentedLine()
    for i, ratio in enumerate(ratios.tolist()):
        message.endpoints.add(preimage_ratio=ratio, coordinates=None if values is None else values[i].tolist())
    return wire.TransformResponse(transformed_line=message)


def _insert_class_boundaries(line: Restriction) -> tuple[Floats, Ints]:
    """Return breaks and class boundaries together, (n,), and the class from each to the next, (n,).

    The last one has the class of the piece before it. A boundary within its error of a break is moved to the break.
    """
    if _flatten_rows(line.values).shape[1] == 1:  # the argument of the maximum of one output
        return line.alphas.numpy(), np.zeros(len(line.alphas), dtype=np.int64)
    alphas, table = line.alphas.numpy(), line.decisions().table
    labels = table.labels[:, 0]
    changes = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    starts, labels, errors = table.starts[changes], labels[changes], table.start_errors[changes]
    after = np.searchsorted(alphas, starts).clip(1, len(alphas) - 1)
    nearest = np.where(starts - alphas[after - 1] < alphas[after] - starts, alphas[after - 1], alphas[after])
    starts = np.where(np.abs(nearest - starts) <= errors, nearest, starts)
    starts[0] = alphas[0]
    ratios = np.union1d(alphas, starts)
    intervals = np.searchsorted(starts, ratios, side="right") - 1
    intervals[-1] = intervals[max(len(intervals) - 2, 0)]
    return ratios, labels[intervals]


def _convex_combinations(
    plane: PlaneRestriction,
    points: Floats,  # (n, 2)
) -> Floats:
    """Express points of a plane as convex combinations (n, k) of its k vertices."""
    count, zeros = len(plane.outline), np.zeros(len(points), dtype=np.int64)
    outline = (plane.outline / plane.extent).numpy()
    triangle, shares = enclosing_triangles(points / plane.extent, np.arange(count), zeros, zeros + count, outline)
    combinations = np.zeros((len(points), count))
    np.put_along_axis(combinations, triangle.numpy(), shares.numpy().clip(0), 1)
    return combinations


def _iterate_rings(rings: Ints, offsets: Ints) -> Iterator[Ints]:
    return (rings[start:stop] for start, stop in pairwise(offsets.tolist()))


def _flatten_rows(values: Any) -> Floats:
    return values.reshape(len(values), -1).numpy()


def _to_float32(values: Floats) -> Any:
    """Convert values to float32.

    Raises NumberError if one is too large for it.
    """
    if np.abs(values).max(initial=0.0) > FLOAT32_MAX:
        raise NumberError(
            "The network has values that float32 cannot hold.",
            where="the answer",
            hint="The legacy protocol has only float32; the service exactline.v1 has float64.",
        )
    return values.astype(np.float32)
