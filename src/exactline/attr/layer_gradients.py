"""Integrated gradients of a layer: those of the rest of the model, on the line between the layer's two activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..network import Network, as_network
from ..smooth.api import DEFAULT_TOL
from .inputs import (
    AttributionCall,
    AttributionOptions,
    ExampleGroup,
    evaluate_nodes,
    example_points,
    flatten_targets,
    single_output_shape,
)
from .integrated_gradients import ReportTotals, attribution_range, integrate_output
from .layers import CompleteLayerAttribution
from .to_tolerance import integrate_gradient, layer_lines


class LayerIntegratedGradients(CompleteLayerAttribution):
    """Integrated gradients of the rest of the model, on the straight line between a layer's two activations.

    Paths around the layer are computed from the inputs, not from the baselines.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(torch.nn.Identity(), relu)
    >>> LayerIntegratedGradients(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    """

    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> tuple[list[Tensor], bool]:
        count, is_tuple = len(call.lines), False
        sums: list[Tensor] = []
        totals = ReportTotals.for_examples(count)
        opened = self._open_groups(call, at_input)
        for part in opened or ():
            targets = flatten_targets(target, part.output_shape, count)[part.group.rows]
            lines, inputs = layer_lines(part), len(part.shapes)
            rest = part.rest(at_input, self.layer, example_points(lines))
            tol = self.tol or DEFAULT_TOL
            means, found = integrate_gradient(rest, lines, inputs, targets, self._multiply, options, tol)
            totals.add_estimate(found, part.group.rows)
            is_tuple = part.hooked.trace.is_tuple
            sums = sums or [torch.zeros(count, *shape, dtype=torch.float64) for shape in part.shapes]
            for k, mean in enumerate(means):
                change = lines.ends[k] - lines.starts[k] if self._multiply else 1.0
                sums[k][part.group.rows] = mean * change
        for group, nodes, hooked in self._layer_groups(call, at_input) if opened is None else ():
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            if hooked.trace.calls > 1:
                raise UnsupportedError(
                    "The model calls the layer more than once.",
                    where="argument layer",
                    hint="Use one module for each call.",
                )
            lines, rest = self._model_after_layer(group, nodes, at_input, call.device)
            integral = integrate_output(rest, lines, targets, options)
            totals.add(integral, group.rows, attribution_range(integral, lines))
            is_tuple = hooked.trace.is_tuple
            for k in range(len(nodes)):
                change = lines.ends[k] - lines.starts[k]
                result = (integral.gradients[k] * change if self._multiply else integral.gradients[k]).cpu()
                if len(sums) == k:
                    sums.append(result.new_zeros(count, *result.shape[1:]))
                sums[k][group.rows] = result
        self.report = totals.report
        return sums, is_tuple

    def _model_after_layer(
        self, group: ExampleGroup, nodes: list[int], at_input: bool, device: torch.device
    ) -> tuple[Lines, Network]:
        """Return the lines between the layer's activations, and the model from the layer on."""
        starts, ends = (evaluate_nodes(group.network, xs, nodes) for xs in (group.lines.starts, group.lines.ends))
        lines = Lines((*starts, *group.lines.ends), (*ends, *group.lines.ends))
        hooked = self._hook_model(group.model, at_input, len(nodes))
        with full_precision(kernels=False):
            return lines, as_network(hooked, example_points(lines), rewrite=False, device=device)
