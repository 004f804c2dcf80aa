"""Base classes of attributions to a layer: the model opened at the layer, and sums over the pieces of every line."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor, nn

from ..engines.dense.gradients import LayerHook, LayerOnPieces
from ..errors import ArgumentError, UnsupportedError
from ..network import Network, as_network, unwrap_model
from ..smooth.api import DEFAULT_TOL
from .inputs import (
    AttributionCall,
    AttributionKeywords,
    AttributionOptions,
    ExampleGroup,
    ModelLike,
    Tensors,
    flatten_targets,
    parse_call,
    select_first_output,
    single_output_shape,
    warn_unused,
)
from .integrated_gradients import Attribution, ReportTotals, integrate_output
from .layer_hook import HookedModel
from .to_tolerance import SmoothLayer, integrate_to_tolerance, layer_integrand, open_at_layer, split_rows

_first_output_networks: weakref.WeakKeyDictionary[Network, Network] = weakref.WeakKeyDictionary()


class LayerAttribution(Attribution):
    """Base class of methods that attribute to a layer, or through one.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls.
        device_ids: Ignored; for compatibility with captum.
        multiply_by_inputs: Whether gradients are multiplied by the change of the inputs.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    Raises ArgumentError if the layer is not a submodule of the model.
    """

    def __init__(
        self,
        forward_func: ModelLike,
        layer: nn.Module,
        device_ids: list[int] | None = None,
        multiply_by_inputs: bool = True,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, multiply_by_inputs, tol)
        if not isinstance(layer, nn.Module):
            raise layer_error(f"Layer is {type(layer).__name__}, not a module")
        whole = None if isinstance(forward_func, Network) else unwrap_model(forward_func)
        if whole is None or (whole is forward_func and all(m is not layer for m in whole.modules())):
            raise layer_error(f"{type(layer).__name__} is not a submodule of the model")
        self.layer, self.device_ids = layer, device_ids
        self._hooked_models: dict[tuple[bool, int], HookedModel] = {}

    def _hook_model(self, model: ModelLike, at_input: bool, substitutes: int = 0) -> HookedModel:
        """Open the model at the layer; returns one object for the model itself, so that it is captured only once."""
        if model is not self.forward_func or not isinstance(model, nn.Module):
            return HookedModel(model, self.layer, at_input, substitutes)
        return self._hooked_models.setdefault(
            (at_input, substitutes), HookedModel(model, self.layer, at_input, substitutes)
        )

    def _layer_groups(
        self, call: AttributionCall, at_input: bool
    ) -> Iterator[tuple[ExampleGroup, list[int], HookedModel]]:
        """Yield groups of examples, each with the nodes of the layer's tensors and the hooked model."""
        hooked: HookedModel | None = None

        def capture(model: ModelLike, points: Sequence[Tensor], device: torch.device) -> Network:
            nonlocal hooked
            hooked = self._hook_model(model, at_input)
            return as_network(hooked, points, rewrite=False, device=device)

        for group in call.groups(self.forward_func, capture):
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
            if network not in _first_output_networks:
                _first_output_networks[network] = select_first_output(network)
            yield replace(group, network=_first_output_networks[network]), list(network.outputs[1:]), hooked

    def _open_groups(self, call: AttributionCall, at_input: bool) -> list[SmoothLayer] | None:
        """The groups of examples, opened at the layer, if attributions are computed to a tolerance; else None."""
        groups = self._groups_without_exact(call)
        if groups is None:
            return None
        return [open_at_layer(g, HookedModel(g.source, self.layer, at_input), call.device) for g in groups]

    def _integrate_flow(
        self,
        call: AttributionCall,
        opened: Sequence[SmoothLayer],
        target: Any,
        at_input: bool,
        times_change: bool,
        options: AttributionOptions,
    ) -> tuple[list[Tensor], bool]:
        """Integrate the flow through a layer to the tolerance; see `_sum_over_pieces`."""
        count, is_tuple, sums = len(call.lines), False, list[Tensor]()
        totals = ReportTotals.for_examples(count)
        for part in opened:
            targets = flatten_targets(target, part.output_shape, count)[part.group.rows]
            flow = layer_integrand(part, at_input, self.layer, targets, times_change)
            features = sum(torch.Size(shape).numel() for shape in part.shapes)
            weights = torch.ones(len(part.group.rows), features, dtype=torch.float64)
            found = integrate_to_tolerance(flow, weights, options, self.tol or DEFAULT_TOL)
            totals.add_estimate(found, part.group.rows)
            is_tuple = part.hooked.trace.is_tuple
            sums = sums or [torch.zeros(count, *shape, dtype=torch.float64) for shape in part.shapes]
            for total, result in zip(sums, split_rows(found.integrals, part.shapes), strict=True):
                total[part.group.rows] = result
        self.report = totals.report
        return sums, is_tuple

    def _sum_over_pieces(
        self,
        call: AttributionCall,
        target: Any,
        at_input: bool,
        rule: Callable[[LayerOnPieces], Tensor],  # -> (points, *shape), summed over each line
        options: AttributionOptions,
    ) -> tuple[list[Tensor], bool]:
        """Sum a rule over all pieces: (n, *shape) for each of the layer's tensors, and whether these are a tuple."""
        count, is_tuple = len(call.lines), False
        sums: list[Tensor] = []
        report_totals = ReportTotals.for_examples(count)
        for group, nodes, hooked in self._layer_groups(call, at_input):
            network = group.network
            targets = flatten_targets(target, single_output_shape(network), count)[group.rows]
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
                hooks={i: _make_accumulator(totals[i], rule) for i in nodes},
                other_side_hooks={i: _make_accumulator(other_side[i], rule) for i in nodes},
            )
            subgradient_range = torch.zeros(len(group.rows), dtype=torch.float64)
            if integral.ambiguous:
                subgradient_range += sum(
                    (totals[i] - other_side[i]).abs().reshape(len(group.rows), -1).sum(1).cpu() for i in nodes
                )
            report_totals.add(integral, group.rows, subgradient_range)
            is_tuple = hooked.trace.is_tuple
            sums = sums or [torch.zeros(count, *totals[i].shape[1:], dtype=torch.float64) for i in nodes]
            for total, i in zip(sums, nodes, strict=True):
                total[group.rows] = totals[i].cpu()
        self.report = report_totals.report
        return sums, is_tuple


class CompleteLayerAttribution(LayerAttribution, ABC):
    """Base class of layer attributions that add up to the change of the output."""

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
    ) -> Tensors: ...
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
    ) -> tuple[Tensors, Tensor]: ...
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
    ) -> Tensors | tuple[Tensors, Tensor]:
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
            **options: device, memory and progress; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        warn_unused(n_steps=n_steps, method=method)
        settings = AttributionOptions(**options)
        call = parse_call(inputs, baselines, additional_forward_args, settings.device)
        sums, is_tuple = self._attribute_to_layer(call, target, attribute_to_layer_input, settings)
        attributions = shape_like_layer(call, sums, is_tuple)
        if not return_convergence_delta:
            return attributions
        return attributions, self.compute_convergence_delta(
            tuple(sums), baselines, inputs, target, additional_forward_args
        )

    @abstractmethod
    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> tuple[list[Tensor], bool]:
        """Compute the attributions, (n, *shape) for each of the layer's tensors, and whether these are a tuple."""


def shape_like_layer(call: AttributionCall, sums: list[Tensor], is_tuple: bool) -> Tensors:
    """Return a layer's results in the precision of the inputs: one tensor, or a tuple if the layer has one."""
    cast = tuple(call.cast_like_input(s) for s in sums)
    return cast if is_tuple else cast[0]


def _make_accumulator(total: Tensor, rule: Callable[[LayerOnPieces], Tensor]) -> LayerHook:
    """Make a hook that adds the results of a rule to the total of each line."""

    def accumulate(layer: LayerOnPieces) -> None:
        total.index_add_(0, layer.line, rule(layer))

    return accumulate


def layer_error(problem: str) -> ArgumentError:
    """Make the error for a layer that cannot be attributed to."""
    return ArgumentError(
        f"{problem}.", where="argument layer", hint="Give a submodule that the model calls, such as model.conv1."
    )
