"""The oracle against truths known on paper, and against definitions spelt out by brute force."""

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
INSIDE = (F_(1, 10**9), F_(1, 3), F_(1, 2), F_(7, 11), 1 - F_(1, 10**9))  # places inside a piece


@pytest.fixture(params=["flint", "plain"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply whole numbers, however small the matrix."""
    if request.param == "flint":
        pytest.importorskip("flint")
        monkeypatch.setattr(integers, "SMALL", 0)
    else:
        monkeypatch.setattr(integers, "flint", None)
    return request.param


def points(*ends: list[float]) -> list[Tensor]:
    return [torch.tensor(end, dtype=torch.float64) for end in ends]


# truths known on paper


def test_the_loan_example_breaks_at_exact_thirds_when_its_weights_are_whole(arithmetic):
    loan = chain((2,), linear([[-17.0, 10.0], [20.0, -13.0]], [30.0, 30.0]), relu())
    line = exact.restrict(loan, [20.0, 30.0], [30.0, 50.0])
    assert line.alphas == [0, F_(1, 3), F_(2, 3), 1]
    assert line.values == [[0, 40], [0, 20], [10, 0], [20, 0]]
    assert line.born == [None, exact.Born("relu_1", 0, 1), exact.Born("relu_1", 1, 1), None]
    assert line.form(1) == [(-10, 30), (40, -60)]


def test_the_loan_example_with_float_weights_is_exact_about_what_the_floats_are(arithmetic):
    loan = chain((2,), linear([[-1.7, 1.0], [2.0, -1.3]], [3.0, 3.0]), relu())
    line = exact.restrict(loan, [20.0, 30.0], [30.0, 50.0])
    first = (30 - F_(1.7) * 20 + 3) / (F_(1.7) * 10 - 20)
    assert line.alphas[1] == first != F_(1, 3)
    # 1.7 is off by at most half an ulp, 2^-53, and the break moves by (20 + 10/3) / 3 times that
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


def test_relu_fused_with_a_maximum_has_zero_as_one_more_rival():
    line = exact.restrict(window(2, floor=True), [1.0, -1.0], [-3.0, 1.0])
    assert line.alphas == [0, F_(1, 4), F_(1, 2), 1]
    assert line.values == [[1], [0], [0], [1]]
    assert [int(line.pattern(k)[1]) for k in range(3)] == [0, 2, 1]


def test_identical_lines_never_change_the_lead_and_the_first_index_has_it():
    line = exact.restrict(window(4), [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.born[1] == exact.Born("max_0", 0, 1)
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
    born = line.born[1]
    assert born is not None
    assert (born.node, born.unit) == ("relu_1", 0)
    assert born.count >= widths[1]


def test_a_touched_knot_adds_no_break():
    # |x| leaves zero at a break that exists, and its ReLU touches zero there
    line = exact.restrict(chain((1,), absolute(), relu()), [-1.0], [1.0])
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.born[1] == exact.Born("abs_0", 0, 1)


def test_a_unit_that_changes_nothing_still_breaks():
    assert exact.restrict(chain((1,), leaky_relu(1.0)), [-1.0], [3.0]).alphas == [0, F_(1, 4), 1]


def test_births_count_the_crossings_of_later_nodes_too():
    net = chain((2,), relu(), linear([[1.0, 0.0], [0.0, 1.0]], [0.0, -0.0]), linear([[1.0, -1.0]], [0.0]), relu())
    line = exact.restrict(net, [-1.0, 1.0], [1.0, -1.0])
    # both inputs cross at 1/2, and so does the difference of what they leave
    assert line.alphas == [0, F_(1, 2), 1]
    assert line.born[1] == exact.Born("relu_0", 0, 3)


def test_a_unit_on_its_knot_along_a_piece_takes_the_conventional_branch():
    net = chain((3,), linear(torch.eye(3), torch.zeros(3)), absolute())
    pattern = exact.restrict(net, [0.0, -1.0, 1.0], [0.0, -2.0, 2.0]).pattern(0)[2]
    assert pattern.tolist() == [[2, 0, 1]]  # abs has a flat branch of its own
    pattern = exact.restrict(chain((2,), relu()), [0.0, 0.0], [0.0, 1.0]).pattern(0)[1]
    assert pattern.tolist() == [[0, 1]]  # zero throughout is off, zero then positive is on


@pytest.mark.parametrize("op", [clamp(-1.0, 2.0), hardsigmoid(), clamp(torch.tensor([[0.5]]), torch.tensor([[0.5]]))])
@pytest.mark.parametrize("ends", [([-4.0], [4.0]), ([4.0], [-4.0])])
def test_several_knots_are_met_in_either_direction(op, ends):
    line = exact.restrict(chain((1,), op), *ends)
    knots = sorted({F_(float(k)) for k in op.knots})
    meets = [(k - F_(ends[0][0])) / (F_(ends[1][0]) - F_(ends[0][0])) for k in knots]
    assert line.alphas == [0, *sorted(meets), 1]
    for alpha in line.alphas:
        x = ends[0][0] + float(alpha) * (ends[1][0] - ends[0][0])
        assert float(line.value(alpha)[0]) == float(op.evaluate(torch.tensor([[x]], dtype=torch.float64)))
    assert all(born is not None and born.count == 1 for born in line.born[1:-1])


# definitions by brute force


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("whole", [True, False])
def test_breaks_agree_with_the_papers_recursion(seed, whole, arithmetic):
    torch.manual_seed(seed)
    network = mlp([3, 6, 6, 6, 2], whole=whole)
    Q, R = torch.randn(2, 3, dtype=torch.float64) * 3
    if whole:
        Q, R = Q.round(), R.round()
    assert exact.restrict(network, Q, R).alphas == paper_breaks(network, Q, R)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("whole", [True, False])
def test_no_unit_changes_sign_inside_a_piece_and_values_are_collinear(seed, whole):
    torch.manual_seed(seed)
    network = mlp([3, 6, 6, 2], whole=whole)
    Q, R = torch.randn(2, 3, dtype=torch.float64).mul(3).round()
    line = exact.restrict(network, Q, R)
    patterns = []
    for k, (lo, hi) in enumerate(pairwise(line.alphas)):
        found = {alpha: activations(network, Q, R, alpha) for alpha in (lo + w * (hi - lo) for w in INSIDE)}
        for alpha, values in found.items():
            assert values[-1] == line.value(alpha) == [p + q * alpha for p, q in line.form(k)]
        signs = {tuple((z > 0) - (z < 0) for layer in values[:-1] for z in layer) for values in found.values()}
        assert len(signs) == 1  # equal near both ends, hence in between: a pattern's region is convex
        patterns.append(signs.pop())
    for k, (left, right) in enumerate(pairwise(patterns), start=1):
        born = line.born[k]
        assert born is not None
        assert born.count == sum(a * b < 0 for a, b in zip(left, right, strict=True)) > 0


def envelope(starts: list[int], stops: list[int], floor: bool) -> list[Fraction]:
    """Where the steepest of the largest lines changes, by looking just left and right of all meetings."""
    lines = {(F_(a), F_(b - a)) for a, b in zip(starts, stops, strict=True)} | ({(F_(0), F_(0))} if floor else set())
    meets = {(a[0] - b[0]) / (b[1] - a[1]) for a, b in combinations(lines, 2) if a[1] != b[1]}
    step = F_(1, 10**6)

    def lead(alpha: Fraction) -> tuple[Fraction, Fraction]:
        return max(lines, key=lambda line: line[0] + line[1] * alpha)

    return [0, *(m for m in sorted(meets) if 0 < m < 1 and lead(m - step) != lead(m + step)), 1]


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_small_windows_agree_with_brute_force(seed, floor):
    torch.manual_seed(seed)
    Q, R = torch.randint(-4, 5, (2, 5)).tolist()
    assert exact.restrict(window(5, floor=floor), Q, R).alphas == envelope(Q, R, floor)


def swaps(starts: list[int], stops: list[int], ranks: list[int]) -> list[Fraction]:
    """Where the line at one of the ranks changes, by sorting just left and right of all meetings."""
    lines = [(F_(a), F_(b - a)) for a, b in zip(starts, stops, strict=True)]
    meets = {(a[0] - b[0]) / (b[1] - a[1]) for a, b in combinations(lines, 2) if a[1] != b[1]}
    step = F_(1, 10**6)

    def standing(alpha: Fraction) -> list[tuple[Fraction, Fraction]]:
        order = sorted(lines, key=lambda line: line[0] + line[1] * alpha, reverse=True)
        return [order[rank] for rank in ranks]

    return [0, *(m for m in sorted(meets) if 0 < m < 1 and standing(m - step) != standing(m + step)), 1]


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3, 4], [2], [0, 1], [4]], ids=["sort", "median", "topk", "smallest"])
@pytest.mark.parametrize("seed", range(20))
def test_order_statistics_agree_with_brute_force(seed, ranks):
    torch.manual_seed(seed)
    Q, R = torch.randint(-4, 5, (2, 5)).tolist()
    line = exact.restrict(ranked(5, ranks), Q, R)
    assert line.alphas == swaps(Q, R, ranks)
    for k in range(257):  # exact in float64: torch itself is the judge
        x = torch.tensor([[a + k / 256 * (b - a) for a, b in zip(Q, R, strict=True)]], dtype=torch.float64)
        assert [float(v) for v in line.value(k / 256)] == x.sort(descending=True).values[0, ranks].tolist()


def test_a_median_stays_where_two_lines_pass_it_at_once():
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
def test_branches_are_those_the_operator_itself_takes(op):
    network = chain((6,), op)
    for _ in range(40):
        Q, R = torch.randint(-4, 5, (2, 6)).double()
        line = exact.restrict(network, Q, R)
        for k, (lo, hi) in enumerate(pairwise(line.alphas)):
            if {lo.denominator, hi.denominator} <= {1, 2, 4, 8}:  # then floats are exact
                before, after = (Q + float(alpha) * (R - Q) for alpha in (lo, hi))
                assert torch.equal(line.pattern(k)[1], op.activation_pattern(before[None], after[None]))


# every affine operator


def test_affine_operators_in_rationals_agree_with_torch_where_floats_are_exact(arithmetic):
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
    Q, R = torch.randint(-4, 5, (2, 2, 4, 4)).double()
    line = exact.restrict(network, Q, R)
    assert len(line) > 5
    for k in range(65):
        x = Q + k / 64 * (R - Q)
        assert [float(v) for v in line.value(k / 64)] == network(x[None]).flatten().tolist()  # pyright: ignore


def test_thirds_are_thirds():
    net = chain((3,), Average(lambda x: x.mean(1, keepdim=True), 3), Scale(None, torch.tensor(7.0), None), relu())
    line = exact.restrict(net, [-1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    assert line.alphas == [0, F_(1, 4), 1]
    assert line.values == [[0], [0], [F_(1, 7)]]


def test_branches_of_several_inputs_meet_and_several_outputs_leave():
    nodes = (
        Node("a", Input(), (), (2,)),
        Node("b", Input(), (), (1,)),
        Node("relu", relu(), (0,), (2,)),
        Node("sub", Combine((1.0, -0.5)), (2, 1), (2,)),  # b is broadcast
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
    assert line.rounded(output=1).shape == (5, 2)


def test_a_module_is_captured_and_its_relu_fused_with_its_pool():
    model = nn.Sequential(nn.ReLU(), nn.MaxPool1d(2)).eval()
    Q, R = torch.tensor([[1.0, -1.0]]), torch.tensor([[-3.0, 1.0]])
    assert exact.restrict(model, Q, R).alphas == [0, F_(1, 4), F_(1, 2), 1]
    assert len(exact.restrict(model, Q, R, rewrite=False)) == 3


def test_both_arithmetics_agree_to_the_last_digit(monkeypatch):
    pytest.importorskip("flint")
    network = mlp([4, 8, 8, 3], dtype=torch.float32)
    Q, R = torch.randn(2, 4) * 3
    monkeypatch.setattr(integers, "SMALL", 0)
    fast = exact.restrict(network, Q, R)
    monkeypatch.setattr(integers, "flint", None)
    plain = exact.restrict(network, Q, R)
    assert len(fast) > 3
    assert (fast.alphas, fast.values, fast.born) == (plain.alphas, plain.values, plain.born)


def test_the_oracle_is_independent_of_the_sweep():
    for file in Path(exact.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any("sweep" in (module or "") for module in modules), file.name


# numbers and refusals


def test_huge_tiny_and_subnormal_numbers_are_read_as_they_are():
    numbers = [5e-324, -2.5, 1.7976931348623157e308, 0.0, -0.0, 3.0, 2.0**-1022, 0.1]
    read = integers.read(torch.tensor(numbers, dtype=torch.float64))
    assert read.fractions == [F_(number) for number in numbers]
    line = exact.restrict(chain((1,), relu()), [-1.7976931348623157e308], [5e-324])
    assert 1 - F_(1, 10**600) < line.alphas[1] < 1


def test_a_line_of_no_length_is_one_piece():
    line = exact.restrict(mlp([3, 5, 2]), [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert len(line) == 1
    assert line.values[0] == line.values[1]


@pytest.mark.parametrize(
    ("Q", "R"),
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
def test_ends_that_make_no_line_are_refused(Q, R):
    with pytest.raises(LineError):
        exact.restrict(chain((2,), relu()), Q, R)


def test_what_cannot_be_exact_is_refused():
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
