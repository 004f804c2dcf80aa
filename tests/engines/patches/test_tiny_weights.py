"""Units that training left with hardly any weight: near zero everywhere, and yet clear without a closer look."""

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.dense.error_model import PointErrorBounds


@pytest.fixture
def looks(monkeypatch):
    """How many points each closer look was at."""
    seen = []
    bound = PointErrorBounds.bound

    def watched(self, rows):
        seen.append(len(rows))
        return bound(self, rows)

    monkeypatch.setattr(PointErrorBounds, "bound", watched)
    return seen


def wide(faint: float) -> nn.Module:
    """Ninety-nine units turn at the hundredths and a faint one at 0.505; thousands never do: the layer is wide."""
    layer = nn.Linear(1, 4200, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
        layer.weight[:99] = 1.0
        layer.bias[:99] = -torch.arange(1, 100, dtype=torch.float64) / 100
        layer.weight[99], layer.bias[99] = faint, -0.505 * faint
        layer.weight[100:110], layer.bias[100:110] = faint, faint
    return nn.Sequential(layer, nn.ReLU()).eval()


@pytest.mark.parametrize("faint", [1.0, 1e-12, 1e-16, 1e-30, 1e-200])
def test_breaks_of_faint_units_are_found_without_a_closer_look(looks, faint):
    line = xl.restrict(wide(faint), [0.0], [1.0])
    truth = sorted([0.0, 1.0, 0.505, *(k / 100 for k in range(1, 100))])
    assert line.alphas.tolist() == pytest.approx(truth, abs=1e-15)
    assert line.ambiguous == 0
    assert max(looks, default=0) <= 2


def test_a_faint_unit_that_is_zero_all_along_is_no_break():
    """Its two inputs cancel but for rounding: 3e-12 (x - y / 3) on a line where y = 3 x."""
    layer = nn.Linear(2, 4200, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
        layer.weight[0] = torch.tensor([3e-12, -1e-12])
        layer.bias[0] = 0.0
        layer.weight[1], layer.bias[1] = torch.tensor([1.0, 0.0]), -0.3
    line = xl.restrict(nn.Sequential(layer, nn.ReLU()).eval(), [0.1, 0.3], [0.7, 2.1])
    assert line.alphas.tolist() == pytest.approx([0.0, 1 / 3, 1.0], abs=1e-15)
