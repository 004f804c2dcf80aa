"""ReLU and maximum become one operator, also where permute or reshape stands between them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl

GRID = torch.linspace(0, 1, 65, dtype=torch.float64)


class Pooled(nn.Module):
    """A linear layer, then a ReLU and a max pool in some arrangement."""

    def __init__(self, arrangement: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.arrangement = nn.Linear(6, 64), getattr(self, arrangement)

    def forward(self, x: Tensor) -> Tensor:
        return self.arrangement(self.linear(x).view(-1, 4, 4, 4))

    def relu_permute_pool(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(x).permute(0, 3, 1, 2), 2)

    def relu_permute_reshape_pool(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(x).permute(0, 2, 3, 1).reshape(-1, 8, 2, 4), 2)

    def relus_cat_permute_pool(self, x: Tensor) -> Tensor:
        return F.max_pool2d(torch.cat([F.relu(x), F.relu(1 - x)], 1).transpose(2, 3), 2)

    def pool_permute_relu(self, x: Tensor) -> Tensor:
        return F.relu(F.max_pool2d(x, 2).permute(0, 2, 3, 1))

    def pool_permute_reshape_relu(self, x: Tensor) -> Tensor:
        return F.relu(F.max_pool2d(x, 2).permute(0, 3, 1, 2).reshape(-1, 16)) - 0.5

    def relu_read_twice(self, x: Tensor) -> Tensor:
        y = F.relu(x).permute(0, 3, 1, 2)
        return F.max_pool2d(y, 2) + y[:, :, ::2, ::2]

    def pool_read_twice(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(x, 2).permute(0, 2, 3, 1)
        return F.relu(y) + y

    def constant_in_a_window(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.pad(F.relu(x).transpose(2, 3), (2, 0), value=-1.0), 2)

    def negative_constant_before_relu(self, x: Tensor) -> Tensor:
        return F.relu(F.pad(F.max_pool2d(x, 2), (1, 0), value=-1.0))

    def pools_cat_relu(self, x: Tensor) -> Tensor:
        return F.relu(torch.cat([F.max_pool2d(x, 2), F.max_pool2d(-x, 2)], 1))


FUSED = (
    "relu_permute_pool",
    "relu_permute_reshape_pool",
    "relus_cat_permute_pool",
    "pool_permute_relu",
    "pool_permute_reshape_relu",
)
SEPARATE = (
    "relu_read_twice",
    "pool_read_twice",
    "constant_in_a_window",
    "negative_constant_before_relu",
    "pools_cat_relu",
)


def restrict_both(arrangement: str) -> tuple[xl.Restriction, xl.Restriction]:
    """One line with and without the rewrite."""
    model = Pooled(arrangement).eval()
    generator = torch.Generator().manual_seed(3)
    start, end = (8 * torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    return xl.restrict(model, start, end), xl.restrict(model, start, end, rewrite=False)


@pytest.mark.parametrize("arrangement", FUSED)
def test_a_relu_and_a_maximum_are_fused_through_rearrangements(arrangement):
    fused, separate = restrict_both(arrangement)
    assert set(fused.network.units) == {"max_pool2d+relu"}
    assert set(separate.network.units) == {"max_pool2d", "relu"}
    assert len(fused) <= len(separate)
    if arrangement.startswith("relu"):  # breaks of elements that never lead their window are gone
        assert len(fused) < len(separate) / 1.5
    assert torch.allclose(fused.at(GRID), separate.at(GRID), rtol=0, atol=1e-12)
    assert all(float((separate.alphas - alpha).abs().min()) < 1e-12 for alpha in fused.alphas)


@pytest.mark.parametrize("arrangement", SEPARATE)
def test_a_relu_whose_values_are_needed_otherwise_stays(arrangement):
    fused, separate = restrict_both(arrangement)
    assert "relu" in fused.network.units
    assert torch.allclose(fused.at(GRID), separate.at(GRID), rtol=0, atol=1e-12)
