"""Attributions to the units of a layer: conductance, internal influence and the layer's own integrated gradients."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, UnsupportedError
from ..line import Lines
from ..network import Network, as_network
from ..sweep.precise import precise
from ..sweep.progress import Report
from .asked import Asked, Group, Model, asked, flat_targets, needless, one_output, points, unwrapped, values_at
from .backward import Layer, Watcher
from .integrated import Attribution, AttributionReport, as_given, hanging_on, integral
from .probe import Probe

_alone: weakref.WeakKeyDictionary[Network, Network] = weakref.WeakKeyDictionary()


class LayerAttribution(Attribution):
    """What the methods share that look at a layer of a model, a submodule of it."""

    def __init__(
        self,
        forward_func: Model,
        layer: nn.Module,
        device_ids: list[int] | None = None,
        multiply_by_inputs: bool = True,
    ) -> None:
        super().__init__(forward_func, multiply_by_inputs)
        if not isinstance(layer, nn.Module):
            raise _no_layer(f"layer is {type(layer).__name__}, not a module")
        whole = None if isinstance(forward_func, Network) else unwrapped(forward_func)
        if whole is None or (whole is forward_func and all(m is not layer for m in whole.modules())):
            raise _no_layer(f"{type(layer).__name__} is not a submodule of the model")
        self.layer, self.device_ids = layer, device_ids
        self._probes: dict[tuple[bool, int], Probe] = {}

    def _probe(self, model: Model, at_input: bool, given: int = 0) -> Probe:
        """The model opened at the layer; for the model itself always the same, so that it is captured once."""
        if model is not self.forward_func or not isinstance(model, nn.Module):
            return Probe(model, self.layer, at_input, given)
        return self._probes.setdefault((at_input, given), Probe(model, self.layer, at_input, given))

    def _groups(self, call: Asked, at_input: bool) -> Iterator[tuple[Group, list[int], Probe]]:
        """Groups of examples, with the places of the layer's tensors in the network."""
        probe: Probe | None = None

        def capture(model: Model, points: Sequence[Tensor], device: torch.device) -> Network:
            nonlocal probe
            probe = self._probe(model, at_input)
            return as_network(probe, points, rewrite=False, device=device)

        for group in call.groups(self.forward_func, capture):
            network = group.network
            if probe is None or probe.trace.outputs > 1:
                one_output(network)
            if probe is None or not probe.trace.calls:
                raise _no_layer("layer takes no part in the forward pass")
            if any(network.tails[1:]):
                raise UnsupportedError(
                    "The layer is a smooth operator: its output is not piecewise linear.",
                    where="argument layer",
                    hint="Attribute to its input, with attribute_to_layer_input=True.",
                )
            if network not in _alone:
                first = network.outputs[:1], network.tails[:1]
                _alone[network] = replace(network, outputs=first[0], tails=first[1], several_outputs=False, moved={})
            yield replace(group, network=_alone[network]), list(network.outputs[1:]), probe

    def _watched(
        self,
        call: Asked,
        target: Any,
        at_input: bool,
        rule: Callable[[Layer], Tensor],  # (points, *shape), added up for every line
        memory: int | None,
        progress: bool | Report,
    ) -> tuple[list[Tensor], bool]:
        """A sum over all pieces for each of the layer's tensors, (n, *shape), and whether they are a tuple."""
        count, pieces, stuck, several = len(call.lines), 0, 0, False
        sums: list[Tensor] = []
        hanging = torch.zeros(count, dtype=torch.float64)
        for group, places, probe in self._groups(call, at_input):
            network = group.network
            targets = flat_targets(target, one_output(network), count)[group.rows]
            here, there = (
                {
                    i: torch.zeros(len(group.rows), *network.nodes[i].shape, dtype=torch.float64, device=call.device)
                    for i in places
                }
                for _ in range(2)
            )
            watch, rival = ({i: _added(totals[i], rule) for i in places} for totals in (here, there))
            found = integral(network, group.lines, targets, memory, progress, watch, rival)
            if found.stuck:
                apart = sum((here[i] - there[i]).abs().reshape(len(group.rows), -1).sum(1) for i in places)
                hanging[group.rows] = torch.as_tensor(apart).cpu()
            pieces, stuck, several = pieces + found.pieces, stuck + found.stuck, probe.trace.several
            sums = sums or [torch.zeros(count, *here[i].shape[1:], dtype=torch.float64) for i in places]
            for total, i in zip(sums, places, strict=True):
                total[group.rows] = here[i].cpu()
        self.report = AttributionReport(pieces, stuck, hanging)
        return sums, several

    def _with_delta(self, call: Asked, sums: list[Tensor], several: bool, *ends: Any) -> Any:
        """Results and their delta; the ends are baselines, inputs, target and additional arguments as given."""
        return _shaped(call, sums, several), self.compute_convergence_delta(tuple(sums), *ends)


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
        progress: bool | Report = False,
    ) -> Any:
        """Conductances of the shape of the layer's output or input, and with ``return_convergence_delta`` a delta (n,).

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        sums, several = self._watched(call, target, attribute_to_layer_input, _conductance, memory, progress)
        if not return_convergence_delta:
            return _shaped(call, sums, several)
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
        progress: bool | Report = False,
    ) -> Any:
        """Influences of the shape of the layer's output or input.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        sums, several = self._watched(
            call, target, attribute_to_layer_input, lambda layer: layer.gradients, memory, progress
        )
        return _shaped(call, sums, several)


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
        progress: bool | Report = False,
    ) -> Any:
        """Conductances of the shape of the inputs.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        count, pieces, stuck = len(call.lines), 0, 0
        hanging = torch.zeros(count, dtype=torch.float64)
        sums = [torch.zeros_like(x) for x in call.lines.ends]
        for group, places, _ in self._groups(call, attribute_to_neuron_input):
            if len(places) > 1:
                raise _no_layer("layer has several tensors, and a neuron is one element of one")
            targets = flat_targets(target, one_output(group.network), count)[group.rows]
            watch = {places[0]: _only(_chosen(neuron_selector, group.network.nodes[places[0]].shape))}
            found = integral(group.network, group.lines, targets, memory, progress, watch)
            pieces, stuck = pieces + found.pieces, stuck + found.stuck
            hanging[group.rows] = hanging_on(found, group.lines)
            for total, gradient in zip(sums, found.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
        self.report = AttributionReport(pieces, stuck, hanging)
        made = [g * c for g, c in zip(sums, call.change, strict=True)] if self._multiply else sums
        return as_given(call, made)


class LayerIntegratedGradients(LayerAttribution):
    """Integrated gradients of the rest of the model, on the straight line between a layer's two activations.

    Whatever goes around the layer is computed from the inputs, not from the baselines.

    >>> relu = torch.nn.ReLU()
    >>> model = torch.nn.Sequential(torch.nn.Identity(), relu)
    >>> LayerIntegratedGradients(model, relu).attribute(torch.tensor([[3.0, -1.0]]), target=0)
    tensor([[3., 0.]])
    """

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
        progress: bool | Report = False,
    ) -> Any:
        """Attributions of the shape of the layer's output or input, and with ``return_convergence_delta`` a delta (n,).

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        count, pieces, stuck, several = len(call.lines), 0, 0, False
        sums: list[Tensor] = []
        hanging = torch.zeros(count, dtype=torch.float64)
        for group, places, probe in self._groups(call, attribute_to_layer_input):
            targets = flat_targets(target, one_output(group.network), count)[group.rows]
            if probe.trace.calls > 1:
                raise UnsupportedError(
                    "The model calls the layer more than once.",
                    where="argument layer",
                    hint="Give every call a module of its own.",
                )
            lines, rest = self._rest(group, places, attribute_to_layer_input, call.device)
            found = integral(rest, lines, targets, memory, progress)
            pieces, stuck, several = pieces + found.pieces, stuck + found.stuck, probe.trace.several
            hanging[group.rows] = hanging_on(found, lines)
            for k in range(len(places)):
                change = lines.ends[k] - lines.starts[k]
                made = (found.gradients[k] * change if self._multiply else found.gradients[k]).cpu()
                if len(sums) == k:
                    sums.append(made.new_zeros(count, *made.shape[1:]))
                sums[k][group.rows] = made
        self.report = AttributionReport(pieces, stuck, hanging)
        if not return_convergence_delta:
            return _shaped(call, sums, several)
        return self._with_delta(call, sums, several, baselines, inputs, target, additional_forward_args)

    def _rest(self, group: Group, places: list[int], at_input: bool, device: torch.device) -> tuple[Lines, Network]:
        """The line between the layer's activations, and the model from there on."""
        starts, ends = (values_at(group.network, xs, places) for xs in (group.lines.starts, group.lines.ends))
        lines = Lines((*starts, *group.lines.ends), (*ends, *group.lines.ends))
        probe = self._probe(group.model, at_input, len(places))
        with precise(kernels=False):
            return lines, as_network(probe, points(lines), rewrite=False, device=device)


def _shaped(call: Asked, sums: list[Tensor], several: bool) -> Any:
    """A layer's results in the inputs' precision: one tensor, or a tuple where the layer has one."""
    made = tuple(call.given_back(s) for s in sums)
    return made if several else made[0]


def _conductance(layer: Layer) -> Tensor:
    """On every piece the mean gradient times the change of the layer's values, (points, *shape)."""
    inner = torch.nonzero(layer.widths > 0)[:, 0]
    widths = layer.widths[inner].view(-1, *[1] * (layer.values.dim() - 1)).to(layer.values.dtype)
    made = torch.zeros_like(layer.values)
    made[inner] = layer.gradients[inner] / widths * (layer.values[inner + 1] - layer.values[inner])
    return made


def _added(total: Tensor, rule: Callable[[Layer], Tensor]) -> Watcher:
    """A watcher that adds a rule's results to the total of every line."""

    def watch(layer: Layer) -> None:
        total.index_add_(0, layer.line, rule(layer))

    return watch


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


def _no_layer(problem: str) -> ArgumentError:
    return ArgumentError(
        f"{problem[0].upper()}{problem[1:]}.",
        where="argument layer",
        hint="Give a submodule that the model calls, such as model.conv1.",
    )
