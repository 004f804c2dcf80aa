"""Each piece has one affine map: the gradient is constant on it, and the map has the values of the module."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.zoo import tent_network
from tests.adversarial.truth import (
    Function,
    assert_refused,
    linear_layer,
    mlp,
    relu_network,
    restrict_and_verify,
    vector,
)
from tests.oracle.families import FAMILIES, Residual, seeded, small_integers

INNER_FRACTIONS = (0.25, 0.5, 0.8)


def values_and_jacobians(module: nn.Module, xs: Tensor) -> tuple[Tensor, Tensor]:
    """Values (k, *out) and Jacobians (k, *out, *in) of a float64 module at k points, by autograd."""
    xs = xs.clone().requires_grad_()
    outs = module(xs)
    columns = outs.flatten(1).unbind(1)
    rows = [torch.autograd.grad(c.sum(), xs, retain_graph=True, allow_unused=True)[0] for c in columns]
    filled = [torch.zeros_like(xs) if row is None else row for row in rows]
    return outs.detach(), torch.stack(filled, 1).view(*outs.shape, *xs.shape[1:])


def assert_one_map_per_piece(model: nn.Module, start: Tensor, end: Tensor, *, max_pieces: int = 25) -> int:
    """Compare unambiguous pieces with autograd at three inner points; returns how many were compared.

    Compares at most ``max_pieces`` pieces, spread evenly. Torch's own gradient of hardsigmoid cannot be compared: it
    has 1/6 in float32.
    """
    line = restrict_and_verify(model, start, end)
    double = copy.deepcopy(model).double().eval()
    start, end = start.double(), end.double()
    unambiguous = [i for i in range(len(line)) if line.ambiguous_per_piece[i] == 0 and line.piece(i).width > 1e-9]
    chosen = unambiguous[:: max(1, -(-len(unambiguous) // max_pieces))]
    for i in chosen:
        piece = line.piece(i)
        A, b = piece.affine()
        assert isinstance(A, Tensor)
        assert isinstance(b, Tensor)
        alphas = torch.tensor([piece.start + part * piece.width for part in INNER_FRACTIONS], dtype=torch.float64)
        xs = start + alphas.view(-1, *[1] * start.dim()) * (end - start)
        values, jacobians = values_and_jacobians(double, xs)
        matrix = A.flatten(b.dim()).flatten(0, b.dim() - 1)  # (out elements, in elements)
        for value, jacobian, x, alpha in zip(values, jacobians, xs, alphas, strict=True):
            assert torch.allclose(A, jacobian, rtol=1e-9, atol=1e-11 * float(A.abs().max())), (
                f"piece {i} of {len(line)}"
            )
            mapped = (matrix @ x.flatten()).view(b.shape) + b
            # rounding errors are relative to the terms of a sum, which may cancel
            scale = float(b.abs().max()) + float((matrix.abs() @ x.abs().flatten()).max())
            assert torch.allclose(mapped, value, rtol=0, atol=1e-12 * scale)
            assert torch.allclose(line.at(float(alpha)), value, rtol=0, atol=1e-12 * scale)
    return len(chosen)


@pytest.mark.parametrize("kind", sorted(FAMILIES))
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.every(18)
def test_the_gradient_is_constant_on_each_piece_of_random_networks(kind, seed):
    g = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[kind](g)
    start, end = (torch.randn(shape, generator=g, dtype=torch.float64) * 3 for _ in range(2))
    assert assert_one_map_per_piece(seeded(model, g), start, end) > 0


@pytest.mark.parametrize("kind", ["mlp", "residual", "mixed", "concat"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every(6)
def test_the_gradient_is_constant_on_each_piece_of_tied_networks(kind, seed):
    # between points that are not symmetric, units that stay at zero along a piece are ambiguous or exact
    g = torch.Generator().manual_seed(100 + seed)
    model, shape = FAMILIES[kind](g)
    model = small_integers(g, model)
    start, end = (torch.randn(shape, generator=g, dtype=torch.float64).mul(8).round() / 8 + 1 / 3 for _ in range(2))
    assert_one_map_per_piece(model, start, end)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 1, 1), nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.LeakyReLU(0.2), nn.AvgPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.Softshrink(0.1), nn.AdaptiveMaxPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU6(), nn.Flatten(), Function(lambda x: x.sort(1).values)),
        nn.Sequential(
            nn.Flatten(), nn.Linear(36, 12), nn.PReLU(12), Residual(nn.Sequential(nn.Linear(12, 12), nn.ReLU6()))
        ),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), Function(torch.abs), nn.Linear(8, 8), nn.Hardtanh(-0.3, 0.4)),
    ],
    ids=["max-relu", "relu-max", "norm", "shrink", "sort", "prelu-residual", "abs"],
)
@pytest.mark.every(3)
def test_the_gradient_is_constant_on_each_piece_of_image_networks(model):
    assert assert_one_map_per_piece(model.eval(), torch.randn(1, 6, 6) * 2, torch.randn(1, 6, 6) * 2, max_pieces=12) > 0


def test_the_gradient_is_constant_on_each_piece_of_a_deep_narrow_net():
    torch.manual_seed(4)
    assert assert_one_map_per_piece(mlp(3, *[8] * 12, 2), torch.randn(3) * 5, torch.randn(3) * 5) > 0


def test_the_gradient_changes_at_a_break_even_where_the_slope_along_the_line_does_not():
    # relu(x + y) - relu(y - x): where x crosses -y and y, the derivative with respect to y changes too
    model = relu_network(linear_layer([[1.0, 1.0], [-1.0, 1.0]]), linear_layer([[1.0, -1.0]]))
    line = restrict_and_verify(model, [-1.0, 0.5], [1.0, 0.5])
    assert len(line) == 3
    maps = [line.piece(i).affine()[0].flatten().tolist() for i in range(3)]
    assert maps == [[1.0, -1.0], [2.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("depth", [1, 5, 9])
@pytest.mark.every(3)
def test_each_piece_of_a_tent_has_slope_two_to_the_depth_up_or_down(depth):
    line = xl.restrict(tent_network(depth), [0.0], [1.0])
    for i in range(0, len(line), max(1, len(line) // 40)):
        A, b = line.piece(i).affine()
        sign = 1 if i % 2 == 0 else -1
        assert A.item() == sign * 2.0**depth
        assert b.item() == (-i if i % 2 == 0 else i + 1)


def test_the_loan_example_has_the_papers_three_maps():
    from exactline.zoo import loan_line, loan_network

    line = restrict_and_verify(loan_network(), *loan_line())
    maps = [line.piece(i).affine() for i in range(3)]
    assert torch.allclose(line.alphas, vector(0, 1 / 3, 2 / 3, 1), atol=1e-15)
    first, second = vector(-1.7, 1.0), vector(2.0, -1.3)
    zero = torch.zeros(2, dtype=torch.float64)
    expected = [(zero, second), (first, second), (first, zero)]
    for (A, b), (one, two) in zip(maps, expected, strict=True):
        assert torch.equal(A, torch.stack([one, two]))
        assert b.tolist() == [3.0 if one.any() else 0.0, 3.0 if two.any() else 0.0]


def test_slope_conventions_of_units_that_are_zero_along_a_whole_piece():
    def slope(module: nn.Module) -> list[float]:
        line = restrict_and_verify(module, [0.0, 1.0], [0.0, 2.0])
        return line.piece(0).affine()[0].diagonal().tolist()

    assert slope(nn.ReLU()) == [0.0, 1.0]
    assert slope(nn.LeakyReLU(0.3)) == [0.3, 1.0]
    assert slope(Function(torch.abs)) == [0.0, 1.0]


def test_zero_then_positive_is_on_and_zero_then_negative_is_off():
    line = restrict_and_verify(nn.ReLU(), [0.0, 0.0], [1.0, -1.0])
    assert line.piece(0).affine()[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    line = restrict_and_verify(nn.ReLU(), [1.0, -1.0], [0.0, 0.0])
    assert line.piece(0).affine()[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_the_pattern_names_the_branch_of_every_unit():
    model = mlp(3, 6, 5, 2)
    line = restrict_and_verify(model, [-3.0, 2.0, 1.0], [3.0, -1.0, -2.0])
    for i in range(len(line)):
        pattern = line.pattern(i)
        assert sorted(pattern) == ["relu", "relu_1"]
        middle = line.piece(i).start + line.piece(i).width / 2
        x = vector(-3.0, 2.0, 1.0) + middle * (vector(3.0, -1.0, -2.0) - vector(-3.0, 2.0, 1.0))
        with torch.no_grad():
            first = model[0].double()(x)
            second = model[2].double()(torch.relu(first))
        assert pattern["relu"].bool().tolist() == (first > 0).tolist()
        assert pattern["relu_1"].bool().tolist() == (second > 0).tolist()


def test_maps_of_several_inputs_and_outputs_add_up():
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

        def forward(self, x, y):
            h = torch.relu(self.a(x) + self.b(y))
            return h, h.sum(1, keepdim=True)

    model = Pair().eval()
    start, end = (torch.randn(3) * 3, torch.randn(2) * 3), (torch.randn(3) * 3, torch.randn(2) * 3)
    line = restrict_and_verify(model, start, end)
    for i in range(len(line)):
        matrices, constants = line.piece(i).affine()
        middle = line.piece(i).start + line.piece(i).width / 2
        xs = [q.double() + middle * (r.double() - q.double()) for q, r in zip(start, end, strict=True)]
        with torch.no_grad():
            outs = model.double()(*(x[None] for x in xs))
        for maps, constant, out in zip(matrices, constants, outs, strict=True):
            total = sum((m @ x for m, x in zip(maps, xs, strict=True)), constant)
            assert torch.allclose(total, out[0], atol=1e-12)


def test_a_huge_affine_map_is_computed_in_batches_of_rows():
    # 600 outputs of 3,000 inputs: more than one batch of rows
    model = relu_network(nn.Linear(3000, 40), nn.Linear(40, 600))
    line = xl.restrict(model, torch.randn(3000) * 0.1, torch.randn(3000) * 0.1)
    A, b = line.piece(0).affine()
    assert A.shape == (600, 3000)
    assert torch.allclose(A @ line.points[0] + b, line.values[0], atol=1e-10)


def test_an_index_past_the_last_piece_is_refused_and_negative_ones_count_from_the_end():
    line = restrict_and_verify(mlp(3, 8, 2), [-3.0, 2.0, 1.0], [3.0, -1.0, -2.0])
    assert line.piece(-1).stop == 1.0
    assert line.piece(-len(line)).start == 0.0
    assert_refused(xl.ArgumentError, line.piece, len(line))
    assert_refused(xl.ArgumentError, line.piece, -len(line) - 1)
