"""Integrated gradients of a layer: those of the rest of the model, on the line between the layer's two activations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..network import Network, as_network
from .captum_classes import counterpart_of
from .inputs import (
    AttributionCall,
    AttributionOptions,
    ExampleGroup,
    ModelLike,
    evaluate_nodes,
    example_points,
    flatten_targets,
    single_output_shape,
)
from .integrated_gradients import IntegratedGradients, attribution_range, integrate_output
from .layer_hook import HookedModel, Layers
from .layers import CompleteLayerAttribution, LayerSums
from .refusals import explain_refusals
from .report import ReportTotals
from .to_tolerance import ENDING_TOL, integrate_gradient, layer_lines
from .tokens import (
    CastArguments,
    LayerEnds,
    evaluate_layer_ends,
    float_arguments,
    has_integers,
    integer_arguments,
)


@counterpart_of("LayerIntegratedGradients")
class LayerIntegratedGradients(CompleteLayerAttribution):
    """Integrated gradients of the rest of the model, on the straight line between a layer's two activations.

    Paths around the layer are computed from the inputs, not from the baselines. Inputs may be token ids if the layer is
    an embedding or behind one. A list of layers gives a list of attributions: their activations move together. Of a
    layer that the model calls several times, all calls return the activation of the last one.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls, or a list of them. None leaves it open: set ``layer`` before a call.
        device_ids: Ignored; for compatibility with captum.
        multiply_by_inputs: Whether gradients are multiplied by the change of the activations.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(torch.nn.Identity(), relu)
    >>> LayerIntegratedGradients(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    >>> embedding = torch.nn.Embedding(5, 2)
    >>> model = torch.nn.Sequential(embedding, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(6, 2))
    >>> LayerIntegratedGradients(model, embedding).attribute(torch.tensor([[1, 4, 2]]), target=0).shape
    torch.Size([1, 3, 2])
    """

    takes_several_layers = True

    def __init__(
        self,
        forward_func: ModelLike,
        layer: Layers | None,
        device_ids: list[int] | None = None,
        multiply_by_inputs: bool = True,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, multiply_by_inputs, tol=tol)
        self._cast_models: dict[Any, CastArguments] = {}

    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> LayerSums:
        if has_integers(call):
            hooked = HookedModel(call.model, self._check_layers(), at_input)
            ends = evaluate_layer_ends(hooked, call)
            if ends is not None:
                return self._attribute_from_layer(call, ends, target, at_input, options)
        opened, groups = self._find_layer_groups(call, at_input)
        count, counts = len(call.lines), list[int]()
        sums: list[Tensor] = []
        totals = ReportTotals.for_examples(count)
        for part in opened:
            targets = flatten_targets(target, part.output_shape, count)[part.group.rows]
            lines, inputs = layer_lines(part), len(part.shapes)
            rest = part.rest(at_input, self._check_layers(), example_points(lines))
            tol = self.tol or ENDING_TOL
            means, found = integrate_gradient(rest, lines, inputs, targets, self._multiply, options, tol)
            totals.add_estimate(found, part.group.rows)
            counts = part.hooked.trace.counts
            sums = sums or [torch.zeros(count, *shape, dtype=torch.float64) for shape in part.shapes]
            for k, mean in enumerate(means):
                change = lines.ends[k] - lines.starts[k] if self._multiply else 1.0
                sums[k][part.group.rows] = mean * change
        for group, nodes, hooked in groups:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            lines, rest = self._model_after_layer(group, nodes, hooked, call.device)
            integral = integrate_output(rest, lines, targets, options, ignores_fixed_inputs=self._multiply)
            totals.add(integral, group.rows, attribution_range(integral, lines))
            counts = hooked.trace.counts
            for k in range(len(nodes)):
                change = lines.ends[k] - lines.starts[k]
                result = (integral.gradients[k] * change if self._multiply else integral.gradients[k]).cpu()
                if len(sums) == k:
                    sums.append(result.new_zeros(count, *result.shape[1:]))
                sums[k][group.rows] = result
        self.report = totals.report
        return LayerSums(sums, counts)

    def _model_after_layer(
        self, group: ExampleGroup, nodes: list[int], hooked: HookedModel, device: torch.device
    ) -> tuple[Lines, Network]:
        """Return the lines between the layer's activations, and the model from the layer on."""
        starts, ends = (evaluate_nodes(group.network, xs, nodes) for xs in (group.lines.starts, group.lines.ends))
        lines = Lines((*starts, *group.lines.ends), (*ends, *group.lines.ends))
        rest = self._hook_model(group.model, hooked.at_input, hooked.trace.counts)
        with full_precision(kernels=False), explain_refusals():
            return lines, as_network(rest, example_points(lines), device=device)

    def _attribute_from_layer(
        self, call: AttributionCall, ends: LayerEnds, target: Any, at_input: bool, options: AttributionOptions
    ) -> LayerSums:
        """Attribute to the layers' tensors as inputs of the rest of the model, which keeps the integers of the call."""
        rest = self._hook_model(call.model, at_input, ends.counts)
        arguments, dtypes = float_arguments(call)
        model = CastArguments(rest, len(ends.ends), dtypes)
        if isinstance(call.model, nn.Module):
            model = self._cast_models.setdefault((rest, tuple(dtypes)), model)  # so that it is captured only once
        try:
            return self._attribute_rest(model, ends, target, arguments, options)
        except UnsupportedError:  # the rest reads the integers too: they become constants, example by example
            return self._attribute_rest(rest, ends, target, integer_arguments(call), options)

    def _attribute_rest(
        self, model: ModelLike, ends: LayerEnds, target: Any, arguments: list[Any], options: AttributionOptions
    ) -> LayerSums:
        method = IntegratedGradients(model, self._multiply, tol=self.tol)
        keywords: dict[str, Any] = {**asdict(options), "output": None}
        sums = method.attribute(ends.ends, ends.starts, target, tuple(arguments), **keywords)
        self.report = method.report
        return LayerSums(list(sums), ends.counts, ends.dtype)
