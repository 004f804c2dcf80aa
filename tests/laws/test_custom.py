"""A user's own elementwise function obeys the laws, or is not taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from tests.oracle.compare import mismatch

from .rounding import error_bound
from .sample import Function, halves

Call = Callable[[Tensor], Tensor]


def dead_zone(x: Tensor) -> Tensor:
    return torch.relu(x - 1) - torch.relu(-x - 1)


def saw(x: Tensor) -> Tensor:
    """Slopes 1, -2, 0.5 and 3, with knots at -1.5, 0.25 and 2."""
    return x - 3 * torch.relu(x + 1.5) + 2.5 * torch.relu(x - 0.25) + 2.5 * torch.relu(x - 2)


def steps(x: Tensor) -> Tensor:
    """Knots that have no end in binary."""
    return torch.relu(x + 0.3) - 2 * torch.relu(x - 0.1)


KNOTS: dict[Call, list[float]] = {dead_zone: [-1, 1], saw: [-1.5, 0.25, 2], steps: [-0.3, 0.1]}


@pytest.fixture(scope="module")
def registered() -> dict[Call, Call]:
    """Each function as models may call it."""
    return {function: xl.register_pointwise(function, knots) for function, knots in KNOTS.items()}


def _between_layers(function: Call) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), Function(function, ()), nn.Linear(4, 3), Function(function, ()))
    with torch.no_grad():
        for i, weight in enumerate(model.parameters()):
            weight.copy_(halves(*weight.shape, seed=i))
    return model.eval()


def _line(seed: int) -> tuple[Tensor, Tensor]:
    q, r = 2 * torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return q, r


@pytest.mark.parametrize("function", KNOTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(4)
def test_breaks_match_the_oracle_and_values_the_function_itself(function, seed, registered):
    model, (q, r) = _between_layers(registered[function]), _line(seed)
    line, exact = xl.restrict(model, q, r), xl.exact.restrict(model, q, r)
    assert mismatch(line.alphas, exact) is None
    alphas = torch.linspace(0, 1, 101, dtype=torch.float64)
    with torch.no_grad():
        values = _between_layers(function).double()(torch.lerp(q, r, alphas[:, None]))
    bound = error_bound(line.network, [(q, r)])[0]
    assert ((line.at(alphas) - values).abs() <= 4 * bound).all()


@pytest.mark.parametrize("function", [dead_zone, saw], ids=lambda f: f.__name__)
def test_ties_make_neither_more_breaks_nor_fewer(function, registered):
    model, generator = _between_layers(registered[function]), torch.Generator().manual_seed(0)
    for _ in range(10):
        q, r = torch.randint(-3, 4, (2, 3), generator=generator).double()
        line, exact = xl.restrict(model, q, r), xl.exact.restrict(model, q, r)
        assert len(line.alphas) == len(exact.alphas)
        assert mismatch(line.alphas, exact) is None


def test_gradients_flow_through_it(registered):
    model, (q, r) = _between_layers(registered[saw]).double(), _line(9)
    line = xl.restrict(model, q, r)
    middles = (line.alphas[1:] + line.alphas[:-1]) / 2
    x = torch.lerp(q, r, middles[:, None]).requires_grad_()
    rows = [torch.autograd.grad(c, x, retain_graph=True)[0] for c in model(x).sum(0)]
    for i in range(len(line)):
        matrix, _ = line.piece(i).affine()
        assert ((torch.stack(rows, 1)[i] - matrix).abs() <= 1e-9 * matrix.abs().max()).all()


@pytest.mark.parametrize("width", [0.1, 0.4, 3.0])
def test_a_function_that_levels_off_by_a_difference_is_taken(width):
    # far out it is a difference of huge numbers, whose rounding is no bend
    ramp = xl.register_pointwise(lambda x: torch.relu(x - 0.3) - torch.relu(x - 0.3 - width), [0.3, 0.3 + width])
    assert len(xl.restrict(ramp, [-10.0], [10.0])) == 3


@pytest.mark.parametrize("height", [1.0, -1e-3, 1e-6])
@pytest.mark.parametrize("knots", [[0.0], [-2.0, 0.0, 5.0]], ids=str)
def test_a_function_that_jumps_at_a_knot_is_not_taken(height, knots):
    with pytest.raises(xl.ArgumentError, match="jumps"):
        xl.register_pointwise(lambda x: torch.where(x > 0, x + height, x), knots)


@pytest.mark.parametrize("at", [-1000.0, -3.0, -0.25, 0.5, 7.0, 50.0, 20000.0])
def test_a_function_with_a_knot_that_is_not_named_is_not_taken(at):
    with pytest.raises(xl.ArgumentError, match="bends"):
        xl.register_pointwise(lambda x: torch.relu(x) - torch.relu(x + 1) + torch.relu(x - at), [-1.0, 0.0])


@pytest.mark.parametrize(
    ("function", "knots"),
    [
        (torch.tanh, [0.0]),
        (torch.square, [-1.0, 0.0, 1.0]),
        (lambda x: x.sum().expand_as(x), [0.0]),
        (lambda x: x[:1], [0.0]),
        (lambda x: 1 / torch.relu(x), [0.0]),
        (torch.relu, []),
        (torch.relu, [float("nan")]),
        (torch.relu, [0.0, float("inf")]),
    ],
    ids=["smooth", "quadratic", "not elementwise", "another shape", "not finite", "no knots", "nan", "infinite"],
)
def test_what_is_no_piecewise_linear_function_of_each_element_is_not_taken(function, knots):
    with pytest.raises(xl.ArgumentError):
        xl.register_pointwise(function, knots)
