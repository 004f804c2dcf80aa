"""Small networks with fixed random weights, and reference values for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """A transformer encoder on the rows of a small image, with the mean over tokens and a linear head."""

    def __init__(self, layers: int = 1, width: int = 8, tokens: int = 4, features: int = 3, classes: int = 3) -> None:
        super().__init__()
        self.tokens, self.features = tokens, features
        self.embed = nn.Linear(features, width)
        self.position = nn.Parameter(torch.randn(tokens, width) * 0.1)
        layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x.view(-1, self.tokens, self.features)) + self.position
        return self.head(self.norm(self.encoder(hidden)).mean(1))


class Gated(nn.Module):
    """A convolution with squeeze-excitation: products of branches, SiLU, BatchNorm and a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.norm.running_mean.uniform_(-0.2, 0.2)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.silu(self.norm(self.conv(x[:, None])))
        hidden = hidden * torch.sigmoid(self.gate(hidden.mean(2)))[:, :, None]
        return torch.softmax(self.head(hidden[:, :, 1:].mean(2)), 1)


class Recurrent(nn.Module):
    """Two steps of a gated recurrent cell, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.state, self.head = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(len(x), 4, dtype=x.dtype)
        for part in x.chunk(2, 1):
            both = torch.cat((part, hidden), 1)
            gate = torch.sigmoid(self.gate(both))
            hidden = gate * hidden + (1 - gate) * torch.tanh(self.state(both))
        return self.head(hidden)


def mlp(activation: nn.Module, sizes: tuple[int, ...] = (4, 6, 6, 3)) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation]
    return nn.Sequential(*layers[:-1])


def fine_integrated_gradients(model: nn.Module, start: Tensor, end: Tensor, target: int) -> Tensor:
    """Integrated gradients by 40 Gauss-Legendre nodes on each of 16 panels, in float64."""
    model = model.double()
    nodes, weights = np.polynomial.legendre.leggauss(40)
    alphas = torch.from_numpy(np.concatenate([(k + (nodes + 1) / 2) / 16 for k in range(16)]))
    points = (start + alphas[:, None] * (end - start)).requires_grad_()
    (gradients,) = torch.autograd.grad(model(points)[:, target].sum(), points)
    return torch.from_numpy(np.tile(weights / 32, 16)) @ gradients * (end - start)
