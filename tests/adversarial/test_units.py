"""Unusual units: ties, duplicates, touches, nearly parallel hyperplanes, extreme scales, cancellation."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.zoo import tent_network
from tests.oracle.compare import mismatch

from .truth import (
    Function,
    assert_exact_or_ambiguous,
    assert_matches_module,
    assert_refused,
    assert_same_line,
    breaks,
    global_settings,
    linear_layer,
    mlp,
    relu_network,
    restrict_and_verify,
    vector,
)

# -- many crossings at one alpha --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 100, 10_000])
@pytest.mark.every(3)
def test_k_units_that_cross_together_are_one_break_that_counts_k(k):
    # c (3 x - 1) for integers c: all cross at 1/3, which is not a float
    c = torch.arange(1, k + 1, dtype=torch.float64)
    c[1::2] *= -1
    line = restrict_and_verify(
        relu_network(linear_layer(3 * c[:, None], -c), linear_layer(torch.ones(1, k))), [0.0], [1.0]
    )
    assert breaks(line) == [0.0, pytest.approx(1 / 3, abs=1e-16), 1.0]
    assert line.origins[1].count == k
    assert line.origins[1].unit == 0


@pytest.mark.parametrize("k", [2, 100, 10_000])
def test_k_random_units_through_one_point_are_one_break_that_counts_k(k):
    w = torch.randn(k, 6, dtype=torch.float64)
    x = torch.randn(6, dtype=torch.float64)
    line = xl.restrict(relu_network(linear_layer(w), linear_layer(torch.ones(1, k))), -x, 2 * x)
    assert len(line) == 2
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-15
    assert line.origins[1].count == k


@pytest.mark.parametrize("k", [2, 100])
def test_k_pairs_of_units_at_k_alphas_are_k_breaks_that_count_two(k):
    knots = torch.arange(1, k + 1, dtype=torch.float64)
    weight = torch.full((2 * k, 1), float(2 * k + 2))
    line = restrict_and_verify(
        relu_network(linear_layer(weight, -knots.repeat(2)), linear_layer(torch.ones(1, 2 * k))), [0.0], [1.0]
    )
    assert len(line) == k + 1
    assert [origin.count for origin in line.origins[1:-1]] == [2] * k


def test_crossings_of_several_layers_at_one_alpha_are_one_break_of_the_first_layer():
    # 3 x - 1, then 3 relu(7 x) - 7, then 11 relu(3 relu(7 x)) - 77: all cross at 1/3, by different formulae
    model = relu_network(
        linear_layer([[3.0], [7.0]], [-1.0, 0.0]),
        linear_layer([[1.0, 0.0], [0.0, 3.0], [0.0, 3.0]], [0.0, -7.0, 0.0]),
        linear_layer([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 11.0]], [0.0, 0.0, -77.0]),
        linear_layer([[1.0, 1.0, 1.0]]),
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert len(line) == 2
    assert line.origins[1].node == "relu"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.every(4)
def test_origins_match_the_oracle_where_layers_share_breaks(seed):
    # the node, its lowest unit, and the number of units of all layers that cross there
    torch.manual_seed(seed)
    model = relu_network(
        *(
            linear_layer(torch.randint(-2, 3, (b, a)).double(), torch.randint(-2, 3, (b,)).double())
            for a, b in ((2, 8), (8, 8), (8, 8), (8, 2))
        )
    )
    start, end = torch.randint(-3, 4, (2,)), torch.randint(-3, 4, (2,))
    line, exact = restrict_and_verify(model, start, end), xl.exact.restrict(model, start, end)
    ours, truth = ([(b.node, b.unit, b.count) for b in found[1:-1]] for found in (line.origins, exact.origins))
    assert ours == truth


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_crossings_of_several_layers_at_one_alpha_make_no_tiny_pieces(seed):
    # the second layer has multiples of the first layer's units: all crossings are shared
    torch.manual_seed(seed)
    w, b = torch.randint(-9, 10, (6, 2)).double(), torch.randint(-9, 10, (6,)).double()
    factors = torch.tensor([3.0, 5.0, 7.0, 11.0, 13.0, 17.0])
    both = torch.cat([w, -w]), torch.cat([b, -b])
    second = torch.cat([torch.diag(factors), -torch.diag(factors)], 1)  # factor (relu(z) - relu(-z)) = factor z
    model = relu_network(linear_layer(*both), linear_layer(second), linear_layer(torch.ones(1, 6)))
    line = restrict_and_verify(model, torch.randint(-5, 6, (2,)) / 7, torch.randint(-5, 6, (2,)) / 3)
    assert all(origin.node == "relu" for origin in line.origins[1:-1])


def test_duplicated_units_share_their_breaks():
    one = linear_layer(torch.randn(5, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
    two = linear_layer(one.weight.detach().repeat(4, 1), one.bias.detach().repeat(4))
    start, end = vector(-9.0, 8.0, 7.0), vector(8.0, -9.0, -7.0)
    single = restrict_and_verify(relu_network(one, linear_layer(torch.ones(1, 5))), start, end)
    several = restrict_and_verify(relu_network(two, linear_layer(torch.ones(1, 20))), start, end)
    assert len(single) > 2
    assert_same_line(single, without_values(several), tolerance=0.0)
    assert [b.count for b in several.origins[1:-1]] == [4 * b.count for b in single.origins[1:-1]]


def without_values(line):
    from dataclasses import replace

    return replace(line, stored_values=None)


def test_negated_pairs_share_their_breaks_and_cancel():
    w, b = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    model = relu_network(
        linear_layer(torch.cat([w, -w]), torch.cat([b, -b])),
        linear_layer(torch.cat([torch.ones(1, 5), -torch.ones(1, 5)], 1)),
    )
    line = restrict_and_verify(model, [-9.0, 8.0, 7.0], [8.0, -9.0, -7.0])
    assert len(line) > 2
    assert all(origin.count == 2 for origin in line.origins[1:-1])
    assert len(line.minimal()) == 1  # relu(z) - relu(-z) = z


# -- touches, and units that never cross ------------------------------------------------------------------------


def test_a_touch_without_crossing_adds_no_break():
    # |x| and -|x| touch zero at 1/2 only, where there is a break already
    model = relu_network(
        linear_layer([[1.0], [-1.0]]), linear_layer([[1.0, 1.0], [-1.0, -1.0]]), linear_layer([[1.0, 1.0]])
    )
    line = restrict_and_verify(model, [-1.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 1.0]
    assert line.origins[1].node == "relu"
    assert line.origins[1].count == 2


def test_a_touch_between_two_breaks_adds_no_break():
    # relu(x - 1/4) + relu(1/2 - x) - 1/4 is zero on (1/4, 1/2): it leaves zero at existing breaks
    model = relu_network(
        linear_layer([[1.0], [-1.0]], [-0.25, 0.5]), linear_layer([[1.0, 1.0]], [-0.25]), linear_layer([[1.0]])
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.5, 1.0]
    assert {origin.node for origin in line.origins[1:-1]} == {"relu"}


def test_a_unit_that_is_zero_at_one_end_only_adds_no_break():
    for start, end in ((0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0)):
        assert breaks(restrict_and_verify(nn.ReLU(), [start], [end])) == [0.0, 1.0]


def test_dead_always_on_and_constant_units_add_no_break():
    model = relu_network(
        linear_layer([[0.5], [0.5], [0.0], [0.0], [0.0], [4.0]], [-9.0, 9.0, 1.0, -1.0, 0.0, -2.0]),
        linear_layer(torch.ones(1, 6)),
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 1.0]


def test_an_all_zero_layer_gives_a_constant_and_keeps_earlier_breaks():
    model = relu_network(mlp(3, 8)[0], linear_layer(torch.zeros(4, 8)), linear_layer(torch.ones(2, 4)))
    line = xl.restrict(model.float(), [-3.0, 1.0, 2.0], [3.0, -2.0, 1.0])
    assert mismatch(line.alphas, xl.exact.restrict(model, [-3.0, 1.0, 2.0], [3.0, -2.0, 1.0])) is None
    assert line.values.abs().max() == 0.0
    assert len(line.minimal()) == 1


def test_constant_outputs_do_not_remove_the_breaks_of_units():
    model = relu_network(linear_layer([[1.0], [-1.0]], [-0.25, 0.75]), linear_layer([[0.0, 0.0]], [3.0]))
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.75, 1.0]
    assert line.values.flatten().tolist() == [3.0] * 4


def test_units_that_are_constant_on_a_piece_cause_no_division_by_zero():
    # the first layer is off on (0, 1/2): every later unit is constant there, one of them at zero
    model = relu_network(
        linear_layer([[2.0]], [-1.0]),
        linear_layer([[1.0], [1.0], [-1.0]], [0.0, -0.5, 0.5]),
        linear_layer([[1.0, 1.0, 1.0]]),
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 0.75, 1.0]


def test_a_unit_that_crosses_twice_after_a_deeper_layer_breaks_twice():
    model = relu_network(
        linear_layer([[1.0], [-1.0]], [-0.5, 0.5]), linear_layer([[1.0, 1.0]], [-0.25]), linear_layer([[1.0]])
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [b.node for b in line.origins[1:-1]] == ["relu_1", "relu", "relu_1"]


def test_crossings_one_ulp_apart_are_one_or_two_breaks_in_order():
    third = 1 / 3
    shifts = vector(math.nextafter(third, 0), third, math.nextafter(third, 1))
    line = restrict_and_verify(
        relu_network(linear_layer(torch.ones(3, 1), -shifts), linear_layer(torch.ones(1, 3))), [0.0], [1.0]
    )
    assert 2 <= len(line) <= 4


# -- scales -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [1e-6, 1e-12])
@pytest.mark.parametrize("seed", range(3))
def test_nearly_parallel_hyperplanes_match_the_oracle(angle, seed):
    torch.manual_seed(seed)
    turn = torch.arange(6, dtype=torch.float64) * angle
    w = torch.stack([turn.cos(), turn.sin()], 1)
    model = relu_network(linear_layer(w, -0.1 * torch.ones(6)), linear_layer(torch.randn(2, 6, dtype=torch.float64)))
    restrict_and_verify(model, torch.randn(2) - torch.tensor([3.0, 0.0]), torch.randn(2) + torch.tensor([3.0, 0.0]))


@pytest.mark.parametrize("angle", [1e-6, 1e-12])
def test_a_line_nearly_parallel_to_hyperplanes_is_exact_or_ambiguous(angle):
    w = torch.tensor([[0.0, 1.0]] * 5, dtype=torch.float64)
    model = relu_network(linear_layer(w, -angle * vector(0.1, 0.3, 0.5, 0.7, 0.9)), linear_layer(torch.ones(1, 5)))
    line = assert_exact_or_ambiguous(model, [0.0, 0.0], [1.0, angle])
    assert len(line) == 6  # the inputs are small, so rounding does not hide the crossings
    assert_exact_or_ambiguous(
        relu_network(linear_layer(w, -1 - angle * vector(0.1, 0.3, 0.5, 0.7, 0.9)), linear_layer(torch.ones(1, 5))),
        [0.0, 1.0],
        [1.0, 1.0 + angle],
    )


def test_steep_and_flat_units_of_one_layer_match_the_oracle():
    model = relu_network(
        linear_layer([[1e30], [1e-30], [-1e30], [1.0]], [-1e30 / 3, -7e-31, 0.9e30, -0.5]), linear_layer(torch.eye(4))
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert len(line) == 5


def test_steep_and_flat_units_in_one_sum_are_exact_or_ambiguous():
    model = relu_network(
        linear_layer([[1e30], [1e-30]], [-0.5e30, -7e-31]),
        linear_layer([[1.0, 1.0], [1e-30, 1e30]], [-1.0, -1.0]),
        linear_layer([[1.0, 1.0]]),
    )
    assert_exact_or_ambiguous(model, [0.0], [1.0])


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-310, 2.3e-308])
def test_subnormal_crossings_are_found(scale):
    # the product of the two ends underflows to zero
    line = xl.restrict(nn.ReLU(), [-scale], [3 * scale])
    assert breaks(line) == [0.0, 0.25, 1.0]
    line = restrict_and_verify(nn.ReLU(), [-2 * scale, scale], [2 * scale, -3 * scale])
    assert breaks(line) == [0.0, 0.25, 0.5, 1.0]


def test_crossings_of_subnormal_products_are_as_precise_as_subnormals_allow():
    model = relu_network(linear_layer([[1e-160], [3e-160]], [0.0, -1e-320]), linear_layer([[1.0, 1.0]]))
    start, end = [-1e-160], [2e-160]
    slope = 3e-320  # rounding to the next subnormal moves a crossing by up to 2^-1074 / 3e-320
    line = xl.restrict(model, start, end)
    assert mismatch(line.alphas, xl.exact.restrict(model, start, end), tolerance=4 * 5e-324 / slope) is None


@pytest.mark.parametrize("huge", [1.7e308, 1.79e308])
def test_values_whose_difference_overflows_still_cross(huge):
    assert breaks(restrict_and_verify(nn.ReLU(), [-huge, huge], [huge, -huge / 3])) == [0.0, 0.5, 0.75, 1.0]
    assert breaks(restrict_and_verify(Function(torch.abs), [-huge], [huge])) == [0.0, 0.5, 1.0]


def test_knots_far_from_huge_values_do_not_overflow():
    # x - knot is beyond float64 at both ends
    line = restrict_and_verify(nn.Hardtanh(-1e308, 1e308), [-1.7e308], [1.7e308])
    expected = [Fraction(-1e308) - Fraction(-1.7e308), Fraction(1e308) - Fraction(-1.7e308)]
    width = Fraction(1.7e308) * 2
    assert breaks(line)[1:-1] == [pytest.approx(float(e / width), abs=1e-15) for e in expected]


def test_a_maximum_and_a_sort_of_huge_values_do_not_overflow():
    for function in (lambda x: x.amax(1), lambda x: x.sort(1).values, lambda x: torch.maximum(x[:, 0], x[:, 1])):
        line = restrict_and_verify(Function(function), [-1.7e308, 1.7e308], [1.7e308, -1.7e308])
        assert breaks(line) == [0.0, 0.5, 1.0]


def test_the_refusal_of_values_that_overflow_names_the_node():
    model = relu_network(linear_layer([[1e200]]), linear_layer([[1e200]]), linear_layer([[1.0]]))
    error = assert_refused(xl.NumberError, xl.restrict, model, [1.0], [2.0])
    assert "relu_1" in error.where
    assert_refused(
        xl.NumberError, xl.restrict, relu_network(linear_layer([[1e200]]), linear_layer([[1e200]])), [1.0], [2.0]
    )


def test_absorption_at_two_to_the_25_is_exact():
    model = relu_network(
        linear_layer([[1.0]], [2.0**25]), linear_layer([[1.0]], [-(2.0**25) - 1 / 3]), linear_layer([[1.0]])
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert len(line) == 2
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-8


@pytest.mark.parametrize("size", [2.0**53, 2.0**54, 2.0**60])
def test_absorption_beyond_float64_is_exact_or_ambiguous(size):
    model = relu_network(
        linear_layer([[1.0]], [size]),
        linear_layer([[1.0]], [-size]),
        linear_layer([[1.0], [1.0]], [-1 / 3, 0.0]),
        linear_layer([[1.0, 1.0]]),
    )
    assert_exact_or_ambiguous(model, [0.0], [1.0])
    assert_exact_or_ambiguous(model, [-1.0], [1.0])


@pytest.mark.parametrize("size", [2.0**53, 2.0**54, 2.0**60])
@pytest.mark.every(2)
def test_a_maximum_hidden_by_absorption_is_exact_or_ambiguous(size):
    # both lines are large sums that cancel: x + size - size against 1/3
    shifted = relu_network(
        linear_layer([[1.0], [0.0]], [size, size]), linear_layer([[1.0, 0.0], [0.0, 1.0]], [-size, -size + 0.0])
    )
    for function in (lambda x: x.amax(1), lambda x: x.sort(1).values):
        model = nn.Sequential(*shifted, linear_layer(torch.eye(2), vector(0.0, 1 / 3)), Function(function))
        assert_exact_or_ambiguous(model, [0.0], [1.0])


def test_an_offset_of_1000_on_a_line_of_length_one_hundredth():
    for seed in range(4):
        torch.manual_seed(seed)
        model = mlp(4, 24, 24, 2)
        with torch.no_grad():
            model[0].bias -= model[0].weight.sum(1) * 1000  # so that the hyperplanes are near the line
            model[0].bias *= 1 + torch.randn(24) * 1e-6
        start = 1000 + torch.rand(4, dtype=torch.float64) * 1e-2
        line = restrict_and_verify(model, start, start + torch.randn(4, dtype=torch.float64) * 1e-2)
        assert len(line) >= 1


@pytest.mark.parametrize("big", [1e8, 1e12, 1e16])
def test_sums_that_cancel_are_exact_or_ambiguous(big):
    # big + 1 - big + ... : the sum is small, its terms are not
    signs = torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0, -2.0], dtype=torch.float64)
    sizes = torch.tensor([big, 1.0, big, 1 / 3, big / 2, big / 4], dtype=torch.float64)
    model = relu_network(
        linear_layer(torch.ones(6, 1), torch.arange(6.0)),
        linear_layer((signs * sizes)[None], [-1.0]),
        linear_layer([[1.0]]),
    )
    assert_exact_or_ambiguous(model, [-4.0], [4.0])


@pytest.mark.parametrize("gain", [1e3, 1e-3])
@pytest.mark.every(2)
def test_a_hundred_layers_of_growing_or_vanishing_scale(gain):
    torch.manual_seed(0)
    layers = [
        linear_layer(torch.randn(4, 4, dtype=torch.float64) * 0.8 * gain, torch.randn(4, dtype=torch.float64) * 0.3)
        for _ in range(100)
    ]
    size = 1.0
    for layer in layers:  # biases in proportion to the signal
        size *= gain
        layer.bias.data *= size
    line = restrict_and_verify(relu_network(*layers), torch.randn(4) * 2, torch.randn(4) * 2)
    assert len(line) > 1


def test_a_hundred_layers_of_ordinary_scale():
    torch.manual_seed(1)
    layers = [
        linear_layer(torch.randn(6, 6, dtype=torch.float64) * 0.57, torch.randn(6, dtype=torch.float64) * 0.2)
        for _ in range(100)
    ]
    line = restrict_and_verify(relu_network(*layers), torch.randn(6) * 3, torch.randn(6) * 3)
    assert len(line) > 5


def test_errors_that_are_large_on_part_of_the_line_make_no_false_breaks():
    # after 0.9 two branches of size 1e15 cancel to zero: the unit has a large rounding error there, and -1e-3 before
    knots = torch.linspace(0.905, 0.995, 40, dtype=torch.float64)
    first = torch.cat([torch.tensor([[1e16], [3e16]], dtype=torch.float64), torch.ones(40, 1)])
    shift = torch.cat([vector(-9e15, -2.7e16), -knots])
    second = torch.zeros(2, 42, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relu_network(linear_layer(first, shift), linear_layer(second, [-1e-3, 0.0]), linear_layer([[1.0, 1.0]]))
    line = assert_exact_or_ambiguous(model, [0.0], [1.0])
    exact = xl.exact.restrict(model, [0.0], [1.0])
    assert len(line) == len(exact)  # the unit is -1e-3 throughout: rounding may make it ambiguous, but not break
    assert_same_line(line, xl.restrict(model, [0.0], [1.0], memory=1))


def test_one_line_with_large_errors_among_others_is_swept_as_if_alone():
    # only on the second of five lines do large branches cancel
    w = torch.tensor([[1e16, 0.0], [3e16, 0.0], *[[0.0, 1.0]] * 20], dtype=torch.float64)
    b = torch.cat([torch.zeros(2), -torch.linspace(0.1, 0.9, 20)]).double()
    second = torch.zeros(2, 22, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relu_network(linear_layer(w, b), linear_layer(second, [-1e-3, 0.0]), linear_layer([[1.0, 1.0]]))
    starts, ends = torch.zeros(5, 2, dtype=torch.float64), torch.ones(5, 2, dtype=torch.float64)
    starts[:, 0] = ends[:, 0] = -1.0
    starts[1, 0], ends[1, 0] = 0.1, 0.7
    many = xl.restrict_many(model, starts, ends)
    for i in range(5):
        assert_same_line(many[i], xl.restrict(copy.deepcopy(model), starts[i], ends[i]))


def test_an_answer_does_not_depend_on_earlier_calls():
    # a line with large errors, on a fresh module and after a line of the same length with small errors
    w = torch.tensor([[1e16, 0.0], [3e16, 0.0], *[[0.0, 1.0]] * 20], dtype=torch.float64)
    b = torch.cat([torch.zeros(2), -torch.linspace(0.1, 0.9, 20)]).double()
    second = torch.zeros(2, 22, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relu_network(linear_layer(w, b), linear_layer(second, [-1e-3, 0.0]), linear_layer([[1.0, 1.0]]))
    small_errors, large_errors = ([-1.0, 0.0], [-1.0, 1.0]), ([0.1, 0.0], [0.7, 1.0])
    fresh = xl.restrict(copy.deepcopy(model), *large_errors)
    xl.restrict(model, *small_errors)
    assert_same_line(xl.restrict(model, *large_errors), fresh)


STEEP_RAMPS = {
    "clamp": lambda w: nn.Sequential(linear_layer([[w]], [-w / 2]), nn.Hardtanh(0.0, 1.0)),
    "centred": lambda w: nn.Sequential(linear_layer([[w]], [-w / 2]), nn.Hardtanh(-1.0, 1.0)),
    "relus": lambda w: relu_network(linear_layer([[w], [w]], [-w / 2, -w / 2 - 1]), linear_layer([[1.0, -1.0]])),
}


@pytest.mark.parametrize("kind", STEEP_RAMPS)
@pytest.mark.parametrize("power", [40, 46, 50, 52])
@pytest.mark.every(4)
def test_a_ramp_steeper_than_floats_resolve_does_not_spread_over_the_pieces_beside_it(kind, power):
    # the two ends of the ramp merge into one break at 1/2; far from there the function is constant
    model = STEEP_RAMPS[kind](2.0**power)
    line = xl.restrict(model, [0.0], [1.0])
    far = torch.tensor([0.1, 0.4, 0.49, 0.51, 0.6, 0.9], dtype=torch.float64)
    with torch.no_grad():
        truth = model(far[:, None])
    wrong = (line.at(far) - truth).abs().max()
    is_reported = line.ambiguous > 0 or line.error >= wrong / 16
    assert wrong <= 1e-9 or is_reported, f"off by {wrong:.1g}, which neither error nor ambiguous reports"


@pytest.mark.parametrize("power", [46, 48, 50, 56])
@pytest.mark.parametrize("factors", [[1.0, 1.0], [1.0, -1.0, 2.0]], ids=["twins", "mixed"])
@pytest.mark.every(3)
def test_several_such_ramps_at_one_alpha_do_not_spread_either(power, factors):
    # in order of alpha the two knots of a unit are not neighbours: those of other units are between them
    w = 2.0**power * vector(*factors)
    model = nn.Sequential(linear_layer(w[:, None], -w / 2), nn.Hardtanh(0.0, 1.0))
    line = xl.restrict(model, [0.0], [1.0])
    far = torch.tensor([0.1, 0.4, 0.49, 0.51, 0.6, 0.9], dtype=torch.float64)
    with torch.no_grad():
        truth = model(far[:, None])
    wrong = float((line.at(far) - truth).abs().max())
    assert wrong <= max(1e-9, line.error) or line.ambiguous > 0, f"off by {wrong:.1g}, estimated {line.error:.1g}"


@pytest.mark.parametrize("kind", STEEP_RAMPS)
@pytest.mark.parametrize("power", [52, 54, 56, 60])
@pytest.mark.every(4)
def test_a_ramp_narrower_than_one_float_still_gives_ascending_alphas(kind, power):
    line = xl.restrict(STEEP_RAMPS[kind](2.0**power), [0.0], [1.0])
    assert (line.alphas[1:] > line.alphas[:-1]).all(), breaks(line)
    assert all(line.piece(i).width > 0 for i in range(len(line)))
    line.certify()  # need not be complete, must not fail
    small = line.minimal()
    far = torch.tensor([0.1, 0.4, 0.6, 0.9], dtype=torch.float64)
    assert torch.allclose(small.at(far), line.at(far), rtol=0, atol=16 * line.error + 1e-12)


@pytest.mark.parametrize("length", [5e-12, 5e-13])
def test_a_crossing_hidden_by_rounding_at_one_end_is_ambiguous(length):
    # from -1e-15 to a value of known sign: rounding hides the break near the start
    model = relu_network(linear_layer([[0.1, 0.2]], [-0.3 - 1e-15]), linear_layer([[1.0]]))
    assert_exact_or_ambiguous(model, [1.0, 1.0], [1.0, 1.0 + length])


# -- settings of the processor, and degenerate widths -----------------------------------------------------------


def test_flushing_of_subnormals_does_not_hide_crossings_and_is_restored():
    before = global_settings()
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush subnormal numbers")
        line = xl.restrict(nn.ReLU(), vector(-1e-310), vector(3e-310))
        assert breaks(line) == [0.0, pytest.approx(0.25, abs=1e-12), 1.0]
        assert float(torch.tensor([1e-310], dtype=torch.float64) * 1.0) == 0.0  # still flushing
    finally:
        torch.set_flush_denormal(False)
    assert global_settings() == before


def test_flushing_of_subnormals_does_not_change_values_of_a_result():
    line = xl.restrict(nn.ReLU(), vector(-1e-310), vector(3e-310))
    values, points = line.at(0.75).clone(), line.points.clone()
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush subnormal numbers")
        later_values, later_points = line.at(0.75), line.points
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(later_values, values)
    assert torch.equal(later_points, points)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["0.weight", "2.bias"])
def test_the_refusal_of_weights_that_are_not_finite_names_the_parameter(bad, which):
    model = mlp(3, 4, 2)
    with torch.no_grad():
        model.get_parameter(which).view(-1)[1] = bad
    error = assert_refused(xl.NumberError, xl.restrict, model, torch.zeros(3), torch.ones(3))
    assert which in str(error)


def test_weights_that_become_nan_after_a_first_call_are_refused():
    model = mlp(3, 4, 2)
    xl.restrict(model, torch.zeros(3), torch.ones(3))
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert_refused(xl.NumberError, xl.restrict, model, torch.zeros(3), torch.ones(3))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_of_width_zero_is_a_constant():
    model = relu_network(nn.Linear(3, 0), nn.Linear(0, 2))
    line = xl.restrict(model, torch.zeros(3), torch.ones(3))
    assert breaks(line) == [0.0, 1.0]
    assert_matches_module(line, model)
    without_outputs = relu_network(nn.Linear(3, 5), nn.Linear(5, 0))
    line = xl.restrict(without_outputs, -torch.ones(3) * 9, torch.ones(3) * 9)
    assert line.values.shape == (len(line) + 1, 0)


def test_a_layer_of_width_one_breaks_at_most_once_per_piece():
    line = restrict_and_verify(mlp(3, 1, 1, 1, 1), torch.randn(3) * 5, torch.randn(3) * 5)
    assert len(line) <= 4


# -- many pieces ------------------------------------------------------------------------------------------------


def test_a_tent_of_depth_14_is_bit_exact():
    line = xl.restrict(tent_network(14), [0.0], [1.0])
    assert torch.equal(line.alphas, torch.arange(2**14 + 1, dtype=torch.float64) / 2**14)
    assert torch.equal(line.values.flatten(), (torch.arange(2**14 + 1) % 2).double())
    assert line.ambiguous == 0


@pytest.mark.slow
def test_a_tent_of_depth_20_has_a_million_bit_exact_breaks():
    line = xl.restrict(tent_network(20), [0.0], [1.0], memory=64 << 20)
    assert torch.equal(line.alphas, torch.arange(2**20 + 1, dtype=torch.float64) / 2**20)


def test_a_tent_on_a_third_of_its_range_has_the_breaks_of_that_third():
    # from 1/3 to 2/3: the inner breaks are where 1/3 + a/3 = k/2^10
    line = xl.restrict(tent_network(10), [Fraction(1, 3).__float__()], [2 / 3])
    inside = [k for k in range(2**10) if 1 / 3 < k / 2**10 < 2 / 3]
    assert len(line) == len(inside) + 1
    expected = torch.tensor(
        [float((Fraction(k, 2**10) - Fraction(1 / 3)) / (Fraction(2 / 3) - Fraction(1 / 3))) for k in inside],
        dtype=torch.float64,
    )
    assert (line.alphas[1:-1] - expected).abs().max() <= 1e-12


def test_six_thousand_breaks_of_one_layer_are_all_found():
    alphas = torch.rand(6000, dtype=torch.float64).unique()
    line = xl.restrict(
        relu_network(linear_layer(torch.ones(len(alphas), 1), -alphas), linear_layer(torch.ones(1, len(alphas)))),
        [0.0],
        [1.0],
        values=False,
    )
    assert len(line) == len(alphas) + 1
    assert (line.alphas[1:-1] - alphas.sort().values).abs().max() <= 1e-15


# -- the minimal partition and the resolution of alpha ----------------------------------------------------------


def test_breaks_at_which_the_output_stays_affine_are_not_in_the_minimal_partition():
    # relu(z) - relu(-z) = z for every unit: one minimal piece, however many breaks
    w, b = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    out = torch.randn(2, 12, dtype=torch.float64)
    model = relu_network(linear_layer(torch.cat([w, -w]), torch.cat([b, -b])), linear_layer(torch.cat([out, -out], 1)))
    line = restrict_and_verify(model, [-9.0, 8.0, 7.0], [8.0, -9.0, -7.0])
    small = line.minimal()
    assert len(line) > 5
    assert breaks(small) == [0.0, 1.0]
    assert torch.equal(small.values, line.values[[0, -1]])
    assert "minimal" in str(small)
    assert_refused(xl.ArgumentError, small.piece, 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_minimal_partition_is_the_same_function_with_exactly_the_true_bends(seed):
    torch.manual_seed(seed)
    model = mlp(3, 10, 10, 1)
    start, end = torch.randn(3) * 4, torch.randn(3) * 4
    line, exact = restrict_and_verify(model, start, end), xl.exact.restrict(model, start, end)
    small = line.minimal()
    bends = sum(exact.affine_form(i) != exact.affine_form(i + 1) for i in range(len(exact) - 1))
    assert len(small) == bends + 1
    somewhere = torch.rand(200, dtype=torch.float64)
    assert torch.allclose(small.at(somewhere), line.at(somewhere), atol=1e-12)


@pytest.mark.parametrize("floats", [64, 256])
@pytest.mark.every(2)
def test_more_knots_than_floats_between_two_breaks(floats):
    # the knots are in a piece that is only so many floats wide: some get a break, the others fall on the next point
    gap = floats * 2.0**-52
    step = nn.Sequential(linear_layer([[1.0]], [-1.0]), nn.Hardtanh(0.0, gap), linear_layer([[2.0**60]]))
    middle = 2.0**59 * gap
    knots = [middle + k / 16 for k in range(2 * floats)]
    stairs = xl.register_pointwise(
        lambda x: (x[:, None] - torch.tensor(knots)).clamp(0, 1 / 32).sum(1), knots + [k + 1 / 32 for k in knots]
    )
    line = xl.restrict(nn.Sequential(step, Function(stairs)), [0.5], [1.5])
    assert (line.alphas[1:] > line.alphas[:-1]).all()
    assert line.alphas[0] == 0
    assert line.alphas[-1] == 1
    assert len(line) <= floats + 4
