"""Units with tiny weights: near zero everywhere, and yet unambiguous without error estimates."""

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.dense.error_model import PointErrorBounds


@pytest.fixture
def refined_points(monkeypatch):
    """The numbers of points whose errors were estimated, call by call."""
    counts = []
    bound = PointErrorBounds.bound

    def counting_bound(self, rows):
        counts.append(len(rows))
        return bound(self, rows)

    monkeypatch.setattr(PointErrorBounds, "bound", counting_bound)
    return counts


def wide_layer(tiny: float) -> nn.Module:
    """Ninety-nine units break at the hundredths and a tiny one at 0.505; thousands never do: the layer is wide."""
    layer = nn.Linear(1, 4200, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
        layer.weight[:99] = 1.0
        layer.bias[:99] = -torch.arange(1, 100, dtype=torch.float64) / 100
        layer.weight[99], layer.bias[99] = tiny, -0.505 * tiny
        layer.weight[100:110], layer.bias[100:110] = tiny, tiny
    return nn.Sequential(layer, nn.ReLU()).eval()


@pytest.mark.parametrize("tiny", [1.0, 1e-12, 1e-16, 1e-30, 1e-200])
def test_breaks_of_tiny_units_are_found_without_error_estimates(refined_points, tiny):
    line = xl.restrict(wide_layer(tiny), [0.0], [1.0])
    truth = sorted([0.0, 1.0, 0.505, *(k / 100 for k in range(1, 100))])
    assert line.alphas.tolist() == pytest.approx(truth, abs=1e-15)
    assert line.ambiguous == 0
    assert max(refined_points, default=0) <= 2


def test_a_tiny_unit_that_is_zero_along_the_line_does_not_break():
    """Its two inputs cancel up to rounding: 3e-12 (x - y / 3) on a line where y = 3 x."""
    layer = nn.Linear(2, 4200, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
        layer.weight[0] = torch.tensor([3e-12, -1e-12])
        layer.bias[0] = 0.0
        layer.weight[1], layer.bias[1] = torch.tensor([1.0, 0.0]), -0.3
    line = xl.restrict(nn.Sequential(layer, nn.ReLU()).eval(), [0.1, 0.3], [0.7, 2.1])
    assert line.alphas.tolist() == pytest.approx([0.0, 1 / 3, 1.0], abs=1e-15)
