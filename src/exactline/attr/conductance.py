"""How much of a change flows through the units of a layer: conductance of all or of one, and internal influence."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn

from ..engines.dense.gradients import Layer, Watcher
from ..errors import ArgumentError
from ..progress import ProgressCallback
from .inputs import Model, asked, flat_targets, needless, one_output
from .integrated_gradients import Tally, as_given, hanging_on, integral
from .layers import LayerAttribution, no_layer, shaped


class LayerConductance(LayerAttribution):
    """How much of the output's change flows through every unit of a layer.

    The integral of dF/dy times dy along the line from baseline to input, for every unit y.

    >>> relu = torch.nn.ReLU()
    >>> LayerConductance(torch.nn.Sequential(relu), relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    """

    def __init__(self, forward_func: Model, layer: nn.Module, device_ids: list[int] | None = None) -> None:
        super().__init__(forward_func, layer, device_ids)

    def attribute(
        self,
        inputs: Any,  # (n, *in), or a tuple of such
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        *,
        device: torch.device | str | None = None,
        memory: int | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """Conductances of the shape of the layer's output or input, and with ``return_convergence_delta`` a delta (n,).

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        sums, several = self._watched(call, target, attribute_to_layer_input, _conductance, memory, progress)
        if not return_convergence_delta:
            return shaped(call, sums, several)
        return self._with_delta(call, sums, several, baselines, inputs, target, additional_forward_args)


class InternalInfluence(LayerAttribution):
    """The integral of dF/dy along the line from baseline to input, for every unit y of a layer.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.constant_(model[1].weight, 2.0)
    >>> InternalInfluence(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[2., 2.]])
    """

    def __init__(self, forward_func: Model, layer: nn.Module, device_ids: list[int] | None = None) -> None:
        super().__init__(forward_func, layer, device_ids, False)

    def has_convergence_delta(self) -> bool:
        """There is none: influences do not add up to the output."""
        return False

    def attribute(
        self,
        inputs: Any,  # (n, *in), or a tuple of such
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        *,
        device: torch.device | str | None = None,
        memory: int | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """Influences of the shape of the layer's output or input.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        sums, several = self._watched(
            call, target, attribute_to_layer_input, lambda layer: layer.gradients, memory, progress
        )
        return shaped(call, sums, several)


class NeuronConductance(LayerAttribution):
    """How much of the output's change flows from every input through one unit of a layer.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(relu, torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.constant_(model[1].weight, 2.0)
    >>> NeuronConductance(model, relu).attribute(torch.tensor([[3.0, 1.0]]), 0, target=0)
    tensor([[6., 0.]])
    """

    def has_convergence_delta(self) -> bool:
        """There is none: one unit does not carry the whole output."""
        return False

    def attribute(
        self,
        inputs: Any,  # (n, *in), or a tuple of such
        neuron_selector: int | tuple[int, ...],
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
        grad_kwargs: dict[str, Any] | None = None,
        *,
        device: torch.device | str | None = None,
        memory: int | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """Conductances of the shape of the inputs.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        count, tally = len(call.lines), Tally.of(len(call.lines))
        sums = [torch.zeros_like(x) for x in call.lines.ends]
        for group, places, _ in self._groups(call, attribute_to_neuron_input):
            if len(places) > 1:
                raise no_layer("layer has several tensors, and a neuron is one element of one")
            targets = flat_targets(target, one_output(group.network), count)[group.rows]
            watch = {places[0]: _only(_chosen(neuron_selector, group.network.nodes[places[0]].shape))}
            found = integral(group.network, group.lines, targets, memory, progress, watch)
            tally.add(found, group.rows, hanging_on(found, group.lines))
            for total, gradient in zip(sums, found.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
        self.report = tally.report
        made = [g * c for g, c in zip(sums, call.change, strict=True)] if self._multiply else sums
        return as_given(call, made)


def _conductance(layer: Layer) -> Tensor:
    """On every piece the mean gradient times the change of the layer's values, (points, *shape)."""
    inner = torch.nonzero(layer.widths > 0)[:, 0]
    widths = layer.widths[inner].view(-1, *[1] * (layer.values.dim() - 1)).to(layer.values.dtype)
    made = torch.zeros_like(layer.values)
    made[inner] = layer.gradients[inner] / widths * (layer.values[inner + 1] - layer.values[inner])
    return made


def _only(unit: tuple[int, ...]) -> Watcher:
    """A watcher that lets nothing but the gradient of one unit go on."""

    def watch(layer: Layer) -> Tensor:
        kept = torch.zeros_like(layer.gradients)
        kept[:, *unit] = layer.gradients[:, *unit]
        return kept

    return watch


def _chosen(selector: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    given: tuple[Any, ...] = selector if isinstance(selector, tuple) else (selector,)
    try:
        unit = tuple(operator.index(i) for i in given)
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
