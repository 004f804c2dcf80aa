"""The adjoint of the jumps of an output on a segment: the integral of its cotangent from each break on."""

from __future__ import annotations

from functools import cached_property
from math import prod

import torch
from torch import Tensor

from ...budget import block_bytes
from ...numerics.plan import BYTES_PER_NUMBER
from ..dense.cotangents import OutputCotangent, TailCotangent
from .break_values import values_at
from .patch import MapShape, PatchGroup, real_tensor
from .positions import Adjoints, GroupPositions, read_at
from .segment import Segment, SegmentBreaks


class SegmentCotangent:
    """The cotangent of an output along one segment, of one line.

    Args:
        cotangent: The output element, with one target.
        segment: The segment.
        breaks: Its breaks.
    """

    def __init__(self, cotangent: OutputCotangent | TailCotangent, segment: Segment, breaks: SegmentBreaks) -> None:
        self.cotangent, self.segment = cotangent, segment
        network = cotangent.network
        self.node = network.outputs[cotangent.output]
        self.shape, self.map_shape = network.nodes[self.node].shape, segment.plan.map_shapes[self.node]
        ends = real_tensor((breaks.start, breaks.stop), breaks.alphas.device)
        self.alphas = torch.cat([ends[:1], breaks.alphas, ends[1:]])  # (points,) the start, all breaks, the stop
        tensor = breaks.tensors[self.node]
        self.like = tensor.ends
        self.integrals = None  # (points, *shape) from each point to the stop; None for a constant cotangent
        if isinstance(cotangent, TailCotangent):
            values = values_at(breaks, tensor, self.map_shape, self.shape)
            first = int(breaks.start == 0.0)
            inner = values[first : first + len(breaks.alphas)]
            values = torch.cat([tensor.ends[:1], inner, tensor.ends[1:]])
            self.integrals = self._integrate_tail(cotangent, values)

    def _integrate_tail(self, cotangent: TailCotangent, values: Tensor) -> Tensor:
        widths = torch.zeros_like(self.alphas)
        widths[:-1] = self.alphas.diff()
        target = cotangent.targets.to(values.device).expand(len(values))
        on_pieces = cotangent.integrate(values, widths, target)
        return on_pieces.flip(0).cumsum(0).flip(0)

    @cached_property
    def _unit(self) -> Tensor:
        """(1, *shape) 1 at the target."""
        unit = torch.zeros_like(self.like[:1])
        unit.view(-1)[int(self.cotangent.targets[0])] = 1.0
        return unit

    def _from(self, points: Tensor) -> Tensor:
        """(k, *shape) the integral of the cotangent from some points, (k,), to the stop."""
        if self.integrals is not None:
            return self.integrals[points]
        widths = self.alphas[-1] - self.alphas[points]
        return self._unit * widths.view(-1, *[1] * len(self.shape)).to(self._unit.dtype)

    def base(self) -> Tensor:
        """(1, *shape) the adjoint of the slope at the start."""
        return self._from(torch.zeros(1, dtype=torch.int64, device=self.like.device))

    def adjoints(self) -> Adjoints:
        """The adjoint of all jumps."""
        adjoints: Adjoints = {}
        for sources, positions in self.segment.positions[self.node].items():
            point = torch.searchsorted(self.alphas, self.segment.break_alphas.of(sources))
            step = max(1, block_bytes() // (BYTES_PER_NUMBER * max(1, prod(self.shape))))
            parts = [
                _read_points(positions.rows(slice(at, at + step)), self._from(point[at : at + step]), self.map_shape)
                for at in range(0, len(point), step)
            ]
            adjoints[sources] = torch.cat(parts)
        return adjoints


def _read_points(positions: GroupPositions, points: Tensor, map_shape: MapShape) -> Tensor:
    """The numbers of points (n, *shape) at the positions of a group."""
    maps = points.reshape(len(points), *map_shape).permute(0, 2, 3, 1)
    return read_at(positions, PatchGroup(torch.zeros_like(positions.corner), maps), map_shape)
