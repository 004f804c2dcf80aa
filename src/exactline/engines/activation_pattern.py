"""Which branch every unit takes on a piece, found from both of its ends."""

from __future__ import annotations

import torch
from torch import Tensor

from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import plan
from ..numerics.static_filter import Size
from ..ops.base import Breaking, Input
from .dense.error_model import StateNoise
from .dense.state import State, first_sizes, unborn


def patterns(
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
    facts = plan(network)
    alphas = torch.stack([starts, stops], 1).flatten().cpu().numpy()
    state = State(lines, 0, *unborn(line.cpu().numpy().repeat(2), alphas))
    points, _ = state.line_points(torch.arange(len(alphas), device=lines.starts[0].device))
    state.live = dict(zip(network.inputs, points, strict=True))
    state.sizes = first_sizes(state.live)
    found: dict[int, Tensor] = {}
    for i, node in enumerate(network.nodes):
        if i not in facts.last or isinstance(node.op, Input):
            continue
        args = [state.live[j] for j in node.inputs]
        if isinstance(node.op, Breaking):
            x, source = args[0], node.inputs[0]
            largest = float(x.abs().max()) if x.numel() else 0.0
            noise = StateNoise(network, state, source, largest, state.sizes[source])
            state.sizes[i] = Size(largest * facts.reach[i], state.sizes[source].errors * facts.gain[i])
            settled = node.op.settle(x, noise).x.view(x.shape)
            found[i] = node.op.branch(settled[0::2], settled[1::2])
            state.live[i] = node.op.follow(found[i].repeat_interleave(2, 0), settled)
        else:
            state.live[i] = node.op.evaluate(*args)
            state.sizes[i] = Size.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
        for j in set(node.inputs):
            if facts.last[j] == i:
                del state.live[j]
    return found
