"""What attributions to a layer share: the model opened there, and sums over the pieces of every line."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..engines.dense.gradients import Layer, Watcher
from ..errors import ArgumentError, UnsupportedError
from ..network import Network, as_network, unwrapped
from ..progress import ProgressCallback
from .inputs import Asked, Group, Model, flat_targets, one_output
from .integrated_gradients import Attribution, Tally, integral
from .layer_hook import Probe

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
            raise no_layer(f"layer is {type(layer).__name__}, not a module")
        whole = None if isinstance(forward_func, Network) else unwrapped(forward_func)
        if whole is None or (whole is forward_func and all(m is not layer for m in whole.modules())):
            raise no_layer(f"{type(layer).__name__} is not a submodule of the model")
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
                raise no_layer("layer takes no part in the forward pass")
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
        progress: bool | ProgressCallback,
    ) -> tuple[list[Tensor], bool]:
        """A sum over all pieces for each of the layer's tensors, (n, *shape), and whether they are a tuple."""
        count, several = len(call.lines), False
        sums: list[Tensor] = []
        tally = Tally.of(count)
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
            hanging = torch.zeros(len(group.rows), dtype=torch.float64)
            if found.stuck:
                hanging += sum((here[i] - there[i]).abs().reshape(len(group.rows), -1).sum(1).cpu() for i in places)
            tally.add(found, group.rows, hanging)
            several = probe.trace.several
            sums = sums or [torch.zeros(count, *here[i].shape[1:], dtype=torch.float64) for i in places]
            for total, i in zip(sums, places, strict=True):
                total[group.rows] = here[i].cpu()
        self.report = tally.report
        return sums, several

    def _with_delta(self, call: Asked, sums: list[Tensor], several: bool, *ends: Any) -> Any:
        """Results and their delta; the ends are baselines, inputs, target and additional arguments as given."""
        return shaped(call, sums, several), self.compute_convergence_delta(tuple(sums), *ends)


def shaped(call: Asked, sums: list[Tensor], several: bool) -> Any:
    """A layer's results in the inputs' precision: one tensor, or a tuple where the layer has one."""
    made = tuple(call.given_back(s) for s in sums)
    return made if several else made[0]


def _added(total: Tensor, rule: Callable[[Layer], Tensor]) -> Watcher:
    """A watcher that adds a rule's results to the total of every line."""

    def watch(layer: Layer) -> None:
        total.index_add_(0, layer.line, rule(layer))

    return watch


def no_layer(problem: str) -> ArgumentError:
    """What is said of a layer that cannot be attributed to."""
    return ArgumentError(
        f"{problem[0].upper()}{problem[1:]}.",
        where="argument layer",
        hint="Give a submodule that the model calls, such as model.conv1.",
    )
