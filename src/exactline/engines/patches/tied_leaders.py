"""Members of a max window that lead together all along a segment: whether it matters which one gets the gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ...network.graph import Network
from ...ops.affine import Rearrange, Reshape
from ...ops.base import Breaking
from .pointwise import PointwisePatchRule
from .segment import Segment


def depends_on_convention(network: Network, segment: Segment) -> bool:
    """Whether some tied leader passes a gradient on to the inputs of the network.

    Leaders that are tied along a whole segment are mostly zeros of ReLUs that are off. Whichever of them gets the
    gradient, it ends there.
    """
    return any(
        not _is_constant(network, segment, network.nodes[i].inputs[0], elements).all()
        for i, elements in segment.tied.items()
    )


def _is_constant(network: Network, segment: Segment, i: int, elements: Tensor) -> Tensor:
    """(k,) whether some elements of a node, (k,), are known to pass no gradient on along the segment.

    Elements are counted over channels, then pixels.
    """
    node, constant = network.nodes[i], torch.zeros_like(elements, dtype=torch.bool)
    if not len(elements):
        return constant
    if isinstance(node.op, Reshape):
        return _is_constant(network, segment, node.inputs[0], elements)
    if isinstance(node.op, Rearrange):
        position, first = node.op.index[elements], 0
        constant |= position < 0
        for j in node.inputs:
            size = torch.Size(network.nodes[j].shape).numel()
            here = (position >= first) & (position < first + size)
            constant[here] = _is_constant(network, segment, j, position[here] - first)
            first += size
        return constant
    if not isinstance(node.op, Breaking):
        return constant
    rule, pattern = segment.plan.activation_rules[i], segment.patterns[i]
    area = rule.map_shape.pixels
    switches = torch.zeros(area, rule.map_shape.channels, dtype=torch.bool, device=elements.device)
    if i in segment.new_breaks:
        switches[segment.new_breaks[i].pixel, segment.new_breaks[i].channel] = True
    pixel, channel = elements % area, elements // area
    stays, branch = ~switches[pixel, channel], pattern[pixel, channel]
    if isinstance(rule, PointwisePatchRule):
        return stays & (branch == 0)
    leader = branch + channel * segment.plan.map_shapes[node.inputs[0]].pixels
    follows = stays & (branch >= 0)
    constant = stays & (branch < 0)
    constant[follows] = _is_constant(network, segment, node.inputs[0], leader[follows])
    return constant
