"""Models that return dicts and tuples, wrappers around them, segmentation, refusals, deltas and progress."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import exactline as xl


class Heads(nn.Module):
    """A trunk with two heads, returned in a dict, a tuple or a named tuple."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.trunk, self.scores, self.boxes = nn.Linear(3, 5), nn.Linear(5, 4), nn.Linear(5, 2)
        self.form = form

    def forward(self, x: Tensor) -> Any:
        hidden = self.trunk(x).relu()
        scores, boxes = self.scores(hidden), self.boxes(hidden).reshape(-1, 2, 1)
        if self.form == "dict":
            return {"scores": scores, "boxes": boxes}
        return (
            Named(scores, boxes)
            if self.form == "named"
            else [scores, boxes]
            if self.form == "list"
            else (scores, boxes)
        )


class Named(NamedTuple):
    scores: Tensor
    boxes: Tensor


def make_heads(form: str) -> Heads:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Heads(form).double().eval()


X = torch.linspace(-2, 2, 6, dtype=torch.float64).reshape(2, 3)


@pytest.mark.parametrize("form", ["dict", *(pytest.param(form, marks=pytest.mark.slow) for form in ("tuple", "named"))])
def test_the_target_names_the_output(form: str):
    model = make_heads(form)
    select = (lambda out: out["boxes"]) if form == "dict" else lambda out: out[1]
    wrapper = lambda x: select(model(x))  # noqa: E731
    key = "boxes" if form == "dict" else 1
    expected = xl.attr.IntegratedGradients(wrapper).attribute(X, target=(1, 0))
    ig = xl.attr.IntegratedGradients(model)
    found, delta = ig.attribute(X, target=(key, 1, 0), return_convergence_delta=True)
    assert torch.equal(found, expected)
    assert float(delta.abs().max()) < 1e-14
    assert torch.equal(ig.attribute(X, target=[(key, 1, 0), (key, 1, 0)]), expected)
    assert torch.equal(ig.attribute(X, target=(1, 0), output=key), expected)
    assert torch.equal(xl.attr.IntegratedGradients(model, output=1).attribute(X, target=(1, 0)), expected)
    again = ig.compute_convergence_delta(found, 0, X, target=(key, 1, 0))
    assert torch.allclose(again, delta, atol=1e-14)
    for kind in (xl.attr.LayerConductance, xl.attr.LayerIntegratedGradients):
        ours = kind(model, model.trunk).attribute(X, target=(key, 1, 0))
        assert torch.allclose(ours, kind(wrapper, model.trunk).attribute(X, target=(1, 0)), atol=1e-14)


def test_outputs_that_do_not_exist():
    model = make_heads("dict")
    ig = xl.attr.IntegratedGradients(model)
    for target in (("masks", 0), (7, 0)):
        with pytest.raises(xl.ArgumentError, match="no output"):
            ig.attribute(X, target=target)
    with pytest.raises(xl.ArgumentError, match="different outputs"):
        ig.attribute(X, target=[("scores", 0), ("boxes", 0)])
    with pytest.raises(xl.CaptureError, match="dict"):
        ig.attribute(X, target=0)


def segment(maps: Tensor, chosen: Tensor) -> Tensor:
    """The maps (n, classes, h, w) summed over the pixels that were chosen (1, 1, h, w) for each class."""
    return (maps * torch.zeros_like(maps[0:1]).scatter_(1, chosen, 1)).sum((2, 3))


def test_segmentation_wrappers_are_captured():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)).double().eval()
    images = torch.linspace(-2, 3, 64, dtype=torch.float64).sin().reshape(2, 2, 4, 4)
    chosen = net(images[:1]).argmax(1, keepdim=True)
    found, delta = xl.attr.IntegratedGradients(lambda x: segment(net(x), chosen)).attribute(
        images, target=1, return_convergence_delta=True
    )
    assert float(delta.abs().max()) < 1e-13
    mask = (chosen == 1).double()
    masked = xl.attr.IntegratedGradients(lambda x: (net(x)[:, 1:2] * mask).sum((1, 2, 3))).attribute(images)
    assert torch.allclose(found, masked, atol=1e-14)
    with pytest.raises(xl.UnsupportedError, match="batch"):  # the values of another point are not a constant
        xl.attr.IntegratedGradients(lambda x: (net(x) - net(x)[0:1]).sum((2, 3))).attribute(images, target=1)


def mix(x: Tensor) -> Tensor:
    return nn.functional.gelu(x) - x.mean(0, keepdim=True)


def test_models_that_mix_a_batch_are_refused_with_a_tolerance_too():
    for tol in (None, 1e-6):
        with pytest.raises(xl.UnsupportedError) as error:
            xl.attr.IntegratedGradients(mix, tol=tol).attribute(X, target=0)
        assert "tol" not in error.value.hint


def test_hints_name_what_the_classes_take():
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).double().eval()
    for method in (xl.attr.IntegratedGradients(model), xl.attr.LayerConductance(model, model[0])):
        with pytest.raises(xl.UnsupportedError) as error:
            method.attribute(X, target=0)
        assert "tol=1e-6" in error.value.hint
    assert xl.attr.IntegratedGradients(model, tol=1e-6).attribute(X, target=0).shape == X.shape  # no dead end


def test_deltas_without_multiplication_are_captums():
    captum = pytest.importorskip("captum.attr")
    model = make_heads("tuple").trunk
    for package, steps in ((xl.attr, {}), (captum, {"n_steps": 300})):
        method = package.IntegratedGradients(model, multiply_by_inputs=False)
        _, delta = method.attribute(X, X.flip(0), target=1, return_convergence_delta=True, **steps)
        layer = package.LayerIntegratedGradients(nn.Sequential(model), model, multiply_by_inputs=False)
        _, of_layer = layer.attribute(X, X.flip(0), target=1, return_convergence_delta=True, **steps)
        if package is xl.attr:
            expected = (delta, of_layer)
    assert torch.allclose(expected[0], delta.double(), atol=1e-6)
    assert torch.allclose(expected[1], of_layer.double(), atol=1e-6)
    assert float(delta.abs().min()) > 1e-3


@pytest.mark.parametrize("memory", [None, 300_000])
def test_progress_moves_within_one_line(memory: int | None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).eval()
    reports: list[tuple[float, int]] = []
    ig = xl.attr.IntegratedGradients(model)
    progress = lambda share, pieces: reports.append((share, pieces))  # noqa: E731
    ig.attribute(100 * X[:1], -100 * X[1:], target=0, memory=memory, progress=progress)
    assert len([share for share, _ in reports if 0 < share < 1]) >= 5
    assert reports == sorted(reports)
    assert reports[-1] == (1.0, ig.report.pieces)
