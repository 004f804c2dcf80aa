"""Units that break such code: ties, twins, touches, near-parallel and badly scaled ones, sums that cancel."""

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
    breaks,
    dense,
    follows_the_module,
    is_right_or_says_so,
    mlp,
    points,
    refused,
    relus,
    right,
    same_line,
    settings,
)

# -- many at one place ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 100, 10_000])
def test_k_units_that_cross_together_are_one_break_that_counts_k(k):
    # c (3 x - 1) for whole c: all cross at 1/3 in truth, none of them exactly there in floats
    c = torch.arange(1, k + 1, dtype=torch.float64)
    c[1::2] *= -1
    line = right(relus(dense(3 * c[:, None], -c), dense(torch.ones(1, k))), [0.0], [1.0])
    assert breaks(line) == [0.0, pytest.approx(1 / 3, abs=1e-16), 1.0]
    assert line.origins[1].count == k
    assert line.origins[1].unit == 0


@pytest.mark.parametrize("k", [2, 100, 10_000])
def test_k_random_units_through_one_point_are_one_break_that_counts_k(k):
    w = torch.randn(k, 6, dtype=torch.float64)
    x = torch.randn(6, dtype=torch.float64)
    line = xl.restrict(relus(dense(w), dense(torch.ones(1, k))), -x, 2 * x)
    assert len(line) == 2
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-15
    assert line.origins[1].count == k


@pytest.mark.parametrize("k", [2, 100])
def test_k_pairs_of_units_at_k_places_are_k_breaks_that_count_two(k):
    places = torch.arange(1, k + 1, dtype=torch.float64)
    weight = torch.full((2 * k, 1), float(2 * k + 2))
    line = right(relus(dense(weight, -places.repeat(2)), dense(torch.ones(1, 2 * k))), [0.0], [1.0])
    assert len(line) == k + 1
    assert [birth.count for birth in line.origins[1:-1]] == [2] * k


def test_one_alpha_from_different_layers_is_one_break_of_the_first():
    # 3 x - 1, then 3 relu(7 x) - 7, then 11 relu(3 relu(7 x)) - 77: all cross at 1/3, by different formulae
    model = relus(
        dense([[3.0], [7.0]], [-1.0, 0.0]),
        dense([[1.0, 0.0], [0.0, 3.0], [0.0, 3.0]], [0.0, -7.0, 0.0]),
        dense([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 11.0]], [0.0, 0.0, -77.0]),
        dense([[1.0, 1.0, 1.0]]),
    )
    line = right(model, [0.0], [1.0])
    assert len(line) == 2
    assert line.origins[1].node == "relu"


@pytest.mark.parametrize("seed", range(8))
def test_births_are_those_of_the_oracle_where_layers_share_breaks(seed):
    # node, lowest unit, and the number of units that turn there, whatever layer they are in
    torch.manual_seed(seed)
    model = relus(
        *(
            dense(torch.randint(-2, 3, (b, a)).double(), torch.randint(-2, 3, (b,)).double())
            for a, b in ((2, 8), (8, 8), (8, 8), (8, 2))
        )
    )
    Q, R = torch.randint(-3, 4, (2,)), torch.randint(-3, 4, (2,))
    line, exact = right(model, Q, R), xl.exact.restrict(model, Q, R)
    ours, truth = ([(b.node, b.unit, b.count) for b in found[1:-1]] for found in (line.origins, exact.born))
    assert ours == truth


@pytest.mark.parametrize("seed", range(6))
def test_one_alpha_from_different_layers_leaves_no_sliver_in_random_nets(seed):
    # every layer reads copies of the first layer's units with other factors: all zeros are shared
    torch.manual_seed(seed)
    w, b = torch.randint(-9, 10, (6, 2)).double(), torch.randint(-9, 10, (6,)).double()
    factors = torch.tensor([3.0, 5.0, 7.0, 11.0, 13.0, 17.0])
    both = torch.cat([w, -w]), torch.cat([b, -b])
    second = torch.cat([torch.diag(factors), -torch.diag(factors)], 1)  # factor (relu(z) - relu(-z)) = factor z
    model = relus(dense(*both), dense(second), dense(torch.ones(1, 6)))
    line = right(model, torch.randint(-5, 6, (2,)) / 7, torch.randint(-5, 6, (2,)) / 3)
    assert all(birth.node == "relu" for birth in line.origins[1:-1])


def test_duplicated_units_share_their_breaks():
    one = dense(torch.randn(5, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
    two = dense(one.weight.detach().repeat(4, 1), one.bias.detach().repeat(4))
    Q, R = points(-9.0, 8.0, 7.0), points(8.0, -9.0, -7.0)
    single = right(relus(one, dense(torch.ones(1, 5))), Q, R)
    several = right(relus(two, dense(torch.ones(1, 20))), Q, R)
    assert len(single) > 2
    same_line(single, several_without_values(several), apart=0.0)
    assert [b.count for b in several.origins[1:-1]] == [4 * b.count for b in single.origins[1:-1]]


def several_without_values(line):
    from dataclasses import replace

    return replace(line, stored_values=None)


def test_negated_pairs_share_their_breaks_and_cancel():
    w, b = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    model = relus(
        dense(torch.cat([w, -w]), torch.cat([b, -b])), dense(torch.cat([torch.ones(1, 5), -torch.ones(1, 5)], 1))
    )
    line = right(model, [-9.0, 8.0, 7.0], [8.0, -9.0, -7.0])
    assert len(line) > 2
    assert all(birth.count == 2 for birth in line.origins[1:-1])
    assert len(line.minimal()) == 1  # relu(z) - relu(-z) = z


# -- touches, and units that never turn -------------------------------------------------------------------------


def test_a_touch_without_crossing_adds_no_break():
    # |x| - 0 touches zero at 1/2 only, where a break is already; -|x| likewise
    model = relus(dense([[1.0], [-1.0]]), dense([[1.0, 1.0], [-1.0, -1.0]]), dense([[1.0, 1.0]]))
    line = right(model, [-1.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 1.0]
    assert line.origins[1].node == "relu"
    assert line.origins[1].count == 2


def test_a_touch_between_two_breaks_adds_no_break():
    # relu(x - 1/4) + relu(1/2 - x) - 1/4 is zero on all of (1/4, 1/2): it leaves zero at breaks that exist
    model = relus(dense([[1.0], [-1.0]], [-0.25, 0.5]), dense([[1.0, 1.0]], [-0.25]), dense([[1.0]]))
    line = right(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.5, 1.0]
    assert {birth.node for birth in line.origins[1:-1]} == {"relu"}


def test_a_unit_that_is_zero_at_one_end_only_adds_no_break():
    for start, stop in ((0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0)):
        assert breaks(right(nn.ReLU(), [start], [stop])) == [0.0, 1.0]


def test_dead_always_on_and_constant_units_add_no_break():
    model = relus(
        dense([[0.5], [0.5], [0.0], [0.0], [0.0], [4.0]], [-9.0, 9.0, 1.0, -1.0, 0.0, -2.0]), dense(torch.ones(1, 6))
    )
    line = right(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 1.0]


def test_an_all_zero_layer_gives_a_constant_after_the_breaks_before_it():
    model = relus(mlp(3, 8)[0], dense(torch.zeros(4, 8)), dense(torch.ones(2, 4)))
    line = xl.restrict(model.float(), [-3.0, 1.0, 2.0], [3.0, -2.0, 1.0])
    assert mismatch(line.alphas, xl.exact.restrict(model, [-3.0, 1.0, 2.0], [3.0, -2.0, 1.0])) is None
    assert line.values.abs().max() == 0.0
    assert len(line.minimal()) == 1


def test_all_outputs_constant_still_has_the_units_breaks():
    model = relus(dense([[1.0], [-1.0]], [-0.25, 0.75]), dense([[0.0, 0.0]], [3.0]))
    line = right(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.75, 1.0]
    assert line.values.flatten().tolist() == [3.0] * 4


def test_a_constant_piece_in_front_of_a_deeper_layer_is_no_zero_over_zero():
    # the first layer is off on (0, 1/2): every later unit is constant there, one of them at zero
    model = relus(dense([[2.0]], [-1.0]), dense([[1.0], [1.0], [-1.0]], [0.0, -0.5, 0.5]), dense([[1.0, 1.0, 1.0]]))
    line = right(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 0.75, 1.0]


def test_a_unit_that_crosses_twice_after_a_deeper_layer_breaks_twice():
    model = relus(dense([[1.0], [-1.0]], [-0.5, 0.5]), dense([[1.0, 1.0]], [-0.25]), dense([[1.0]]))
    line = right(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [b.node for b in line.origins[1:-1]] == ["relu_1", "relu", "relu_1"]


def test_crossings_one_ulp_apart_are_one_or_two_breaks_in_order():
    third = 1 / 3
    shifts = points(math.nextafter(third, 0), third, math.nextafter(third, 1))
    line = right(relus(dense(torch.ones(3, 1), -shifts), dense(torch.ones(1, 3))), [0.0], [1.0])
    assert 2 <= len(line) <= 4


# -- scales -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [1e-6, 1e-12])
@pytest.mark.parametrize("seed", range(3))
def test_near_parallel_hyperplanes_cross_where_the_oracle_says(angle, seed):
    torch.manual_seed(seed)
    turn = torch.arange(6, dtype=torch.float64) * angle
    w = torch.stack([turn.cos(), turn.sin()], 1)
    model = relus(dense(w, -0.1 * torch.ones(6)), dense(torch.randn(2, 6, dtype=torch.float64)))
    right(model, torch.randn(2) - torch.tensor([3.0, 0.0]), torch.randn(2) + torch.tensor([3.0, 0.0]))


@pytest.mark.parametrize("angle", [1e-6, 1e-12])
def test_a_line_nearly_parallel_to_hyperplanes_is_right_or_says_so(angle):
    w = torch.tensor([[0.0, 1.0]] * 5, dtype=torch.float64)
    model = relus(dense(w, -angle * points(0.1, 0.3, 0.5, 0.7, 0.9)), dense(torch.ones(1, 5)))
    line = is_right_or_says_so(model, [0.0, 0.0], [1.0, angle])
    assert len(line) == 6  # the inputs are small, so nothing hides the crossings
    is_right_or_says_so(
        relus(dense(w, -1 - angle * points(0.1, 0.3, 0.5, 0.7, 0.9)), dense(torch.ones(1, 5))),
        [0.0, 1.0],
        [1.0, 1.0 + angle],
    )


def test_steep_units_beside_flat_ones_break_where_they_should():
    model = relus(dense([[1e30], [1e-30], [-1e30], [1.0]], [-1e30 / 3, -7e-31, 0.9e30, -0.5]), dense(torch.eye(4)))
    line = right(model, [0.0], [1.0])
    assert len(line) == 5


def test_steep_and_flat_units_in_one_sum_are_right_or_counted():
    model = relus(
        dense([[1e30], [1e-30]], [-0.5e30, -7e-31]),
        dense([[1.0, 1.0], [1e-30, 1e30]], [-1.0, -1.0]),
        dense([[1.0, 1.0]]),
    )
    is_right_or_says_so(model, [0.0], [1.0])


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-310, 2.3e-308])
def test_subnormal_crossings_are_found(scale):
    # the product of the two ends underflows to zero
    line = xl.restrict(nn.ReLU(), [-scale], [3 * scale])
    assert breaks(line) == [0.0, 0.25, 1.0]
    line = right(nn.ReLU(), [-2 * scale, scale], [2 * scale, -3 * scale])
    assert breaks(line) == [0.0, 0.25, 0.5, 1.0]


def test_subnormal_products_of_small_weights_and_small_inputs_cross_as_nearly_as_subnormals_can_say():
    model = relus(dense([[1e-160], [3e-160]], [0.0, -1e-320]), dense([[1.0, 1.0]]))
    Q, R = [-1e-160], [2e-160]
    steepness = 3e-320  # so a rounding to the next subnormal moves a crossing by up to 2^-1074 / 3e-320
    line = xl.restrict(model, Q, R)
    assert mismatch(line.alphas, xl.exact.restrict(model, Q, R), tolerance=4 * 5e-324 / steepness) is None


@pytest.mark.parametrize("huge", [1.7e308, 1.79e308])
def test_values_whose_difference_overflows_still_cross(huge):
    assert breaks(right(nn.ReLU(), [-huge, huge], [huge, -huge / 3])) == [0.0, 0.5, 0.75, 1.0]
    assert breaks(right(Function(torch.abs), [-huge], [huge])) == [0.0, 0.5, 1.0]


def test_knots_far_from_huge_values_do_not_overflow():
    # x - knot is beyond float64 at both ends
    line = right(nn.Hardtanh(-1e308, 1e308), [-1.7e308], [1.7e308])
    expected = [Fraction(-1e308) - Fraction(-1.7e308), Fraction(1e308) - Fraction(-1.7e308)]
    width = Fraction(1.7e308) * 2
    assert breaks(line)[1:-1] == [pytest.approx(float(e / width), abs=1e-15) for e in expected]


def test_a_maximum_and_a_sort_of_huge_values_do_not_overflow():
    for function in (lambda x: x.amax(1), lambda x: x.sort(1).values, lambda x: torch.maximum(x[:, 0], x[:, 1])):
        line = right(Function(function), [-1.7e308, 1.7e308], [1.7e308, -1.7e308])
        assert breaks(line) == [0.0, 0.5, 1.0]


def test_values_that_overflow_are_refused_naming_the_node():
    model = relus(dense([[1e200]]), dense([[1e200]]), dense([[1.0]]))
    error = refused(xl.NumberError, xl.restrict, model, [1.0], [2.0])
    assert "relu_1" in error.where
    refused(xl.NumberError, xl.restrict, relus(dense([[1e200]]), dense([[1e200]])), [1.0], [2.0])


def test_absorption_at_two_to_the_25_is_exact():
    model = relus(dense([[1.0]], [2.0**25]), dense([[1.0]], [-(2.0**25) - 1 / 3]), dense([[1.0]]))
    line = right(model, [0.0], [1.0])
    assert len(line) == 2
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-8


@pytest.mark.parametrize("size", [2.0**53, 2.0**54, 2.0**60])
def test_absorption_beyond_float64_is_right_or_counted(size):
    model = relus(
        dense([[1.0]], [size]), dense([[1.0]], [-size]), dense([[1.0], [1.0]], [-1 / 3, 0.0]), dense([[1.0, 1.0]])
    )
    is_right_or_says_so(model, [0.0], [1.0])
    is_right_or_says_so(model, [-1.0], [1.0])


@pytest.mark.parametrize("size", [2.0**53, 2.0**54, 2.0**60])
def test_a_maximum_hidden_by_absorption_is_right_or_counted(size):
    # both lines are known up to rounding only: x + size - size against 1/3
    shifted = relus(dense([[1.0], [0.0]], [size, size]), dense([[1.0, 0.0], [0.0, 1.0]], [-size, -size + 0.0]))
    for function in (lambda x: x.amax(1), lambda x: x.sort(1).values):
        model = nn.Sequential(*shifted, dense(torch.eye(2), points(0.0, 1 / 3)), Function(function))
        is_right_or_says_so(model, [0.0], [1.0])


def test_an_offset_of_1000_on_a_line_of_length_one_hundredth():
    for seed in range(4):
        torch.manual_seed(seed)
        model = mlp(4, 24, 24, 2)
        with torch.no_grad():
            model[0].bias -= model[0].weight.sum(1) * 1000  # so that the hyperplanes pass by here
            model[0].bias *= 1 + torch.randn(24) * 1e-6
        Q = 1000 + torch.rand(4, dtype=torch.float64) * 1e-2
        line = right(model, Q, Q + torch.randn(4, dtype=torch.float64) * 1e-2)
        assert len(line) >= 1


@pytest.mark.parametrize("big", [1e8, 1e12, 1e16])
def test_wilkinson_style_sums_are_right_or_counted(big):
    # big + 1 - big + ... : the sum is small, its terms are not
    signs = torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0, -2.0], dtype=torch.float64)
    sizes = torch.tensor([big, 1.0, big, 1 / 3, big / 2, big / 4], dtype=torch.float64)
    model = relus(dense(torch.ones(6, 1), torch.arange(6.0)), dense((signs * sizes)[None], [-1.0]), dense([[1.0]]))
    is_right_or_says_so(model, [-4.0], [4.0])


@pytest.mark.parametrize("gain", [1e3, 1e-3])
def test_a_hundred_layers_of_growing_or_vanishing_scale(gain):
    torch.manual_seed(0)
    layers = [
        dense(torch.randn(4, 4, dtype=torch.float64) * 0.8 * gain, torch.randn(4, dtype=torch.float64) * 0.3)
        for _ in range(100)
    ]
    size = 1.0
    for layer in layers:  # biases that keep up with the signal
        size *= gain
        layer.bias.data *= size
    line = right(relus(*layers), torch.randn(4) * 2, torch.randn(4) * 2)
    assert len(line) > 1


def test_a_hundred_layers_of_ordinary_scale():
    torch.manual_seed(1)
    layers = [
        dense(torch.randn(6, 6, dtype=torch.float64) * 0.57, torch.randn(6, dtype=torch.float64) * 0.2)
        for _ in range(100)
    ]
    line = right(relus(*layers), torch.randn(6) * 3, torch.randn(6) * 3)
    assert len(line) > 5


def test_errors_that_are_large_on_part_of_the_line_only_make_no_false_breaks():
    # behind 0.9 two branches of size 1e15 cancel to exactly zero; the unit reads noise there, and -1e-3 before
    ladder = torch.linspace(0.905, 0.995, 40, dtype=torch.float64)
    first = torch.cat([torch.tensor([[1e16], [3e16]], dtype=torch.float64), torch.ones(40, 1)])
    shift = torch.cat([points(-9e15, -2.7e16), -ladder])
    second = torch.zeros(2, 42, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relus(dense(first, shift), dense(second, [-1e-3, 0.0]), dense([[1.0, 1.0]]))
    line = is_right_or_says_so(model, [0.0], [1.0])
    exact = xl.exact.restrict(model, [0.0], [1.0])
    assert len(line) == len(exact)  # the unit is -1e-3 throughout: noise may hide it, but must not bend it
    same_line(line, xl.restrict(model, [0.0], [1.0], memory=1))


def test_one_noisy_line_among_quiet_ones_is_swept_as_if_alone():
    # only the second of five lines passes where large branches cancel
    w = torch.tensor([[1e16, 0.0], [3e16, 0.0], *[[0.0, 1.0]] * 20], dtype=torch.float64)
    b = torch.cat([torch.zeros(2), -torch.linspace(0.1, 0.9, 20)]).double()
    second = torch.zeros(2, 22, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relus(dense(w, b), dense(second, [-1e-3, 0.0]), dense([[1.0, 1.0]]))
    starts, ends = torch.zeros(5, 2, dtype=torch.float64), torch.ones(5, 2, dtype=torch.float64)
    starts[:, 0] = ends[:, 0] = -1.0
    starts[1, 0], ends[1, 0] = 0.1, 0.7
    many = xl.restrict_many(model, starts, ends)
    for i in range(5):
        same_line(many[i], xl.restrict(copy.deepcopy(model), starts[i], ends[i]))


def test_an_answer_does_not_depend_on_what_was_asked_before():
    # the same noisy line, on a fresh module and after a quiet line of the same size
    w = torch.tensor([[1e16, 0.0], [3e16, 0.0], *[[0.0, 1.0]] * 20], dtype=torch.float64)
    b = torch.cat([torch.zeros(2), -torch.linspace(0.1, 0.9, 20)]).double()
    second = torch.zeros(2, 22, dtype=torch.float64)
    second[0, 0], second[0, 1] = 3.0, -1.0
    second[1, 2:] = 1.0
    model = relus(dense(w, b), dense(second, [-1e-3, 0.0]), dense([[1.0, 1.0]]))
    quiet, noisy = ([-1.0, 0.0], [-1.0, 1.0]), ([0.1, 0.0], [0.7, 1.0])
    fresh = xl.restrict(copy.deepcopy(model), *noisy)
    xl.restrict(model, *quiet)
    same_line(xl.restrict(model, *noisy), fresh)


STEPS = {
    "clamp": lambda w: nn.Sequential(dense([[w]], [-w / 2]), nn.Hardtanh(0.0, 1.0)),
    "centred": lambda w: nn.Sequential(dense([[w]], [-w / 2]), nn.Hardtanh(-1.0, 1.0)),
    "relus": lambda w: relus(dense([[w], [w]], [-w / 2, -w / 2 - 1]), dense([[1.0, -1.0]])),
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("power", [40, 46, 50, 52])
def test_a_ramp_steeper_than_floats_resolve_does_not_spread_over_the_pieces_beside_it(kind, power):
    # its two ends merge into one break at 1/2; far from there the function is constant, and the module says so
    model = STEPS[kind](2.0**power)
    line = xl.restrict(model, [0.0], [1.0])
    far = torch.tensor([0.1, 0.4, 0.49, 0.51, 0.6, 0.9], dtype=torch.float64)
    with torch.no_grad():
        truth = model(far[:, None])
    wrong = (line.at(far) - truth).abs().max()
    told = line.ambiguous > 0 or line.error >= wrong / 16
    assert wrong <= 1e-9 or told, f"off by {wrong:.1g}, and neither the estimate nor the count says so"


@pytest.mark.parametrize("power", [46, 48, 50, 56])
@pytest.mark.parametrize("factors", [[1.0, 1.0], [1.0, -1.0, 2.0]], ids=["twins", "mixed"])
def test_several_such_ramps_at_one_place_do_not_spread_either(power, factors):
    # in order of alpha the two knots of one unit are not neighbours: those of the others lie between
    w = 2.0**power * points(*factors)
    model = nn.Sequential(dense(w[:, None], -w / 2), nn.Hardtanh(0.0, 1.0))
    line = xl.restrict(model, [0.0], [1.0])
    far = torch.tensor([0.1, 0.4, 0.49, 0.51, 0.6, 0.9], dtype=torch.float64)
    with torch.no_grad():
        truth = model(far[:, None])
    wrong = float((line.at(far) - truth).abs().max())
    assert wrong <= max(1e-9, line.error) or line.ambiguous > 0, f"off by {wrong:.1g}, estimated {line.error:.1g}"


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("power", [52, 54, 56, 60])
def test_a_ramp_narrower_than_a_float_still_leaves_alphas_that_rise(kind, power):
    line = xl.restrict(STEPS[kind](2.0**power), [0.0], [1.0])
    assert (line.alphas[1:] > line.alphas[:-1]).all(), breaks(line)
    assert all(line.piece(i).width > 0 for i in range(len(line)))
    line.certify()  # may doubt, must not fail
    small = line.minimal()
    far = torch.tensor([0.1, 0.4, 0.6, 0.9], dtype=torch.float64)
    assert torch.allclose(small.at(far), line.at(far), rtol=0, atol=16 * line.error + 1e-12)


@pytest.mark.parametrize("length", [5e-12, 5e-13])
def test_a_crossing_hidden_by_the_rounding_of_one_end_is_counted(length):
    # from -1e-15 to a value that is clear: the break near the start cannot be seen, and that must be told
    model = relus(dense([[0.1, 0.2]], [-0.3 - 1e-15]), dense([[1.0]]))
    is_right_or_says_so(model, [1.0, 1.0], [1.0, 1.0 + length])


# -- settings of the processor, and degenerate widths -----------------------------------------------------------


def test_flushed_subnormals_do_not_hide_crossings_and_stay_as_they_were():
    before = settings()
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush subnormal numbers")
        line = xl.restrict(nn.ReLU(), points(-1e-310), points(3e-310))
        assert breaks(line) == [0.0, pytest.approx(0.25, abs=1e-12), 1.0]
        assert float(torch.tensor([1e-310], dtype=torch.float64) * 1.0) == 0.0  # still flushing
    finally:
        torch.set_flush_denormal(False)
    assert settings() == before


def test_flushed_subnormals_do_not_spoil_what_is_asked_of_an_answer():
    line = xl.restrict(nn.ReLU(), points(-1e-310), points(3e-310))
    at, where = line.at(0.75).clone(), line.points.clone()
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush subnormal numbers")
        later, there = line.at(0.75), line.points
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(later, at)
    assert torch.equal(there, where)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["0.weight", "2.bias"])
def test_weights_that_are_not_finite_are_refused_by_name(bad, which):
    model = mlp(3, 4, 2)
    with torch.no_grad():
        model.get_parameter(which).view(-1)[1] = bad
    error = refused(xl.NumberError, xl.restrict, model, torch.zeros(3), torch.ones(3))
    assert which in str(error)


def test_weights_that_become_bad_after_a_first_call_are_refused():
    model = mlp(3, 4, 2)
    xl.restrict(model, torch.zeros(3), torch.ones(3))
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    refused(xl.NumberError, xl.restrict, model, torch.zeros(3), torch.ones(3))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_of_width_zero_is_a_constant():
    model = relus(nn.Linear(3, 0), nn.Linear(0, 2))
    line = xl.restrict(model, torch.zeros(3), torch.ones(3))
    assert breaks(line) == [0.0, 1.0]
    follows_the_module(line, model)
    nothing = relus(nn.Linear(3, 5), nn.Linear(5, 0))
    line = xl.restrict(nothing, -torch.ones(3) * 9, torch.ones(3) * 9)
    assert line.values.shape == (len(line) + 1, 0)


def test_a_layer_of_width_one_breaks_once_at_most_per_piece():
    line = right(mlp(3, 1, 1, 1, 1), torch.randn(3) * 5, torch.randn(3) * 5)
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
    places = torch.rand(6000, dtype=torch.float64).unique()
    line = xl.restrict(
        relus(dense(torch.ones(len(places), 1), -places), dense(torch.ones(1, len(places)))), [0.0], [1.0], values=False
    )
    assert len(line) == len(places) + 1
    assert (line.alphas[1:-1] - places.sort().values).abs().max() <= 1e-15


# -- how the answer shows its own limits ------------------------------------------------------------------------


def test_units_that_break_where_the_output_stays_affine_go_in_the_minimal_partition():
    # relu(z) - relu(-z) = z for every unit: 1 minimal piece, however many breaks
    w, b = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    out = torch.randn(2, 12, dtype=torch.float64)
    model = relus(dense(torch.cat([w, -w]), torch.cat([b, -b])), dense(torch.cat([out, -out], 1)))
    line = right(model, [-9.0, 8.0, 7.0], [8.0, -9.0, -7.0])
    small = line.minimal()
    assert len(line) > 5
    assert breaks(small) == [0.0, 1.0]
    assert torch.equal(small.values, line.values[[0, -1]])
    assert "minimal" in str(small)
    refused(xl.ArgumentError, small.piece, 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_minimal_partition_is_the_same_function_and_the_true_bends(seed):
    torch.manual_seed(seed)
    model = mlp(3, 10, 10, 1)
    Q, R = torch.randn(3) * 4, torch.randn(3) * 4
    line, exact = right(model, Q, R), xl.exact.restrict(model, Q, R)
    small = line.minimal()
    bends = sum(exact.form(i) != exact.form(i + 1) for i in range(len(exact) - 1))
    assert len(small) == bends + 1
    somewhere = torch.rand(200, dtype=torch.float64)
    assert torch.allclose(small.at(somewhere), line.at(somewhere), atol=1e-12)


@pytest.mark.parametrize("floats", [64, 256])
def test_more_knots_than_floats_between_two_breaks(floats):
    # all of them at one place of a piece so many floats wide: some get a break, the rest lie on the point that follows
    gap = floats * 2.0**-52
    step = nn.Sequential(dense([[1.0]], [-1.0]), nn.Hardtanh(0.0, gap), dense([[2.0**60]]))
    middle = 2.0**59 * gap
    knots = [middle + k / 16 for k in range(2 * floats)]
    stairs = xl.register_pointwise(
        lambda x: (x[:, None] - torch.tensor(knots)).clamp(0, 1 / 32).sum(1), knots + [k + 1 / 32 for k in knots]
    )
    line = xl.restrict(nn.Sequential(step, _Called(stairs)), [0.5], [1.5])
    assert (line.alphas[1:] > line.alphas[:-1]).all()
    assert line.alphas[0] == 0
    assert line.alphas[-1] == 1
    assert len(line) <= floats + 4


class _Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
