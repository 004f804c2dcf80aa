"""Evaluate a network in batches of points, and a line between its breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..lines import interpolate
from ..network.graph import Network

if TYPE_CHECKING:
    from .restriction import Restriction

MAX_BATCH_ELEMENTS = 1 << 22  # elements of a network's widest tensor over all points of a batch


def batch_size(network: Network) -> int:
    """Number of points that are evaluated together."""
    width = max(torch.Size(node.shape).numel() for node in network.nodes)
    return max(1, MAX_BATCH_ELEMENTS // max(width, 1))


def evaluate_in_batches(network: Network, points: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute the outputs of a captured network, (n, *out) each, at points (n, *in), one tensor for each input."""
    batches = []
    with full_precision():
        for batch in zip(*(p.split(batch_size(network)) for p in points), strict=True):
            values = network.evaluate(batch, network.outputs)
            batches.append([values[i] for i in network.outputs])
    return tuple(torch.cat(outputs) for outputs in zip(*batches, strict=True))


def values_at_breaks(line: Restriction, breaks: Tensor) -> tuple[Tensor, ...]:
    """Values at some breaks (k,), (k, *out) for each output: the stored ones, or evaluated again."""
    if line.stored_values is not None:
        return tuple(v[breaks] for v in line.stored_values)
    return evaluate_in_batches(line.require_network("line.at"), line.lines.at_alphas(line.alphas[breaks])[0])


def values_between_breaks(line: Restriction, alphas: Tensor, *, tail: bool) -> tuple[Tensor, ...]:
    """Interpolate the values of a line at alphas of any shape, (*alphas.shape, *out) for each output.

    Raises ArgumentError for an alpha outside of the part of the line that was swept.
    """
    left, right, part = _locate(line, alphas)
    ends = zip(values_at_breaks(line, left), values_at_breaks(line, right), strict=True)
    outputs = [interpolate(a, b, part.to(a.dtype).view(-1, *[1] * (a.dim() - 1))) for a, b in ends]
    if tail:
        tails = line.require_network("line.at(tail=True)").tails
        outputs = [out if t is None else t.apply(out) for out, t in zip(outputs, tails, strict=True)]
    return tuple(out.view((*alphas.shape, *out.shape[1:])) for out in outputs)


def interpolate_errors(line: Restriction, alphas: Tensor) -> Tensor:
    """Interpolate the estimated errors of a line at alphas of any shape, (*alphas.shape); raises ArgumentError."""
    left, right, part = _locate(line, alphas)
    errors = line.errors
    return (errors[left] * (1 - part) + errors[right] * part).view(alphas.shape)


def _locate(line: Restriction, alphas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The break before each alpha, the break after it, and its share of the way between them, (n,) each.

    Raises ArgumentError for an alpha outside of the part of the line that was swept.
    """
    low, high = (float(line.alphas[0]), line.reached) if len(line.alphas) else (0.0, -1.0)
    if not bool(((alphas >= low) & (alphas <= high)).all()):
        raise ArgumentError(
            f"alpha must be between {low:g} and {high:g}.",
            where="argument alpha",
            hint="Points off the line are not covered." if line.complete else "The sweep was stopped there.",
        )
    flat = alphas.flatten()
    left = (torch.searchsorted(line.alphas, flat, right=True) - 1).clamp(0, max(len(line) - 1, 0))
    right = (left + 1).clamp(max=len(line.alphas) - 1)
    width = line.alphas[right] - line.alphas[left]
    part = torch.where(width > 0, (flat - line.alphas[left]) / width, torch.zeros_like(width))
    return left, right, part


def as_alphas(value: Any) -> Tensor:
    """Convert a user's alphas to a float64 tensor of any shape; raises ArgumentError."""
    try:
        alphas = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
        if alphas.is_complex() or alphas.dtype == torch.bool:
            raise TypeError(f"{alphas.dtype} is not a real number")
        return alphas.to(torch.float64)
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            f"alpha is not a number or an array of numbers: {problem}",
            where="argument alpha",
            hint="Give positions between 0 and 1.",
        ) from problem


def require_values(values: tuple[Tensor, ...] | None, *, where: str, hint: str) -> tuple[Tensor, ...]:
    """The stored values of a result; raises MissingError if there are none."""
    if values is None:
        raise MissingError("The values were not kept.", where=where, hint=hint)
    return values


def require_network(network: Network | None, *, where: str, hint: str) -> Network:
    """The network of a result; raises MissingError if it is not known."""
    if network is None:
        problem = "The network is not known: neither files nor servers include it in a result."
        raise MissingError(problem, where=where, hint=hint)
    return network
