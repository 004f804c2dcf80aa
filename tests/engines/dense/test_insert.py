"""Merging old and new points a few rows at a time gives the same result bit for bit."""

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.dense import insert


class Residual(nn.Module):
    """Several tensors are live at every breaking node."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        z = torch.relu(y + self.second(y))
        return torch.cat([y, torch.max_pool2d(z, 3, 1, 1)], 1).flatten(1)


@pytest.mark.parametrize("rows", [1, 3, 50])
@pytest.mark.every(3)
def test_the_size_of_a_block_changes_no_bit(rows, monkeypatch):
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 40), nn.LeakyReLU(0.1), nn.Linear(40, 3))
    for model, shape in ((wide, (6,)), (Residual(), (2, 6, 5))):
        starts, ends = torch.randn(2, 7, *shape, dtype=torch.float64)
        monkeypatch.setattr(insert, "BLOCK_BYTES", 1 << 60)
        whole = xl.restrict_many(model.eval(), starts, ends, engine="dense")
        monkeypatch.setattr(insert, "BLOCK_BYTES", rows * 8 * 40)
        parts = xl.restrict_many(model, starts, ends, engine="dense")
        assert len(whole.alphas) > 100
        assert torch.equal(whole.alphas, parts.alphas)
        assert torch.equal(whole.values, parts.values)
        assert torch.equal(whole.breaks.origins, parts.breaks.origins)
