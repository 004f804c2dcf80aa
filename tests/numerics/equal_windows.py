"""Networks in which windows of a max pool have members that are equal by structure."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.oracle.families import Concat


def make_model(shift: float = 0.0) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two blocks with a pool whose windows all cover the whole map of 2 x 2 pixels, as in a small GoogLeNet.

    A shift is added to the members that are equal, and subtracted again: it leaves its rounding errors.
    """
    torch.manual_seed(2)
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
    first = Concat(nn.Sequential(nn.Conv2d(4, 2, 1), nn.ReLU()), pooled)
    second = Concat(nn.Sequential(nn.Conv2d(5, 2, 1), nn.ReLU()), nn.MaxPool2d(3, 1, 1))
    stem = nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU()
    model = nn.Sequential(*stem, first, second, nn.Flatten(), nn.Linear(28, 3)).double().eval()
    nn.init.constant_(pooled[1].get_parameter("bias"), 1.0 + shift)  # units are on, so that gradients pass
    nn.init.constant_(pooled[2].get_buffer("running_mean"), shift)
    start, end = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    return model, start, end
