"""The job of a worker about attributions: exact integrated gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...attr import AttributionReport, IntegratedGradients
from ...errors import ArgumentError
from ...results.codec import pack_tensors
from ..codec import decode_point, unwrap_single
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_arrays
from .line_handlers import count_rows, decode_options
from .worker import JobContext


def handle_attribute(context: JobContext) -> Iterator[bytes]:
    """Send the attributions, the convergence delta, and how much of them depends on subgradients."""
    request = context.parse(pb.AttributeRequest)
    network = context.network()
    options = decode_options(request.options, context.device)
    inputs = decode_point(request.inputs, "inputs")
    baselines = decode_point(request.baselines, "baselines") if request.baselines.inputs else None
    count = count_rows(inputs)
    if not count:
        raise ArgumentError("There are no examples.", where="inputs", hint="Give arrays of shape (n, *in).")
    context.limits.check("lines_per_call", count, "examples")
    send_progress = ProgressSender(context.send_message, request.options.progress)

    def check_progress(share: float, pieces: int) -> None:
        context.limits.check("breaks_per_line", pieces // count + 1, "breaks on a line, or more,")
        send_progress(share, pieces)

    method = IntegratedGradients(network, multiply_by_inputs=not request.gradients_only)
    attributions, delta = method.attribute(
        inputs if network.several_inputs else unwrap_single(inputs),
        baselines if baselines is None or network.several_inputs else unwrap_single(baselines),
        _decode_target(request),
        return_convergence_delta=True,
        device=context.device,
        memory=options["memory"],
        progress=check_progress,
    )
    report = method.report or AttributionReport(0, 0, torch.zeros(0))
    context.counters |= {"lines": len(inputs[0]), "breaks": report.pieces}
    arrays = pack_tensors("attribution", attributions if isinstance(attributions, tuple) else (attributions,))
    arrays |= {"delta": delta, "hanging": report.subgradient_range}
    answer = context.write_answer(request.options)
    answer.head(arrays, network, context.checksum(), len(inputs[0]))
    answer.rows(encode_arrays(list(arrays.values()), context.limits.answer_bytes))
    answer.tail(pieces=report.pieces, attribution_ambiguous=report.ambiguous)
    yield from ()


def _decode_target(request: pb.AttributeRequest) -> Any:
    """Return the target of all examples, or the list of those of each."""
    indices = [tuple(index.indices) for index in request.targets]
    targets = [index[0] if len(index) == 1 else index for index in indices]
    if request.target_per_example:
        return targets
    if len(targets) > 1:
        raise ArgumentError("There are several targets.", where="targets", hint="Give one, or set target_per_example.")
    return targets[0] if targets else None
