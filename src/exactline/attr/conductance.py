"""How much of the output's change flows through the units of a layer: conductance and internal influence."""

from __future__ import annotations

import operator
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from ..engines.dense.gradients import LayerHook, LayerOnPieces
from ..errors import ArgumentError
from ..smooth.api import DEFAULT_TOL
from ..smooth.integrals import LineIntegrals
from .inputs import (
    AttributionCall,
    AttributionKeywords,
    AttributionOptions,
    ModelLike,
    Tensors,
    flatten_targets,
    parse_call,
    single_output_shape,
    warn_unused,
)
from .integrated_gradients import ReportTotals, attribution_range, integrate_output
from .layers import CompleteLayerAttribution, LayerAttribution, layer_error, shape_like_layer
from .to_tolerance import SmoothLayer, integrate_to_tolerance, line_changes, neuron_integrand, split_rows


class LayerConductance(CompleteLayerAttribution):
    """How much of the output's change flows through every unit of a layer.

    The integral of dF/dy times dy along the line from baseline to input, for every unit y.

    >>> relu = torch.nn.ReLU()
    >>> LayerConductance(torch.nn.Sequential(relu), relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    """

    def __init__(
        self,
        forward_func: ModelLike,
        layer: nn.Module,
        device_ids: list[int] | None = None,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, tol=tol)

    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> tuple[list[Tensor], bool]:
        opened = self._open_groups(call, at_input)
        if opened is not None:
            return self._integrate_flow(call, opened, target, at_input, True, options)
        return self._sum_over_pieces(call, target, at_input, _conductance, options)


class InternalInfluence(LayerAttribution):
    """The integral of dF/dy along the line from baseline to input, for every unit y of a layer.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.constant_(model[1].weight, 2.0)
    >>> InternalInfluence(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[2., 2.]])
    """

    def __init__(
        self,
        forward_func: ModelLike,
        layer: nn.Module,
        device_ids: list[int] | None = None,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, False, tol=tol)

    def has_convergence_delta(self) -> bool:
        """Return False: influences do not add up to the change of the output."""
        return False

    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> Tensors:
        """Compute influences of the shape of the layer's output or input.

        Arguments are those of `LayerConductance`, without ``return_convergence_delta``.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        warn_unused(n_steps=n_steps, method=method)
        settings = AttributionOptions(**options)
        call = parse_call(inputs, baselines, additional_forward_args, settings.device)
        opened = self._open_groups(call, attribute_to_layer_input)
        if opened is not None:
            found = self._integrate_flow(call, opened, target, attribute_to_layer_input, False, settings)
            return shape_like_layer(call, *found)
        sums, is_tuple = self._sum_over_pieces(
            call, target, attribute_to_layer_input, lambda layer: layer.gradients, settings
        )
        return shape_like_layer(call, sums, is_tuple)


class NeuronConductance(LayerAttribution):
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

    def attribute(
        self,
        inputs: Any,
        neuron_selector: int | tuple[int, ...],
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
            neuron_selector: The unit: an int, or a tuple with one int for each dim of the layer.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example.
            additional_forward_args: Further arguments of the model, fixed along the line.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            attribute_to_neuron_input: True selects a unit of the layer's input instead of its output.
            grad_kwargs: Ignored.
            **options: device, memory and progress; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        warn_unused(n_steps=n_steps, method=method)
        settings = AttributionOptions(**options)
        call = parse_call(inputs, baselines, additional_forward_args, settings.device)
        count, totals = len(call.lines), ReportTotals.for_examples(len(call.lines))
        gradients = [torch.zeros_like(x) for x in call.lines.ends]
        opened = self._open_groups(call, attribute_to_neuron_input)
        for part in opened or ():
            found = self._integrate_neuron(part, neuron_selector, target, count, attribute_to_neuron_input, settings)
            totals.add_estimate(found, part.group.rows)
            shapes = [tuple(t.shape[1:]) for t in part.group.lines.starts]
            for total, gradient in zip(gradients, split_rows(found.integrals, shapes), strict=False):
                total[part.group.rows] = gradient
        for group, nodes, _ in self._layer_groups(call, attribute_to_neuron_input) if opened is None else ():
            if len(nodes) > 1:
                raise layer_error("Layer has several tensors, but a neuron is one element of one tensor")
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            unit = _parse_selector(neuron_selector, group.network.nodes[nodes[0]].shape)
            integral = integrate_output(group.network, group.lines, targets, settings, {nodes[0]: _keep_unit(unit)})
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
        selector: Any,
        target: Any,
        count: int,
        at_input: bool,
        options: AttributionOptions,
    ) -> LineIntegrals:
        """Integrate the flow through one unit to the tolerance."""
        if len(opened.shapes) > 1:
            raise layer_error("Layer has several tensors, but a neuron is one element of one tensor")
        targets = flatten_targets(target, opened.output_shape, count)[opened.group.rows]
        unit = _parse_selector(selector, opened.shapes[0])
        position = int(torch.arange(torch.Size(opened.shapes[0]).numel()).reshape(opened.shapes[0])[unit])
        flow = neuron_integrand(opened, at_input, self.layer, targets, position)
        lines = opened.group.lines
        weights = line_changes(lines, len(lines.starts), self._multiply)
        return integrate_to_tolerance(flow, weights, options, self.tol or DEFAULT_TOL)


def _conductance(layer: LayerOnPieces) -> Tensor:  # (points, *shape)
    """Multiply the mean gradient on each piece by the change of the layer's values along it."""
    pieces = torch.nonzero(layer.widths > 0)[:, 0]
    widths = layer.widths[pieces].view(-1, *[1] * (layer.values.dim() - 1)).to(layer.values.dtype)
    flow = torch.zeros_like(layer.values)
    flow[pieces] = layer.gradients[pieces] / widths * (layer.values[pieces + 1] - layer.values[pieces])
    return flow


def _keep_unit(unit: tuple[int, ...]) -> LayerHook:
    """Make a hook that sets all gradients of the layer to 0 except those of one unit."""

    def keep(layer: LayerOnPieces) -> Tensor:
        gradients = torch.zeros_like(layer.gradients)
        gradients[:, *unit] = layer.gradients[:, *unit]
        return gradients

    return keep


def _parse_selector(selector: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    indices: tuple[Any, ...] = selector if isinstance(selector, tuple) else (selector,)
    try:
        unit = tuple(operator.index(i) for i in indices)
    except TypeError:
        unit = ()
    fits = len(unit) == len(shape) and all(-size <= i < size for i, size in zip(unit, shape, strict=True))
    if not fits or not unit:
        raise ArgumentError(
            f"{selector!r} does not name one unit of a layer of shape {shape}.",
            where="argument neuron_selector",
            hint="Give an int, or a tuple with one int for each dim of the layer.",
        )
    return unit
