"""Local complexity: the units of a network that change their branch near a point, on the axes of a cross-polytope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..api import restrict_parts
from ..engines.layer_record import Switches
from ..errors import ArgumentError, LineError
from ..fp_context import full_precision
from ..network import as_network
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..ops.base import Breaking


@dataclass(frozen=True, eq=False)
class LocalComplexity:
    """What happens on the axes of a cross-polytope around each point, exactly, and what its corners alone show."""

    pieces: Tensor  # (points,) linear regions on all axes, with repetitions
    length: float  # of all axes of one point together
    crossings: Tensor  # (points,) crossings on all axes
    units: Tensor  # (points,) units that change their branch on some axis
    vertex_units: Tensor  # (points,) units whose branch differs between two corners: what sampling the corners sees

    @property
    def region_density(self) -> Tensor:
        """Pieces for each unit of length, (points,)."""
        return self.pieces.to(torch.float64) / self.length


def make_axes(point: Tensor, count: int, generator: torch.Generator) -> Tensor:  # (*in) -> (count, *in)
    """Random orthonormal directions; fewer if the input has fewer dimensions."""
    size = point.numel()
    gaussian = torch.randn(size, min(count, size), generator=generator, dtype=torch.float64)
    return torch.linalg.qr(gaussian).Q.T.reshape(-1, *point.shape)


def local_complexity(
    model: Any,
    points: Tensor,  # (points, *in)
    axes: Tensor,  # (axes, *in) of length 1
    radius: float,
    *,
    device: torch.device | str | None = None,
    memory: int | None = None,
) -> LocalComplexity:
    """Count crossings and switching units on the axes of cross-polytopes around points.

    Args:
        model: A module in eval mode, or a Network.
        points: The centres.
        axes: The directions of the axes, which go from -radius to radius around each centre.
        radius: Half the length of an axis.
        device: Where to compute; by default where the model's weights are.
        memory: Bytes of the working set; by default a share of the free memory.

    Raises ArgumentError, LineError, and the errors of `restrict_many`.
    """
    if isinstance(radius, bool) or not isinstance(radius, (int, float)) or not 0 < radius < float("inf"):
        raise ArgumentError(
            f"radius must be a finite number above 0, not {radius!r}.",
            where="argument radius",
            hint="Lines of length 0 have no density; give a distance in input units.",
        )
    points, axes = points.detach().to("cpu", torch.float64), axes.detach().to("cpu", torch.float64)
    starts = (points[:, None] - radius * axes).flatten(0, 1)
    ends = (points[:, None] + radius * axes).flatten(0, 1)
    if not bool((starts != ends).flatten(1).any(1).all()):
        raise LineError(
            f"A radius of {radius:g} is lost in the rounding of the points.",
            where="argument radius",
            hint="Give a larger radius.",
        )
    choice, parts = restrict_parts(model, starts, ends, values=False, record="layers", device=device, memory=memory)
    breaks = torch.zeros(len(starts), dtype=torch.int64)
    for part in parts:
        breaks += torch.bincount(part.line, minlength=len(starts))
    switches = Switches.join([] if choice.recorder is None else choice.recorder.switches)
    inside = switches.select((switches.alpha > 0) & (switches.alpha < 1))
    count, point = len(axes), inside.line // len(axes)
    crossings = np.bincount(point[inside.is_crossing], minlength=len(points))
    distinct = np.unique(np.stack([point, inside.node, inside.unit]), axis=1)
    network = as_network(model, [points[0]], device=choice.network.device)
    return LocalComplexity(
        pieces=(breaks - 1).view(len(points), count).sum(1),
        length=2 * float(radius) * count,
        crossings=torch.from_numpy(crossings),
        units=torch.from_numpy(np.bincount(distinct[0], minlength=len(points))),
        vertex_units=_count_vertex_units(network, starts, ends, len(points)),
    )


def _count_vertex_units(network: Network, starts: Tensor, ends: Tensor, points: int) -> Tensor:  # (points,)
    """Units whose branch is not the same at all corners of the cross-polytope around each point."""
    counts = torch.zeros(points, dtype=torch.int64)
    last_use = sweep_plan(network).last_use
    corners = torch.stack([starts, ends], 1).flatten(0, 1).view(points, -1, *starts.shape[1:])
    with full_precision():
        for index, some in enumerate(corners):
            values = {network.inputs[0]: some.to(network.device, network.dtype)}
            for i, node in enumerate(network.nodes):
                if i not in last_use or i in values:
                    continue
                inputs = [values[j] for j in node.inputs]
                values[i] = node.op.evaluate(*inputs)
                if isinstance(node.op, Breaking):
                    branch = node.op.branch_at(inputs[0])
                    units = node.op.units(tuple(inputs[0].shape[1:]))
                    differs = (branch != branch[:1]).reshape(len(branch), units, -1)
                    counts[index] += int(differs.any(2).any(0).sum())
                for j in set(node.inputs):
                    if last_use[j] == i:
                        del values[j]
    return counts
