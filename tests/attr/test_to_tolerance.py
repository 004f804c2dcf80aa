"""Attributions of smooth models to a tolerance: analytic answers, captum's answers, endings and limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients


def make_body() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return (
            nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).eval().double()
        )


def make_smooth() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = (nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))
        return nn.Sequential(*layers).eval().double()


BODY, SMOOTH = make_body(), make_smooth()
INPUTS = torch.linspace(-1, 2, 18, dtype=torch.float64).reshape(3, 6)
TARGETS = [0, 2, 1]


def test_the_integral_of_a_known_function() -> None:
    method = xl.attr.IntegratedGradients(lambda x: (x[:, :1] * x[:, 1:]).exp(), tol=1e-10)
    (found,) = method.attribute(torch.tensor([[1.0, 1.0]]).double(), target=0)
    assert np.allclose(found, [(np.e - 1) / 2] * 2, rtol=1e-10)
    assert method.report is not None
    assert method.report.status == "estimated"
    assert method.report.error is not None
    assert float(method.report.error[0]) <= 1e-10
    assert method.report.gradients > 0


def test_batches_targets_and_deltas_follow_captum() -> None:
    captum = pytest.importorskip("captum.attr")
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval().double()
    baselines = torch.full((1, 6), 0.3, dtype=torch.float64)
    method = xl.attr.IntegratedGradients(model, tol=1e-9)
    found, delta = method.attribute(INPUTS, baselines, TARGETS, return_convergence_delta=True)
    expected = captum.IntegratedGradients(model).attribute(INPUTS, baselines, TARGETS, n_steps=300)
    assert torch.allclose(found, expected, atol=1e-7)
    assert delta.abs().max() < 1e-12
    again = method.compute_convergence_delta(found, baselines, INPUTS, TARGETS)
    assert torch.allclose(again, delta, atol=1e-12)
    single = torch.cat([method.attribute(x[None], baselines, t) for x, t in zip(INPUTS, TARGETS, strict=True)])
    assert torch.allclose(found, single, rtol=1e-8)


@pytest.mark.parametrize("layer", [1, 4])
@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("LayerIntegratedGradients", ()),
        ("LayerConductance", ()),
        ("InternalInfluence", ()),
        ("NeuronConductance", (3,)),
    ],
)
def test_layers_follow_captum(name: str, extra, layer: int) -> None:
    captum = pytest.importorskip("captum.attr")
    method = getattr(xl.attr, name)(SMOOTH, SMOOTH[layer], tol=1e-8)
    found = method.attribute(INPUTS, *extra, target=TARGETS)
    expected = getattr(captum, name)(SMOOTH, SMOOTH[layer]).attribute(INPUTS, *extra, target=TARGETS, n_steps=200)
    assert (found - expected).abs().sum() <= 3e-2 * expected.abs().sum()  # captum samples across the kinks of ReLU
    assert method.report.status == "estimated"
    assert float(method.report.error.max()) <= 1e-8


def test_conductance_is_complete() -> None:
    method = xl.attr.LayerConductance(SMOOTH, SMOOTH[1], tol=1e-9)
    _, delta = method.attribute(INPUTS, target=TARGETS, return_convergence_delta=True)
    assert delta.abs().max() < 1e-9


@pytest.mark.parametrize(
    "ending",
    [
        lambda x: torch.sigmoid(BODY(x)[:, :1]).squeeze(1),
        lambda x: torch.softmax(BODY(x), 1)[:, 1],
        lambda x: torch.log(torch.softmax(BODY(x), 1))[:, 0],
        lambda x: torch.softmax(BODY(x), 1)[:, 1] * 100,
    ],
)
def test_endings_after_a_piecewise_linear_body_need_no_tolerance(ending) -> None:
    method = xl.attr.IntegratedGradients(ending)
    found, delta = method.attribute(INPUTS, return_convergence_delta=True)
    assert delta.abs().max() < 1e-10 * found.abs().sum()
    alphas, weights = np.polynomial.legendre.leggauss(2000)
    points = (((alphas + 1) / 2)[:, None, None] * INPUTS.numpy()).reshape(-1, 6)
    x = torch.from_numpy(points).requires_grad_()
    (gradients,) = torch.autograd.grad(ending(x).sum(), x)
    sampled = torch.einsum("q,qnf->nf", torch.from_numpy(weights / 2), gradients.reshape(2000, 3, 6)) * INPUTS
    assert torch.allclose(found, sampled, atol=2e-3 * float(sampled.abs().max()))


def test_exact_attributions_stay_exact() -> None:
    one, two = xl.attr.IntegratedGradients(BODY), xl.attr.IntegratedGradients(BODY, tol=1e-3)
    assert torch.equal(one.attribute(INPUTS, target=0), two.attribute(INPUTS, target=0))
    assert two.report is not None
    assert (two.report.status, two.report.error, two.report.gradients) == ("exact", None, 0)


def test_a_loss_for_each_example() -> None:
    labels = torch.tensor([0, 1, 2])

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(SMOOTH(x), y, reduction="none")

    method = xl.attr.IntegratedGradients(loss, tol=1e-8)
    _, delta = method.attribute(INPUTS, additional_forward_args=labels, return_convergence_delta=True)
    assert delta.abs().max() < 1e-9


def test_smooth_models_without_a_tolerance_are_refused() -> None:
    with pytest.raises(xl.UnsupportedError, match="gelu"):
        xl.attr.IntegratedGradients(SMOOTH).attribute(INPUTS, target=0)


@pytest.mark.parametrize(
    ("model", "kind", "word"),
    [
        (lambda x: torch.tanh(x) + torch.randn_like(x), xl.CaptureError, "different values"),
        (lambda x: torch.exp(torch.exp(100 * x)), xl.NumberError, "infinite"),
        (lambda x: torch.tanh(x - x.mean(0)), xl.CaptureError, "batch"),
    ],
    ids=["random", "overflow", "batch"],
)
def test_the_error_says_what_is_wrong_with_the_model(model, kind, word: str) -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)
    with pytest.raises(kind, match=word):
        IntegratedGradients(model, tol=1e-6).attribute(points, target=0)


def test_limits_warn_and_say_what_was_reached() -> None:
    method = xl.attr.IntegratedGradients(lambda x: torch.sin(3000 * x), tol=1e-12)
    with pytest.warns(xl.ToleranceWarning, match="max_gradients was reached"):
        method.attribute(torch.ones(1, 1).double(), max_gradients=100)
    with pytest.warns(xl.ToleranceWarning, match="seconds was reached"):
        method.attribute(torch.ones(1, 1).double(), seconds=0)


def test_little_memory_gives_the_same_answer() -> None:
    method = xl.attr.IntegratedGradients(SMOOTH, tol=1e-8)
    one, two = (method.attribute(INPUTS, target=1, memory=m) for m in (None, 2000))
    assert torch.allclose(one, two, rtol=1e-8)


@pytest.mark.parametrize("tol", [0, -1.0, "small", float("nan")])
def test_bad_tolerances(tol) -> None:
    with pytest.raises(xl.ArgumentError, match="tol"):
        xl.attr.IntegratedGradients(SMOOTH, tol=tol)


def test_certified_attributions_contain_the_estimated_ones():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)).double().eval()
    inputs = torch.tensor([[1.0, -2.0, 0.0], [0.5, 1.0, 2.0]], dtype=torch.float64)
    proven, estimated = IntegratedGradients(model, tol=1e-8, certified=True), IntegratedGradients(model, tol=1e-12)
    one, two = proven.attribute(inputs, target=[0, 1]), estimated.attribute(inputs, target=[0, 1])
    assert proven.report.status == "certified"
    assert float(proven.report.error.max()) <= 1e-8
    assert ((one - two).abs().sum(1) <= (proven.report.error + 1e-12) * two.abs().sum(1)).all()


@pytest.mark.parametrize("options", [{}, {"tol": 1e-6, "multiply_by_inputs": False}])
def test_a_proven_bound_needs_a_tolerance_and_the_product_with_the_inputs(options):
    with pytest.raises(xl.ArgumentError, match="certified"):
        IntegratedGradients(nn.GELU(), certified=True, **options)
