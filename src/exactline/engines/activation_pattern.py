"""Which branch every unit takes on a piece, found from both of its ends."""

from __future__ import annotations

import torch
from torch import Tensor

from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..numerics.static_filter import Magnitude
from ..ops.base import Breaking, Input
from .dense.error_model import PointErrorBounds
from .dense.state import SweepState, input_magnitudes, new_points


def activation_patterns(
    network: Network,
    lines: Lines,
    line: Tensor,  # (k,) which line each piece is on
    starts: Tensor,  # (k,) alphas
    stops: Tensor,  # (k,) alphas
) -> dict[int, Tensor]:
    """The branch of every unit of every breaking node on k pieces, (k, ...) each.

    Both ends go through the network along one and the same branch, so that rounding at an end cannot
    choose another.
    """
    facts = sweep_plan(network)
    alphas = torch.stack([starts, stops], 1).flatten().cpu().numpy()
    state = SweepState(lines, 0, *new_points(line.cpu().numpy().repeat(2), alphas))
    points, _ = state.line_points(torch.arange(len(alphas), device=lines.starts[0].device))
    state.live = dict(zip(network.inputs, points, strict=True))
    state.sizes = input_magnitudes(state.live)
    found: dict[int, Tensor] = {}
    for i, node in enumerate(network.nodes):
        if i not in facts.last_use or isinstance(node.op, Input):
            continue
        args = [state.live[j] for j in node.inputs]
        if isinstance(node.op, Breaking):
            x, source = args[0], node.inputs[0]
            largest = float(x.abs().max()) if x.numel() else 0.0
            noise = PointErrorBounds(network, state, source, largest, state.sizes[source])
            state.sizes[i] = Magnitude(largest * facts.value_gain[i], state.sizes[source].errors * facts.error_gain[i])
            settled = node.op.snap_to_knots(x, noise).x.view(x.shape)
            found[i] = node.op.activation_pattern(settled[0::2], settled[1::2])
            state.live[i] = node.op.apply_affine(found[i].repeat_interleave(2, 0), settled)
        else:
            state.live[i] = node.op.evaluate(*args)
            state.sizes[i] = Magnitude.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
        for j in set(node.inputs):
            if facts.last_use[j] == i:
                del state.live[j]
    return found
