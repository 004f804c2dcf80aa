"""Expected gradients: the mean of integrated gradients over a background set, the limit of captum's GradientShap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.attr import sampling_options


def make_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double().eval()


MODEL = make_model()
X = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(4, 3)
BACKGROUND = torch.linspace(1, -1, 15, dtype=torch.float64).reshape(5, 3).sin()


def test_every_baseline_counts_once_and_calls_repeat():
    method = xl.attr.ExpectedGradients(MODEL)
    found, delta = method.attribute(X, BACKGROUND, target=[0, 1, 1, 0], return_convergence_delta=True)
    ig = xl.attr.IntegratedGradients(MODEL)
    single = [ig.attribute(X, baseline[None], target=[0, 1, 1, 0]) for baseline in BACKGROUND]
    assert torch.allclose(found, torch.stack(single).mean(0), atol=1e-15)
    with torch.no_grad():
        outputs = MODEL(X).gather(1, torch.tensor([[0], [1], [1], [0]]))[:, 0]
        expected = outputs - MODEL(BACKGROUND).mean(0)[[0, 1, 1, 0]]
    assert torch.allclose(found.sum(1), expected, atol=1e-14)
    assert delta.shape == (4,)
    assert float(delta.abs().max()) < 1e-14
    for memory in (None, 4_000):  # in one batch of lines, and one example at a time
        assert torch.allclose(method.attribute(X, BACKGROUND, target=[0, 1, 1, 0], memory=memory), found, atol=1e-15)
    assert torch.equal(method.attribute(X, BACKGROUND, target=[0, 1, 1, 0]), found)
    assert method.report.subgradient_range.shape == (4,)


def test_gradient_shap_converges_to_it():
    captum = pytest.importorskip("captum.attr")
    exact = xl.attr.ExpectedGradients(MODEL).attribute(X, BACKGROUND, target=1)
    state = np.random.get_state()
    np.random.seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sampled = captum.GradientShap(MODEL).attribute(X, BACKGROUND, n_samples=2_000, target=1)
    np.random.set_state(state)
    # the standard error of 2,000 samples of numbers of size 1 is below 0.03
    assert float((exact - sampled.detach()).abs().max()) < 0.12


def test_several_inputs_arguments_and_functions():
    def model(x: Any, y: Any, scale: Any, factor: float) -> Any:
        return (torch.relu(x - y) * factor + scale).sum(1)

    y, scale = X.flip(0), X[:, :1].exp()
    backgrounds = (BACKGROUND[:2], BACKGROUND[3:])
    method = xl.attr.ExpectedGradients(model)
    found = method.attribute((X, y), backgrounds, additional_forward_args=(scale, 2.0))
    ig = xl.attr.IntegratedGradients(model)
    single = [
        ig.attribute((X, y), (a[None], b[None]), additional_forward_args=(scale, 2.0))
        for a, b in zip(*backgrounds, strict=True)
    ]
    for k in range(2):
        assert torch.allclose(found[k], torch.stack([s[k] for s in single]).mean(0), atol=1e-14)
    by_function = method.attribute((X, y), lambda: backgrounds, additional_forward_args=(scale, 2.0))
    of_inputs = method.attribute((X, y), lambda _: backgrounds, additional_forward_args=(scale, 2.0))
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(found, by_function, of_inputs, strict=True))


def test_smooth_models_have_an_error_relative_to_the_mean():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double().eval()
    method = xl.attr.ExpectedGradients(model, tol=1e-6)
    method.attribute(X, BACKGROUND, target=1)
    assert method.report.status == "estimated"
    assert float(method.report.error.max()) < 1e-4


def test_options_of_sampling(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling_options, "_warned_options", set())
    method = xl.attr.ExpectedGradients(MODEL)
    with pytest.warns(xl.attr.ExactWarning, match="n_samples"):
        method.attribute(X, BACKGROUND, n_samples=5, target=0)
    for wrong in ({"stdevs": 0.1}, {"stdevs": (0.0, 0.2)}):
        with pytest.raises(AssertionError, match="stdevs"):
            method.attribute(X, BACKGROUND, target=0, **wrong)
    for baselines in (None, 0.0, BACKGROUND[:, :2], BACKGROUND[:0], (BACKGROUND, BACKGROUND)):
        with pytest.raises(AssertionError):
            method.attribute(X, baselines, target=0)
