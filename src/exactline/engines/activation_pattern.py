"""Activation patterns on pieces of a line, computed from both ends of each piece."""

from __future__ import annotations

import torch
from torch import Tensor

from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..numerics.static_filter import Magnitude
from ..ops.base import Breaking, Input
from .dense.error_model import PointErrorBounds
from .dense.points import PointTable
from .dense.state import SweepState, line_magnitudes


def activation_patterns(
    network: Network,
    lines: Lines,
    line: Tensor,  # (k,) the line of each piece
    starts: Tensor,  # (k,) alphas
    stops: Tensor,  # (k,) alphas
) -> dict[int, Tensor]:
    """By breaking node: the activation pattern (k, ...) of its units on each of k pieces.

    Both ends of a piece are evaluated with the affine map of the pattern found so far, so that rounding at one end
    cannot select a different branch.
    """
    plan = sweep_plan(network)
    alphas = torch.stack([starts, stops], 1).flatten().cpu().numpy()
    state = SweepState(lines, 0, PointTable.without_origins(line.cpu().numpy().repeat(2), alphas))
    points, _ = state.line_points(torch.arange(len(alphas), device=lines.starts[0].device))
    state.live = dict(zip(network.inputs, points, strict=True))
    state.bounds = line_magnitudes(lines, line.to(lines.starts[0].device).unique(), state.live)
    patterns: dict[int, Tensor] = {}
    for i, node in enumerate(network.nodes):
        if i not in plan.last_use or isinstance(node.op, Input):
            continue
        inputs = [state.live[j] for j in node.inputs]
        if isinstance(node.op, Breaking):
            x, source = inputs[0], node.inputs[0]
            largest = float(x.abs().max()) if x.numel() else 0.0
            errors = PointErrorBounds(network, state, source, largest, state.bounds[source])
            state.bounds[i] = Magnitude(largest * plan.value_gain[i], state.bounds[source].errors * plan.error_gain[i])
            snapped = node.op.snap_to_knots(x, errors).x.view(x.shape)
            patterns[i] = node.op.activation_pattern(snapped[0::2], snapped[1::2])
            state.live[i] = node.op.apply_affine(patterns[i].repeat_interleave(2, 0), snapped)
        else:
            state.live[i] = node.op.evaluate(*inputs)
            state.bounds[i] = Magnitude.after(plan, i, [state.bounds[j] for j in node.inputs], state.eps)
        for j in set(node.inputs):
            if plan.last_use[j] == i:
                del state.live[j]
    return patterns
