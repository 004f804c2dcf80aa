"""How much of the output's change flows through the units of a layer: conductance and internal influence."""

from __future__ import annotations

from typing import Any, Unpack

from .captum_classes import counterpart_of
from .captum_interface import expose_wrapped
from .inputs import AttributionCall, AttributionKeywords, AttributionOptions, ModelLike
from .layer_hook import Layers, LayerTensors
from .layers import CompleteLayerAttribution, LayerAttribution, LayerSums
from .sampling_options import ignore_sampling


@counterpart_of("LayerConductance")
class LayerConductance(CompleteLayerAttribution):
    """How much of the output's change flows through every unit of a layer.

    The integral of dF/dy times dy along the line from baseline to input, for every unit y.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls. None leaves it open: set the attribute ``layer`` before a call.
        device_ids: Ignored; for compatibility with captum.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    >>> import torch
    >>> relu = torch.nn.ReLU()
    >>> LayerConductance(torch.nn.Sequential(relu), relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    """

    extra_nodes = 1

    def __init__(
        self,
        forward_func: ModelLike,
        layer: Layers | None,
        device_ids: list[int] | None = None,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, tol=tol)

    def _attribute_to_layer(
        self, call: AttributionCall, target: Any, at_input: bool, options: AttributionOptions
    ) -> LayerSums:
        opened, groups = self._find_layer_groups(call, at_input)
        if opened:
            return self._integrate_flow(call, opened, target, at_input, True, options)
        return self._sum_over_pieces(call, groups, target, True, options)


@counterpart_of("InternalInfluence")
class InternalInfluence(LayerAttribution):
    """The integral of dF/dy along the line from baseline to input, for every unit y of a layer.

    Args:
        forward_func: The model: a module, or a callable that calls the layer.
        layer: A submodule that the model calls. None leaves it open: set the attribute ``layer`` before a call.
        device_ids: Ignored; for compatibility with captum.
        tol: For models that are not piecewise linear: the largest relative L1 error; see `IntegratedGradients`.

    >>> import torch
    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.constant_(model[1].weight, 2.0)
    >>> InternalInfluence(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[2., 2.]])
    """

    def __init__(
        self,
        forward_func: ModelLike,
        layer: Layers | None,
        device_ids: list[int] | None = None,
        *,
        tol: float | None = None,
    ) -> None:
        super().__init__(forward_func, layer, device_ids, False, tol=tol)

    def has_convergence_delta(self) -> bool:
        """Return False: influences do not add up to the change of the output."""
        return False

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
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        **options: Unpack[AttributionKeywords],
    ) -> LayerTensors:
        """Compute influences of the shape of the layer's output or input.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example.
            additional_forward_args: Further arguments of the model, fixed along the line.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            attribute_to_layer_input: True attributes to the layer's inputs instead of its outputs.
            grad_kwargs: Ignored.
            **options: device, memory, progress and output; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(n_steps, method)
        settings = AttributionOptions(**options)
        call, target = self._parse(inputs, baselines, additional_forward_args, settings.device, target, settings.output)
        opened, groups = self._find_layer_groups(call, attribute_to_layer_input)
        if opened:
            found = self._integrate_flow(call, opened, target, attribute_to_layer_input, False, settings)
            return self._shape_like_layer(call, found)
        found = self._sum_over_pieces(call, groups, target, False, settings)
        return self._shape_like_layer(call, found)
