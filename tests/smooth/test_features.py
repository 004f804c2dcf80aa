"""Features narrower than the gaps between samples are found: bends, peaks, poles and kinks that are crossed twice."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional

import exactline as xl
from exactline.smooth.chebyshev import chebyshev_points
from exactline.smooth.crossings import find_brackets
from exactline.smooth.dips import find_dips
from exactline.smooth.features import BEND, KINK
from exactline.smooth.kinks import Signs

CENTER = 0.3
NEAR = np.concatenate([-np.logspace(-16, -1, 61), [0.0], np.logspace(-16, -1, 61)])


def sigmoid(z):
    return 0.5 * (1 + np.tanh(z / 2))


def gelu(z):
    return z * 0.5 * np.vectorize(math.erfc)(np.clip(-z / math.sqrt(2), -30, 30))


# name: the model, and its values in closed form at a distance from CENTER
MODELS = {
    "peak of exp": (lambda y: torch.exp(-(y**2) / 1e-12), lambda y: np.exp(-(y**2) / 1e-12)),
    "peak of a quotient": (lambda y: 1 / (1 + 1e10 * y**2), lambda y: 1 / (1 + 1e10 * y**2)),
    "difference of two steps": (
        lambda y: torch.sigmoid(1e8 * y) - torch.sigmoid(1e8 * y - 100),
        lambda y: sigmoid(1e8 * y) - sigmoid(1e8 * y - 100),
    ),
    "GELU beside ReLU": (
        lambda y: functional.gelu(1e6 * y) - torch.relu(1e6 * y),
        lambda y: gelu(-np.abs(1e6 * y)),
    ),
    "SiLU as a product": (
        lambda y: 1e6 * y * torch.sigmoid(1e6 * y) - torch.relu(1e6 * y),
        lambda y: -np.abs(1e6 * y) * sigmoid(-np.abs(1e6 * y)),
    ),
    "kink that is crossed twice": (
        lambda y: torch.relu(1e-7 - y * torch.tanh(y)),
        lambda y: np.maximum(1e-7 - y * np.tanh(y), 0),
    ),
    "softmax that changes twice": (
        lambda y: torch.softmax(torch.cat([0 * y, 1e7 * (1e-6 - y**2)], -1), -1)[..., 1:],
        lambda y: sigmoid(1e7 * (1e-6 - y**2)),
    ),
    "root of a square": (lambda y: torch.sqrt(y**2), np.abs),
    "norm that comes close to zero": (
        lambda y: torch.linalg.vector_norm(torch.cat([y, 0 * y + 1e-9], -1), dim=-1, keepdim=True),
        lambda y: np.hypot(y, 1e-9),
    ),
    "relu of a fast wave": (
        lambda y: torch.relu(torch.cos(200 * y) - 0.999),
        lambda y: np.maximum(np.cos(200 * y) - 0.999, 0),
    ),
}


def follow(model, tol: float = 1e-7) -> xl.Approximation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xl.ToleranceWarning)
        return xl.approximate(lambda x: model(x - CENTER), [0.0], [1.0], tol=tol)


@pytest.mark.parametrize("name", MODELS)
def test_narrow_features_are_followed(name: str) -> None:
    model, truth = MODELS[name]
    curve = follow(model)
    ends = curve.breakpoints.numpy()
    alphas = np.unique(np.clip(np.concatenate([CENTER + NEAR, np.linspace(0, 1, 99), ends]), 0, 1))
    error = np.abs(curve.at(alphas).numpy()[:, 0] - truth(alphas - CENTER))
    # the distance from CENTER has an error of half an ulp of alpha, times a slope of at most 1e8
    assert (error <= curve.error_at(alphas).numpy() + 1e8 * 2.0**-54).all()
    assert curve.error < 1e-5


@pytest.mark.parametrize(
    ("model", "attribution"),
    [
        # the second attribution of f(x) y is the integral of f over alpha, for y from 0 to 1 along the line
        (lambda x: 1e6 * torch.exp(-((x - CENTER) ** 2) / 1e-12), math.sqrt(math.pi)),
        (lambda x: 1e12 * (functional.gelu(1e6 * (x - CENTER)) - torch.relu(1e6 * (x - CENTER))), -5e5),
        (lambda x: 1e9 * torch.relu(1e-6 - (x - CENTER) * torch.tanh(x - CENTER)), 4 / 3),
        (lambda x: torch.sigmoid(1e8 * (x - CENTER)), 1 - CENTER),
    ],
    ids=["exp", "gelu", "relu", "sigmoid"],
)
def test_narrow_features_are_integrated(model, attribution: float) -> None:
    method = xl.attr.IntegratedGradients(lambda x: model(x[:, 0]) * x[:, 1], tol=1e-6)
    points = torch.tensor([[1.0, 1.0]], dtype=torch.float64), torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xl.ToleranceWarning)
        found = method.attribute(points[0] + torch.tensor([[0.0, 1.0]]), points[1] + torch.tensor([[0.0, 1.0]]))[0]
    assert method.report is not None
    assert method.report.error is not None
    norm = float(found.abs().sum())
    # tanh(y) is y up to y^3 / 3 with y <= 1e-3
    assert abs(float(found[1]) - attribution) <= float(method.report.error[0]) * norm + 1e-6 * abs(attribution)


@pytest.mark.parametrize("noise", [1e6, 1.0])
def test_a_plateau_of_rounding_errors_is_not_bisected(noise: float) -> None:
    """A LayerNorm whose argument is constant up to rounding in the middle of the line."""
    weight = torch.tensor([1.0, -2.0, 3.0, 0.5])
    curve = follow(lambda y: functional.layer_norm(noise + y * weight.to(y), (4,), eps=1e-14), tol=1e-12)
    assert not curve.stopped
    assert curve.evaluations < 5000
    assert curve.error > 1e-12


def test_scales_far_from_one_are_followed() -> None:
    for scale in (1e-200, 1e200):
        curve = follow(lambda y, scale=scale: scale * torch.tanh(y), tol=1e-14 * scale)
        assert not curve.stopped
        assert 0 < curve.error < 1e-13 * scale


@pytest.mark.parametrize("power", [1, 2])
def test_a_pole_is_not_passed_over(power: int) -> None:
    """Either a number overflows or the error has no bound."""
    try:
        curve = follow(lambda y: 1 / torch.tanh(y + 1e-17) ** power)
    except xl.NumberError:
        return
    assert curve.error == float("inf")


def test_gelu_rounds_to_zero_where_its_sum_cancels() -> None:
    with pytest.warns(xl.ToleranceWarning):
        curve = xl.approximate(torch.nn.GELU(), [-12.0], [-6.0], tol=1e-16)
    alphas = np.linspace(0, 1, 101)
    error = np.abs(curve.at(alphas).numpy()[:, 0] - gelu(-12 + 6 * alphas))
    assert (error <= curve.error_at(alphas).numpy()).all()


def test_units_that_stay_far_from_their_features_have_none() -> None:
    """Arguments of the size they have in networks: no cuts, and so no further evaluations."""
    alphas = chebyshev_points(16)
    units = torch.randn(17, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(0) / 8
    (brackets,) = find_brackets(alphas, [slice(0, 17)], [Signs("", units, BEND)])
    (dips,) = find_dips(alphas, [slice(0, 17)], [Signs("", units, BEND)])
    assert len(brackets) == len(dips) == 0
    straight = torch.linspace(-1, 1, 17, dtype=torch.float64)[:, None] + torch.arange(5) + 0.5
    assert len(find_dips(alphas, [slice(0, 17)], [Signs("", straight, KINK)])[0]) == 0
