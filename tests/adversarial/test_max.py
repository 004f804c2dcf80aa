"""Maxima and other piecewise-linear operators: ties, padding, unusual windows and bounds, unsupported operators."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import exactline as xl
from tests.oracle.compare import mismatch

from .truth import (
    Function,
    assert_matches_module,
    assert_refused,
    assert_same_line,
    breaks,
    linear_layer,
    mlp,
    relu_network,
    restrict_and_verify,
    vector,
)


def envelope_breaks(start: list[Fraction], end: list[Fraction]) -> list[Fraction]:
    """Alphas in (0, 1) where another line takes the lead in the maximum of several lines."""
    slope = [b - a for a, b in zip(start, end, strict=True)]
    leader = max(range(len(start)), key=lambda i: (start[i], slope[i]))
    alphas = []
    while challengers := [i for i in range(len(start)) if slope[i] > slope[leader]]:
        meetings = {i: (start[leader] - start[i]) / (slope[i] - slope[leader]) for i in challengers}
        alpha = min(meetings.values())
        if alpha >= 1:
            break
        leader = max((i for i in challengers if meetings[i] == alpha), key=slope.__getitem__)
        alphas.append(alpha)
    return alphas


def random_windows(count: int, size: int, largest: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of whole numbers at both ends of lines, (count, size) each."""
    generator = torch.Generator().manual_seed(seed)
    starts, ends = (torch.randint(0, largest + 1, (count, size), generator=generator) for _ in range(2))
    return starts, ends


ROW_MAXIMUM = Function(lambda x: x.amax(1))
POOL4 = nn.MaxPool1d(4)


# -- the published counterexamples ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [ROW_MAXIMUM, nn.AdaptiveMaxPool1d(1), nn.MaxPool1d(3), Function(lambda x: x.max(-1).values)],
    ids=["amax", "adaptive", "pool", "max"],
)
def test_the_published_window_of_three_breaks_at_one_half_only(model):
    # the paper's algorithm takes the lowest index on a tie and gives 1/3
    shape = (1, 3) if isinstance(model, (nn.AdaptiveMaxPool1d, nn.MaxPool1d)) else (3,)
    line = restrict_and_verify(model, vector(0.0, 0.0, -1.0).view(shape), vector(1.0, 2.0, 3.0).view(shape))
    assert breaks(line) == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("order", ["relu first", "max first"])
def test_the_published_fused_window_breaks_at_a_quarter_and_a_half(order):
    parts = [nn.ReLU(), nn.MaxPool1d(2)]
    model = nn.Sequential(*(parts if order == "relu first" else parts[::-1]))
    line = restrict_and_verify(model, torch.tensor([[1.0, -1.0]]), torch.tensor([[-3.0, 1.0]]))
    assert breaks(line) == [0.0, 0.25, 0.5, 1.0]


def test_max_then_relu_unfused_has_an_additional_break_at_one_third():
    model = nn.Sequential(nn.MaxPool1d(2), nn.ReLU())
    line = restrict_and_verify(model, torch.tensor([[1.0, -1.0]]), torch.tensor([[-3.0, 1.0]]), rewrite=False)
    assert breaks(line) == [0.0, 0.25, pytest.approx(1 / 3, abs=1e-15), 0.5, 1.0]


def test_thirty_thousand_windows_of_three_bit_numbers_match_the_envelope():
    starts, ends = random_windows(30_000, 4, 7)
    lines = xl.restrict_many(ROW_MAXIMUM, starts, ends, values=False)
    alphas, offsets = lines.alphas.tolist(), lines.offsets.tolist()
    wrong = []
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        truth = [Fraction(0), *envelope_breaks(*([Fraction(v) for v in side] for side in (start, end))), Fraction(1)]
        computed = alphas[offsets[i] : offsets[i + 1]]
        if len(computed) != len(truth) or any(abs(a - b) > 1e-15 for a, b in zip(computed, truth, strict=True)):
            wrong.append((start, end, computed))
    assert wrong == []


@pytest.mark.parametrize("size", [2, 3, 4, 9])
@pytest.mark.every(3)
def test_fused_windows_of_small_numbers_are_the_envelope_with_zero(size):
    starts, ends = random_windows(800, size, 8, seed=size)
    starts, ends = starts - 4, ends - 4
    model = nn.Sequential(nn.ReLU(), Function(lambda x: x.amax(1)))
    lines = xl.restrict_many(model, starts, ends)
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        truth = envelope_breaks(*([*map(Fraction, side), Fraction(0)] for side in (start, end)))
        assert breaks(lines[i])[1:-1] == [pytest.approx(float(a), abs=1e-15) for a in truth], (start, end)


def test_overlapping_windows_of_small_numbers_match_the_oracle():
    for _ in range(12):
        start, end = torch.randint(-3, 4, (2, 5, 5)), torch.randint(-3, 4, (2, 5, 5))
        restrict_and_verify(nn.MaxPool2d(3, stride=1, padding=1), start, end)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sort(1).values,
        lambda x: x.sort(1, descending=True).values,
        lambda x: x.topk(2, 1).values,
        lambda x: x.topk(2, 1, largest=False).values,
        lambda x: x.median(1).values,
        lambda x: x.kthvalue(2, 1).values,
        lambda x: x.amin(1),
        lambda x: x.cummax(1).values,
        lambda x: x.cummin(1).values,
        lambda x: torch.minimum(x[:, :2], x[:, 2:]),
        lambda x: torch.maximum(x[:, :2], x[:, 2:].flip(1)),
        lambda x: x.amax(1) - x.amin(1),
    ],
    ids=["sort", "down", "top2", "low2", "median", "second", "amin", "cummax", "cummin", "minimum", "maximum", "range"],
)
@pytest.mark.every(5)
def test_order_statistics_of_tied_windows_match_the_oracle(function):
    model, (starts, ends) = Function(function), random_windows(25, 4, 3, seed=5)
    lines = xl.restrict_many(model, starts, ends)
    for i in range(len(starts)):
        wrong = mismatch(lines[i].alphas, xl.exact.restrict(model, starts[i], ends[i]))
        assert wrong is None, (starts[i], ends[i], wrong)
        assert_matches_module(lines[i], model)


# -- ties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "truth"),
    [
        ((0.0, 0.0), (1.0, 2.0), []),  # tied at the start: the steeper leads from there
        ((0.0, 0.0), (2.0, 1.0), []),
        ((1.0, 2.0), (3.0, 3.0), []),  # tied at the end
        ((2.0, 1.0), (3.0, 3.0), []),
        ((0.0, 1.0), (1.0, 0.0), [0.5]),
        ((1.0, 1.0), (2.0, 2.0), []),  # tied along the whole line
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), []),
        ((1.0, 0.0, 0.0), (0.0, 1.0, 2.0), [Fraction(1, 3)]),  # the steeper of two challengers
        ((4.0, 3.0, 0.0), (0.0, 4.0, 12.0), [Fraction(1, 5), Fraction(3, 11)]),
        ((2.0, 1.0, 0.0), (0.0, 1.0, 2.0), [0.5]),  # the constant line only touches the maximum
        ((0.0, 0.0, -1.0), (1.0, 2.0, 3.0), [0.5]),
        ((0.0, 0.0, 0.0, -1.0), (1.0, 2.0, 2.0, 3.0), [0.5]),
        ((5.0,), (-5.0,), []),  # a window of one element
    ],
    ids=str,
)
@pytest.mark.every(4)
def test_ties_of_a_maximum_go_to_the_steepest(start, end, truth):
    line = restrict_and_verify(ROW_MAXIMUM, vector(*start), vector(*end))
    assert breaks(line)[1:-1] == [pytest.approx(float(a), abs=1e-15) for a in truth]
    assert line.certify().covers_whole_line
    mirrored = restrict_and_verify(Function(lambda x: -(-x).amin(1)), vector(*start), vector(*end))
    assert breaks(mirrored) == breaks(line)


def test_two_windows_that_share_elements_share_their_break():
    line = restrict_and_verify(
        nn.MaxPool1d(2, stride=1), torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    )
    assert breaks(line) == [0.0, 0.5, 1.0]
    assert line.origins[1].count == 2


def test_the_gradient_of_a_tie_along_a_piece_is_that_of_the_first_index():
    line = restrict_and_verify(ROW_MAXIMUM, vector(1.0, 1.0), vector(2.0, 2.0))
    A, _ = line.piece(0).affine()
    assert A.tolist() == [1.0, 0.0]


# -- windows ----------------------------------------------------------------------------------------------------


def test_padding_counts_as_minus_infinity_not_as_zero():
    start, end = -1 - torch.rand(1, 4, 4), -1 - torch.rand(1, 4, 4)
    for model in (nn.MaxPool2d(2, padding=1), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True)):
        line = restrict_and_verify(model, start, end)
        assert line.values.max() < 0.0


@pytest.mark.parametrize("rewrite", [True, False])
def test_padding_before_an_activation_counts_as_minus_infinity(rewrite):
    model = nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.LeakyReLU(0.5))
    restrict_and_verify(model, torch.randn(2, 5, 5) - 1, torch.randn(2, 5, 5) - 1, rewrite=rewrite)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool1d(3, 2, 1, ceil_mode=True),
        nn.MaxPool1d(2, 3),  # stride larger than the kernel
        nn.MaxPool1d(3, 1, 1, dilation=2),
        nn.MaxPool1d(1),
        nn.MaxPool1d(2, 2, ceil_mode=True),
        nn.AdaptiveMaxPool1d(3),
        nn.AdaptiveMaxPool1d(7),
    ],
    ids=str,
)
@pytest.mark.every(4)
def test_one_dimensional_pools_match_torch_and_the_oracle(pool):
    restrict_and_verify(pool, torch.randn(2, 7), torch.randn(2, 7))
    restrict_and_verify(nn.Sequential(nn.ReLU(), pool), torch.randn(2, 7), torch.randn(2, 7))


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(3, 3, 1, ceil_mode=True),
        nn.MaxPool2d((2, 3), (1, 2), (1, 0)),
        nn.MaxPool2d(2, 3, ceil_mode=True),  # torch drops a window that starts outside
        nn.MaxPool2d(2, 2, 1, dilation=2, ceil_mode=True),
        nn.AdaptiveMaxPool2d((2, 3)),
        nn.AdaptiveMaxPool2d(1),
        nn.Sequential(nn.Flatten(), Function(lambda x: x.amax(1, keepdim=True))),
        Function(lambda x: x.amax(1)),  # over channels
        Function(lambda x: x.amax((2, 3))),
    ],
    ids=str,
)
@pytest.mark.every(2)
def test_two_dimensional_pools_match_torch_and_the_oracle(pool):
    restrict_and_verify(pool, torch.randn(2, 5, 5), torch.randn(2, 5, 5))


def test_three_dimensional_pools_match_torch_and_the_oracle():
    for pool in (nn.MaxPool3d(2, ceil_mode=True), nn.MaxPool3d(3, 2, 1), nn.AdaptiveMaxPool3d((1, 2, 1))):
        restrict_and_verify(pool, torch.randn(1, 3, 4, 3), torch.randn(1, 3, 4, 3))


def test_a_window_of_nothing_but_padding_is_refused():
    # positions -1 and 3 of three: torch itself gives minus infinity
    assert_refused(
        xl.ExactlineError, xl.restrict, nn.MaxPool1d(2, 1, 1, dilation=4), torch.zeros(1, 3), torch.ones(1, 3)
    )
    assert_refused(
        xl.ExactlineError, xl.restrict, nn.MaxPool2d(2, 1, 1, dilation=4), torch.zeros(1, 3, 3), torch.ones(1, 3, 3)
    )


def test_a_maximum_with_an_element_of_minus_infinity_is_exact_or_refused():
    mask = torch.tensor([[False, True, False]])
    model = Function(lambda x: x.masked_fill(mask, -torch.inf).amax(1))
    try:
        line = xl.restrict(model, [0.0, 9.0, 1.0], [1.0, 9.0, 0.0])
    except xl.ExactlineError as error:
        assert error.hint  # noqa: PT017
    else:
        assert breaks(line) == [0.0, 0.5, 1.0]


def test_a_maximum_over_an_empty_dim_is_refused():
    for function in (
        lambda x: x[:, :0].amax(1),
        lambda x: x[:, :0].max(1).values,
        lambda x: x[:, :0].sort(1).values.amax(1),
    ):
        assert_refused(xl.ExactlineError, xl.restrict, Function(function), torch.zeros(3), torch.ones(3))


def test_a_maximum_over_a_dim_of_size_one_is_the_identity():
    line = restrict_and_verify(Function(lambda x: x.amax(2)), torch.randn(3, 1), torch.randn(3, 1))
    assert len(line) == 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("first", ["relu", "max"])
@pytest.mark.every(4)
def test_fused_and_unfused_are_the_same_function(first, seed):
    torch.manual_seed(seed)
    parts = [nn.ReLU(), nn.MaxPool2d(2, 2, 1)] if first == "relu" else [nn.MaxPool2d(3, 1, 1), nn.ReLU()]
    model = nn.Sequential(nn.Conv2d(1, 3, 3), *parts, nn.Flatten(), nn.LazyLinear(3)).eval()
    model(torch.zeros(1, 1, 6, 6))
    start, end = torch.randn(1, 6, 6) * 2, torch.randn(1, 6, 6) * 2
    fused, apart = restrict_and_verify(model, start, end), restrict_and_verify(model, start, end, rewrite=False)
    assert len(fused) <= len(apart)
    ours = fused.alphas[:, None]
    assert ((ours - apart.alphas).abs().amin(1) <= 1e-12).all()  # its breaks are a subset
    somewhere = torch.rand(300, dtype=torch.float64)
    assert torch.allclose(fused.at(somewhere), apart.at(somewhere), atol=1e-12)


def test_a_tensor_with_other_consumers_is_not_fused():
    class Fork(nn.Module):
        def forward(self, x):
            y = torch.relu(x)
            return y.amax(1, keepdim=True) + y

    model = Fork()
    line = restrict_and_verify(model, [-1.0, 2.0, -0.5], [2.0, -1.0, 0.75])
    assert len(line) > 2


def test_relu_on_some_elements_of_a_maximum_is_fused_correctly():
    model = Function(lambda x: torch.maximum(torch.relu(x[:, :2]), x[:, 2:]))
    for seed in range(10):
        torch.manual_seed(seed)
        start, end = torch.randint(-3, 4, (4,)), torch.randint(-3, 4, (4,))
        fused, apart = restrict_and_verify(model, start, end), restrict_and_verify(model, start, end, rewrite=False)
        somewhere = torch.rand(50, dtype=torch.float64)
        assert torch.allclose(fused.at(somewhere), apart.at(somewhere), atol=1e-14)


def test_until_a_layer_before_a_pool_restricts_that_layer_unfused():
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)).eval()
    start, end = torch.randn(1, 5, 5) * 2, torch.randn(1, 5, 5) * 2
    line = xl.restrict(model, start, end, until="1")
    head = model[:2]
    assert line.values.shape[1:] == (2, 4, 4)
    assert_same_line(line, restrict_and_verify(head, start, end))


def test_indices_of_a_maximum_are_refused_if_used_and_ignored_otherwise():
    pooled = nn.MaxPool2d(2, return_indices=True)
    assert_refused(xl.UnsupportedError, xl.restrict, pooled, torch.zeros(1, 4, 4), torch.ones(1, 4, 4))
    unpool = nn.MaxUnpool2d(2)
    assert_refused(
        xl.UnsupportedError,
        xl.restrict,
        Function(lambda x: unpool(*pooled(x))),
        torch.zeros(1, 4, 4),
        torch.ones(1, 4, 4),
    )
    for function in (lambda x: x.argmax(1), lambda x: x.sort(1).indices.to(x.dtype), lambda x: x.max(1).indices):
        assert_refused(xl.UnsupportedError, xl.restrict, Function(function), torch.zeros(3), torch.ones(3))
    restrict_and_verify(Function(lambda x: pooled(x)[0]), torch.randn(1, 4, 4), torch.randn(1, 4, 4))


# -- the other piecewise-linear operators -----------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.5, -0.5, -1.0, 1e-30, 1e30])
@pytest.mark.every(4)
def test_leaky_units_of_any_slope_break_at_zero_and_only_there(slope):
    line = restrict_and_verify(nn.LeakyReLU(slope), [-1.0, 3.0], [3.0, 3.0])
    assert breaks(line) == [0.0, 0.25, 1.0]  # a unit breaks even if its slope does not change
    restrict_and_verify(
        relu_network(linear_layer([[1.0]]), linear_layer([[1.0]]))[:1]
        .append(nn.LeakyReLU(slope))
        .append(linear_layer([[2.0]], [1.0])),
        [-1.0],
        [1.0],
    )


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.5, -0.5])
def test_deep_networks_with_unusual_leaky_slopes_match_the_oracle(slope):
    model = nn.Sequential(
        nn.Linear(3, 8), nn.LeakyReLU(slope), nn.Linear(8, 8), nn.LeakyReLU(slope), nn.Linear(8, 2)
    ).eval()
    restrict_and_verify(model, torch.randn(3) * 3, torch.randn(3) * 3)


def test_prelu_with_a_slope_for_each_channel():
    model = nn.Sequential(nn.Conv1d(1, 4, 2), nn.PReLU(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([-1.0, 0.0, 1.0, 3.0]))
    restrict_and_verify(model, torch.randn(1, 5) * 2, torch.randn(1, 5) * 2)


@pytest.mark.parametrize("rrelu", [nn.RReLU(0.1, 0.3), nn.RReLU(0.2, 0.2)], ids=str)
def test_rrelu_in_eval_mode_has_the_mean_slope(rrelu):
    restrict_and_verify(rrelu.eval(), [-3.0, 1.0], [1.0, -1.0])


@pytest.mark.parametrize(
    ("function", "truth"),
    [
        (lambda x: x.clamp(1.0, 1.0), [0.5]),  # min = max: a constant, but the unit breaks there
        (lambda x: x.clamp(2.0, 1.0), [0.5]),  # min > max: torch gives max everywhere
        (lambda x: x.clamp(torch.tensor([2.0]), torch.tensor([1.0])), [0.5]),
        (lambda x: x.clamp(torch.tensor([1.0]), torch.tensor([1.0])), [0.5]),
        (lambda x: x.clamp(max=0.5), [0.25]),
        (lambda x: x.clamp(min=-9.0, max=9.0), []),
        (lambda x: x.clamp(min=0.0, max=2.0), []),  # touches both knots at the ends
        (lambda x: x.clamp(min=torch.tensor([0.5])), [0.25]),
        (lambda x: x.clamp(min=-torch.inf, max=0.5), [0.25]),
        (lambda x: F.relu6(4 * x - 1), [0.125, 0.875]),
        (lambda x: F.hardtanh(x - 1, -0.5, 0.5), [0.25, 0.75]),
        (lambda x: F.hardsigmoid(8 * x - 8), [0.3125, 0.6875]),
        (lambda x: F.softshrink(x - 1, 0.5), [0.25, 0.75]),
        (lambda x: F.softshrink(x - 1, 0.0), [0.5]),
        (lambda x: F.threshold(x, 0.5, 0.5), [0.25]),
        (lambda x: (x - 1).abs(), [0.5]),
        (lambda x: torch.where(x > 1, x, 2 * x - 1), [0.5]),
        (lambda x: (x - 1) * (x > 1), [0.5]),
        (lambda x: (x - 1) * torch.sign(x - 1), [0.5]),
        (lambda x: torch.minimum(x, torch.tensor(0.5)), [0.25]),
        (lambda x: torch.maximum(x, 2 - x), [0.5]),
    ],
)
@pytest.mark.every(10)
def test_clamps_and_similar_functions_break_at_their_knots(function, truth):
    line = restrict_and_verify(Function(function), [0.0], [2.0])
    assert breaks(line)[1:-1] == truth


def test_clamps_with_tensor_bounds_for_each_unit():
    low, high = torch.tensor([-1.0, 0.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 3.0])
    line = restrict_and_verify(Function(lambda x: x.clamp(low, high)), torch.full((4,), -2.0), torch.full((4,), 4.0))
    assert len(line) > 3


@pytest.mark.parametrize(
    "module",
    [
        nn.Hardshrink(),
        nn.Threshold(0.5, 0.0),
        nn.Hardswish(),
        nn.GELU(),
        nn.SiLU(),
        nn.Softplus(),
        nn.ELU(),
        nn.LayerNorm(3),
        nn.LogSigmoid(),
        Function(torch.sign),
        Function(torch.round),
        Function(torch.floor),
        Function(torch.ceil),
        Function(torch.trunc),
        Function(lambda x: torch.heaviside(x, torch.tensor(0.5))),
        Function(lambda x: (x > 0).to(x.dtype)),
        Function(lambda x: torch.where(x > 0, x, x - 1)),
        Function(lambda x: x * x),
        Function(lambda x: x**2),
        Function(lambda x: x[:, :1] * x[:, 1:]),
        Function(lambda x: x / x.sum(1, keepdim=True)),
        Function(lambda x: torch.softmax(x, 1) * 2),
        Function(lambda x: torch.sigmoid(x) + x),
        Function(lambda x: x.norm(dim=1)),
        Function(lambda x: x.prod(1)),
        Function(lambda x: x.std(1)),
        Function(lambda x: x % 1),
        Function(lambda x: x // 1),
        Function(lambda x: torch.where(x[:, :1] > 0, x[:, 1:], 0.0)),
        Function(torch.exp),
    ],
    ids=[
        "hardshrink",
        "threshold",
        "hardswish",
        "gelu",
        "silu",
        "softplus",
        "elu",
        "layernorm",
        "logsigmoid",
        "sign",
        "round",
        "floor",
        "ceil",
        "trunc",
        "heaviside",
        "indicator",
        "jump",
        "square",
        "power",
        "product",
        "ratio",
        "softmax_used",
        "sigmoid_used",
        "norm",
        "prod",
        "std",
        "modulo",
        "floordiv",
        "where_other",
        "exp",
    ],
)
@pytest.mark.every(9)
def test_discontinuous_and_curved_operators_are_refused_by_node(module):
    model = nn.Sequential(nn.Linear(3, 3), module, nn.Identity())
    before = copy.deepcopy(model.state_dict())
    error = assert_refused(xl.UnsupportedError, xl.restrict, model, torch.zeros(3), torch.ones(3))
    assert error.nodes
    assert all("1" in node for node in error.nodes)  # the module's path
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


def test_all_unsupported_nodes_are_listed_at_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.Hardswish(), nn.LayerNorm(3))
    error = assert_refused(xl.UnsupportedError, xl.restrict, model, torch.zeros(3), torch.ones(3))
    assert len(error.nodes) == 3
    assert [node.split(":")[0] for node in error.nodes] == ["1", "3", "4"]


def test_attention_is_refused():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert_refused(xl.UnsupportedError, xl.restrict, layer, torch.zeros(3, 8), torch.ones(3, 8))


@pytest.mark.parametrize(
    "tail", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid(), nn.Tanh()], ids=lambda m: type(m).__name__
)
@pytest.mark.every(3)
def test_a_smooth_last_operator_becomes_the_tail(tail):
    model = nn.Sequential(*mlp(3, 8, 4), tail).eval()
    line = restrict_and_verify(model, torch.randn(3) * 3, torch.randn(3) * 3)
    bare = xl.restrict(model[:-1], line.points[0], line.points[-1])
    assert_same_line(line, bare)


def test_a_softmax_over_the_batch_is_refused():
    assert_refused(xl.UnsupportedError, xl.restrict, nn.Softmax(0), torch.zeros(3), torch.ones(3))


def test_average_pools_count_padding_as_torch_does():
    for pool in (
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(2, padding=1, count_include_pad=False),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AdaptiveAvgPool2d((2, 3)),
    ):
        restrict_and_verify(nn.Sequential(pool, nn.ReLU()), torch.randn(1, 5, 5), torch.randn(1, 5, 5))


def test_upsampling_is_affine():
    for up in (nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear")):
        restrict_and_verify(nn.Sequential(up, nn.ReLU()), torch.randn(1, 3, 3), torch.randn(1, 3, 3))


def test_registered_pointwise_functions_must_be_continuous_and_piecewise_linear():
    dead_zone = xl.register_pointwise(lambda x: torch.relu(x - 1) - torch.relu(-x - 1), knots=[-1, 1])
    restrict_and_verify(Function(dead_zone), [-3.0, 0.5], [3.0, 2.0])
    assert_refused(xl.ArgumentError, xl.register_pointwise, torch.sign, knots=[0])
    assert_refused(xl.ArgumentError, xl.register_pointwise, torch.relu, knots=[1])
    assert_refused(xl.ArgumentError, xl.register_pointwise, torch.square, knots=[0])
    assert_refused(xl.ArgumentError, xl.register_pointwise, torch.relu, knots=[])
    assert_refused(xl.ArgumentError, xl.register_pointwise, torch.relu, knots=[float("nan")])
    assert_refused(xl.ArgumentError, xl.register_pointwise, lambda x: x.sum(), knots=[0])
