"""What an attribution is of: an output, or a probability made of the outputs by a smooth tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...network.graph import Network
from .gradients import Gradients
from .state import SweepState

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
STEEP = 1.0  # how far logits may change, relative to one another, on a stretch that one rule integrates
ROWS = 1 << 14  # stretches at a time


@dataclass(frozen=True)
class Output:
    """One element of an output, for each line its own; weights are the widths of the pieces."""

    network: Network
    output: int  # which of the outputs
    targets: Tensor  # (lines,) flat position in it

    def __call__(self, state: SweepState, widths: Tensor) -> Gradients:
        place = self.network.outputs[self.output]
        values = state.live[place]
        seed = torch.zeros_like(values)
        target = self.targets.to(values.device)[state.point_tensors()[0][:, 0]]
        seed.view(len(seed), -1).scatter_(1, target[:, None], widths[:, None].to(seed.dtype))
        return {place: seed}


@dataclass(frozen=True)
class Smoothed:
    """One element of what a smooth tail makes of an output.

    On a piece the logits are affine in alpha, so the tail's gradient is integrated in one dimension; Gauss-Legendre
    on stretches short enough does it to the last digits.
    """

    network: Network
    output: int
    targets: Tensor  # (lines,)

    def __call__(self, state: SweepState, widths: Tensor) -> Gradients:
        place = self.network.outputs[self.output]
        tail = self.network.tails[self.output]
        values = state.live[place]
        if tail is None:
            raise TypeError("the output has no tail")
        target = self.targets.to(values.device)[state.point_tensors()[0][:, 0]]
        seed = torch.zeros_like(values)
        inner = torch.nonzero(widths > 0)[:, 0]
        change = (values[inner + 1] - values[inner]).flatten(1)
        spread = change.amax(1) - change.amin(1) if change.shape[1] > 1 else change.abs().amax(1)
        spread = torch.maximum(spread, change.abs().amax(1)) if tail.name in ("sigmoid", "tanh") else spread
        parts = (spread / STEEP).ceil().clamp(1, 4096).to(torch.int64)
        for count in torch.unique(parts).tolist():
            rows = inner[parts == count]
            for some in rows.split(max(1, ROWS // count)):
                seed[some] = self._integral(values, some, target[some], tail.apply, count) * _like(widths[some], values)
        return {place: seed}

    @staticmethod
    def _integral(values: Tensor, rows: Tensor, target: Tensor, tail: Callable[[Tensor], Tensor], count: int) -> Tensor:
        """Mean gradient of the tail along some pieces, (rows, *out)."""
        start, stop = values[rows], values[rows + 1]
        total = torch.zeros_like(start)
        for part in range(count):
            for node, weight in zip(NODES, WEIGHTS, strict=True):
                at = (part + (node + 1) / 2) / count
                with torch.enable_grad():
                    x = torch.lerp(start, stop, at).requires_grad_()
                    picked = tail(x).flatten(1).gather(1, target[:, None]).sum()
                    (grad,) = torch.autograd.grad(picked, x)
                total += grad * (weight / (2 * count))
        return total


def _like(widths: Tensor, values: Tensor) -> Tensor:
    return widths.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
