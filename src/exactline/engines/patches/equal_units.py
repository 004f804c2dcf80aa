"""Units that are the same function of the inputs, such as windows of one map that all cover the whole of it.

Where they tie in a maximum, it does not matter which of them gets the gradient.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...network.graph import Network, Node
from ...ops.affine import Product, Rearrange, Reshape, Scale
from ...ops.maximum import Maximum
from ...ops.pointwise import Pointwise
from .convolve import ConvolutionRule
from .linear import ChannelScaleRule
from .plan import PatchPlan
from .pointwise import PointwisePatchRule


@dataclass(frozen=True, eq=False)
class UnitLabels:
    """Labels of the elements of nodes: elements with equal labels are the same function of the inputs.

    The converse need not hold: operators that are not known give every element a label of its own.
    """

    network: Network
    plan: PatchPlan
    watched: Collection[int]  # nodes whose gradients are wanted: their elements are told apart
    _known: dict[int, Tensor | None] = field(default_factory=dict[int, "Tensor | None"])  # by node

    def of(self, i: int) -> Tensor:
        """(elements,) the labels of a node's elements, which are counted over channels, then pixels."""
        for j in range(i + 1):
            if j not in self._known:
                self._known[j] = self._find(j)
        labels = self._known[i]
        return torch.arange(self._count(i), device=self.network.device) if labels is None else labels

    def _count(self, i: int) -> int:
        return torch.Size(self.network.nodes[i].shape).numel()

    def _find(self, i: int) -> Tensor | None:
        """(elements,) the labels of a node, from those of its inputs; None if they all differ."""
        node, labels = self.network.nodes[i], None
        if i in self.watched or i >= self.plan.first_dense_node:
            return None
        match node.op:
            case Maximum():
                labels = self._label_maximum(node.op, node)
            case Pointwise():
                is_uniform = isinstance(self.plan.activation_rules.get(i), PointwisePatchRule)
                labels = self._by_channel(i, self._known[node.inputs[0]]) if is_uniform else None
            case Scale():
                labels = self._label_scale(i, node)
            case Product():
                labels = self._label_product(i, node)
            case Reshape():
                labels = self._known[node.inputs[0]]
            case Rearrange():
                labels = self._label_rearrange(node.op, node)
            case _:
                pass
        return None if labels is None or len(labels.unique()) == len(labels) else labels

    def _label_maximum(self, op: Maximum, node: Node) -> Tensor:
        source = self._known[node.inputs[0]]
        return _label_sets(op.table if source is None else source[op.table])

    def _label_scale(self, i: int, node: Node) -> Tensor | None:
        rule = self.plan.affine_rules.get(i)
        is_uniform = isinstance(rule, ChannelScaleRule) and self._adds_one_constant_per_channel(i, node)
        return self._by_channel(i, self._known[node.inputs[0]]) if is_uniform else None

    def _label_product(self, i: int, node: Node) -> Tensor | None:
        """The outputs of a 1 x 1 convolution are equal at pixels where all channels of the input are."""
        rule, source = self.plan.affine_rules.get(i), self._known[node.inputs[0]]
        if source is None or not isinstance(rule, ConvolutionRule):
            return None
        geometry = rule.kernel_size, rule.stride, rule.padding
        if geometry != ((1, 1), (1, 1), (0, 0)) or not self._adds_one_constant_per_channel(i, node):
            return None
        pixels = source.view(rule.source_shape.channels, -1).T.unique(dim=0, return_inverse=True)[1]
        return self._by_channel(i, pixels.repeat(rule.map_shape.channels))

    def _by_channel(self, i: int, labels: Tensor | None) -> Tensor | None:
        """Labels with the channel: different channels may have different factors."""
        if labels is None:
            return None
        pixels = self.plan.map_shapes[i].pixels
        channel = torch.arange(len(labels), device=labels.device) // pixels
        return labels + channel * (int(labels.max()) + 1)

    def _adds_one_constant_per_channel(self, i: int, node: Node) -> bool:
        op = node.op
        if not isinstance(op, (Product, Scale)) or op.offset is None:
            return True
        map_shape = self.plan.map_shapes[i]
        constants = op.offset.expand(1, *node.shape).reshape(map_shape.channels, -1)
        return bool((constants == constants[:, :1]).all())

    def _label_rearrange(self, op: Rearrange, node: Node) -> Tensor:
        parts, first = list[Tensor](), 0
        for j in node.inputs:
            labels = self._known[j]
            labels = torch.arange(self._count(j), device=op.index.device) if labels is None else labels
            parts.append(labels + first)
            first += int(labels.max()) + 1 if len(labels) else 0
        own = torch.arange(first, first + len(op.index), device=op.index.device)  # of constants
        return torch.where(op.index < 0, own, torch.cat(parts)[op.index.clamp(min=0)])


def _label_sets(sets: Tensor) -> Tensor:
    """(n,) equal labels for rows (n, k) that have the same members, whatever their order and number."""
    members = sets.sort(1).values
    repeats = torch.zeros_like(members, dtype=torch.bool)
    repeats[:, 1:] = members[:, 1:] == members[:, :-1]
    members = members.masked_fill(repeats, -1).sort(1).values
    return members.unique(dim=0, return_inverse=True)[1]
