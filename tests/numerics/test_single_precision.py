"""Largest errors estimated in single precision: those of double precision, or more."""

from functools import cache

import pytest
import torch
from torch import nn

from exactline.lines import Lines
from exactline.network import as_network
from exactline.network.graph import Network
from exactline.numerics.single_precision import single_precision
from exactline.numerics.static_filter import largest_errors, sample_errors
from exactline.ops.affine import Scale
from exactline.tolerances import FUSED_ROUNDING_FACTOR


class ConvolutionNet(nn.Module):
    """Convolutions of every kind with batch norms, a residual sum, a concatenation and pools."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU())
        self.pixelwise = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.pool, self.last = nn.MaxPool2d(2), nn.Sequential(nn.Conv2d(32, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(8 * 9, 5)
        for norm in (m for m in self.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.weight.data.normal_()
            norm.bias.data.normal_()
            norm.running_mean = torch.randn(norm.num_features)
            norm.running_var = 0.1 + 1.9 * torch.rand(norm.num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = self.pool(self.first(x))
        x = torch.cat([torch.relu(self.pixelwise(self.depthwise(x)) + x), x], 1)
        return self.head(self.last(x)).relu()


@cache
def _network(seed: int) -> tuple[Network, Lines]:
    start, end = torch.rand(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return as_network(ConvolutionNet(seed).double().eval(), [start]), Lines((start[None],), (end[None],))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("points", [1, 4])
def test_estimates_in_single_precision_are_those_of_double_precision_or_larger(seed: int, points: int) -> None:
    network, lines = _network(seed)
    at = lines.at_alphas(torch.linspace(0.1, 0.9, points, dtype=torch.float64))
    found, expected = sample_errors(network, *at, 2), largest_errors(network, *at, 2)
    assert found.keys() == expected.keys()
    for i, error in expected.items():
        assert error <= found[i] <= 2 * FUSED_ROUNDING_FACTOR * error


@pytest.mark.parametrize("seed", range(4))
def test_convolutions_and_batch_norms_are_one_product_of_the_same_values(seed: int) -> None:
    network, lines = _network(seed)
    single = single_precision(network)
    assert single is not None
    assert sum(isinstance(n.op, Scale) for n in network.nodes) == 3
    assert not any(isinstance(n.op, Scale) for n in single.nodes)
    x = lines.starts[0]
    torch.testing.assert_close(single(x.float()), network(x), rtol=1e-4, atol=1e-4, check_dtype=False)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_weights_of_extraordinary_size_stay_in_double_precision(scale: float) -> None:
    model = ConvolutionNet(0).double().eval()
    with torch.no_grad():
        model.head.weight[0, 0] *= scale
    start = torch.rand(3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert single_precision(as_network(model, [start])) is None


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_points_of_extraordinary_size_stay_in_double_precision(scale: float) -> None:
    network, lines = _network(1)
    points, errors = lines.at_alphas(torch.full((1,), 0.5, dtype=torch.float64))
    points, errors = [p * scale for p in points], [e * scale for e in errors]
    assert sample_errors(network, points, errors) == largest_errors(network, points, errors, 4)
