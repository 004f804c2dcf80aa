"""Units that repeat a unit of an earlier node are found by structure, and are no further ambiguous units."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import Network, as_network
from exactline.numerics.repeated_units import repeated_units

CHANNELS, NEW, SIZE = 3, 2, 4


class DenseBlock(nn.Module):
    """Layers each of which reads the features and the outputs of all layers before it."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.features = nn.Conv2d(2, CHANNELS, 1, bias=False)
        channels = [CHANNELS + NEW * i for i in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(n, NEW, 3, padding=1) for n in channels)
        nn.init.constant_(self.features.weight, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        seen = [self.features(x)]
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            seen.append(convolution(torch.relu(norm(torch.cat(seen, 1)))))
        return torch.cat(seen, 1).mean((2, 3))


def _block() -> DenseBlock:
    torch.manual_seed(0)
    return DenseBlock().double().eval()


def _repeats(model: nn.Module) -> list[list[int]]:
    """For every breaking node the channels whose units repeat earlier ones."""
    network: Network = as_network(model, [torch.zeros(2, SIZE, SIZE, dtype=torch.float64)])
    found, channels = repeated_units(network), list[list[int]]()
    for i in network.breaking_nodes:
        by_channel = found.get(i, torch.zeros(network.nodes[i].shape).bool()).view(network.nodes[i].shape[0], -1)
        assert torch.equal(by_channel.all(1), by_channel.any(1))  # all pixels alike
        channels.append(by_channel.any(1).nonzero()[:, 0].tolist())
    return channels


def test_channels_behind_equal_batch_norms_are_repeated() -> None:
    assert _repeats(_block()) == [[], [0, 1, 2], [0, 1, 2, 3, 4]]


def test_channels_behind_other_numbers_are_not_repeated() -> None:
    block = _block()
    block.norms[1].bias.data[0] = 0.5  # type: ignore[union-attr]
    block.norms[2].bias.data[1] = 0.5  # type: ignore[union-attr]
    block.norms[2].running_var[2] = 2.0  # type: ignore[index]  # the zero is where it was
    assert _repeats(block) == [[], [1, 2], [2, 3, 4]]


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class TwoActivations(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.convolution, self.first, self.second = nn.Conv2d(2, CHANNELS, 1), first, second

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x)
        return self.first(y) + self.second(y)


@pytest.mark.parametrize(
    ("first", "second", "repeated"),
    [
        (nn.ReLU(), nn.LeakyReLU(0.1), [0, 1, 2]),
        (nn.ReLU(), nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Unflatten(1, (CHANNELS, SIZE, SIZE))), None),
        (nn.ReLU(), nn.Sequential(Times(-2.0), nn.ReLU()), [0, 1, 2]),  # the zero is where it was
        (nn.ReLU6(), nn.Sequential(Times(-2.0), nn.ReLU6()), []),
        (nn.ReLU(), nn.Sequential(Times(0.0), nn.ReLU()), []),  # zero everywhere
        (nn.ReLU(), nn.Threshold(1.0, 1.0), []),  # another knot
        (nn.ReLU(), nn.ReLU6(), []),  # a knot more
    ],
)
def test_units_at_the_same_knots_are_repeated(first: nn.Module, second: nn.Module, repeated: list[int] | None) -> None:
    if repeated is None:
        network = as_network(TwoActivations(first, second).double(), [torch.zeros(2, SIZE, SIZE, dtype=torch.float64)])
        (mask,) = repeated_units(network).values()
        assert mask.all()
    else:
        assert _repeats(TwoActivations(first, second).double().eval())[1] == repeated


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_a_unit_on_its_knot_counts_once(engine: str) -> None:
    block = _block()
    # 0.1 * 3 - 0.3 is 0 up to rounding: the first channel stays on its knot all along the line, in all three layers
    block.features.weight.data[0] = torch.tensor([0.1, -0.3], dtype=torch.float64).view(2, 1, 1)
    start, end = torch.zeros(2, 2, SIZE, SIZE, dtype=torch.float64)
    start[:, 1, 1], end[:, 1, 1] = torch.tensor([[3.0, 1.0], [9.0, 3.0]], dtype=torch.float64)
    line = xl.restrict(block, start, end, engine=engine)
    block.norms[1].bias.data[0] = block.norms[2].bias.data[0] = 1.0  # type: ignore[union-attr]
    apart = xl.restrict(block, start, end, engine=engine)  # here the other layers do not see the knot
    assert line.ambiguous == len(line) > 1
    assert apart.ambiguous == len(apart) > 1
