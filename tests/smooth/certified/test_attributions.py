"""Certified integrated gradients contain the truth: ball arithmetic for small networks, finer rules for others."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from flint import acb
from torch import nn

import exactline as xl
from exactline.smooth.certified.attributions import certified_integrated_gradients
from exactline.smooth.certified.record import record_gradients
from tests.smooth.certified import balls
from tests.smooth.certified.balls import to_balls
from tests.smooth.certified.networks import Encoder, Gated, Recurrent, fine_integrated_gradients, mlp

ACTIVATIONS: dict[str, tuple[nn.Module, Any, Any]] = {
    "gelu": (
        nn.GELU(),
        lambda x: x * balls.normal(x),
        lambda x: balls.normal(x) + x * balls.density(x),
    ),
    "tanh": (nn.Tanh(), balls.tanh, lambda x: 1 - balls.tanh(x) ** 2),
    "silu": (
        nn.SiLU(),
        lambda x: x * balls.sigmoid(x),
        lambda x: balls.sigmoid(x) * (1 + x * (1 - balls.sigmoid(x))),
    ),
    "sigmoid": (nn.Sigmoid(), balls.sigmoid, lambda x: balls.sigmoid(x) * (1 - balls.sigmoid(x))),
    "softplus": (nn.Softplus(), lambda x: balls.log(1 + balls.exp(x)), balls.sigmoid),
}


def integrate_with_balls(model: nn.Sequential, name: str, start: torch.Tensor, end: torch.Tensor) -> list[acb]:
    """Integrated gradients of output 0 of an MLP, enclosed by flint's own rigorous integration."""
    _, function, derivative = ACTIVATIONS[name]
    layers = [(to_balls(m.weight.detach()), to_balls(m.bias.detach())) for m in model if isinstance(m, nn.Linear)]
    first, change = to_balls(start), to_balls(end) - to_balls(start)

    def gradient(alpha: acb) -> np.ndarray:
        hidden, slopes = first + alpha * change, []
        for weight, bias in layers[:-1]:
            hidden = weight @ hidden + bias
            slopes.append(derivative(hidden))
            hidden = function(hidden)
        cotangent = layers[-1][0][0]
        for (weight, _), slope in zip(layers[-2::-1], slopes[::-1], strict=True):
            cotangent = (cotangent * slope) @ weight
        return cotangent * change

    return [
        acb.integral(lambda z, _, i=i: gradient(z)[i], 0, 1, rel_tol=1e-20, abs_tol=1e-20) for i in range(len(start))
    ]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_bounds_contain_the_integrals_of_ball_arithmetic(name):
    model = mlp(ACTIVATIONS[name][0], (3, 4, 4, 2)).double().eval()
    start, end = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    result = certified_integrated_gradients(model, start, end, 0, 1e-9)
    assert result.status == "certified"
    bounds = result.truncation[0] + result.rounding[0]
    for truth, value, bound in zip(
        integrate_with_balls(model, name, start, end), *result.attributions, bounds, strict=True
    ):
        assert float(abs(truth - acb(float(value))).upper()) <= float(bound)
        assert not float(abs(truth - acb(float(value) + 2 * float(bound))).lower()) <= float(bound)


MODELS = {
    "encoder": (lambda: Encoder(1), 12),
    "two layers": (lambda: Encoder(2, tokens=2), 6),
    "gated": (Gated, 7),
    "recurrent": (Recurrent, 4),
    "tanh gelu": (lambda: mlp(nn.GELU(approximate="tanh")), 4),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)), 4),
    "log softmax": (lambda: nn.Sequential(nn.Linear(4, 5), nn.SiLU(), nn.Linear(5, 3), nn.LogSoftmax(1)), 4),
    "linear": (lambda: nn.Linear(4, 3), 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_bounds_contain_a_finer_rule(name):
    build, size = MODELS[name]
    model = build().eval()
    start, end = torch.zeros(size, dtype=torch.float64), torch.randn(size, dtype=torch.float64)
    result = certified_integrated_gradients(model, start, end, 1, 1e-8)
    assert result.status in ("certified", "certified up to rounding")
    truth = fine_integrated_gradients(model, start, end, 1)
    rounding = 1e-13 * float(truth.abs().sum())
    assert bool(((result.attributions[0] - truth).abs() <= result.truncation[0] + rounding).all())


def test_a_tape_serves_many_lines_and_targets():
    model = mlp(nn.SiLU()).double().eval()
    tape = record_gradients(model, [torch.zeros(4, dtype=torch.float64)])
    end = torch.randn(4, dtype=torch.float64)
    by_tape = [certified_integrated_gradients(tape, torch.zeros(4), end, target, 1e-6) for target in range(2)]
    by_model = certified_integrated_gradients(model, torch.zeros(4), end, 1, 1e-6)
    assert torch.equal(by_tape[1].attributions[0], by_model.attributions[0])
    assert not torch.equal(by_tape[0].attributions[0], by_model.attributions[0])


def test_several_inputs_are_attributed_together():
    class Product(nn.Module):
        def forward(self, x, y):
            return torch.tanh(x) * y.sum(1, keepdim=True)

    start = (torch.zeros(2), torch.ones(3))
    end = (torch.ones(2), torch.zeros(3))
    result = certified_integrated_gradients(Product().eval(), start, end, 0, 1e-9)
    assert [a.shape for a in result.attributions] == [(2,), (3,)]
    total = float(sum(a.sum() for a in result.attributions))
    assert total == pytest.approx(0.0, abs=1e-8)  # completeness: both ends have the value 0


def test_a_smaller_tolerance_is_kept():
    model = mlp(nn.GELU()).double().eval()
    end = torch.randn(4, dtype=torch.float64)
    errors = [certified_integrated_gradients(model, torch.zeros(4), end, 0, tol).error for tol in (1e-4, 1e-8, 1e-11)]
    assert all(error <= tol for error, tol in zip(errors, (1e-4, 1e-8, 1e-11), strict=True))


def test_a_tolerance_below_rounding_reports_what_was_reached():
    result = certified_integrated_gradients(mlp(nn.GELU()).eval(), torch.zeros(4), torch.ones(4), 0, 1e-18)
    assert result.status != "certified"
    assert result.error + result.rounding_error > 1e-18


def test_the_time_limit_is_kept():
    model = Encoder(2).eval()
    tape = record_gradients(model, [torch.zeros(12, dtype=torch.float64)])
    began = time.monotonic()
    result = certified_integrated_gradients(tape, torch.zeros(12), 50 * torch.ones(12), 0, 1e-9, seconds=0.5)
    assert time.monotonic() - began < 10
    assert result.status == "not certified"
    assert not all(part.is_certified for part in result.sub_intervals)


def test_an_output_without_gradient_ends():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.stack((torch.tanh(x).sum(1), 0 * x.sum(1)), 1)

    result = certified_integrated_gradients(Constant().eval(), [0.0, 0.0], [1.0, 1.0], 1, 1e-6)
    assert float(result.attributions[0].abs().sum()) == 0
    assert float(result.truncation[0].sum()) < 1e-250


def test_a_bound_that_is_lost_is_named():
    class Steep(nn.Module):
        def forward(self, x):
            return 1 / (torch.exp(x) - torch.exp(x) + 1e-17)

    result = certified_integrated_gradients(Steep().eval(), [0.0], [1.0], 0, 1e-6)
    assert result.status == "not certified"
    assert {part.reason for part in result.uncertified} == {"reciprocal in the model itself"}


def test_a_tight_layer_norm_needs_narrow_sub_intervals():
    model = nn.Sequential(nn.Linear(2, 4, bias=False), nn.LayerNorm(4, eps=1e-6), nn.Linear(4, 1)).double().eval()
    result = certified_integrated_gradients(model, [0.0, 0.0], [1.0, -1.0], 0, 1e-6)
    assert result.status == "certified"
    widths = [part.right - part.left for part in result.sub_intervals]
    assert min(widths) < 0.01 < max(widths)
    with torch.no_grad():
        truth = model(torch.tensor([[1.0, -1.0]]).double()) - model(torch.zeros(1, 2).double())
    assert float(result.attributions[0].sum()) == pytest.approx(float(truth), abs=1e-6)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Logarithm(nn.Module):
    def forward(self, x):
        return torch.log(x - 0.5)


class Floored(nn.Module):
    def forward(self, x):
        return torch.div(x, 3.0, rounding_mode="floor") + x


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "arguments", "error", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Hardtanh()), {}, xl.UnsupportedError, "hardtanh in 1"),
        (nn.Dropout().train(), {}, xl.TrainingModeError, "training mode"),
        (Noisy(), {}, xl.CaptureError, "random"),
        (Branching(), {}, xl.CaptureError, "branch"),
        (len, {}, xl.CaptureError, "Module"),
        (nn.Tanh(), {"tol": 0.0}, xl.ArgumentError, "tol"),
        (nn.Tanh(), {"tol": "small"}, xl.ArgumentError, "tol"),
        (nn.Tanh(), {"target": 5}, xl.ArgumentError, "target"),
        (nn.Tanh(), {"target": (0, 0)}, xl.ArgumentError, "target"),
        (nn.Tanh(), {"seconds": -1}, xl.ArgumentError, "seconds"),
        (nn.Tanh(), {"end": [1.0]}, xl.LineError, "shape"),
        (Logarithm(), {}, xl.NumberError, "log in the model itself"),
        (Floored(), {}, xl.UnsupportedError, "div in the model itself"),
        (nn.Linear(3, 1), {}, xl.CaptureError, "cannot be multiplied"),
    ],
)
def test_bad_input_is_named(model, arguments, error, words):
    call = {"start": [0.0, 0.0], "end": [1.0, 1.0], "target": 0, **arguments}
    with pytest.raises(error, match=words):
        certified_integrated_gradients(model, **call)
