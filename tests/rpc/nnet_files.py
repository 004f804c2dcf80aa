"""Networks for a server's folder as .nnet files: tent maps, whose breaks are known, and random networks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from exactline.zoo import tent_network


def write_nnet(path: Path, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write fully connected layers (out, in), (out,) with ReLU between them, without normalization."""
    sizes = [layers[0][0].shape[1], *(len(bias) for _, bias in layers)]
    rows = [[len(layers), sizes[0], sizes[-1], max(sizes)], sizes, [0]]
    rows += [[-1e6] * sizes[0], [1e6] * sizes[0], [0] * (sizes[0] + 1), [1] * (sizes[0] + 1)]
    for weight, bias in layers:
        rows += [*weight.tolist(), *([value] for value in bias.tolist())]
    path.write_text("".join(",".join(map(repr, row)) + ",\n" for row in rows))


def tent_layers(depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers of the tent map iterated ``depth`` times: breaks at k / 2**depth from 0 to 1."""
    linear = [module for module in tent_network(depth) if isinstance(module, torch.nn.Linear)]
    return [(module.weight.detach().numpy(), module.bias.detach().numpy()) for module in linear]


def random_layers(seed: int, *sizes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(n, m)) / m**0.5, rng.normal(size=n)) for m, n in pairwise(sizes)]


def write_nnet_files(path: Path) -> Path:
    """Write the networks that the tests use."""
    write_nnet(path / "small.nnet", random_layers(1, 3, 16, 16, 4))
    write_nnet(path / "acas.nnet", random_layers(2, 5, 50, 50, 50, 50, 50, 50, 5))
    write_nnet(path / "tent4.nnet", tent_layers(4))
    write_nnet(path / "tent15.nnet", tent_layers(15))
    write_nnet(path / "tent20.nnet", tent_layers(20))
    write_nnet(path / "tent30.nnet", tent_layers(30))  # 2**30 breaks: many minutes of work
    return path
