"""The rational oracle against known answers, and against the definitions by brute force."""

from __future__ import annotations

import ast
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exactline import exact
from exactline.errors import LineError, NumberError
from exactline.exact import integers
from exactline.network.graph import Network, Node
from exactline.ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from exactline.ops.base import Input
from exactline.ops.functions import absolute, clamp, hardsigmoid, leaky_relu, prelu, relu
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order

from .networks import activations, chain, linear, mlp, paper_breaks, ranked, tent, window

F_ = Fraction
INSIDE = (F_(1, 10**9), F_(1, 3), F_(1, 2), F_(7, 11), 1 - F_(1, 10**9))  # relative positions inside a piece


@pytest.fixture(params=["flint", "plain"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply integer matrices, also small ones."""
    if request.param == "flint":
        pytest.importorskip("flint")
        monkeypatch.setattr(integers, "MAX_PYTHON_ENTRIES", 0)
    else:
        monkeypatch.setattr(integers, "flint", None)
    return request.param


def points(*ends: list[float]) -> list[Tensor]:
    return [torch.tensor(end, dtype=torch.float64) for end in ends]


# known answers


def test_the_loan_example_with_integer_weights_breaks_at_exact_thirds(arithmetic):
    loan = chain((2,), linear([[-17.0, 10.0], [20.0, -13.0]], [30.0, 30.0]), relu())
    line = exact.restrict(loan, [20.0, 30.0], [30.0, 50.0])
    assert line.alphas == [0, F_(1, 3), F_(2, 3), 1]
    assert line.values == [[0, 40], [0, 20], [10, 0], [20, 0]]
    assert line.origins == [None, exact.ExactOrigin("relu_1", 0, 1), exact.ExactOrigin("relu_1", 1, 1), None]
    assert line.affine_form(1) == [(-10, 30), (40, -60)]


def test_the_loan_example_with_float_weights_is_exact_for_the_floats_themselves(arithmetic):
    loan = chain((2,), linear([[-1.7, 1.0], [2.0, -1.3]], [3.0, 3.0]), relu())
    line = exact.restrict(loan, [20.0, 30.0], [30.0, 50.0])
    first = (30 - F_(1.7) * 20 + 3) / (F_(1.7) * 10 - 20)
    assert line.alphas[1] == first != F_(1, 3)
    # 1.7 has an error of at most half an ulp, 2^-53, and the break moves by (20 + 10/3) / 3 times that
    assert abs(first - F_(1, 3)) < F_(8, 2**53)


@pytest.mark.parametrize("depth", range(1, 8))
def test_a_tent_map_has_two_to_the_depth_pieces(depth, arithmetic):
    line = exact.restrict(tent(depth), [0.0], [1.0])
    assert line.alphas == [F_(k, 2**depth) for k in range(2**depth + 1)]
    assert line.values == [[k % 2] for k in range(2**depth + 1)]


def test_a_tie_in_a_maximum_goes_to_the_steepest_line():
    line = exact.restrict(window(3), [0.0, 0.0, -1.0], [1.0, 2.0, 3.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.values == [[0], [1], [3]]


def test_a_minimum_mirrors_a_maximum():
    line = exact.restrict(window(3, sign=-1), [0.0, 0.0, 1.0], [-1.0, -2.0, -3.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.values == [[0], [-1], [-3]]


def test_relu_fused_with_a_maximum_has_zero_as_one_more_element():
    line = exact.restrict(window(2, floor=True), [1.0, -1.0], [-3.0, 1.0])
    assert line.alphas == [0, F_(1, 4), F_(1, 2), 1]
    assert line.values == [[1], [0], [0], [1]]
    assert [int(line.pattern(k)[1]) for k in range(3)] == [0, 2, 1]


def test_among_identical_lines_the_first_leads():
    line = exact.restrict(window(4), [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.origins[1] == exact.ExactOrigin("max_0", 0, 1)
    assert [int(line.pattern(k)[1]) for k in range(2)] == [0, 2]


@pytest.mark.parametrize("widths", [[3, 8, 4], [5, 16, 16, 16, 2]])
def test_a_network_without_biases_breaks_once_on_a_line_through_the_origin(widths, arithmetic):
    network = mlp(widths)
    for node in network.nodes:
        if isinstance(node.op, Product) and node.op.offset is not None:
            node.op.offset.zero_()
    x = torch.randn(widths[0], dtype=torch.float64)
    line = exact.restrict(network, -x, 2 * x)
    assert line.alphas == [0, F_(1, 3), 1]
    origin = line.origins[1]
    assert origin is not None
    assert (origin.node, origin.unit) == ("relu_1", 0)
    assert origin.count >= widths[1]


def test_a_touched_knot_adds_no_break():
    # |x| breaks where it is zero, and the ReLU after it touches zero there
    line = exact.restrict(chain((1,), absolute(), relu()), [-1.0], [1.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.origins[1] == exact.ExactOrigin("abs_0", 0, 1)


def test_a_unit_with_equal_slopes_still_breaks():
    assert exact.restrict(chain((1,), leaky_relu(1.0)), [-1.0], [3.0]).alphas == [0, F_(1, 4), 1]


def test_an_origin_counts_the_crossings_of_later_nodes_too():
    net = chain((2,), relu(), linear([[1.0, 0.0], [0.0, 1.0]], [0.0, -0.0]), linear([[1.0, -1.0]], [0.0]), relu())
    line = exact.restrict(net, [-1.0, 1.0], [1.0, -1.0])
    # both inputs cross at 1/2, and so does the difference of their ReLUs
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.origins[1] == exact.ExactOrigin("relu_0", 0, 3)


def test_a_unit_on_its_knot_along_a_whole_piece_takes_the_conventional_branch():
    net = chain((3,), linear(torch.eye(3), torch.zeros(3)), absolute())
    pattern = exact.restrict(net, [0.0, -1.0, 1.0], [0.0, -2.0, 2.0]).pattern(0)[2]
    assert pattern.tolist() == [[2, 0, 1]]  # abs has a branch for zero along the whole piece
    pattern = exact.restrict(chain((2,), relu()), [0.0, 0.0], [0.0, 1.0]).pattern(0)[1]
    assert pattern.tolist() == [[0, 1]]  # zero along the whole piece is inactive, zero then positive is active


@pytest.mark.parametrize("op", [clamp(-1.0, 2.0), hardsigmoid(), clamp(torch.tensor([[0.5]]), torch.tensor([[0.5]]))])
@pytest.mark.parametrize("ends", [([-4.0], [4.0]), ([4.0], [-4.0])])
def test_several_knots_are_crossed_in_either_direction(op, ends):
    line = exact.restrict(chain((1,), op), *ends)
    knots = sorted({F_(float(k)) for k in op.knots})
    crossings = [(k - F_(ends[0][0])) / (F_(ends[1][0]) - F_(ends[0][0])) for k in knots]
    assert line.alphas == [0, *sorted(crossings), 1]
    for alpha in line.alphas:
        x = ends[0][0] + float(alpha) * (ends[1][0] - ends[0][0])
        assert float(line.value(alpha)[0]) == float(op.evaluate(torch.tensor([[x]], dtype=torch.float64)))
    assert all(origin is not None and origin.count == 1 for origin in line.origins[1:-1])


# definitions by brute force


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("integer_weights", [True, False])
@pytest.mark.every(2)
def test_breaks_agree_with_the_recursion_of_the_paper(seed, integer_weights, arithmetic):
    torch.manual_seed(seed)
    network = mlp([3, 6, 6, 6, 2], integer_weights=integer_weights)
    start, end = torch.randn(2, 3, dtype=torch.float64) * 3
    if integer_weights:
        start, end = start.round(), end.round()
    assert exact.restrict(network, start, end).alphas == paper_breaks(network, start, end)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("integer_weights", [True, False])
def test_no_unit_changes_sign_inside_a_piece_and_values_are_collinear(seed, integer_weights):
    torch.manual_seed(seed)
    network = mlp([3, 6, 6, 2], integer_weights=integer_weights)
    start, end = torch.randn(2, 3, dtype=torch.float64).mul(3).round()
    line = exact.restrict(network, start, end)
    patterns = []
    for k, (low, high) in enumerate(pairwise(line.alphas)):
        inside = {alpha: activations(network, start, end, alpha) for alpha in (low + w * (high - low) for w in INSIDE)}
        for alpha, values in inside.items():
            assert values[-1] == line.value(alpha) == [p + q * alpha for p, q in line.affine_form(k)]
        signs = {tuple((z > 0) - (z < 0) for layer in values[:-1] for z in layer) for values in inside.values()}
        assert len(signs) == 1  # equal near both ends, hence in between: a linear region is convex
        patterns.append(signs.pop())
    for k, (left, right) in enumerate(pairwise(patterns), start=1):
        origin = line.origins[k]
        assert origin is not None
        assert origin.count == sum(a * b < 0 for a, b in zip(left, right, strict=True)) > 0


def envelope_breaks(starts: list[int], ends: list[int], floor: bool) -> list[Fraction]:
    """Where the largest line changes, by comparing both sides of every intersection of two lines."""
    lines = {(F_(a), F_(b - a)) for a, b in zip(starts, ends, strict=True)} | ({(F_(0), F_(0))} if floor else set())
    crossings = {(a[0] - b[0]) / (b[1] - a[1]) for a, b in combinations(lines, 2) if a[1] != b[1]}
    step = F_(1, 10**6)

    def leader(alpha: Fraction) -> tuple[Fraction, Fraction]:
        return max(lines, key=lambda line: line[0] + line[1] * alpha)

    return [0, *(c for c in sorted(crossings) if 0 < c < 1 and leader(c - step) != leader(c + step)), 1]


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_small_windows_agree_with_brute_force(seed, floor):
    torch.manual_seed(seed)
    start, end = torch.randint(-4, 5, (2, 5)).tolist()
    assert exact.restrict(window(5, floor=floor), start, end).alphas == envelope_breaks(start, end, floor)


def rank_breaks(starts: list[int], ends: list[int], ranks: list[int]) -> list[Fraction]:
    """Where the line at one of the ranks changes, by sorting on both sides of every intersection of two lines."""
    lines = [(F_(a), F_(b - a)) for a, b in zip(starts, ends, strict=True)]
    crossings = {(a[0] - b[0]) / (b[1] - a[1]) for a, b in combinations(lines, 2) if a[1] != b[1]}
    step = F_(1, 10**6)

    def ranked_lines(alpha: Fraction) -> list[tuple[Fraction, Fraction]]:
        order = sorted(lines, key=lambda line: line[0] + line[1] * alpha, reverse=True)
        return [order[rank] for rank in ranks]

    return [0, *(c for c in sorted(crossings) if 0 < c < 1 and ranked_lines(c - step) != ranked_lines(c + step)), 1]


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3, 4], [2], [0, 1], [4]], ids=["sort", "median", "topk", "smallest"])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.every(6)
def test_order_statistics_agree_with_brute_force(seed, ranks):
    torch.manual_seed(seed)
    start, end = torch.randint(-4, 5, (2, 5)).tolist()
    line = exact.restrict(ranked(5, ranks), start, end)
    assert line.alphas == rank_breaks(start, end, ranks)
    for k in range(257):  # exact in float64, so that torch's sort is the reference
        x = torch.tensor([[a + k / 256 * (b - a) for a, b in zip(start, end, strict=True)]], dtype=torch.float64)
        assert [float(v) for v in line.value(k / 256)] == x.sort(descending=True).values[0, ranks].tolist()


def test_a_median_that_two_lines_cross_at_once_does_not_break():
    line = exact.restrict(ranked(3, [1]), [-1.0, 0.0, 1.0], [1.0, 0.0, -1.0])
    assert line.alphas == [0, 1]
    assert exact.restrict(ranked(3, [0, 1, 2]), [-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]).alphas == [0, F_(1, 2), 1]


@pytest.mark.parametrize(
    "op",
    [
        relu(),
        leaky_relu(0.5),
        absolute(),
        clamp(-1.0, 1.0),
        Maximum(torch.arange(6).view(2, 3), (2,)),
        Maximum(torch.arange(6).view(2, 3), (2,), floor=True),
        Maximum(torch.arange(6).view(2, 3), (2,), sign=-1),
        Order(torch.arange(6).view(2, 3), torch.arange(3), (6,)),
    ],
    ids=lambda op: op.title,
)
def test_activation_patterns_are_those_of_the_float_operator(op):
    network = chain((6,), op)
    for _ in range(40):
        start, end = torch.randint(-4, 5, (2, 6)).double()
        line = exact.restrict(network, start, end)
        for k, (low, high) in enumerate(pairwise(line.alphas)):
            if {low.denominator, high.denominator} <= {1, 2, 4, 8}:  # then floats are exact
                before, after = (start + float(alpha) * (end - start) for alpha in (low, high))
                assert torch.equal(line.pattern(k)[1], op.activation_pattern(before[None], after[None]))


# every affine operator


def test_affine_operators_agree_with_torch_where_floats_are_exact(arithmetic):
    kernel = torch.randint(-3, 4, (4, 2, 3, 3)).double()
    ops = [
        Product(lambda x, w: F.conv2d(x, w, padding=1), kernel, torch.randint(-3, 4, (1, 4, 1, 1)).double(), "conv"),
        relu(),
        Maximum(torch.arange(64).view(16, 4), (4, 2, 2), floor=True),
        Scale(torch.tensor([[[0.5]], [[2.0]], [[-1.0]], [[3.0]]]).double(), torch.tensor(4.0), torch.ones(1, 1, 2)),
        Average(lambda x: F.avg_pool2d(x, 2), 4),
        Reshape((4,)),
        prelu(torch.tensor([[0.25, 0.5, -1.0, 2.0]])),
        Rearrange(torch.tensor([3, 3, -1, 0, 1]), torch.tensor([9.0, 9.0, 0.375, 9.0, 9.0]), (5,)),
    ]
    network = chain((2, 4, 4), *ops)
    start, end = torch.randint(-4, 5, (2, 2, 4, 4)).double()
    line = exact.restrict(network, start, end)
    assert len(line) > 5
    for k in range(65):
        x = start + k / 64 * (end - start)
        assert [float(v) for v in line.value(k / 64)] == network(x[None]).flatten().tolist()  # pyright: ignore


def test_the_coefficients_of_an_average_are_exact_fractions():
    net = chain((3,), Average(lambda x: x.mean(1, keepdim=True), 3), Scale(None, torch.tensor(7.0), None), relu())
    line = exact.restrict(net, [-1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    assert line.alphas == [0, F_(1, 4), 1]
    assert line.values == [[0], [0], [F_(1, 7)]]


def test_a_network_of_several_inputs_and_outputs():
    nodes = (
        Node("a", Input(), (), (2,)),
        Node("b", Input(), (), (1,)),
        Node("relu", relu(), (0,), (2,)),
        Node("sub", Combine((1.0, -0.5)), (2, 1), (2,)),  # broadcasts b
        Node("abs", absolute(), (3,), (2,)),
        Node("dead", leaky_relu(0.5), (1,), (1,)),  # crosses zero, but no output needs it
    )
    network = Network(nodes, (4, 2), (None, None), several_inputs=True, several_outputs=True)
    line = exact.restrict(network, (points([-1.0, 4.0])[0], [-3.0]), (points([1.0, 0.0])[0], [5.0]))
    assert line.shapes == ((2,), (2,))
    # a0 at 1/2; relu(a0) - b/2 at 3/8, and a1 - b/2 = 5.5 - 8 alpha at 11/16
    assert line.alphas == [0, F_(3, 8), F_(1, 2), F_(11, 16), 1]
    assert line.value(0.75) == [1, F_(1, 2)]
    assert line.value(0.75, output=1) == [F_(1, 2), 1]
    assert line.round_values(output=1).shape == (5, 2)


def test_a_module_is_captured_and_its_relu_fused_with_its_pool():
    model = nn.Sequential(nn.ReLU(), nn.MaxPool1d(2)).eval()
    start, end = torch.tensor([[1.0, -1.0]]), torch.tensor([[-3.0, 1.0]])
    assert exact.restrict(model, start, end).alphas == [0, F_(1, 4), F_(1, 2), 1]
    assert len(exact.restrict(model, start, end, rewrite=False)) == 3


def test_flint_and_python_integers_give_the_same_fractions(monkeypatch):
    pytest.importorskip("flint")
    network = mlp([4, 8, 8, 3], dtype=torch.float32)
    start, end = torch.randn(2, 4) * 3
    monkeypatch.setattr(integers, "MAX_PYTHON_ENTRIES", 0)
    flint = exact.restrict(network, start, end)
    monkeypatch.setattr(integers, "flint", None)
    python = exact.restrict(network, start, end)
    assert len(flint) > 3
    assert (flint.alphas, flint.values, flint.origins) == (python.alphas, python.values, python.origins)


def test_the_oracle_imports_no_engine():
    engines = ("sweep", "engines", "numerics", "results", "api")
    for file in Path(exact.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(part in engines for module in modules for part in (module or "").split(".")), file.name


# numbers and invalid arguments


def test_huge_tiny_and_subnormal_numbers_are_exact():
    numbers = [5e-324, -2.5, 1.7976931348623157e308, 0.0, -0.0, 3.0, 2.0**-1022, 0.1]
    rationals = integers.read_rationals(torch.tensor(numbers, dtype=torch.float64))
    assert rationals.fractions == [F_(number) for number in numbers]
    line = exact.restrict(chain((1,), relu()), [-1.7976931348623157e308], [5e-324])
    assert 1 - F_(1, 10**600) < line.alphas[1] < 1


def test_a_line_of_length_zero_is_one_piece():
    line = exact.restrict(mlp([3, 5, 2]), [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert len(line) == 1
    assert line.values[0] == line.values[1]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ([0.0, float("nan")], [1.0, 1.0]),
        ([0.0, 1.0], [float("inf"), 1.0]),
        ([0.0, 1.0], [0.0, 1.0, 2.0]),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 3.0]),
        ([[0.0, 1.0]], [[1.0, 1.0]]),
        (([0.0, 1.0], [1.0]), ([0.0, 1.0], [1.0])),
        (["a", "b"], [0.0, 1.0]),
        ([0.0, 1j], [0.0, 1.0]),
    ],
)
def test_invalid_ends_raise_an_error(start, end):
    with pytest.raises(LineError):
        exact.restrict(chain((2,), relu()), start, end)


def test_an_operator_that_cannot_be_exact_raises_an_error():
    sums = Product(lambda x, w: torch.einsum("bi,ij->b", x, w)[:, None], torch.rand(2, 3, dtype=torch.float64), None)
    with pytest.raises(NumberError, match="rounded"):
        exact.restrict(chain((2,), sums), [0.0, 1.0], [1.0, 0.0])
    with pytest.raises(NumberError, match="NaN"):
        exact.restrict(chain((1,), Scale(torch.tensor(float("nan")), None, None)), [0.0], [1.0])
    with pytest.raises(NumberError, match="small fraction"):
        exact.restrict(chain((1,), Average(lambda x: x * 2**-0.5, 1)), [0.0], [1.0])
    with pytest.raises(NumberError, match="divides by zero"):
        exact.restrict(chain((1,), Scale(None, torch.tensor(0.0), None)), [0.0], [1.0])


def test_a_layer_of_zeros_is_a_constant():
    layer = nn.Linear(2, 3)
    nn.init.zeros_(layer.weight)
    nn.init.ones_(layer.bias)
    line = exact.restrict(nn.Sequential(layer, nn.ReLU()), [0.0, 1.0], [1.0, 0.0])
    assert line.alphas == [0, 1]
    assert line.value(Fraction(1, 2)) == [1, 1, 1]
