"""A collision-avoidance network solved by hand: its advice hangs on the distance alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLEAR, RING, HALF = 5000.0, 3000.0, 5.0  # clear of conflict from here; strong left within 5 ft of 3000 ft
DEAR = 1e6


class Rings(nn.Module):
    """Weak left up to 5000 ft and clear beyond, but strong left from 2995 to 3005 ft."""

    def forward(self, x: Tensor) -> Tensor:  # (n, 5) -> (n, 5)
        rho = x[:, :1]
        clear, ring = CLEAR - rho, (rho - RING).relu() + (RING - rho).relu() - HALF
        return torch.cat([clear, rho * 0, rho * 0 + DEAR, ring, rho * 0 + DEAR], 1)


class Tied(nn.Module):
    """Weak left and weak right cost the same everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        rho = x[:, :1]
        return torch.cat([rho + 1, rho, rho, rho + 2, rho + 3], 1)
