"""Engines agree on networks with ties by structure: pools, dense and inception blocks, copied channels, no biases."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import exactline as xl
from tests.numerics.test_engines import CASES, assert_one_answer
from tests.numerics.tied_networks import FAMILIES, make_tied_network

# Near ties of inputs, whose ends are exact and whose points between them are not; windows with copies of a member that
# lead between its ends; windows of zeros that lead only on a part of a piece.
KNOWN = {"inception": (1, 12, 26, 44), "pools": (12, 19), "u-shaped": (36, 86, 114)}


@pytest.mark.parametrize(("family", "seed"), [(family, seed) for family, seeds in KNOWN.items() for seed in seeds])
def test_networks_on_which_engines_disagreed(family, seed):
    assert_one_answer(*make_tied_network(family, seed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The values of start are")
@pytest.mark.parametrize("family", FAMILIES)
def test_many_networks_with_ties(family):
    for seed in range(max(1, CASES // 10)):
        assert_one_answer(*make_tied_network(family, seed))


def test_a_line_that_ends_inside_a_hyperplane_is_swept_by_patches():
    model, start, end = make_tied_network("homogeneous", 57)
    dense, patches = (xl.restrict(model, end, start, engine=engine) for engine in ("dense", "patches"))
    assert len(patches) == len(dense)  # segments that are cut again and again reach the width of a float
    assert patches.ambiguous_per_piece.tolist() == dense.ambiguous_per_piece.tolist()


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_windows_whose_zeros_lead_on_a_part_of_a_piece_are_ambiguous_there(engine):
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d((1, 3)), nn.Flatten(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(-1 / 3)
    start = torch.tensor([[[1.0, 1 / 3, 1 / 3]]], dtype=torch.float64)
    line = xl.restrict(model, start, torch.tensor([[[-1.0, 1 / 3, 1 / 3]]]).double(), engine=engine)
    assert len(line) == 2
    assert line.ambiguous_per_piece.tolist() == [0, 1]  # both zeros are sums that cancel
