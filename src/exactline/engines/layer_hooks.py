"""Hooks of a backward sweep that both engines know: integrals at a layer, and gradients through selected units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .dense.gradients import LayerOnPieces


@dataclass(frozen=True, eq=False)
class LayerIntegral:
    """Integrates the gradient at every unit of a layer, over alpha or over the unit's own value."""

    total: Tensor  # (lines, *shape) to which the integrals are added
    over_values: bool  # over the unit's value: the part of the output's change that flows through the unit

    def __call__(self, layer: LayerOnPieces) -> None:
        self.total.index_add_(0, layer.line, _flow(layer) if self.over_values else layer.gradients)


@dataclass(frozen=True, eq=False)
class UnitSelection:
    """Keeps, of all gradients, those that flow through the weighted sum of a layer's units."""

    weights: Tensor  # (*shape)

    def __call__(self, layer: LayerOnPieces) -> Tensor:
        factors = self.weights.to(layer.gradients)
        total = (layer.gradients * factors).reshape(len(layer.gradients), -1).sum(1)
        return total.view(-1, *[1] * factors.dim()) * factors


def _flow(layer: LayerOnPieces) -> Tensor:  # (points, *shape)
    """Multiply the mean gradient on each piece by the change of the layer's values along it."""
    pieces = torch.nonzero(layer.widths > 0)[:, 0]
    widths = layer.widths[pieces].view(-1, *[1] * (layer.values.dim() - 1)).to(layer.values.dtype)
    flow = torch.zeros_like(layer.values)
    flow[pieces] = layer.gradients[pieces] / widths * (layer.values[pieces + 1] - layer.values[pieces])
    return flow
