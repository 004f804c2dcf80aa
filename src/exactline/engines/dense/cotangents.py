"""Cotangents of attributions: the gradient at an output element, or at a probability that a smooth tail computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...network.graph import Network
from ...tolerances import MAX_LOGIT_CHANGE
from .gradients import NodeGradients
from .state import SweepState

QUADRATURE_NODES, QUADRATURE_WEIGHTS = np.polynomial.legendre.leggauss(20)
MAX_SUBINTERVALS = 4096  # of one piece
MAX_QUADRATURE_ROWS = 1 << 14  # subintervals integrated in one batch


@dataclass(frozen=True)
class OutputCotangent:
    """The gradient of one output element: 1 at the target, times the width of each piece."""

    network: Network
    output: int  # index among the network's outputs
    targets: Tensor  # (lines,) flat position in the output

    def __call__(self, state: SweepState, widths: Tensor) -> NodeGradients:
        node = self.network.outputs[self.output]
        values = state.live[node]
        cotangent = torch.zeros_like(values)
        target = self.targets.to(values.device)[state.point_tensors().line]
        cotangent.view(len(cotangent), -1).scatter_(1, target[:, None], widths[:, None].to(cotangent.dtype))
        return {node: cotangent}


@dataclass(frozen=True)
class TailCotangent:
    """The gradient of one element behind a smooth tail, integrated over each piece.

    On a piece the logits are affine in alpha, so the integral has one dimension. Gauss-Legendre quadrature on short
    subintervals computes it to the last digits.
    """

    network: Network
    output: int  # index among the network's outputs
    targets: Tensor  # (lines,) flat position in the output

    def __call__(self, state: SweepState, widths: Tensor) -> NodeGradients:
        node = self.network.outputs[self.output]
        tail = self.network.tails[self.output]
        values = state.live[node]
        if tail is None:
            raise TypeError("the output has no tail")
        target = self.targets.to(values.device)[state.point_tensors().line]
        cotangent = torch.zeros_like(values)
        pieces = torch.nonzero(widths > 0)[:, 0]
        change = (values[pieces + 1] - values[pieces]).flatten(1)
        spread = change.amax(1) - change.amin(1) if change.shape[1] > 1 else change.abs().amax(1)
        spread = torch.maximum(spread, change.abs().amax(1)) if tail.name in ("sigmoid", "tanh") else spread
        counts = (spread / MAX_LOGIT_CHANGE).ceil().clamp(1, MAX_SUBINTERVALS).to(torch.int64)
        for count in torch.unique(counts).tolist():
            for rows in pieces[counts == count].split(max(1, MAX_QUADRATURE_ROWS // count)):
                mean = _average_tail_gradient(values[rows], values[rows + 1], target[rows], tail.apply, count)
                cotangent[rows] = mean * _expand_like(widths[rows], values)
        return {node: cotangent}


def _average_tail_gradient(
    start: Tensor,  # (pieces, *out) logits
    stop: Tensor,  # (pieces, *out)
    target: Tensor,  # (pieces,)
    tail: Callable[[Tensor], Tensor],
    count: int,  # of subintervals
) -> Tensor:  # (pieces, *out)
    """Average the gradient of the tail along some pieces."""
    total = torch.zeros_like(start)
    for part in range(count):
        for node, weight in zip(QUADRATURE_NODES, QUADRATURE_WEIGHTS, strict=True):
            at = (part + (node + 1) / 2) / count
            with torch.enable_grad():
                x = torch.lerp(start, stop, at).requires_grad_()
                selected = tail(x).flatten(1).gather(1, target[:, None]).sum()
                (gradient,) = torch.autograd.grad(selected, x)
            total += gradient * (weight / (2 * count))
    return total


def _expand_like(widths: Tensor, values: Tensor) -> Tensor:  # (pieces,) -> (pieces, 1, ...)
    return widths.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
