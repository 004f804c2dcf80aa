"""The adjoint of the sweep of one segment, node by node from an output back to the inputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...budget import check_deadline
from ...network.graph import Network
from ...ops.base import Affine, Breaking, Input
from ..dense.gradients import LayerHook
from ..layer_hooks import LayerIntegral, UnitSelection
from .adjoint import AffineNode, affine_adjoint
from .adjoint_switches import ActivationNode, FloorShare, floor_share, maximum_adjoint, pointwise_adjoint
from .maxpool import MaximumPatchRule
from .patch import as_patch_group, rows_by_pixel
from .plan import PatchPlan
from .pointwise import PointwisePatchRule
from .positions import Adjoints
from .segment import Segment
from .segment_cotangent import SegmentCotangent


class AdjointSweep:
    """Backpropagation along one segment.

    Args:
        network: The network.
        plan: Its patch plan.
        segment: The swept segment, with its patterns and positions.
        hooks: By node: see `patch_integral`.
        first_node: The node to stop at: gradients further down are not wanted.
    """

    def __init__(
        self, network: Network, plan: PatchPlan, segment: Segment, hooks: Mapping[int, LayerHook], first_node: int = 0
    ) -> None:
        self.first_node = first_node
        self.network, self.plan, self.segment, self.hooks = network, plan, segment, hooks
        self.base: dict[int, Tensor] = {}  # by node: the adjoint of the slope at the start, (1, *shape)
        self.adjoints: dict[int, Adjoints] = {}  # by node: of the jumps
        self.layers: dict[int, Tensor] = {}  # by node with a `LayerIntegral`: (*shape)
        self.other_layers: dict[int, Tensor] = {}  # the same on the other side of ambiguous units
        self.ambiguous = 0  # pairs of a piece that starts on the segment and an ambiguous unit
        self._differences: dict[int, Tensor] = {}  # by node: what `base` has more on the other side

    def run(self, output_node: int, cotangent: SegmentCotangent) -> list[Tensor]:
        """The integrals (*in) of the gradient at every input."""
        self._add(output_node, cotangent.base(), cotangent.adjoints())
        nodes = self.network.nodes
        for i in range(output_node, self.first_node - 1, -1):
            check_deadline()
            if i in self.hooks:
                self._apply_hook(i, self.hooks[i])
            if i not in self.base or isinstance(nodes[i].op, Input):
                continue
            base, adjoint = self.base.pop(i), self.adjoints.pop(i)
            if isinstance(nodes[i].op, Breaking):
                self._pass_activation(i, base, adjoint)
            else:
                self._pass_affine(i, base, adjoint)
        return [self._input_integral(i) for i in self.network.inputs]

    def _input_integral(self, i: int) -> Tensor:
        if i in self.base:
            return self.base[i][0]
        return torch.zeros(self.network.nodes[i].shape, dtype=self.network.dtype, device=self.network.device)

    def _add(self, i: int, base: Tensor, adjoint: Adjoints) -> None:
        """Add to the adjoint of a node."""
        if i not in self.base:
            self.base[i], self.adjoints[i] = base, adjoint
            return
        self.base[i] = self.base[i] + base
        self.adjoints[i] = {sources: numbers + adjoint[sources] for sources, numbers in self.adjoints[i].items()}

    def _pass_affine(self, i: int, base: Tensor, adjoint: Adjoints) -> None:
        node, map_shapes, positions = self.network.nodes[i], self.plan.map_shapes, self.segment.positions
        if not isinstance(node.op, Affine):
            raise TypeError("a node is neither affine nor breaking")
        shapes = [self.network.nodes[j].shape for j in node.inputs]
        affine = AffineNode(
            node.op,
            self.plan.affine_rules[i],
            input_shapes=shapes,
            output_shape=node.shape,
            input_maps=[map_shapes[j] for j in node.inputs],
            map_shape=map_shapes[i],
            inputs=[positions[j] for j in node.inputs],
            output=positions[i],
        )
        results = affine_adjoint(affine, adjoint)
        if i in self._differences:
            for j, difference in zip(node.inputs, node.op.vjp(self._differences.pop(i), shapes), strict=True):
                self._add_difference(j, difference)
        for j, gradient, result in zip(node.inputs, node.op.vjp(base, shapes), results, strict=True):
            self._add(j, gradient, result)

    def _pass_activation(self, i: int, base: Tensor, adjoint: Adjoints) -> None:
        source, segment, rule = self.network.nodes[i].inputs[0], self.segment, self.plan.activation_rules[i]
        activation = ActivationNode(
            i,
            self.plan.map_shapes[source],
            self.plan.map_shapes[i],
            pattern=segment.patterns[i],
            floor_pixels=rule.floor_pixels if isinstance(rule, MaximumPatchRule) else None,
            new_breaks=segment.new_breaks.get(i),
            at_entries=segment.at_entries.get(i),
            inputs=segment.positions[source],
            output=segment.positions[i],
            break_alphas=segment.break_alphas,
        )
        output_rows, shape = rows_by_pixel(base, self.plan.map_shapes[i]), self.network.nodes[source].shape
        make_adjoint = pointwise_adjoint if isinstance(rule, PointwisePatchRule) else maximum_adjoint
        rows, result = make_adjoint(activation, output_rows, adjoint)
        share = floor_share(activation, output_rows, adjoint)
        if share is not None:
            rows = rows + share.gradients[0]
            difference = share.gradients[1] - share.gradients[0]
            self._add_difference(source, difference.T.reshape(1, *shape))
            self.ambiguous += self._count_pieces(i, share)
        self._add(source, rows.T.reshape(1, *shape), result)

    def _add_difference(self, i: int, difference: Tensor) -> None:
        self._differences[i] = self._differences[i] + difference if i in self._differences else difference

    def _count_pieces(self, i: int, share: FloorShare) -> int:
        """Pairs of a window of node ``i`` that the constant 0 leads, and a piece there that starts on the segment."""
        alphas = torch.cat([a for node, a in self.segment.break_alphas.items() if node <= i] or [share.alphas]).unique()
        following = len(alphas) - torch.searchsorted(alphas, share.alphas)
        pieces = len(alphas) + (self.segment.start == 0.0)
        return share.windows * pieces + int((share.changes * following).sum())

    def _apply_hook(self, i: int, hook: LayerHook) -> None:
        if isinstance(hook, UnitSelection):
            self._select_unit(i, hook)
        elif isinstance(hook, LayerIntegral) and i in self.base:
            self.layers[i] = self.other_layers[i] = self._flow(i) if hook.over_values else self.base[i][0]
            if i in self._differences:
                self.other_layers[i] = self.layers[i] + self._differences[i][0]

    def _flow(self, i: int) -> Tensor:
        """(*shape) the integral of the gradient over the values of a node: its slopes times their adjoint."""
        tensor, map_shape = self.segment.kept[i], self.plan.map_shapes[i]
        total = rows_by_pixel(tensor.slope * self.base[i], map_shape)
        total = torch.cat([total, torch.zeros_like(total[:1])])  # the last row is for pixels outside
        for sources, positions in self.segment.positions[i].items():
            products = positions.as_group(tensor.groups[sources].jump * self.adjoints[i][sources], map_shape)
            rows = as_patch_group(products, map_shape).jump.reshape(-1, map_shape.channels)
            total.index_add_(0, positions.pixels(map_shape).flatten(), rows)
        return total[:-1].T.reshape(self.network.nodes[i].shape)

    def _select_unit(self, i: int, hook: UnitSelection) -> None:
        """Keep only the adjoint at one unit, times the square of its weight; paths around the layer do not count."""
        kept = None
        if i in self.base:
            map_shape = self.plan.map_shapes[i]
            factors = hook.weights.to(self.base[i])[None] ** 2
            rows = rows_by_pixel(factors, map_shape)
            rows = torch.cat([rows, torch.zeros_like(rows[:1])])
            adjoint: Adjoints = {}
            for sources, positions in self.segment.positions[i].items():
                numbers, pixels = self.adjoints[i][sources], positions.pixels(map_shape)
                if positions.channel is not None:
                    adjoint[sources] = numbers * rows[pixels[:, 0], positions.channel]
                else:
                    adjoint[sources] = rows.index_select(0, pixels.flatten()).view(numbers.shape) * numbers
            kept = self.base[i] * factors, adjoint
        self.base.clear()
        self.adjoints.clear()
        if kept is not None:
            self.base[i], self.adjoints[i] = kept
