"""Base classes of attributions to a layer: the model opened at the layer, and sums over the pieces of every line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, Unpack, overload

import torch
from torch import Tensor, nn

from ..engines.layer_hooks import LayerIntegral
from ..errors import UnsupportedError
from ..network import Network, as_network, unwrap_model
from .attribution import Attribution, iterate_tensors
from .captum_interface import expose_wrapped
from .inputs import (
    AttributionCall,
    AttributionKeywords,
    AttributionOptions,
    ExampleGroup,
    ModelLike,
    PartialModel,
    flatten_targets,
    single_output_shape,
)
from .integrated_gradients import integrate_output
from .layer_hook import HookedModel, Layers, LayerTensors, arrange_by_layers, layer_error
from .layer_networks import fuse_around_layer, watch_before_pools, watch_before_relus
from .report import ReportTotals
from .sampling_options import ignore_sampling
from .to_tolerance import (
    ENDING_TOL,
    SmoothLayer,
    ending_groups,
    integrate_to_tolerance,
    layer_integrand,
    open_at_layer,
    split_rows,
)

LayerGroup: TypeAlias = tuple[ExampleGroup, list[int], HookedModel]  # with the nodes of the layer's tensors


@dataclass(frozen=True)
class LayerSums:
    """Results for the tensors of one or several layers."""

    tensors: list[Tensor]  # (n, *shape) each
    counts: Sequence[int]  # the number of tensors of each layer
    dtype: torch.dtype | None = None  # of the model, if the inputs have none to return results in


class InternalAttribution(Attribution):
    """Base class of methods that attribute to a layer, or through one.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls. None leaves it open: set the attribute ``layer`` before a call.
        device_ids: Ignored; for compatibility with captum.
        multiply_by_inputs: Whether gradients are multiplied by the change of the inputs.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    Raises ArgumentError if the layer is not a submodule of the model.
    """

    takes_several_layers = False

    def __init__(
        self,
        forward_func: ModelLike,
        layer: Layers | None,
        device_ids: list[int] | None = None,
        multiply_by_inputs: bool = True,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, multiply_by_inputs, tol)
        self.layer, self.device_ids = layer, device_ids
        self._hooked_models: dict[Any, HookedModel] = {}
        if layer is not None:
            self._check_layers()

    def _check_layers(self) -> tuple[nn.Module, ...]:
        """The layers, all of them modules of the model."""
        layers = self.layer if self.takes_several_layers and isinstance(self.layer, (list, tuple)) else [self.layer]
        is_network = isinstance(self.forward_func, Network)
        whole = None if is_network else unwrap_model(self.forward_func)
        known = whole is not None and isinstance(self.forward_func, nn.Module)  # the layers of a function are not
        modules = {id(m) for m in whole.modules()} if whole is not None and known else set[int]()
        for layer in layers:
            if not isinstance(layer, nn.Module):
                raise layer_error(f"Layer is {type(layer).__name__}, not a module")
            if is_network or (known and id(layer) not in modules):
                raise layer_error(f"{type(layer).__name__} is not a submodule of the model")
        if not layers:
            raise layer_error("The list of layers is empty")
        return tuple(layers)  # pyright: ignore[reportReturnType]

    def _hook_model(self, model: ModelLike, at_input: bool, substitutes: Sequence[int] = ()) -> HookedModel:
        """Open the model at the layers; returns one object for the model itself, so that it is captured only once."""
        layers = self._check_layers()
        if not isinstance(model, nn.Module) or isinstance(model, PartialModel):
            return HookedModel(model, layers, at_input, substitutes)
        key = (model, layers, at_input, tuple(substitutes))
        return self._hooked_models.setdefault(key, HookedModel(model, layers, at_input, substitutes))

    def _layer_groups(self, call: AttributionCall, at_input: bool) -> Iterator[LayerGroup]:
        """Yield groups of examples, each with the nodes of the layer's tensors and the hooked model."""
        hooked: HookedModel | None = None

        def capture(model: ModelLike, points: Sequence[Tensor], device: torch.device) -> Network:
            nonlocal hooked
            hooked = self._hook_model(model, at_input)
            return as_network(hooked, points, rewrite=False, device=device)

        for group in call.groups(call.model, capture):
            network = group.network
            if hooked is None or hooked.trace.output_count > 1:
                single_output_shape(network)
            if hooked is None or not hooked.trace.calls:
                raise layer_error("Layer takes no part in the forward pass")
            if any(network.tails[1:]):
                raise UnsupportedError(
                    "The layer is a smooth operator: its output is not piecewise linear.",
                    where="argument layer",
                    hint="Attribute to its input, with attribute_to_layer_input=True.",
                )
            fused, nodes = fuse_around_layer(network, network.outputs[1:])
            yield replace(group, network=fused), nodes, hooked

    def _find_layer_groups(self, call: AttributionCall, at_input: bool) -> tuple[list[SmoothLayer], list[LayerGroup]]:
        """The groups of examples to compute to a tolerance, opened at the layer, and those with exact attributions.

        A model that is piecewise linear up to a known ending, such as ``sigmoid(m(x)).squeeze(1)``, needs no tolerance.
        """
        layers = self._check_layers()
        smooth = self._groups_without_exact(call)
        if smooth is None:
            try:
                return [], list(self._layer_groups(call, at_input))
            except UnsupportedError:
                smooth = ending_groups(call, call.model, call.output)
                if smooth is None:
                    raise
        return [open_at_layer(g, HookedModel(g.source, layers, at_input), call.device) for g in smooth], []


class LayerAttribution(InternalAttribution):
    """Base class of methods that attribute to the units of a layer."""

    def _shape_like_layer(self, call: AttributionCall, found: LayerSums) -> LayerTensors:
        """Return a layer's results in the precision of the inputs, or of the model for token ids."""
        cast = [call.cast_like_input(t) if found.dtype is None else t.to(found.dtype) for t in found.tensors]
        is_list = self.takes_several_layers and isinstance(self.layer, (list, tuple))
        return arrange_by_layers(cast, found.counts, is_list)

    @staticmethod
    def interpolate(
        layer_attribution: Tensor,
        interpolate_dims: int | tuple[int, ...],
        interpolate_mode: str = "nearest",
    ) -> Tensor:
        """Resize the attributions of a layer, (n, channels, *size), to the size of the input, to draw them over it.

        Args:
            layer_attribution: The attributions, with one to three dims behind the channels.
            interpolate_dims: The new size: one number for all dims, or one for each.
            interpolate_mode: The mode of `torch.nn.functional.interpolate`.

        >>> LayerAttribution.interpolate(torch.tensor([[[1.0, 2.0]]]), 4)
        tensor([[[1., 1., 2., 2.]]])
        """
        return nn.functional.interpolate(layer_attribution, interpolate_dims, mode=interpolate_mode)

    def _integrate_flow(
        self,
        call: AttributionCall,
        opened: Sequence[SmoothLayer],
        target: Any,
        at_input: bool,
        times_change: bool,
        options: AttributionOptions,
    ) -> LayerSums:
        """Integrate the flow through a layer to the tolerance; see `_sum_over_pieces`."""
        count, counts, sums = len(call.lines), list[int](), list[Tensor]()
        totals = ReportTotals.for_examples(count)
        for part in opened:
            targets = flatten_targets(target, part.output_shape, count)[part.group.rows]
            flow = layer_integrand(part, at_input, self._check_layers(), targets, times_change)
            features = sum(torch.Size(shape).numel() for shape in part.shapes)
            weights = torch.ones(len(part.group.rows), features, dtype=torch.float64)
            found = integrate_to_tolerance(flow, weights, options, self.tol or ENDING_TOL)
            totals.add_estimate(found, part.group.rows)
            counts = part.hooked.trace.counts
            sums = sums or [torch.zeros(count, *shape, dtype=torch.float64) for shape in part.shapes]
            for total, result in zip(sums, split_rows(found.integrals, part.shapes), strict=True):
                total[part.group.rows] = result
        self.report = totals.report
        return LayerSums(sums, counts)

    def _sum_over_pieces(
        self,
        call: AttributionCall,
        groups: list[LayerGroup],
        target: Any,
        over_values: bool,
        options: AttributionOptions,
    ) -> LayerSums:
        """Integrate the gradient at each of the layer's tensors over alpha, or over the tensor's own values."""
        count, counts = len(call.lines), list[int]()
        sums: list[Tensor] = []
        report_totals = ReportTotals.for_examples(count)
        for group, nodes, hooked in groups:
            network = group.network
            if over_values:
                network, nodes = watch_before_relus(network, nodes)
                parts = [[i] for i in nodes]
            else:
                network, parts = watch_before_pools(network, nodes)
            targets = flatten_targets(target, single_output_shape(network), count)[group.rows]
            nodes = [part[0] for part in parts]
            totals, other_side = (
                {
                    i: torch.zeros(len(group.rows), *network.nodes[i].shape, dtype=torch.float64, device=call.device)
                    for i in nodes
                }
                for _ in range(2)
            )
            integral = integrate_output(
                network,
                group.lines,
                targets,
                options,
                hooks={i: LayerIntegral(totals[part[0]], over_values) for part in parts for i in part},
                other_side_hooks={i: LayerIntegral(other_side[part[0]], over_values) for part in parts for i in part},
                layers_only=True,
            )
            subgradient_range = torch.zeros(len(group.rows), dtype=torch.float64)
            if integral.ambiguous:
                subgradient_range += sum(
                    (totals[i] - other_side[i]).abs().reshape(len(group.rows), -1).sum(1).cpu() for i in nodes
                )
            report_totals.add(integral, group.rows, subgradient_range)
            counts = hooked.trace.counts
            sums = sums or [torch.zeros(count, *totals[i].shape[1:], dtype=torch.float64) for i in nodes]
            for total, i in zip(sums, nodes, strict=True):
                total[group.rows] = totals[i].cpu()
        self.report = report_totals.report
        return LayerSums(sums, counts)


class CompleteLayerAttribution(LayerAttribution, ABC):
    """Base class of layer attributions that add up to the change of the output."""

    extra_nodes = 0  # how many more nodes than steps captum's method samples

    @overload
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: Literal[False] = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> LayerTensors: ...
    @overload
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        *,
        return_convergence_delta: Literal[True],
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> tuple[LayerTensors, Tensor]: ...
    @expose_wrapped
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> LayerTensors | tuple[LayerTensors, Tensor]:
        """Compute attributions of the shape of the layer's output or input.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example.
            additional_forward_args: Further arguments of the model, fixed along the line.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            return_convergence_delta: True also returns the delta, (n,): the sum of the attributions minus the change
                of the output.
            attribute_to_layer_input: True attributes to the layer's inputs instead of its outputs.
            grad_kwargs: Ignored.
            **options: device, memory, progress and output; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(n_steps, method, extra_nodes=self.extra_nodes)
        settings = AttributionOptions(**options)
        call, target = self._parse(inputs, baselines, additional_forward_args, settings.device, target, settings.output)
        found = self._attribute_to_layer(call, target, attribute_to_layer_input, settings)
        attributions = self._shape_like_layer(call, found)
        if not return_convergence_delta:
            return attributions
        returned = list(iterate_tensors(attributions))
        return attributions, call.cast_like_input(self._compute_delta(call, returned, target))

    @abstractmethod
    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> LayerSums:
        """Compute the attributions."""
