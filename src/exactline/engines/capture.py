"""Capture a model at the points of a call, with or without a batch dimension of one in front of them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from ..errors import CaptureError, TrainingModeError, UnsupportedError
from ..network import Network, as_network
from ..options import RestrictOptions

_used_networks: weakref.WeakSet[Network] = weakref.WeakSet()  # captures that an earlier call has returned
DECISION_KEY = "without batch dimension"  # of the network for points without it, among the copies of a network


def _capture_output(
    model: Any,
    points: Sequence[Tensor],  # (*in) each
    options: RestrictOptions,
) -> Network:
    """Capture a model on the CPU, and select one of its outputs if the options name one."""
    network = as_network(model, points, rewrite=options.rewrite, until=options.until)
    return network if options.output is None else network.output(options.output)


def capture_at_points(
    model: Any,
    points: Sequence[Tensor],  # (*in) or (1, *in) each
    options: RestrictOptions,
) -> tuple[Network, bool]:
    """Capture a model on the CPU; returns the network, and whether the first dim of the points is a batch dimension.

    A first dimension of one is a batch dimension where the model takes the points only without it, or where it passes
    from the input to the output unchanged: with (1, *in) the values would be (1, *out), with (*in) they are (*out).

    Raises CaptureError and UnsupportedError of the points as given, unless only the other ones reach an operator that
    is not supported.
    """
    if not all(p.dim() > 1 and len(p) == 1 for p in points):
        return _capture_output(model, points, options), False
    inner = [p[0] for p in points]
    try:
        network = _capture_output(model, points, options)
    except (UnsupportedError, TrainingModeError):
        raise
    except CaptureError as problem:
        return _capture_inner(model, inner, options, problem), True
    if isinstance(model, (Network, ExportedProgram)):  # their input shapes are known
        shapes = [network.nodes[i].shape for i in network.inputs]
        return network, shapes == [tuple(p.shape) for p in inner]
    if DECISION_KEY not in network.device_copies:
        network.device_copies[DECISION_KEY] = _choose_network(network, model, points, inner, options)
    chosen = network.device_copies[DECISION_KEY]
    return chosen, chosen is not network


def is_first_use(model: Any, network: Network) -> bool:
    """Tell whether a network was captured from its model just now, so that the capture was part of the call."""
    if isinstance(model, Network) or network in _used_networks:
        return False
    _used_networks.add(network)
    return True


def _capture_inner(model: Any, inner: Sequence[Tensor], options: RestrictOptions, problem: CaptureError) -> Network:
    """Capture a model that does not take the points with their first dimension."""
    try:
        return _capture_output(model, inner, options)
    except UnsupportedError:
        raise
    except CaptureError:
        given = ", ".join(str((1, *p.shape)) for p in inner)
        raise CaptureError(
            f"{problem.problem} The points have shape {given}, and without their first dimension it cannot either.",
            where=problem.where,
            hint=problem.hint,
        ) from problem


def _choose_network(
    network: Network, model: Any, points: Sequence[Tensor], inner: Sequence[Tensor], options: RestrictOptions
) -> Network:
    """Capture the model without the first dimension of the points, if it passes through to the outputs unchanged."""
    shapes = [network.nodes[i].shape for i in network.outputs]
    if not all(shape[:1] == (1,) for shape in shapes):
        return network
    try:
        other = _capture_output(model, inner, options)
    except CaptureError:
        return network
    if [other.nodes[i].shape for i in other.outputs] != [shape[1:] for shape in shapes]:
        return network
    batch = [p[None].to(torch.float64) for p in points]
    values, inner_values = network.evaluate(batch, network.outputs), other.evaluate(list(points), other.outputs)
    is_same = all(
        torch.allclose(values[i][0], inner_values[j]) for i, j in zip(network.outputs, other.outputs, strict=True)
    )
    return other if is_same else network
