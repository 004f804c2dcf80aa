"""Cotangents of attributions: the gradient at an output element, or at a probability that a smooth tail computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...network.graph import Network
from .gradients import NodeGradients
from .state import SweepState
from .tail_gradients import mean_sigmoid_slope, mean_softmax_gradient, mean_tanh_slope

MAX_TAIL_ELEMENTS = 1 << 22  # arguments of a tail that are copied at a time


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
    """The gradient of one element behind a smooth tail, integrated over each piece: see `tail_gradients`."""

    network: Network
    output: int  # index among the network's outputs
    targets: Tensor  # (lines,) flat position in the output

    def __call__(self, state: SweepState, widths: Tensor) -> NodeGradients:
        node = self.network.outputs[self.output]
        values = state.live[node]
        target = self.targets.to(values.device)[state.point_tensors().line]
        return {node: self.integrate(values, widths, target)}

    def integrate(
        self,
        values: Tensor,  # (points, *shape) of the output before the tail
        widths: Tensor,  # (points,) of the piece that starts at each point; 0 for none
        target: Tensor,  # (points,)
    ) -> Tensor:  # (points, *shape)
        """Integrate the gradient over the piece that starts at each point."""
        tail = self.network.tails[self.output]
        if tail is None:
            raise TypeError("the output has no tail")
        cotangent = torch.zeros_like(values)
        flat, flat_cotangent = values.flatten(1), cotangent.view(len(values), -1)
        pieces = torch.nonzero(widths > 0)[:, 0]
        for rows in pieces.split(max(1, MAX_TAIL_ELEMENTS // max(1, flat.shape[1]))):
            columns, position = tail.find_arguments(values.shape[1:], target[rows])  # (rows, arguments), (rows,)
            start, stop = (flat[points[:, None], columns].to(torch.float64) for points in (rows, rows + 1))
            mean = _mean_gradient(tail.name, start, stop, position)
            flat_cotangent[rows[:, None], columns] = (mean * widths[rows, None]).to(values.dtype)
        return cotangent


def _mean_gradient(
    name: str,
    start: Tensor,  # (pieces, arguments) of the tail
    stop: Tensor,  # (pieces, arguments)
    target: Tensor,  # (pieces,)
) -> Tensor:  # (pieces, arguments)
    if name == "sigmoid":
        return mean_sigmoid_slope(start, stop)
    if name == "tanh":
        return mean_tanh_slope(start, stop)
    return mean_softmax_gradient(start, stop, target, logarithm=name == "log_softmax")
