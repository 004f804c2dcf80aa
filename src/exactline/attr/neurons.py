"""Attributions of one unit of a layer to the inputs: integrated gradients and conductance."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from ..engines.dense.gradients import LayerHook
from ..engines.layer_hooks import UnitSelection
from ..smooth.integrals import LineIntegrals
from .captum_classes import counterpart_of
from .captum_interface import expose_wrapped
from .inputs import (
    AttributionKeywords,
    AttributionOptions,
    ModelLike,
    Tensors,
    flatten_targets,
    single_output_shape,
)
from .integrated_gradients import IntegratedGradients, attribution_range, integrate_output
from .layer_hook import HookedModel, layer_error
from .layer_networks import watch_before_relus
from .layers import InternalAttribution
from .neuron_selector import NeuronSelector, select_neuron, unit_weights
from .report import ReportTotals
from .sampling_options import ignore_sampling
from .to_tolerance import ENDING_TOL, SmoothLayer, integrate_to_tolerance, line_changes, neuron_integrand, split_rows


class NeuronModel(nn.Module):
    """A model that returns one unit of a layer, or a function of its units."""

    def __init__(self, hooked: HookedModel, selector: NeuronSelector) -> None:
        super().__init__()
        self.hooked, self.selector = hooked, selector

    def forward(self, *xs: Tensor) -> Tensor:  # (n,)
        values = self.hooked.layer_values(*xs)
        if not values:
            raise layer_error("Layer takes no part in the forward pass")
        return select_neuron(self.selector, values)


@counterpart_of("NeuronIntegratedGradients")
class NeuronIntegratedGradients(InternalAttribution):
    """Integrated gradients of one unit of a layer, exact up to rounding.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls. None leaves it open: set the attribute ``layer`` before a call.
        device_ids: Ignored; for compatibility with captum.
        multiply_by_inputs: Whether gradients are multiplied by the change of the inputs.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> NeuronIntegratedGradients(model, relu).attribute(torch.tensor([[3.0, 1.0]]), 0)
    tensor([[3., 0.]])
    """

    def __init__(
        self,
        forward_func: ModelLike,
        layer: nn.Module | None,
        device_ids: list[int] | None = None,
        multiply_by_inputs: bool = True,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, multiply_by_inputs, tol=tol)
        self._neuron_models: dict[Any, NeuronModel] = {}

    def has_convergence_delta(self) -> bool:
        """Return False, as captum does."""
        return False

    @expose_wrapped
    def attribute(
        self,
        inputs: Any,
        neuron_selector: NeuronSelector,
        baselines: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
        **options: Unpack[AttributionKeywords],
    ) -> Tensors:
        """Compute attributions of the shape of the inputs.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            neuron_selector: The unit: an int, a tuple with an int or a slice for each dim of the layer, whose units are
                summed up, or a function of the layer's tensors that returns one number for each example.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            additional_forward_args: Further arguments of the model, fixed along the line.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            attribute_to_neuron_input: True selects a unit of the layer's input instead of its output.
            **options: device, memory and progress; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(n_steps, method)
        hooked = self._hook_model(self.forward_func, attribute_to_neuron_input)
        model = NeuronModel(hooked, neuron_selector)
        if isinstance(self.forward_func, nn.Module) and not callable(neuron_selector):
            model = self._neuron_models.setdefault((hooked, repr(neuron_selector)), model)
        found = IntegratedGradients(model, self._multiply, tol=self.tol)
        arguments: dict[str, Any] = {**asdict(AttributionOptions(**options)), "output": None}
        attributions = found.attribute(inputs, baselines, None, additional_forward_args, **arguments)
        self.report = found.report
        return attributions


@counterpart_of("NeuronConductance")
class NeuronConductance(InternalAttribution):
    """How much of the output's change flows from every input through one unit of a layer.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.constant_(model[1].weight, 2.0)
    >>> NeuronConductance(model, relu).attribute(torch.tensor([[3.0, 1.0]]), 0, target=0)
    tensor([[6., 0.]])
    """

    def has_convergence_delta(self) -> bool:
        """Return False: one unit does not carry the whole change of the output."""
        return False

    @expose_wrapped
    def attribute(
        self,
        inputs: Any,
        neuron_selector: NeuronSelector,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> Tensors:
        """Compute conductances of the shape of the inputs.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            neuron_selector: The unit: an int, a tuple with an int for each dim of the layer, or a function that returns
                one unit of the layer's tensors for each example. With slices or sums of units it is, as in captum, the
                sum of the gradients by these units times the gradient of their sum, with a warning: that is not the sum
                of their conductances.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example.
            additional_forward_args: Further arguments of the model, fixed along the line.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            attribute_to_neuron_input: True selects a unit of the layer's input instead of its output.
            grad_kwargs: Ignored.
            **options: device, memory, progress and output; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(n_steps, method, default_method="riemann_trapezoid")
        settings = AttributionOptions(**options)
        call, target = self._parse(inputs, baselines, additional_forward_args, settings.device, target, settings.output)
        count, totals = len(call.lines), ReportTotals.for_examples(len(call.lines))
        gradients = [torch.zeros_like(x) for x in call.lines.ends]
        opened, groups = self._find_layer_groups(call, attribute_to_neuron_input)
        for part in opened:
            found = self._integrate_neuron(part, neuron_selector, target, count, attribute_to_neuron_input, settings)
            totals.add_estimate(found, part.group.rows)
            shapes = [tuple(t.shape[1:]) for t in part.group.lines.starts]
            for total, gradient in zip(gradients, split_rows(found.integrals, shapes), strict=False):
                total[part.group.rows] = gradient
        for group, nodes, _ in groups:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            shapes = [group.network.nodes[i].shape for i in nodes]
            tensor, weights = _find_unit(neuron_selector, shapes)
            network, watched = group.network, nodes[tensor : tensor + 1]
            if int(weights.count_nonzero()) == 1:
                network, watched = watch_before_relus(network, watched)
            hooks: dict[int, LayerHook] = {watched[0]: UnitSelection(weights)}
            integral = integrate_output(
                network, group.lines, targets, settings, hooks, ignores_fixed_inputs=self._multiply
            )
            totals.add(integral, group.rows, attribution_range(integral, group.lines))
            for total, gradient in zip(gradients, integral.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
        self.report = totals.report
        if self._multiply:
            gradients = [g * c for g, c in zip(gradients, call.change, strict=True)]
        return call.shape_like_inputs(gradients)

    def _integrate_neuron(
        self,
        opened: SmoothLayer,
        selector: NeuronSelector,
        target: Any,
        count: int,
        at_input: bool,
        options: AttributionOptions,
    ) -> LineIntegrals:
        """Integrate the flow through one unit to the tolerance."""
        tensor, weights = _find_unit(selector, opened.shapes)
        positions = weights.flatten().nonzero()[:, 0]
        if len(opened.shapes) > 1 or tensor or len(positions) != 1 or float(weights.flatten()[positions]) != 1.0:
            raise layer_error("With tol, a neuron must be one element of a layer with one tensor")
        targets = flatten_targets(target, opened.output_shape, count)[opened.group.rows]
        flow = neuron_integrand(opened, at_input, self._check_layers(), targets, int(positions))
        lines = opened.group.lines
        weights = line_changes(lines, len(lines.starts), self._multiply)
        return integrate_to_tolerance(flow, weights, options, self.tol or ENDING_TOL)


def _find_unit(selector: NeuronSelector, shapes: list[tuple[int, ...]]) -> tuple[int, Tensor]:
    """The index of the tensor that a selector reads, and the weights (*shape) of its units; warns of several units."""
    weights = unit_weights(selector, shapes)
    tensors = [k for k, w in enumerate(weights) if bool(w.any())]
    if len(tensors) > 1:
        raise layer_error("The neuron selector reads several tensors, but conductance flows through one")
    tensor = tensors[0] if tensors else 0
    if int(weights[tensor].count_nonzero()) > 1:
        warnings.warn(
            "neuron_selector takes several units: the result is not the sum of their conductances.", stacklevel=4
        )
    return tensor, weights[tensor]
