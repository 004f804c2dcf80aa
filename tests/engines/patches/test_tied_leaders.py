"""Gradients where units that are the same function of the inputs tie in a max pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients, InternalInfluence, LayerConductance, path_integrals
from exactline.engines import select
from tests.numerics.equal_windows import make_model

TARGET = 1


def sum_gradients(
    model: nn.Sequential, layer: nn.Module | None, start: Tensor, end: Tensor, over_values: bool
) -> Tensor:
    """The gradient at the input, or at a layer, in the middle of each piece, times its change or the piece's width."""
    line, taken = xl.restrict(model, start, end, rewrite=False), list[Tensor]()
    handle = None if layer is None else layer.register_forward_hook(lambda _, __, out: taken.append(out))
    points = torch.lerp(start, end, ((line.alphas[1:] + line.alphas[:-1]) / 2).view(-1, 1, 1, 1)).requires_grad_()
    ends = torch.lerp(start, end, line.alphas.view(-1, 1, 1, 1))
    out = model(points)
    model(ends)
    if handle is not None:
        handle.remove()
    (gradients,) = torch.autograd.grad(out[:, TARGET].sum(), taken[0] if taken else points)
    steps = (taken[1] if taken else ends).detach().diff(dim=0)
    return (gradients * (steps if over_values else line.alphas.diff().view(-1, 1, 1, 1))).sum(0, keepdim=True)


@pytest.fixture
def patch_results(monkeypatch) -> list[bool]:
    """For each integral, whether patches could find it."""
    results, integrate = list[bool](), path_integrals.patch_integral

    def record(*args, **options):
        found = integrate(*args, **options)
        results.append(found is not None)
        return found

    monkeypatch.setattr(path_integrals, "patch_integral", record)
    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0)
    monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
    return results


def test_gradients_where_equal_units_tie(patch_results):
    model, start, end = make_model()
    method = IntegratedGradients(model)
    found = method.attribute(end[None], start[None], target=TARGET)
    expected = sum_gradients(model, None, start, end, True)
    assert patch_results == [True]
    assert method.report.ambiguous == 0
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", [LayerConductance, InternalInfluence])
def test_layers_where_equal_units_tie(kind, patch_results):
    model, start, end = make_model()
    pool_branch = [part for part in model[4].modules() if isinstance(part, nn.ReLU)][-1]
    for layer in (model[1], model[3], pool_branch):
        found = kind(model, layer).attribute(end[None], start[None], target=TARGET)
        expected = sum_gradients(model, layer, start, end, kind is LayerConductance)
        if layer is pool_branch:  # which of the equal units gets the gradient is a convention
            found, expected = found.sum((2, 3)), expected.sum((2, 3))
        assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
    assert patch_results[0]
    assert patch_results[-1] is False
