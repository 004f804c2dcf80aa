"""Members of a max window that lead together all along a segment: whether it matters which one gets the gradient."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from ...network.graph import Network
from ...numerics.equal_units import EqualUnits
from ...ops.affine import Rearrange, Reshape, Scale
from ...ops.base import Breaking, Input
from .pointwise import PointwisePatchRule
from .segment import Segment


def depends_on_convention(
    network: Network,
    segment: Segment,
    watched: Collection[int],
    hooked: Collection[int],
    ignores_fixed_inputs: bool,
) -> bool:
    """Whether it matters to the inputs, or to a watched node, which of some tied leaders gets a gradient.

    Leaders that are tied along a whole segment are mostly zeros of ReLUs that are off, where the gradient ends, or the
    same function of the inputs, so that the gradient is the same.

    Args:
        network: The network.
        segment: The swept segment.
        watched: Nodes whose gradients are wanted as they are.
        hooked: These, and other nodes whose units are told apart.
        ignores_fixed_inputs: Whether gradients at inputs that do not move along the line are not wanted.
    """
    ends = _GradientEnds(network, segment, watched, ignores_fixed_inputs)
    units = EqualUnits(network, frozenset(hooked))
    for i, pairs in segment.tied.items():
        source = network.nodes[i].inputs[0]
        is_floor = pairs < 0
        passes = ~(is_floor | ends.include(source, pairs.clamp(min=0).flatten()).view_as(pairs)).all(1)
        if not bool(passes.any()):
            continue
        of_unit = units.labels(source)[pairs.clamp(min=0)]
        if bool((passes & (is_floor.any(1) | (of_unit[:, 0] != of_unit[:, 1]))).any()):
            return True
    return False


@dataclass(frozen=True, eq=False)
class _GradientEnds:
    """Elements at which a gradient ends, so that it does not matter which of several tied ones gets it."""

    network: Network
    segment: Segment
    watched: Collection[int]
    ignores_fixed_inputs: bool

    def include(self, i: int, elements: Tensor) -> Tensor:
        """(k,) whether some elements of a node, (k,), are known to pass no gradient on along the segment.

        Elements are counted over channels, then pixels.
        """
        node, ends = self.network.nodes[i], torch.zeros_like(elements, dtype=torch.bool)
        if not len(elements) or i in self.watched:
            return ends
        if isinstance(node.op, Input):
            return self._is_fixed(i, elements) if self.ignores_fixed_inputs else ends
        if isinstance(node.op, Reshape) or (isinstance(node.op, Scale) and node.shape == self._source_shape(i)):
            return self.include(node.inputs[0], elements)
        if isinstance(node.op, Rearrange):
            position, first = node.op.index[elements], 0
            ends |= position < 0
            for j in node.inputs:
                size = torch.Size(self.network.nodes[j].shape).numel()
                here = (position >= first) & (position < first + size)
                ends[here] = self.include(j, position[here] - first)
                first += size
        return self._pass_breaking(i, elements) if isinstance(node.op, Breaking) else ends

    def _source_shape(self, i: int) -> tuple[int, ...]:
        return self.network.nodes[self.network.nodes[i].inputs[0]].shape

    def _is_fixed(self, i: int, elements: Tensor) -> Tensor:
        """(k,) whether some elements of an input do not move along the line."""
        errors, position = self.segment.errors, self.network.inputs.index(i)
        start, end = (side[position][errors.line].flatten() for side in (errors.lines.starts, errors.lines.ends))
        return start[elements] == end[elements]

    def _pass_breaking(self, i: int, elements: Tensor) -> Tensor:
        """`include` for a breaking node."""
        segment, source = self.segment, self.network.nodes[i].inputs[0]
        rule, pattern = segment.plan.activation_rules[i], segment.patterns[i]
        area = rule.map_shape.pixels
        switches = torch.zeros(area, rule.map_shape.channels, dtype=torch.bool, device=elements.device)
        if i in segment.new_breaks:
            switches[segment.new_breaks[i].pixel, segment.new_breaks[i].channel] = True
        pixel, channel = elements % area, elements // area
        stays, branch = ~switches[pixel, channel], pattern[pixel, channel]
        if isinstance(rule, PointwisePatchRule):
            return stays & (branch == 0)
        leader = branch + channel * segment.plan.map_shapes[source].pixels
        follows, ends = stays & (branch >= 0), stays & (branch < 0)
        ends[follows] = self.include(source, leader[follows])
        return ends
