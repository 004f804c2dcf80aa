"""Attributions of any differentiable model to a tolerance: panels of quadrature along the line of every example."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..api import restrict_many
from ..arrays import Floats
from ..errors import ArgumentError, CaptureError, UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..options import free_memory
from ..progress import progress_reporter
from ..smooth.api import ToleranceWarning
from ..smooth.certified import certified_integrated_gradients, record_gradients
from ..smooth.gradients import Integrand, LayerFlow, NeuronFlow, OutputGradient
from ..smooth.integrals import LineIntegrals, PanelQueue
from ..smooth.line_function import inspect_model
from ..smooth.model import SmoothModel, prepare_model
from .inputs import (
    BATCHED,
    AttributionCall,
    AttributionOptions,
    ModelLike,
    PartialModel,
    example_points,
    flatten_targets,
    group_equal_rows,
)
from .layer_hook import HookedModel

PrepareFunction: TypeAlias = Callable[[ModelLike, Sequence[Tensor]], SmoothModel]
MAX_GRADIENTS = 100_000  # of each example, by default
ENDING_TOL = 1e-10  # of models that are piecewise linear up to a known ending, where no tolerance is given


@dataclass(frozen=True)
class SmoothGroup:
    """Examples that share one float64 model."""

    rows: Tensor  # (rows,) indices of the examples
    source: ModelLike  # the model, or the model with additional arguments filled in
    model: SmoothModel
    lines: Lines  # from the baselines to the inputs, followed by the additional arguments, which stay fixed
    inputs: int  # the number of inputs, without additional arguments


def smooth_groups(call: AttributionCall, model: ModelLike, prepare: PrepareFunction) -> Iterator[SmoothGroup]:
    """Yield all examples with one model, or one group for each value of additional arguments that are not numbers."""
    is_plain = all(value is BATCHED for value in call.extra_args)
    whole = model if is_plain else PartialModel(model, len(call.inputs), call.extra_args)
    if all(t.is_floating_point() for t in call.batched_args):
        fixed = tuple(t.double().cpu() for t in call.batched_args)
        lines = Lines((*call.lines.starts, *fixed), (*call.lines.ends, *fixed))
        try:
            prepared = prepare(whole, example_points(lines))
        except CaptureError:
            if not fixed:
                raise
        else:
            yield SmoothGroup(torch.arange(len(lines)), whole, prepared, lines, len(call.inputs))
            return
    for rows in group_equal_rows(call.batched_args):
        values = [value[rows[0]] for value in call.batched_args]
        partial = PartialModel(model, len(call.inputs), call.extra_args, values)
        starts, ends = (tuple(t[rows] for t in side) for side in (call.lines.starts, call.lines.ends))
        lines = Lines(starts, ends)
        yield SmoothGroup(rows, partial, prepare(partial, example_points(lines)), lines, len(call.inputs))


def prepare_for(
    call: AttributionCall, output: str | int | None
) -> Callable[[ModelLike, Sequence[Tensor]], SmoothModel]:
    """Make the function that turns a model into a float64 function on the device of a call."""

    def prepare(model: ModelLike, points: Sequence[Tensor]) -> SmoothModel:
        return prepare_model(model, points, call.device, output)

    return prepare


def is_exact(model: SmoothModel) -> bool:
    """Whether exact attributions exist: the model is piecewise linear up to a documented smooth last operator."""
    return model.prefix.is_whole or model.prefix.has_tail


def has_known_ending(model: SmoothModel) -> bool:
    """Whether all but the last few operators, such as sigmoid and squeeze, are piecewise linear."""
    return model.prefix.has_known_ending


def integrate_to_tolerance(
    integrand: Integrand,
    weights: Tensor,  # (lines, features)
    options: AttributionOptions,
    tol: float,
) -> LineIntegrals:
    """Integrate along all lines, starting with the breaks of the model's piecewise-linear part."""
    memory = free_memory(integrand.model.device) if options.memory is None else options.memory
    deadline = float("inf") if options.seconds is None else time.monotonic() + options.seconds
    limit = MAX_GRADIENTS if options.max_gradients is None else options.max_gradients
    with progress_reporter(options.progress) as report:
        queue = PanelQueue(integrand, weights.cpu(), tol, memory, limit, deadline, report)
        found = queue.run(_find_breaks(integrand.model, integrand.lines, memory))
    worst = float(found.errors.max()) if len(found.errors) else 0.0
    if worst > tol:
        reason = f"{found.stopped} was reached" if found.stopped else "rounding errors do not permit more"
        warnings.warn(
            f"The relative error is estimated as {worst:.1e}, not {tol:.1e}: {reason}.", ToleranceWarning, stacklevel=4
        )
    return found


def _find_breaks(model: SmoothModel, lines: Lines, memory: int) -> list[Floats]:
    """The breaks of each line in the piecewise-linear part of the model."""
    network = model.prefix.network
    if network is None or not len(lines):
        return [np.array([0.0, 1.0])] * len(lines)
    found = restrict_many(network, lines.starts, lines.ends, values=False, memory=memory)
    return [line.alphas.numpy() for line in found]


def integrate_inputs(
    group: SmoothGroup, targets: Tensor, multiply: bool, options: AttributionOptions, tol: float
) -> tuple[list[Tensor], LineIntegrals]:
    """The mean gradient of each example by its inputs, (rows, *in) each."""
    return integrate_gradient(group.model, group.lines, group.inputs, targets, multiply, options, tol)


def certify_inputs(
    group: SmoothGroup, targets: Tensor, options: AttributionOptions, tol: float
) -> tuple[list[Tensor], LineIntegrals, str]:
    """The mean gradient of each example by its inputs, (rows, *in) each, with proven bounds; and the status.

    A gradient counts as 0 where input and baseline are equal: its product with their difference is 0.
    """
    if not isinstance(group.source, nn.Module):
        raise ArgumentError(
            "A proven bound needs a torch module, without additional arguments.",
            where="argument certified",
            hint="Leave certified out for an error estimate.",
        )
    tape = record_gradients(group.source, example_points(group.lines))
    found = [
        certified_integrated_gradients(
            tape,
            tuple(t[k] for t in group.lines.starts),
            tuple(t[k] for t in group.lines.ends),
            tuple(int(i) for i in np.unravel_index(int(targets[k]), tuple(tape.output_shape))),
            tol,
            seconds=options.seconds,
        )
        for k in range(len(group.lines))
    ]
    changes = [b - a for a, b in zip(group.lines.starts, group.lines.ends, strict=True)]
    parts = [
        torch.where(change != 0, torch.stack([f.attributions[i] for f in found]) / change, 0.0)
        for i, change in enumerate(changes)
    ]
    statuses = [f.status for f in found]
    status = next((s for s in ("not certified", "certified up to rounding") if s in statuses), "certified")
    errors = [f.error if status == "certified up to rounding" else f.error + f.rounding_error for f in found]
    gradients = torch.tensor([f.gradients for f in found])
    rows = torch.cat([p.reshape(len(p), -1) for p in parts], 1)
    integrals = LineIntegrals(
        rows, torch.tensor(errors, dtype=torch.float64), gradients, sum(len(f.sub_intervals) for f in found)
    )
    return parts, integrals, status


def integrate_gradient(
    model: SmoothModel,
    lines: Lines,
    inputs: int,
    targets: Tensor,  # (lines,)
    multiply: bool,
    options: AttributionOptions,
    tol: float,
) -> tuple[list[Tensor], LineIntegrals]:
    """The mean gradient along each line by the first inputs, (lines, *in) each."""
    integrand = OutputGradient(model, lines, targets, inspect_model(model, lines), inputs)
    found = integrate_to_tolerance(integrand, line_changes(lines, inputs, multiply), options, tol)
    return split_rows(found.integrals, [tuple(t.shape[1:]) for t in lines.starts[:inputs]]), found


def split_rows(rows: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:  # (n, features) -> (n, *shape) each
    """Split flat rows into tensors of given shapes."""
    parts = rows.split([torch.Size(shape).numel() for shape in shapes], 1)
    return [p.reshape(len(p), *shape) for p, shape in zip(parts, shapes, strict=True)]


def line_changes(lines: Lines, inputs: int, multiply: bool) -> Tensor:  # (lines, features)
    """The factors of the error norm: inputs minus baselines, or ones."""
    pairs = list(zip(lines.starts, lines.ends, strict=True))[:inputs]
    changes = [(b - a if multiply else torch.ones_like(a)).reshape(len(a), -1) for a, b in pairs]
    return torch.cat(changes, 1)


@dataclass(frozen=True)
class SmoothLayer:
    """A model opened at a layer: up to the layer, and from the layer on."""

    group: SmoothGroup
    hooked: HookedModel  # returns the output, followed by the layer's tensors
    model: SmoothModel  # of ``hooked``
    shapes: list[tuple[int, ...]]  # of the layer's tensors for one point
    output_shape: tuple[int, ...]

    def rest(self, at_input: bool, layer: nn.Module, points: Sequence[Tensor]) -> SmoothModel:
        """The model from the layer on: it takes the layer's tensors, then the inputs."""
        after = HookedModel(self.group.source, layer, at_input, len(self.shapes))
        return prepare_model(after, points, self.model.device)


def open_at_layer(group: SmoothGroup, hooked: HookedModel, device: torch.device) -> SmoothLayer:
    """Evaluate a model at its layer; raises UnsupportedError if the layer is called more than once."""
    model = prepare_model(hooked, example_points(group.lines), device)
    inspection = inspect_model(model, group.lines)
    if hooked.trace.calls != 1:
        raise UnsupportedError(
            "The model calls the layer more than once." if hooked.trace.calls else "The model does not call the layer.",
            where="argument layer",
            hint="Use one module for each call.",
        )
    return SmoothLayer(group, hooked, model, list(inspection.shapes[1:]), inspection.shapes[0])


def layer_integrand(
    opened: SmoothLayer, at_input: bool, layer: nn.Module, targets: Tensor, times_change: bool
) -> LayerFlow:
    """The flow through all units of a layer, for conductance and internal influence."""
    lines = opened.group.lines
    rest = opened.rest(at_input, layer, _layer_points(opened, lines))
    return LayerFlow(opened.model, rest, lines, targets, inspect_model(opened.model, lines), times_change)


def neuron_integrand(opened: SmoothLayer, at_input: bool, layer: nn.Module, targets: Tensor, unit: int) -> NeuronFlow:
    """The flow through one unit of a layer, for neuron conductance."""
    lines = opened.group.lines
    rest = opened.rest(at_input, layer, _layer_points(opened, lines))
    return NeuronFlow(opened.model, rest, lines, targets, inspect_model(opened.model, lines), unit)


def _layer_points(opened: SmoothLayer, lines: Lines) -> list[Tensor]:
    return [*(torch.zeros(shape, dtype=torch.float64) for shape in opened.shapes), *example_points(lines)]


def layer_lines(opened: SmoothLayer) -> Lines:
    """The lines between a layer's two activations; the inputs stay at their ends."""
    lines = opened.group.lines
    with full_precision():
        starts, ends = (
            tuple(y.detach().cpu() for y in opened.model.evaluate(side)[1:]) for side in (lines.starts, lines.ends)
        )
    return Lines((*starts, *lines.ends), (*ends, *lines.ends))


def evaluate_targets(model: SmoothModel, points: Sequence[Tensor], targets: Tensor) -> Tensor:  # (n,)
    """The target of each example."""
    with full_precision():
        values = model.evaluate(points)[0].cpu()
    return values.reshape(len(values), -1).gather(1, targets[:, None])[:, 0]


def convergence_delta(group: SmoothGroup, attributions: Sequence[Tensor], targets: Tensor) -> Tensor:  # (rows,)
    """The sum of the attributions minus the change of the output."""
    change = evaluate_targets(group.model, group.lines.ends, targets) - evaluate_targets(
        group.model, group.lines.starts, targets
    )
    return torch.stack([a.reshape(len(a), -1).sum(1) for a in attributions]).sum(0) - change


def parse_targets(group: SmoothGroup, target: Any, count: int) -> Tensor:  # (rows,)
    """The flat position of each example's target."""
    shape, *others = inspect_model(group.model, group.lines).shapes
    if others:
        raise ArgumentError(
            "The model has several outputs.",
            where="the model",
            hint="IntegratedGradients takes output=, a name or an index; else wrap the model to return one tensor.",
        )
    return flatten_targets(target, shape, count)[group.rows]
