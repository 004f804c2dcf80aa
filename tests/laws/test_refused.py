"""What is not piecewise linear in each point by itself is refused, by name and with the module it is in."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network.aten import UNSUPPORTED_REASONS
from exactline.network.capture import capture_module

from .refused import BATCH, OFFENDERS
from .sample import Function

NAMES = {offender.name for offender in OFFENDERS}


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_REASONS))
def test_every_operator_that_is_refused_by_name_has_a_model(name):
    assert name in NAMES or not hasattr(torch.ops.aten, name), "give it a model in refused.py"


@pytest.mark.parametrize("offender", OFFENDERS, ids=str)
@pytest.mark.every(42)
def test_an_offender_in_the_middle_is_refused_by_name(offender):
    with pytest.raises(xl.UnsupportedError) as error:
        capture_module(offender.model(), [torch.zeros(offender.shape)])
    line = re.compile(rf"middle(\.\w+)*: {offender.name} ")
    assert any(line.match(node) for node in error.value.nodes), error.value.nodes
    assert all(node in str(error.value) for node in error.value.nodes)


class Product(nn.Module):
    """The product of two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) * self.right(x)


def test_all_offenders_are_listed_at_once_with_their_modules():
    stem = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.ReLU())
    block = nn.Sequential(nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 4), nn.Softmax(1))
    model = nn.Sequential(stem, block, Product(), nn.Tanh(), nn.Linear(4, 4), nn.Hardswish(), nn.Linear(4, 2)).eval()
    with pytest.raises(xl.UnsupportedError) as error:
        xl.restrict(model, torch.zeros(4), torch.ones(4))
    found = [tuple(node.split(" ", 2)[:2]) for node in error.value.nodes]
    offenders = ["0.1: gelu", "1.0: layer_norm", "1.1: silu", "1.3: softmax", "2: mul", "3: tanh", "5: hardswish"]
    assert sorted(" ".join(node) for node in found) == offenders
    assert error.value.problem.startswith(f"{len(offenders)} operators")


def test_a_refused_operator_that_no_output_needs_is_no_offence():
    class Dead(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.exp(x)
            return torch.relu(x)

    assert xl.restrict(Dead(), [-1.0], [1.0]).alphas.tolist() == [0.0, 0.5, 1.0]


def test_an_offender_beside_the_wanted_submodule_is_no_offence():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.smooth, self.sharp = nn.GELU(), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.smooth(x) + self.sharp(x)

    assert xl.restrict(Two().eval(), [-1.0], [1.0], until="sharp").alphas.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("name", "shift"),
    [pytest.param(name, 8.0, id=f"{name}-asleep") for name in BATCH]
    + [
        pytest.param(name, 0.0, id=f"{name}-awake", marks=() if i % 4 == 0 else pytest.mark.slow)
        for i, name in enumerate(BATCH)
    ],
)
@pytest.mark.every(33)
def test_a_model_that_mixes_points_is_refused(name, shift):
    # behind units that are zero for all likely points too: there no value tells that points were mixed
    model = nn.Sequential(Function(lambda x: torch.relu(x - shift), ()), Function(BATCH[name], ()))
    with pytest.raises(xl.UnsupportedError):
        capture_module(model, [torch.zeros(3)])
