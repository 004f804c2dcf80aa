"""The filter knows how large errors are where it starts inside a line or behind other layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.dense.state import line_magnitudes
from exactline.lines import Lines
from tests.numerics.test_engines import assert_one_answer, origins
from tests.oracle.families import Apply


class SaturatedRivals(nn.Module):
    """Sorts a steep unit that is on one of its bounds nearly everywhere, and two constants."""

    def forward(self, x: Tensor) -> Tensor:
        step = ((x - 0.3) * 1e12).clamp(0, 1)
        return torch.cat([step, 0 * x + 0.999999, 0 * x + 0.5], 1).sort(1).values


def test_errors_that_saturated_units_hide_at_sample_points_count_behind_patches():
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert_one_answer(SaturatedRivals(), zero, one)  # between its bounds the unit is rounded to 1e-3


def test_points_between_far_ends_are_rounded_as_much_as_the_ends():
    ends = torch.tensor([[-1e12]], dtype=torch.float64), torch.tensor([[2e12]], dtype=torch.float64)
    near = Lines((ends[0],), (ends[1],)).at_alphas(torch.tensor([1 / 3], dtype=torch.float64))
    magnitude = line_magnitudes(Lines((ends[0],), (ends[1],)), torch.tensor([0]), {0: near[0][0]})[0]
    assert magnitude.values < 1
    assert magnitude.errors >= float(near[1][0])


@pytest.mark.parametrize("seed", range(20))
def test_equal_layers_between_far_ends_cross_together(seed: int):
    random = torch.Generator().manual_seed(seed)
    first, second = (nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, 1))
    norm = nn.BatchNorm2d(2)

    class Seen(nn.Module):
        """A norm is read by two ReLUs, one of them behind a maximum, which patches leave to the dense engine."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.norm = first, second, norm
            self.head = nn.Linear(36, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.first(x))
            leading = torch.maximum(torch.relu(self.second(torch.relu(y))), torch.relu(y))
            return self.head(torch.cat([leading - torch.relu(y), torch.relu(-y)], 1).flatten(1))

    model = Seen().double().eval()
    for parameter in model.parameters():
        parameter.data = torch.randint(-3, 4, parameter.shape, generator=random).double()
    norm.eps = 0.0
    norm.running_mean, norm.running_var = torch.tensor([1.0, -1.0]).double(), torch.full((2,), 4.0).double()
    point = 1e9 * torch.randn(1, 4, 4, generator=random, dtype=torch.float64)
    dense = xl.restrict(model, point, -point / 3, engine="dense")
    for memory in (None, 1 << 17):
        patches = xl.restrict(model, point, -point / 3, engine="patches", memory=memory)
        assert origins(patches) == origins(dense)


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_crossings_near_one_end_are_not_merged_by_errors_of_the_other(engine: str):
    first = nn.Linear(1, 2)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [3.0]]))
        first.bias.copy_(torch.tensor([-1e-17, -4e-17]))
    line = xl.restrict(model, torch.zeros(1).double(), torch.ones(1).double(), engine=engine)
    assert len(line) == 3  # 3e-18 apart, and far less than the rounding of values at the other end


@pytest.mark.parametrize("function", [lambda x: x.sort(1).values, lambda x: x.topk(2, 1).values])
def test_origins_of_sorts_are_proved_at_every_rank(function: Callable[[Tensor], Tensor]):
    first = nn.Linear(1, 3).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[0.0], [1.0], [-1.0]]))
        first.bias.copy_(torch.tensor([5.0, 0.0, 1.0]))
    line = xl.restrict(nn.Sequential(first, Apply(function)), torch.zeros(1).double(), torch.ones(1).double())
    certificate = line.certify()
    assert certificate.origins_proved == certificate.origins_checked == 1
    assert certificate.complete
