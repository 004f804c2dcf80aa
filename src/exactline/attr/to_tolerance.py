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
from ..errors import ArgumentError, CaptureError, NumberError, UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..network import Network, SmoothNetwork
from ..options import free_memory
from ..progress import progress_reporter
from ..smooth.api import ToleranceWarning
from ..smooth.certified import NetworkModule, certified_integrated_gradients, record_gradients
from ..smooth.gradients import Integrand, LayerFlow, NeuronFlow, OutputGradient
from ..smooth.integrals import LineIntegrals, PanelQueue
from ..smooth.line_function import inspect_model
from ..smooth.model import SmoothModel, prepare_model
from .argument_errors import AttributionArgumentError
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
from .last_call import RestAfterLastCall
from .layer_hook import HookedModel, Layers
from .refusals import BATCH_HINT

PrepareFunction: TypeAlias = Callable[[ModelLike, Sequence[Tensor]], SmoothModel]
MAX_GRADIENTS = 100_000  # of each example, by default
INDEPENDENCE_TOLERANCE = 1e-6  # of a point's outputs alone and in a batch, relative: kernels differ by rounding only
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
            _check_independence(prepared, lines)
            yield SmoothGroup(torch.arange(len(lines)), whole, prepared, lines, len(call.inputs))
            return
    for rows in group_equal_rows(call.batched_args):
        values = [value[rows[0]] for value in call.batched_args]
        partial = PartialModel(model, len(call.inputs), call.extra_args, values)
        starts, ends = (tuple(t[rows] for t in side) for side in (call.lines.starts, call.lines.ends))
        lines = Lines(starts, ends)
        prepared = prepare(partial, example_points(lines))
        _check_independence(prepared, lines)
        yield SmoothGroup(rows, partial, prepared, lines, len(call.inputs))


def _check_independence(model: SmoothModel, lines: Lines) -> None:
    """Raise an error for a model that is not a function of each point by itself: others would change an attribution."""
    points = [torch.cat([a[:2], b[:2]]) for a, b in zip(lines.starts, lines.ends, strict=True)]
    with full_precision(), torch.no_grad():
        together, again = model.evaluate(points), model.evaluate(points)
        single = [model.evaluate([p[i : i + 1] for p in points]) for i in range(len(points[0]))]
    for k, values in enumerate(together):
        if not bool(values.isfinite().all()):
            raise NumberError(
                "An output is NaN or infinite at an input or a baseline.",
                where="forward",
                hint="Choose points at which the model does not overflow.",
            )
        if not _agree(values, again[k]):
            raise CaptureError(
                "The model returns different values for the same input.",
                where="forward",
                hint="Call model.eval(), and keep state and random numbers out of forward.",
            )
        if not _agree(values, torch.cat([row[k] for row in single])):
            raise UnsupportedError("The model mixes the points of a batch.", where="forward", hint=BATCH_HINT)


def _agree(one: Tensor, two: Tensor) -> bool:
    scale = float(one.abs().max()) if one.numel() else 0.0
    return bool(((one - two).abs() <= INDEPENDENCE_TOLERANCE * scale).all())


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


def ending_groups(call: AttributionCall, model: ModelLike, output: str | int | None = None) -> list[SmoothGroup] | None:
    """The groups of examples if the model is piecewise linear up to a known ending; else None."""
    if not len(call.lines) or isinstance(model, (Network, SmoothNetwork)):
        return None
    groups = list(smooth_groups(call, model, prepare_for(call, output)))
    return groups if all(has_known_ending(g.model) or g.model.prefix.has_tail for g in groups) else None


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
    source = NetworkModule(group.source) if isinstance(group.source, SmoothNetwork) else group.source
    if not isinstance(source, nn.Module):
        raise ArgumentError(
            "A proven bound needs a torch module or a network from a file, without additional arguments.",
            where="argument certified",
            hint="Leave certified out for an error estimate.",
        )
    tape = record_gradients(source, example_points(group.lines))
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
    if any(f.uncertified for f in found):
        status = "not certified"
    else:
        status = "certified" if all(f.status == "certified" for f in found) else "certified up to rounding"
    errors = [f.error + (f.rounding_error if status == "certified" else 0.0) for f in found]
    if (worst := max(errors, default=0.0)) > tol:
        warnings.warn(
            f"The relative error is proven to be at most {worst:.1e}, not {tol:.1e}.", ToleranceWarning, stacklevel=3
        )
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

    def rest(self, at_input: bool, layer: Layers, points: Sequence[Tensor]) -> SmoothModel:
        """The model from the layer on: it takes the layer's tensors, then the inputs."""
        after = HookedModel(self.group.source, layer, at_input, self.hooked.trace.counts)
        return prepare_model(after, points, self.model.device)


def open_at_layer(group: SmoothGroup, hooked: HookedModel, device: torch.device) -> SmoothLayer:
    """Evaluate a model at its layer, in the last call of it; raises UnsupportedError if there is none."""
    model = prepare_model(hooked, example_points(group.lines), device)
    inspection = inspect_model(model, group.lines)
    if not hooked.trace.calls:
        raise UnsupportedError(
            "The model does not call the layer.", where="argument layer", hint="Give a submodule that the model calls."
        )
    return SmoothLayer(group, hooked, model, list(inspection.shapes[1:]), inspection.shapes[0])


def layer_integrand(
    opened: SmoothLayer, at_input: bool, layer: Layers, targets: Tensor, times_change: bool
) -> LayerFlow:
    """The flow through all units of a layer, for conductance and internal influence."""
    lines = opened.group.lines
    rest = _rest_after_last_call(opened, at_input, layer)
    return LayerFlow(opened.model, rest, lines, targets, inspect_model(opened.model, lines), times_change)


def neuron_integrand(opened: SmoothLayer, at_input: bool, layer: Layers, targets: Tensor, unit: int) -> NeuronFlow:
    """The flow through one unit of a layer, for neuron conductance."""
    lines = opened.group.lines
    rest = _rest_after_last_call(opened, at_input, layer)
    return NeuronFlow(opened.model, rest, lines, targets, inspect_model(opened.model, lines), unit)


def _rest_after_last_call(opened: SmoothLayer, at_input: bool, layer: Layers) -> SmoothModel:
    """The model from the last call of a layer on: it takes the layer's tensors, then the inputs."""
    points, calls = _layer_points(opened, opened.group.lines), opened.hooked.trace.calls
    if calls == 1:
        return opened.rest(at_input, layer, points)
    first, *others = opened.hooked.layers
    if others:
        raise UnsupportedError(
            "The model calls one of several layers more than once.",
            where="argument layer",
            hint="Give one layer at a time.",
        )
    after = RestAfterLastCall(opened.group.source, first, at_input, calls, len(opened.shapes))
    return prepare_model(after, points, opened.model.device)


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


def change_along(model: SmoothModel, lines: Lines, targets: Tensor) -> Tensor:  # (lines,)
    """The change of each example's target along its line."""
    return evaluate_targets(model, lines.ends, targets) - evaluate_targets(model, lines.starts, targets)


def parse_targets(group: SmoothGroup, target: Any, count: int) -> Tensor:  # (rows,)
    """The flat position of each example's target."""
    shape, *others = inspect_model(group.model, group.lines).shapes
    if others:
        raise AttributionArgumentError(
            "The model has several outputs.",
            where="the model",
            hint="Give attribute output=, a name or an index, or put it first in the target: target=(0, 3).",
        )
    return flatten_targets(target, shape, count)[group.rows]
