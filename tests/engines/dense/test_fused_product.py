"""New points get the values of the layer after a ReLU without a product: as close to the truth as with one."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.dense import fused_product, fused_relu
from tests.numerics.compare import compare, compare_at
from tests.numerics.networks import make_case

pytest.importorskip("numba", reason="the extra fast is not installed")


@pytest.fixture
def interpolated(monkeypatch) -> list[tuple[int, int]]:
    """For every use of the fused pass: new points, and those of them that went through the product."""
    from exactline.engines.dense import kernels

    counts: list[tuple[int, int]] = []
    interpolate = kernels.interpolate_products

    def counting_interpolate(z, columns, first_output, column, sign_changes, hats, out):
        counts.append((len(out) - len(z), int((hats[:, 0] < 0).sum())))
        interpolate(z, columns, first_output, column, sign_changes, hats, out)

    fused_relu.RELU_LOOPS.load()
    fused_product.PRODUCT_LOOPS.load()
    monkeypatch.setattr(kernels, "interpolate_products", counting_interpolate)
    monkeypatch.setattr(fused_product, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(fused_product, "MIN_UNITS", 0)
    return counts


def build_mlp(*widths: int, bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b, bias), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double().eval()


def restrict_by_products(monkeypatch, *args, **options) -> xl.Restrictions:
    with monkeypatch.context() as patch:
        patch.setattr(fused_product, "MIN_WEIGHTS", 1 << 60)
        return xl.restrict_many(*args, **options)


@pytest.mark.parametrize("family", ["random", "ties", "steep", "far"])
def test_the_error_estimate_holds(family, interpolated):
    """Rational arithmetic at all breaks: `error_at` covers the interpolation."""
    assert max(compare(make_case(family, seed), "dense").violation for seed in range(8)) <= 1
    assert interpolated


@pytest.mark.parametrize("end", [1.0, -0.7])
def test_breaks_and_values_of_the_oracle(end, interpolated):
    """Pieces with many crossings each: from one point through the origin, or almost, to another."""
    model = build_mlp(4, 24, 24, 24, 3)
    start = torch.tensor([0.5, -1.0, 0.25, 0.125], dtype=torch.float64)
    stop = start * -end + 0.01
    line, exact = xl.restrict(model, start, stop), xl.exact.restrict(model, start, stop)
    assert len(line.alphas) == len(exact.alphas)
    assert compare_at(line, exact.value, exact.alphas).violation <= 1
    assert sum(new for new, _ in interpolated) > 0


def test_points_with_much_smaller_values_go_through_the_product(interpolated, monkeypatch):
    """Without biases all values shrink towards the origin, and rounding errors with them."""
    model = build_mlp(3, 40, 40, 2, bias=False)
    start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    stop = -0.8 * start + 1e-3
    line, exact = xl.restrict(model, start, stop), xl.exact.restrict(model, start, stop)
    assert sum(by_product for _, by_product in interpolated) > 0
    assert len(line.alphas) == len(exact.alphas)
    assert compare_at(line, exact.value, exact.alphas).violation <= 1


@pytest.mark.parametrize("memory", [None, 1 << 16])
def test_the_answer_of_the_general_path(memory, interpolated, monkeypatch):
    model = build_mlp(10, 150, 150, 150, 5)
    starts, ends = torch.randn(2, 4, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = restrict_by_products(monkeypatch, model, starts, ends)
    interpolated.clear()
    lines = xl.restrict_many(model, starts, ends, memory=memory, record="layers")
    assert interpolated
    assert torch.equal(lines.breaks.origins, expected.breaks.origins)
    bound = lines.errors + expected.errors
    for one, two in zip(lines.breaks.values or (), expected.breaks.values or (), strict=True):
        assert bool(((one - two).abs().amax(1) <= bound).all())


def test_columns_gathered_in_blocks_give_the_same_bits(interpolated, monkeypatch):
    """Layers that are too large to be kept transposed: a few columns and a few outputs at a time."""
    model = build_mlp(10, 150, 150, 150, 5)
    starts, ends = torch.randn(2, 4, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected, uses = xl.restrict_many(model, starts, ends), len(interpolated)
    column_blocks, sizes = fused_product._column_blocks, list[int]()

    def measured_blocks(product, units):
        for first, columns, column in column_blocks(product, units):
            sizes.append(columns.numel() * columns.element_size())
            yield first, columns, column

    monkeypatch.setattr(fused_product, "_column_blocks", measured_blocks)
    monkeypatch.setattr(fused_product, "_kept_columns", {})
    monkeypatch.setattr(fused_product, "MAX_KEPT_COLUMNS", 0)
    monkeypatch.setattr(fused_product, "block_bytes", lambda divisor: 1 << 14)
    lines = xl.restrict_many(model, starts, ends)
    assert len(sizes) > 2 * uses > 0  # several blocks each
    assert max(sizes) <= 1 << 14  # of 176 KiB
    for one, two in zip(lines.breaks.values or (), expected.breaks.values or (), strict=True):
        assert torch.equal(one, two)


def test_layers_that_others_read_keep_their_values(interpolated):
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 30), nn.Linear(30, 30)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.one(x))
            return self.two(y) + y

    torch.manual_seed(0)
    model = Residual().double().eval()
    line = xl.restrict(model, [-1.0, 1.0, 0.5, 2.0], [1.0, -1.0, 2.0, -0.5])
    assert not interpolated
    torch.testing.assert_close(line.values, model(line.points).detach())
