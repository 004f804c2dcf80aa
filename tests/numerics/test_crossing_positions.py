"""Crossings that may share a break are located alike, at whichever alphas an engine has computed them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.lines import Lines
from exactline.network import as_network
from exactline.numerics.crossing_positions import CloseCrossings, locate_crossings
from tests.numerics.near_ties import make_near_ties
from tests.numerics.test_engines import origins
from tests.numerics.twin_channels import make_twin_channels

# Clusters of crossings that two engines with estimates of their own merged differently.
CONVOLUTIONAL_SEEDS = (3, 4, 13, 16, 22, 42, 1001, 1007, 1019, 1025, 1031, 1037, 1043, 1049, 1055)
POOLED_SEEDS = (1041, 1053)
TWIN_SEEDS = (19, 25)


def assert_same_breaks(model: nn.Module, start: Tensor, end: Tensor, case: object) -> None:
    """Compare both engines, with much and little memory."""
    dense = xl.restrict(model, start, end, engine="dense")
    for engine, memory in (("dense", 1 << 17), ("patches", None), ("patches", 1 << 17)):
        line = xl.restrict(model, start, end, engine=engine, memory=memory)
        assert origins(line) == origins(dense), (case, engine, memory)
        assert line.ambiguous_per_piece.tolist() == dense.ambiguous_per_piece.tolist(), (case, engine, memory)


def check_ties(family: str, seeds: Iterable[int]) -> None:
    for seed in seeds:
        assert_same_breaks(*make_near_ties(family, seed), (family, seed))


def test_engines_merge_the_same_crossings_of_convolutions():
    check_ties("convolutional", CONVOLUTIONAL_SEEDS)


def test_engines_merge_the_same_crossings_of_windows():
    check_ties("pooled", POOLED_SEEDS)


def test_engines_merge_the_same_crossings_of_channels_that_are_nearly_multiples_of_each_other():
    for seed in TWIN_SEEDS:
        assert_same_breaks(*make_twin_channels(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["convolutional", "pooled"])
def test_engines_agree_on_most_clusters(family: str):
    agreed = 0
    for seed in range(100):
        network = make_near_ties(family, seed)
        dense, patches = (xl.restrict(*network, engine=engine) for engine in ("dense", "patches"))
        counts = dense.ambiguous_per_piece.tolist(), patches.ambiguous_per_piece.tolist()
        agreed += origins(dense) == origins(patches) and counts[0] == counts[1]
    print(f"{family}: {agreed} of 100 networks")
    assert agreed > 85


def test_a_crossing_is_located_at_one_alpha_from_anywhere_near_it():
    random = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(2, 3, 2, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    start, end = torch.randn(2, 1, 2, 3, 3, generator=random, dtype=torch.float64)
    network = as_network(nn.Sequential(layer, nn.ReLU()), [start[0]])
    exact = xl.exact.restrict(layer, start[0], end[0]).affine_form(0)
    crossings = {unit: -value / slope for unit, (value, slope) in enumerate(exact) if 0 < -value / slope < 1}
    assert len(crossings) > 1
    for unit, position in crossings.items():
        slope = float(exact[unit][1])
        positions = list[float]()
        for ulps in (-40, -3, 0, 1, 17):
            alpha = torch.tensor([float(position) + ulps * 2.0**-53], dtype=torch.float64)
            zero, one, none = torch.zeros_like(alpha), torch.ones_like(alpha), torch.tensor([-1])
            found = CloseCrossings(
                line=torch.tensor([0]),
                alpha=alpha,
                left=zero,
                right=one,
                element=torch.tensor([unit]),
                partner=none,
                levels=zero[:, None],
                slope=torch.tensor([slope], dtype=torch.float64),
            )
            located, bound = locate_crossings(
                network, network.nodes[network.breaking_nodes[0]].inputs[0], Lines((start,), (end,)), found
            )
            assert abs(Fraction(float(located)) - position) <= float(bound) / abs(slope)
            positions.append(float(located))
        assert len(set(positions)) == 1
