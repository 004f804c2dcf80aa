"""Unusual lines: tiny and huge lengths, special numbers, unusual array types, ties, lines inside hyperplanes."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from tests.oracle.compare import mismatch
from tests.oracle.families import Residual

from .truth import (
    assert_exact_or_ambiguous,
    assert_matches_module,
    assert_refused,
    breaks,
    linear_layer,
    mlp,
    relu_network,
    restrict_and_verify,
    vector,
)

HINGE = relu_network(linear_layer([[1.0]], [0.0]), linear_layer([[1.0]], [0.0]))  # relu(x)


# -- ends that coincide, or nearly ------------------------------------------------------------------------------


def test_equal_ends_give_one_piece_and_every_method_works(tmp_path):
    model, start = mlp(3, 8, 8, 2), vector(0.3, -1.2, 0.7)
    line = restrict_and_verify(model, start, start.clone())
    assert breaks(line) == [0.0, 1.0]
    assert torch.equal(line.values[0], line.values[1])
    assert torch.equal(line.points, torch.stack([start, start]))
    assert torch.allclose(line.at(0.37), line.values[0], rtol=1e-15)
    A, b = line.piece(0).affine()
    assert torch.allclose(A @ start + b, line.values[0], atol=1e-14)
    assert len(line.minimal()) == 1
    assert line.check(samples=10).worst <= 1e-14
    assert line.certify().covers_whole_line
    line.save(tmp_path / "point.safetensors")
    assert breaks(xl.Restriction.load(tmp_path / "point.safetensors")) == [0.0, 1.0]


def test_equal_ends_on_a_hyperplane_give_one_piece():
    line = restrict_and_verify(mlp(4, 16, 16, 2, bias=False), torch.zeros(4), torch.zeros(4))
    assert breaks(line) == [0.0, 1.0]
    assert line.certify().covers_whole_line


def test_equal_ends_among_other_lines_change_nothing():
    model, starts, ends = mlp(3, 10, 10, 2), torch.randn(6, 3), torch.randn(6, 3) * 3
    ends[[0, 3, 5]] = starts[[0, 3, 5]]
    lines = xl.restrict_many(model, starts, ends)
    assert [len(lines[i]) for i in (0, 3, 5)] == [1, 1, 1]
    for i in (1, 2, 4):
        assert mismatch(lines[i].alphas, xl.exact.restrict(model, starts[i], ends[i])) is None


def test_ends_one_ulp_apart_in_one_coordinate():
    model, start = mlp(3, 16, 16, 2), vector(0.3, -1.2, 0.7)
    end = start.clone()
    end[1] = math.nextafter(-1.2, 0.0)
    line = restrict_and_verify(model, start, end)
    assert len(line) == 1


def test_ends_one_ulp_apart_on_both_sides_of_a_hyperplane():
    # 2 x - 2 - eps goes from -eps to eps: its break at 1/2 is within the rounding of the inputs
    eps = 2.0**-52
    model = relu_network(linear_layer([[2.0, 1.0]], [-2.0]), linear_layer([[1.0]]))
    line = assert_exact_or_ambiguous(model, [1.0, -eps], [1.0 + eps, -eps])
    assert torch.isfinite(line.values).all()
    assert line.values.abs().max() <= 2 * eps


# -- very short and very long -----------------------------------------------------------------------------------


def test_a_line_of_length_1e_minus_300():
    line = restrict_and_verify(mlp(2, 8, 8, 2), [1e-300, -1e-300], [-2e-300, 3e-300])
    assert len(line) == 1
    assert breaks(restrict_and_verify(HINGE, [-1e-300], [2e-300]))[1:-1] == [pytest.approx(1 / 3, abs=1e-15)]


def test_a_line_of_length_1e_minus_300_through_the_origin_of_a_bias_free_net():
    x = torch.randn(5, dtype=torch.float64) * 1e-300
    line = xl.restrict(mlp(5, 20, 20, 3, bias=False, dtype=torch.float64), -x, 2 * x)
    assert breaks(line) == [0.0, pytest.approx(1 / 3, abs=1e-14), 1.0]
    assert line.origins[1].count >= 20


def test_a_line_of_length_1e300():
    assert breaks(restrict_and_verify(HINGE, [-1e300], [2e300]))[1:-1] == [pytest.approx(1 / 3, abs=1e-15)]
    line = restrict_and_verify(mlp(2, 8, 8, 2), [-1e300, 2e300], [3e300, -1e300])
    assert len(line) > 1


def test_a_tiny_line_through_huge_weights_that_overflow_elsewhere():
    # two layers of 1e200: values are finite only near 0, where the line is; at 1 they are inf - inf
    model = relu_network(linear_layer([[1e200], [2e200], [-1e200]]), linear_layer([[1e200, -1e200, 1e200]]))
    line = restrict_and_verify(model, [-1e-200], [2e-200])
    assert breaks(line)[1:-1] == [pytest.approx(1 / 3, abs=1e-15)]


def test_breaks_closer_to_the_start_than_two_to_the_minus_53_are_distinct():
    line = restrict_and_verify(HINGE, [-1.0], [2.0**60])
    assert breaks(line)[1:-1] == [pytest.approx(2.0**-60, rel=1e-12)]


def test_breaks_closer_to_the_end_than_two_to_the_minus_53_merge_with_it():
    line = restrict_and_verify(HINGE, [2.0**60], [-1.0])
    assert breaks(line) == [0.0, 1.0]
    assert line.values[-1].item() == 0.0


def test_two_breaks_closer_than_float64_resolves_merge():
    # crossings at (1 + 2^-80) / 3 and 1/3
    model = relu_network(linear_layer([[3.0, 0.0], [3.0, 1.0]], [-1.0, -1.0]), linear_layer([[1.0, 1.0]]))
    line = restrict_and_verify(model, [0.0, -(2.0**-80)], [1.0, -(2.0**-80)])
    assert len(line) == 2
    assert line.origins[1].count == 2


# -- numbers that are not finite --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("end", ["start", "end"])
def test_the_refusal_of_points_that_are_not_finite_names_the_argument(bad, end):
    ends = {"start": [0.0, 1.0], "end": [1.0, 1.0]}
    ends[end] = [0.0, bad]
    error = assert_refused(xl.LineError, xl.restrict, mlp(2, 3, 1), **ends)
    assert end in error.where


def test_one_bad_line_among_many_is_refused():
    starts = torch.zeros(5, 2)
    starts[3, 1] = math.nan
    assert_refused(xl.LineError, xl.restrict_many, mlp(2, 3, 1), starts, torch.ones(5, 2))
    assert_refused(xl.LineError, xl.restrict_path, mlp(2, 3, 1), starts)


def test_points_too_large_for_float32_are_refused_with_dtype_float32():
    assert_refused(xl.NumberError, xl.restrict, HINGE, [-1e300], [1e300], dtype=torch.float32)


# -- types of arrays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32],
    ids=str,
)
@pytest.mark.every(5)
def test_integers_and_low_precision_points_are_read_exactly(dtype):
    model, start, end = mlp(2, 8, 8, 2), torch.tensor([1, 5]).to(dtype), torch.tensor([7, 2]).to(dtype)
    line = restrict_and_verify(model, start, end)
    assert line.points.dtype == torch.float64
    assert line.points[-1].tolist() == [7.0, 2.0]
    assert breaks(line) == breaks(xl.restrict(model, [1.0, 5.0], [7.0, 2.0]))


def test_float16_points_are_read_as_the_rounded_numbers_they_hold():
    start = torch.tensor([0.1], dtype=torch.float16)
    line = xl.restrict(HINGE, -start, 2 * start)
    assert line.points[0].item() == -float(start)


@pytest.mark.parametrize("kind", ["i1", "u1", "u2", "u4", "u8", "i8", "f2", "f4", "f8"])
def test_numpy_points_of_every_numeric_type_are_read(kind):
    assert breaks(restrict_and_verify(HINGE, np.zeros(1, kind), np.ones(1, kind))) == [0.0, 1.0]


def test_big_endian_readonly_reversed_and_scalar_numpy_points_are_read_or_refused():
    frozen = np.array([-1.0])
    frozen.setflags(write=False)
    assert breaks(xl.restrict(HINGE, frozen, np.array([1.0]))) == [0.0, 0.5, 1.0]
    turned = np.array([1.0, -1.0])[::-1]
    assert breaks(xl.restrict(nn.ReLU(), turned, np.array([1.0, -1.0]))) == [0.0, 0.5, 1.0]
    assert breaks(xl.restrict(torch.relu, np.float64(-1.0), 1)) == [0.0, 0.5, 1.0]
    try:
        line = xl.restrict(HINGE, np.array([-1.0], ">f8"), np.array([1.0], ">f8"))
    except xl.LineError as error:
        assert error.hint  # noqa: PT017
    else:
        assert breaks(line) == [0.0, 0.5, 1.0]


def test_integers_that_float64_cannot_hold_are_refused():
    assert_refused(xl.LineError, xl.restrict, HINGE, torch.tensor([2**53 + 1]), torch.tensor([0]))
    assert_refused(xl.LineError, xl.restrict, HINGE, np.array([2**64 - 1], np.uint64), np.array([0], np.uint64))


@pytest.mark.parametrize(
    "point",
    [
        torch.tensor([1 + 2j]),
        torch.tensor([True]),
        torch.tensor([1.0]).to_sparse(),
        torch.empty(1, device="meta"),
        np.array([1j]),
        np.array([True]),
        np.array(["1.0"]),
        np.array([object()]),
        "one",
        None,
        [[1.0], [1.0, 2.0]],
        {"x": 1.0},
        np.array([10**400], object),
        10**400,
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')!s}-{str(v)[:12]}",
)
def test_points_that_are_not_dense_real_numbers_are_refused(point):
    assert_refused(xl.LineError, xl.restrict, HINGE, point, [1.0])
    assert_refused(xl.LineError, xl.restrict, HINGE, [1.0], point)


def test_sparse_csr_and_quantised_points_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = [
            torch.eye(2).to_sparse_csr(),
            torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8),
        ]
    for point in odd:
        assert_refused(xl.LineError, xl.restrict, nn.ReLU(), point, torch.ones(2, 2))


def test_non_contiguous_expanded_and_grad_points_give_the_same_breaks_as_plain_ones():
    model, plain = mlp(6, 12, 12, 2), torch.randn(6, dtype=torch.float64)
    end = torch.randn(6, dtype=torch.float64) * 3
    truth = restrict_and_verify(model, plain, end)
    strided = torch.stack([plain, plain], 1).flatten()[::2]
    assert not strided.is_contiguous()
    assert breaks(xl.restrict(model, strided, end)) == breaks(truth)
    line = xl.restrict(model, plain.clone().requires_grad_(), end.clone().requires_grad_())
    assert breaks(line) == breaks(truth)
    assert not line.values.requires_grad
    assert not line.points.requires_grad
    wide = torch.tensor([0.5], dtype=torch.float64).expand(6)
    assert wide.stride() == (0,)
    restrict_and_verify(model, wide, -wide)


def test_overwriting_the_points_later_does_not_change_the_result():
    start, end = vector(-1.0, 2.0), vector(3.0, -2.0)
    line = xl.restrict(mlp(2, 8, 2, dtype=torch.float64), start, end, values=False)
    before, at = line.points.clone(), line.at(0.25).clone()
    start.zero_()
    end.fill_(7.0)
    assert torch.equal(line.points, before)
    assert torch.equal(line.at(0.25), at)


# -- shapes -----------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_are_refused():
    model = mlp(3, 4, 2)
    assert_refused(xl.ExactlineError, xl.restrict, model, torch.zeros(4), torch.ones(4))
    assert_refused(xl.ExactlineError, xl.restrict, model, 0.0, 1.0)
    assert_refused(xl.LineError, xl.restrict, model, torch.zeros(3), torch.ones(4))
    assert_refused(xl.LineError, xl.restrict, model, torch.zeros(1, 3), torch.ones(3))
    assert_refused(xl.LineError, xl.restrict_many, model, 0.0, 1.0)
    assert_refused(xl.LineError, xl.restrict_many, model, torch.zeros(2, 3), torch.ones(3, 3))
    assert_refused(xl.LineError, xl.restrict_path, model, torch.zeros(1, 3))
    assert_refused(xl.LineError, xl.restrict, model, (torch.zeros(3), torch.zeros(3)), torch.ones(3))


def test_a_batch_of_several_points_is_refused_with_the_hint_to_drop_it():
    image = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    assert xl.restrict(image, torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)).values.shape[1:] == (2,)
    for count in (2, 5):
        error = assert_refused(
            xl.ExactlineError, xl.restrict, image, torch.zeros(count, 1, 4, 4), torch.ones(count, 1, 4, 4)
        )
        assert "batch dimension" in error.hint


def test_a_tuple_of_numbers_is_read_as_a_point_or_refused_with_a_hint_about_tuples():
    try:
        line = xl.restrict(nn.ReLU(), (-1.0, 2.0), (1.0, 2.0))
    except xl.ExactlineError as error:
        assert "tuple" in str(error)  # noqa: PT017
    else:
        assert breaks(line) == [0.0, 0.5, 1.0]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_zero_size_points_are_one_constant_piece():
    model = relu_network(nn.Linear(0, 3), nn.Linear(3, 2))
    line = xl.restrict(model, torch.zeros(0), torch.zeros(0))
    assert breaks(line) == [0.0, 1.0]
    assert_matches_module(line, model)


def test_zero_size_dims_give_one_piece_with_empty_values():
    line = xl.restrict(nn.ReLU(), torch.zeros(2, 0, 3), torch.zeros(2, 0, 3))
    assert breaks(line) == [0.0, 1.0]
    assert line.values.shape == (2, 2, 0, 3)
    assert line.points.shape == (2, 2, 0, 3)
    assert str(line).startswith("1 piece")


def test_no_lines_at_all_give_an_empty_result():
    lines = xl.restrict_many(mlp(3, 4, 2), torch.zeros(0, 3), torch.zeros(0, 3))
    assert len(lines) == 0
    assert list(lines) == []
    assert lines.alphas.shape == (0,)
    assert lines.offsets.tolist() == [0]
    assert "0 lines" in repr(lines)


def test_a_point_without_dims_is_a_number():
    line = restrict_and_verify(nn.ReLU(), -1.0, 3.0)
    assert breaks(line) == [0.0, 0.25, 1.0]
    assert line.values.shape == (3,)
    assert line.at([0.5, 1.0]).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_does_not_exist_is_refused(device):
    assert_refused(xl.ArgumentError, xl.restrict, mlp(3, 4, 2), torch.zeros(3), torch.ones(3), device=device)


# -- ties and hyperplanes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(784, 256, 256, 256, 256, 10), (5, 50, 50, 50, 50, 50, 50, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.every(3)
def test_a_bias_free_net_through_the_origin_has_exactly_three_breaks(widths, dtype):
    x = torch.randn(widths[0], dtype=torch.float64)
    line = xl.restrict(mlp(*widths, bias=False, dtype=dtype), -x, 2 * x)
    assert len(line.alphas) == 3
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-14
    assert line.ambiguous == 0


def test_a_bias_free_conv_pool_net_through_the_origin_has_exactly_three_breaks():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, bias=False), nn.MaxPool2d(2, padding=1), nn.LeakyReLU(0.1),
        nn.Flatten(), nn.Linear(72, 10, bias=False),
    ).eval()  # fmt: skip
    x = torch.randn(3, 14, 14, dtype=torch.float64)
    line = xl.restrict(model, -x, 2 * x)
    assert len(line.alphas) == 3
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-14


def test_a_bias_free_residual_net_through_the_origin_has_exactly_three_breaks():
    def block():
        return Residual(nn.Sequential(nn.Linear(40, 40, bias=False), nn.ReLU(), nn.Linear(40, 40, bias=False)))

    parts = [part for _ in range(6) for part in (block(), nn.ReLU())]
    model = nn.Sequential(nn.Linear(20, 40, bias=False), nn.ReLU(), *parts, nn.Linear(40, 3, bias=False)).eval()
    x = torch.randn(20, dtype=torch.float64)
    line = xl.restrict(model, -x, 2 * x)
    assert len(line.alphas) == 3
    assert abs(breaks(line)[1] - 1 / 3) <= 1e-14
    assert_matches_module(line, model)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.every(3)
def test_a_small_bias_free_net_through_the_origin_counts_what_the_oracle_counts(seed):
    torch.manual_seed(seed)
    model, x = mlp(4, 12, 12, 12, 3, bias=False), torch.randn(4, dtype=torch.float64)
    line = restrict_and_verify(model, -x, 2 * x)
    exact = xl.exact.restrict(model, -x, 2 * x)
    assert len(line) == 2
    assert line.origins[1].node == exact.origins[1].node
    assert line.origins[1].unit == exact.origins[1].unit


def test_a_line_inside_a_hyperplane_is_not_broken_by_it():
    # x + y - 1 is zero on the whole line, exactly; x - 1/4 crosses
    model = relu_network(linear_layer([[1.0, 1.0], [1.0, 0.0]], [-1.0, -0.25]), linear_layer([[1.0, 1.0]]))
    line = restrict_and_verify(model, [0.0, 1.0], [1.0, 0.0])
    assert breaks(line) == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(3)
def test_a_line_inside_many_hyperplanes_of_deeper_layers_is_not_broken_by_them(seed):
    # pairs of equal rows with opposite weights: every second-layer unit is zero along the whole line, up to rounding
    torch.manual_seed(seed)
    first = torch.randn(10, 3, dtype=torch.float64)
    shift = torch.randn(10, dtype=torch.float64)
    mixed = torch.randn(12, 10, dtype=torch.float64)
    model = relu_network(
        linear_layer(first.repeat(2, 1), shift.repeat(2)),
        linear_layer(torch.cat([mixed, -mixed], 1)),
        linear_layer(torch.randn(2, 12, dtype=torch.float64)),
    )
    line = restrict_and_verify(model, torch.randn(3) * 3, torch.randn(3) * 3)
    assert {origin.node for origin in line.origins[1:-1]} <= {"relu"}


@pytest.mark.parametrize("offset", [1e-17, 1e-16, -3e-16, 1e-15])
@pytest.mark.every(2)
def test_a_line_within_rounding_of_a_hyperplane_has_no_breaks_from_rounding(offset):
    # 0.1 x + 0.2 y - 0.3 + offset never crosses zero by more than rounding, along a line with many other breaks
    torch.manual_seed(1)
    others = torch.randn(30, 2, dtype=torch.float64)
    model = relu_network(
        linear_layer(
            torch.cat([torch.tensor([[0.1, 0.2]]), others]), torch.cat([vector(-0.3 + offset), torch.randn(30) * 0.3])
        ),
        linear_layer(torch.ones(1, 31)),
    )
    start, end = vector(1.0, 1.0), vector(-3.0, 3.0)
    line = xl.restrict(model, start, end)
    from_first_unit = [origin for origin in line.origins[1:-1] if origin.unit == 0 and origin.count == 1]
    exact = xl.exact.restrict(model, start, end)
    assert len(from_first_unit) <= 1
    assert mismatch(line.alphas, exact) is None or line.ambiguous > 0
    assert abs(len(line) - len(exact)) <= 1


def test_a_line_within_rounding_of_a_hyperplane_after_a_deep_layer_adds_no_breaks():
    # the last unit is f(x) - f(x), computed by two paths that round differently: exactly zero in real arithmetic
    torch.manual_seed(0)
    w = torch.randn(20, 4, dtype=torch.float64)
    scale = torch.tensor([3.0, 5.0, 7.0, 11.0, 13.0] * 4, dtype=torch.float64)
    coarse = w.mul(16).round() / 16  # so that the products with the scale are exact
    first = torch.cat([coarse, coarse * scale[:, None]])
    second = torch.cat([scale[None], -torch.ones(1, 20)], 1)  # scale * relu(w x) - relu(scale * w x) == 0
    model = relu_network(linear_layer(first), linear_layer(second), linear_layer([[1.0]]))
    line = restrict_and_verify(model, torch.randn(4), torch.randn(4) * 2)
    assert {origin.node for origin in line.origins[1:-1]} == {"relu"}


def test_breaks_exactly_at_both_ends_add_none():
    model = relu_network(
        linear_layer([[1.0], [1.0], [-1.0], [1.0]], [0.0, -1.0, 1.0, -0.5]), linear_layer(torch.ones(1, 4))
    )
    line = restrict_and_verify(model, [0.0], [1.0])
    assert breaks(line) == [0.0, 0.5, 1.0]


def test_dyadic_breaks_are_bit_exact():
    line = restrict_and_verify(
        relu_network(linear_layer([[8.0]] * 7, [-float(k) for k in range(1, 8)]), linear_layer(torch.ones(1, 7))),
        [0.0],
        [1.0],
    )
    assert breaks(line) == [k / 8 for k in range(9)]


def test_a_break_at_one_third_is_the_nearest_float():
    assert breaks(
        restrict_and_verify(relu_network(linear_layer([[3.0]], [-1.0]), linear_layer([[1.0]])), [0.0], [1.0])
    ) == [0.0, 1 / 3, 1.0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.every(3)
def test_the_reversed_line_mirrors_the_breaks(seed):
    torch.manual_seed(seed)
    model, start, end = mlp(3, 20, 20, 2), torch.randn(3), torch.randn(3) * 4
    forth, back = restrict_and_verify(model, start, end), restrict_and_verify(model, end, start)
    assert len(forth) == len(back)
    assert (forth.alphas + back.alphas.flip(0) - 1).abs().max() <= 1e-13
    assert torch.allclose(forth.values, back.values.flip(0), atol=1e-12)
    there, here = list(forth.origins[1:-1]), list(back.origins[1:-1])
    assert [b.node for b in there] == [b.node for b in reversed(here)]


def test_axis_aligned_lines_match_the_oracle():
    model = mlp(3, 16, 16, 2)
    for axis in range(3):
        start, end = torch.full((3,), 0.5), torch.full((3,), 0.5)
        start[axis], end[axis] = -4.0, 4.0
        restrict_and_verify(model, start, end)


def test_negative_zero_is_zero():
    model = mlp(3, 16, 16, 2, bias=False)
    minus, plus = vector(-0.0, 1.0, -0.0), vector(0.0, 1.0, 0.0)
    end = torch.randn(3)
    assert breaks(restrict_and_verify(model, minus, end)) == breaks(restrict_and_verify(model, plus, end))
    line = restrict_and_verify(nn.ReLU(), [-0.0, 0.0], [0.0, -0.0])
    assert breaks(line) == [0.0, 1.0]
    line = restrict_and_verify(nn.ReLU(), [-0.0], [1.0])
    assert breaks(line) == [0.0, 1.0]


def test_every_alpha_is_a_correctly_placed_rational_for_integer_nets():
    torch.manual_seed(3)
    model = relu_network(
        *(
            linear_layer(torch.randint(-3, 4, (b, a)).double(), torch.randint(-3, 4, (b,)).double())
            for a, b in ((2, 6), (6, 6), (6, 2))
        )
    )
    line = restrict_and_verify(model, [-5, 2], [7, -3])
    exact = xl.exact.restrict(model, [-5, 2], [7, -3])
    assert len(line) == len(exact)
    assert all(abs(Fraction(a) - b) <= Fraction(1, 2**50) for a, b in zip(breaks(line), exact.alphas, strict=True))
