"""Exact answers to the polytopes of the legacy protocol, as its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...api import restrict_plane
from ...arrays import Floats, Ints
from ...errors import LineError
from ...results.locate import enclosing_triangles
from ...results.plane import PlaneRestriction
from .encode import FLOAT_BYTES, encode_plane, encode_polytope, encode_polytopes, to_float32
from .layers import read_floats, request_error
from .line_responses import LineResponder, flatten_rows
from .polygon import Polytope, Vertices, find_corners

POLYTOPE_BYTES = 32  # of a polytope, at most, besides its numbers


@dataclass(frozen=True)
class Pieces:
    """Convex pieces of a polytope: values and combinations of corners, and the corners of each piece."""

    values: Floats  # (corners, out)
    combinations: Floats  # (corners, originals)
    rings: Ints  # corners of all pieces, concatenated
    offsets: Ints  # (pieces + 1,) first entry of each piece in rings

    @classmethod
    def of_one(cls, values: Floats, combinations: Floats) -> Pieces:
        """Return a single piece with these corners."""
        return cls(values, combinations, np.arange(len(values)), np.array([0, len(values)]))

    @property
    def encoded_bytes(self) -> int:
        """How large the pieces are in an answer, at most."""
        numbers = len(self.rings) * (self.values.shape[1] + self.combinations.shape[1])
        return POLYTOPE_BYTES * (len(self.offsets) - 1) + FLOAT_BYTES * numbers

    def encode(self) -> bytes:
        """Return the pieces as they stand in an answer."""
        values, combinations = to_float32(self.values), self.combinations.astype(np.float32)
        if len(self.offsets) == 2:  # one piece
            return encode_polytope(values[self.rings], combinations[self.rings])
        return encode_polytopes(values, combinations, self.rings, self.offsets)


@dataclass(frozen=True)
class Responder(LineResponder):
    """Answers lines and polytopes for one network; with an ArgMax the values are classes."""

    def transform_planes(self, planes: Sequence[tuple[list[Vertices], int]]) -> Iterator[bytes]:
        """Yield the answer to each message: the convex pieces of its polytopes, one after another.

        Args:
            planes: for each message its polytopes, and the subspace_dimensions to report.
        """
        labels = iter(self.constant_classes([given.points for polytopes, _ in planes for given in polytopes]))
        for polytopes, subspace in planes:
            size, encoded = 0, []
            for given, label in zip(polytopes, labels, strict=False):
                pieces = self._split_polytope(given, label)
                size += pieces.encoded_bytes
                self.limits.check("legacy_message_bytes", size, "bytes in the answer")
                encoded.append(pieces.encode())
            yield encode_plane(b"".join(encoded), self.outputs, subspace)

    def _split_polytope(self, given: Vertices, label: int | None) -> Pieces:
        """Split a polytope; ``label`` is the class of all its points if it is known to have one."""
        if label is not None:
            return Pieces.of_one(np.full((len(given.points), 1), float(label)), given.combinations)
        polytope = find_corners(given)
        if len(polytope.corners) == 1:
            values = flatten_rows(self.network(torch.from_numpy(polytope.corners)))
            values = values.argmax(1)[:, None].astype(np.float64) if self.has_argmax else values
            return Pieces.of_one(values.repeat(len(polytope.vertices), 0), polytope.vertex_combinations)
        if len(polytope.corners) == 2:
            return _join_pieces(list(self._split_degenerate_polygon(polytope)))
        return self._split_polygon(polytope)

    def _split_degenerate_polygon(self, polytope: Polytope) -> Iterator[Pieces]:
        """Yield the pieces of a polygon without width: strips across its line, with corners on both of its sides."""
        break_bytes = 2 * FLOAT_BYTES * (self.outputs + polytope.corner_combinations.shape[1]) + POLYTOPE_BYTES
        ends = polytope.corners[:1], polytope.corners[1:]
        ((ratios, values),) = self.restrict_lines(*ends, True, break_bytes)
        for i in range(len(ratios) - 1):
            positions, combinations = polytope.cut_strip(ratios[i], ratios[i + 1])
            share = ((positions - ratios[i]) / (ratios[i + 1] - ratios[i]))[:, None]
            step = 0.0 if self.has_argmax else values[i + 1] - values[i]  # a piece has one class, also at its end
            yield Pieces.of_one(values[i] + share * step, combinations)

    def _split_polygon(self, polytope: Polytope) -> Pieces:
        """Return the pieces of a polygon."""
        plane = restrict_plane(self.network, polytope.corners, progress=self._check_size)
        is_single = self.network.nodes[self.network.outputs[0]].shape[0] == 1
        if self.has_argmax and not is_single:
            cells = plane.decisions().polygons
            combinations = _convex_combinations(plane, cells.corners.numpy()) @ polytope.corner_combinations
            rings, offsets = cells.rings.numpy(), cells.offsets.numpy()
            labels = np.repeat(cells.labels.numpy().astype(np.float64), np.diff(offsets))
            return Pieces(labels[:, None], combinations[rings], np.arange(len(rings)), offsets)
        combinations = plane.weights.numpy().clip(0) @ polytope.corner_combinations
        values = flatten_rows(plane.values)
        values = np.zeros_like(values) if self.has_argmax else values  # one output has one class
        return Pieces(values, combinations, plane.rings.numpy(), plane.offsets.numpy())

    def _check_size(self, share: float, polygons: int) -> None:
        """End a plane early whose answer is too large; a progress callback."""
        self.limits.check("polygons_per_plane", polygons, "polygons")
        min_bytes = polygons * (POLYTOPE_BYTES + 3 * FLOAT_BYTES * (3 + self.outputs))
        self.limits.check("legacy_message_bytes", min_bytes, "bytes in the answer")


def _join_pieces(parts: Sequence[Pieces]) -> Pieces:
    """Put single pieces together."""
    sizes = [len(part.values) for part in parts]
    return Pieces(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.combinations for part in parts]),
        np.arange(sum(sizes)),
        np.append(0, np.cumsum(sizes)),
    )


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
