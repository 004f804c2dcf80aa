"""Errors through large products: single precision against the same sums in double precision."""

import pytest
import torch
import torch.nn.functional as F

from exactline.network import as_network
from exactline.ops import error_products
from exactline.ops.affine import Product


def product_of(layer: torch.nn.Module, point: torch.Tensor) -> Product:
    (op,) = (n.op for n in as_network(layer, [point]).nodes if isinstance(n.op, Product))
    return op


def layers() -> dict[str, tuple[torch.nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    return {
        "linear": (torch.nn.Linear(96, 64).double(), (96,)),
        "convolution": (torch.nn.Conv2d(16, 32, 3, stride=2, padding=1).double(), (16, 9, 9)),
        "groups": (torch.nn.Conv2d(32, 64, 3, groups=2).double(), (32, 7, 7)),
        "few weights in groups": (torch.nn.Conv2d(8, 8, 3, groups=8).double(), (8, 7, 7)),
        "few pixels": (torch.nn.Conv2d(32, 64, 1).double(), (32, 3, 3)),
        "many pixels": (torch.nn.Conv2d(32, 64, 1).double(), (32, 12, 12)),
        "pixels with a stride": (torch.nn.Conv2d(32, 64, 1, stride=2).double(), (32, 3, 3)),
        "few windows": (
            torch.nn.Conv2d(16, 32, (3, 2), padding=1, stride=(2, 1)).double(),
            (16, 3, 3),
        ),
        "few windows of a sequence": (torch.nn.Conv1d(16, 32, 3, padding=1).double(), (16, 4)),
    }


def both_ways(op: Product, deviations: torch.Tensor, samples: torch.Tensor) -> list[torch.Tensor]:
    return [*op.propagate_errors([deviations], [samples]), op.error_spread(deviations), op.linear(samples)]


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("scale", [1e-16, 1.0, 1e200])
def test_few_digits_are_lost(name, scale):
    layer, shape = layers()[name]
    op = product_of(layer, torch.zeros(shape, dtype=torch.float64))
    assert op._suits_single_precision
    deviations = torch.rand(3, *shape, dtype=torch.float64) * scale
    samples = torch.randn(2, *shape, dtype=torch.float64) * scale
    spread, images, exact_spread, exact_images = both_ways(op, deviations, samples)
    assert torch.allclose(spread, exact_spread, rtol=1e-5, atol=0)
    assert float((images - exact_images).abs().max()) < 1e-5 * float(exact_images.abs().max())


def test_a_layer_that_is_not_kept_is_multiplied_in_blocks(monkeypatch):
    monkeypatch.setattr(error_products, "MAX_KEPT_WEIGHTS", 0)
    monkeypatch.setattr(error_products, "WEIGHTS_PER_BLOCK", 1000)
    layer, shape = layers()["linear"]
    op = product_of(layer, torch.zeros(shape, dtype=torch.float64))
    spread, images, exact_spread, exact_images = both_ways(
        op, torch.rand(3, *shape, dtype=torch.float64), torch.randn(2, *shape, dtype=torch.float64)
    )
    assert torch.allclose(spread, exact_spread, rtol=1e-5, atol=0)
    assert torch.allclose(images, exact_images, rtol=0, atol=1e-5)


def test_an_error_that_underflows_is_not_lost():
    """Squares of relative errors of 1e-30 are zero in single precision; the bound replaces them."""
    layer, shape = layers()["linear"]
    op = product_of(layer, torch.zeros(shape, dtype=torch.float64))
    deviations = torch.full((1, *shape), 1e-30, dtype=torch.float64)
    deviations[0, 0] = 1.0
    op.weight[:, 0] = 0.0
    spread, _, exact_spread, _ = both_ways(op, deviations, deviations)
    assert bool((spread >= exact_spread).all())
    assert float(spread.max()) < 1e-17


@pytest.mark.parametrize("change", ["rows of 1e-12", "weights of 1e40", "few weights"])
def test_other_weights_are_multiplied_in_double_precision(change):
    layer = torch.nn.Linear(4, 4).double() if change == "few weights" else layers()["linear"][0]
    with torch.no_grad():
        if change == "rows of 1e-12":
            layer.weight[0] *= 1e-12
        elif change == "weights of 1e40":
            layer.weight *= 1e40
    shape = (layer.in_features,)
    op = product_of(layer, torch.zeros(shape, dtype=torch.float64))
    assert not op._suits_single_precision
    x = torch.rand(2, *shape, dtype=torch.float64)
    spread, images = op.propagate_errors([x], [x])
    assert torch.equal(images, F.linear(x, op.weight))
    assert torch.equal(spread, op.error_spread(x))
