"""What a worker does when asked for attributions: exact integrated gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...attr.integrated_gradients import IntegratedGradients
from ...errors import ArgumentError
from ..codec import given, tensors_of
from ..protos.exactline.v1 import exactline_pb2 as pb
from . import writer
from .line_handlers import options_of
from .worker import Task
from .writer import Column, Teller


def attribute(task: Task) -> Iterator[bytes]:
    """Attributions of the shape of the inputs, what hangs on conventions and, if asked, the delta."""
    asked = pb.AttributeRequest.FromString(task.payload)
    network = task.network()
    chosen = options_of(asked.options, task.device)
    inputs = tensors_of(asked.inputs, "inputs")
    baselines = tensors_of(asked.baselines, "baselines") if asked.baselines.inputs else None
    if any(not t.dim() or len(t) > task.limits.lines_per_call for t in inputs):
        raise ArgumentError("The number of examples is missing.", where="inputs", hint="Give arrays of (n, *in).")
    method = IntegratedGradients(network, multiply_by_inputs=not asked.gradients)
    found, delta = method.attribute(
        inputs if network.several_inputs else given(inputs),
        baselines if baselines is None or network.several_inputs else given(baselines),
        _target(asked),
        return_convergence_delta=True,
        device=task.device,
        memory=chosen["memory"],
        progress=Teller(task.say, asked.options.progress),
    )
    made = found if isinstance(found, tuple) else (found,)
    report = method.report
    pieces, stuck, hanging = (0, 0, torch.zeros(0)) if report is None else (report.pieces, report.stuck, report.hanging)
    task.facts |= {"lines": len(inputs[0]), "breaks": pieces}
    tensors = [*made, delta, hanging]
    names = [*(f"attribution.{i}" for i in range(len(made))), "delta", "hanging"]
    columns = [Column(name, t.dtype, tuple(t.shape[1:])) for name, t in zip(names, tensors, strict=True)]
    yield writer.head(columns, network, task.checksum(), len(inputs[0]))
    yield from writer.arrays(tensors, task.limits.answer_bytes)
    yield writer.tail(pieces=pieces, stuck=stuck)


def _target(asked: pb.AttributeRequest) -> Any:
    """Which output each example asks for, as the library takes it."""
    places = [tuple(t.places) for t in asked.targets]
    flat = [place[0] if len(place) == 1 else place for place in places]
    if asked.one_each:
        return flat
    if len(flat) > 1:
        raise ArgumentError("There are several targets.", where="targets", hint="Set one_each, or give one.")
    return flat[0] if flat else None
