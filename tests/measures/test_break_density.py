"""Tests of break densities: against rational arithmetic, networks solved by hand, and invalid arguments."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.zoo import tent_network


def small_net(seed=0, inputs=3):
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, 5), nn.LeakyReLU(0.5), nn.Linear(5, 2)]
    return nn.Sequential(*layers).double().eval()


def test_a_tent_network_has_as_many_breaks_as_it_should():
    """Tents of depth 5 have 32 pieces of one length on 0 to 1."""
    found = xl.density(tent_network(5), [0.0], [[1.0], [0.5], [0.25]])
    assert found.counts.tolist() == [33, 17, 9]
    assert found.pieces.tolist() == [32, 16, 8]
    assert found.lengths.tolist() == [1.0, 0.5, 0.25]
    assert found.densities.tolist() == [33.0, 34.0, 36.0]
    assert found.total == pytest.approx(59 / 1.75)
    assert sum(c[0].item() for c in found.origins.values()) == 31


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_counts_and_origins_agree_with_rational_arithmetic(seed):
    model, x = small_net(seed), torch.randn(3, dtype=torch.float64)
    ways = 4 * torch.randn(5, 3, dtype=torch.float64)
    found = xl.density(model, x, ways)
    for j, way in enumerate(ways):
        exact = xl.exact.restrict(model, x, x + way)
        assert found.counts[j] == len(exact.alphas)
        line = xl.restrict(model, x, x + way)
        for name, counts in found.origins.items():
            assert counts[j] == sum(b is not None and b.node == name for b in line.origins)
    assert torch.equal(sum(found.origins.values()) + 2, found.counts)


def test_several_points_give_the_answers_of_each():
    model, points = small_net(), torch.randn(2, 3, dtype=torch.float64)
    ways = torch.randn(2, 4, 3, dtype=torch.float64)
    both = xl.density(model, points, ways)
    assert both.counts.shape == both.lengths.shape == (2, 4)
    for i in range(2):
        one = xl.density(model, points[i], ways[i])
        assert torch.equal(one.counts, both.counts[i])
        assert torch.equal(one.lengths, both.lengths[i])
        assert all(torch.equal(counts, both.origins[name][i]) for name, counts in one.origins.items())


def test_lines_of_one_length_and_the_pieces_of_shorter_ones():
    model, x = small_net(3), torch.zeros(3, dtype=torch.float64)
    ways = torch.randn(6, 3, dtype=torch.float64)
    found = xl.density(model, x, ways, length=8.0)
    torch.testing.assert_close(found.lengths, torch.full((6,), 8.0, dtype=torch.float64), rtol=1e-14, atol=0)
    for size in (0.5, 2.0, 7.9):
        assert torch.equal(found.pieces_within(size), xl.density(model, x, ways, length=size).pieces)
    for wrong in (0.0, -1.0, 9.0, float("nan"), True, "2"):
        with pytest.raises(xl.ArgumentError, match="length must be"):
            found.pieces_within(wrong)


def test_ambiguous_shapes_need_the_argument_many():
    model = nn.ReLU()
    square = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 3, 3, dtype=torch.float64)
    with pytest.raises(xl.LineError, match="two ways") as caught:
        xl.density(model, *square)
    assert "many=True" in str(caught.value)
    assert xl.density(model, *square, many=False).counts.shape == (3,)
    assert xl.density(model, *square, many=True).counts.shape == (3, 3)
    network = as_network(model, [torch.zeros(3)])
    assert xl.density(network, *square).counts.shape == (3, 3)  # it knows its own shape
    network = as_network(nn.ReLU(), [torch.zeros(3, 3)])
    assert xl.density(network, *square).counts.shape == (3,)
    assert xl.density(model, torch.zeros(3), torch.eye(3)).counts.tolist() == [2, 2, 2]


def test_numpy_and_lists_are_points_too():
    want = xl.density(nn.ReLU(), torch.tensor([-1.0, 0.5]), torch.tensor([[2.0, 0.0]])).counts
    assert torch.equal(xl.density(nn.ReLU(), np.array([-1.0, 0.5]), np.array([[2.0, 0.0]])).counts, want)
    assert torch.equal(xl.density(nn.ReLU(), [-1.0, 0.5], [[2, 0]]).counts, want)


def test_no_directions_are_no_lines():
    found = xl.density(nn.ReLU(), torch.zeros(2), torch.zeros(0, 2))
    assert found.counts.shape == (0,)
    assert "0 lines" in repr(found)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_lengths_neither_vanish_nor_overflow(scale):
    found = xl.density(nn.ReLU(), [0.0, -scale], [[0.0, 3 * scale], [3 * scale, 4 * scale], [-scale, -scale]])
    assert found.counts.tolist() == [3, 3, 2]
    assert found.lengths.tolist() == pytest.approx([3 * scale, 5 * scale, math.sqrt(2) * scale], rel=1e-14)
    made = xl.density(nn.ReLU(), [0.0, 0.0], [[scale, scale]], length=7.0)
    assert made.lengths.tolist() == pytest.approx([7.0], rel=1e-14)


def test_the_length_is_that_of_the_line_in_float64():
    """x + direction is rounded to float64, and so is the end of the line."""
    found = xl.density(nn.ReLU(), [1.0], [[1.3 * 2**-52]])
    assert found.lengths.tolist() == [2.0**-52]


@pytest.mark.parametrize(
    ("x", "ways", "options", "error", "words"),
    [
        ([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], {}, xl.LineError, "Direction 1 has length 0"),
        ([1.0], [[1e-30]], {}, xl.LineError, "has length 0"),
        ([0.0, 0.0], [1.0, 0.0], {}, xl.LineError, "do not fit"),
        ([0.0, 0.0], [[1.0, 0.0, 0.0]], {}, xl.LineError, "do not fit"),
        ([0.0], [[float("nan")]], {}, xl.LineError, "NaN"),
        ([1.7e308], [[1.7e308]], {}, xl.LineError, "overflows"),
        (([0.0], [0.0]), ([[1.0]], [[1.0]]), {}, xl.LineError, "one input"),
        ([0.0], [[1.0]], {"length": 0.0}, xl.ArgumentError, "length"),
        ([0.0], [[1.0]], {"length": float("inf")}, xl.ArgumentError, "length"),
        ([0.0, 1.0, 2.0], [[1.0, 1.0, 1.0]], {"many": True}, xl.LineError, "do not fit"),
        ([0.0], [[1.0]], {"memory": 0}, xl.ArgumentError, "memory"),
    ],
)
def test_invalid_arguments_are_refused(x, ways, options, error, words):
    with pytest.raises(error, match=words):
        xl.density(nn.ReLU(), x, ways, **options)


def test_an_affine_network_has_no_inner_breaks():
    found = xl.density(nn.Linear(2, 2).double().eval(), torch.zeros(2), torch.tensor([[3.0, 4.0]]))
    assert found.counts.tolist() == [2]
    assert found.origins == {}
    assert found.densities.tolist() == [0.4]
