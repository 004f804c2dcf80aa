"""Integrated gradients of a layer: those of the rest of the model, between the layer's two activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..network import Network, as_network
from ..progress import ProgressCallback
from .inputs import Group, asked, flat_targets, needless, one_output, points, values_at
from .integrated_gradients import Tally, hanging_on, integral
from .layers import LayerAttribution, shaped


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
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """Attributions of the shape of the layer's output or input, and with ``return_convergence_delta`` a delta (n,).

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        count, several = len(call.lines), False
        sums: list[Tensor] = []
        tally = Tally.of(count)
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
            tally.add(found, group.rows, hanging_on(found, lines))
            several = probe.trace.several
            for k in range(len(places)):
                change = lines.ends[k] - lines.starts[k]
                made = (found.gradients[k] * change if self._multiply else found.gradients[k]).cpu()
                if len(sums) == k:
                    sums.append(made.new_zeros(count, *made.shape[1:]))
                sums[k][group.rows] = made
        self.report = tally.report
        if not return_convergence_delta:
            return shaped(call, sums, several)
        return self._with_delta(call, sums, several, baselines, inputs, target, additional_forward_args)

    def _rest(self, group: Group, places: list[int], at_input: bool, device: torch.device) -> tuple[Lines, Network]:
        """The line between the layer's activations, and the model from there on."""
        starts, ends = (values_at(group.network, xs, places) for xs in (group.lines.starts, group.lines.ends))
        lines = Lines((*starts, *group.lines.ends), (*ends, *group.lines.ends))
        probe = self._probe(group.model, at_input, len(places))
        with full_precision(kernels=False):
            return lines, as_network(probe, points(lines), rewrite=False, device=device)
