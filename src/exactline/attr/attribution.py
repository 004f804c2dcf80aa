"""The base class of all attribution methods: the model, the groups of examples of a call, and convergence deltas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import UnsupportedError
from ..lines import as_points
from ..network import Network, as_network
from ..network.sklearn_models import as_module, is_estimator
from ..smooth.api import check_tolerance
from .argument_errors import AttributionArgumentError
from .captum_classes import link_to_captum
from .captum_interface import CaptumInterface
from .inputs import (
    AttributionCall,
    CaptureFunction,
    ExampleGroup,
    ModelLike,
    evaluate_targets,
    flatten_targets,
    parse_call,
    single_output_shape,
)
from .outputs import choose_output, select_output
from .refusals import explain_captures
from .report import AttributionReport
from .to_tolerance import (
    SmoothGroup,
    change_along,
    ending_groups,
    is_exact,
    parse_targets,
    prepare_for,
    smooth_groups,
)
from .tokens import has_integers, output_change

CACHES = ("_one_outputs", "_hooked_models", "_cast_models", "_neuron_models")
Groups: TypeAlias = tuple[list[SmoothGroup], list[ExampleGroup]]  # to a tolerance, and exact


class Attribution(CaptumInterface):
    """Base class of all attribution methods: a model, and the report on the last call."""

    def __init__(self, forward_func: ModelLike, multiply_by_inputs: bool = True, tol: float | None = None) -> None:
        link_to_captum()
        self.forward_func = as_module(forward_func) if is_estimator(forward_func) else forward_func
        self.tol = None if tol is None else check_tolerance(tol)  # None: exact, or refused
        self.report: AttributionReport | None = None
        self.output: str | int | None = None  # which output is attributed, if the model returns several
        self._multiply = multiply_by_inputs
        self._one_outputs: dict[tuple[Any, Any], ModelLike] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle keeps: all but the models that were made to be captured once."""
        return {k: {} if k in CACHES else v for k, v in self.__dict__.items()}

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by inputs minus baselines."""
        return self._multiply

    def has_convergence_delta(self) -> bool:
        """Whether the attributions add up to the change of the output, so that a convergence delta exists."""
        return True

    def compute_convergence_delta(
        self,
        attributions: Any,
        start_point: Any,
        end_point: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        *,
        output: str | int | None = None,
    ) -> Tensor:
        """Compute the sum of the attributions minus the change of the output, (n,).

        Args:
            attributions: The result of ``attribute``, (n, *shape), or a tuple, or a list of both for several layers.
            start_point: The baselines.
            end_point: The inputs, (n, *in), or a tuple.
            target: The target, as for ``attribute``.
            additional_forward_args: The additional arguments, as for ``attribute``.
            output: Which output was attributed, if the model returns several; by default that of the constructor.

        Raises ArgumentError if the attributions or the target do not fit.
        """
        call, target = self._parse(end_point, start_point, additional_forward_args, None, target, output)
        tensors = as_points(tuple(iterate_tensors(attributions)), "attributions")
        count = len(call.lines)
        if any(not a.dim() or len(a) != count for a in tensors):
            raise AttributionArgumentError(
                f"The attributions are not those of {count} examples.",
                where="argument attributions",
                hint="Give what attribute returned for these inputs.",
            )
        return call.cast_like_input(self._compute_delta(call, tensors, target))

    def _compute_delta(
        self, call: AttributionCall, attributions: Sequence[Tensor], target: Any, groups: Groups | None = None
    ) -> Tensor:  # (n,)
        """The sum of the attributions as they are returned, (n, *shape) each, minus the change of the output."""
        sums = [a.detach().double().reshape(len(a), a.shape[1:].numel()).sum(1).cpu() for a in attributions]
        total = torch.stack(sums).sum(0)
        change = output_change(call, target) if has_integers(call) else None
        return total - (self._output_change(call, target, groups) if change is None else change)

    def _output_change(self, call: AttributionCall, target: Any, groups: Groups | None) -> Tensor:  # (n,)
        count = len(call.lines)
        change = torch.zeros(count, dtype=torch.float64)
        smooth, exact = groups or self._find_groups(call)
        for group in smooth:
            targets = parse_targets(group, target, count)
            change[group.rows] = change_along(group.model, group.lines, targets)
        for group in exact:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            ends = evaluate_targets(group.network, group.lines.ends, targets)
            change[group.rows] = (ends - evaluate_targets(group.network, group.lines.starts, targets)).cpu()
        return change

    def _parse(
        self,
        inputs: Any,
        baselines: Any,
        extra: Any,
        device: torch.device | str | None,
        target: Any,
        output: str | int | None,
    ) -> tuple[AttributionCall, Any]:
        """Check the arguments of a call, and find the output that is meant; returns the target in this output."""
        call = parse_call(inputs, baselines, extra, device)
        model = self.forward_func
        key, target = choose_output(model, call, self.output if output is None else output, target)
        selected = select_output(model, call, key)
        if selected is not None and isinstance(model, nn.Module):
            selected = self._one_outputs.setdefault((model, key), selected)  # so that it is captured only once
        return replace(call, model=selected or model, output=None if selected else key), target

    def _groups_without_exact(self, call: AttributionCall) -> list[SmoothGroup] | None:
        """The groups of examples if attributions are computed to a tolerance; None if they are exact."""
        if self.tol is None or not len(call.lines) or isinstance(call.model, Network):
            return None
        with explain_captures():
            groups = list(smooth_groups(call, call.model, prepare_for(call, call.output)))
        return None if all(is_exact(group.model) for group in groups) else groups

    def _find_groups(self, call: AttributionCall) -> Groups:
        """The groups of examples to compute to a tolerance, and those with exact attributions.

        A model that is piecewise linear up to a known ending, such as ``sigmoid(m(x)).squeeze(1)``, needs no tolerance.
        """
        smooth = self._groups_without_exact(call)
        if smooth is not None:
            return smooth, []
        try:
            return [], list(call.groups(call.model, capture_output(call.output)))
        except UnsupportedError:
            groups = ending_groups(call, call.model, call.output)
            if groups is None:
                raise
            return groups, []


def iterate_tensors(attributions: Any) -> Iterator[Any]:
    """The tensors of a result of ``attribute``: one, a tuple, or a list of them for several layers."""
    if not isinstance(attributions, (tuple, list)):
        yield attributions
        return
    parts: Sequence[Any] = attributions
    for part in parts:
        yield from iterate_tensors(part)


def capture_output(output: str | int | None) -> CaptureFunction:
    """Make the function that captures a model, and selects one of its outputs unless ``output`` is None."""

    def capture(model: ModelLike, points: Sequence[Tensor], device: torch.device) -> Network:
        network = as_network(model, points, device=device)
        return network if output is None else network.output(output)

    return capture
