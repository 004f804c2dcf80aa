"""Certified curves and decisions contain the truth, also where ReLU has kinks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from flint import acb
from torch import nn

import exactline as xl
from exactline.smooth.certified.attributions import certified_integrated_gradients
from exactline.smooth.certified.curve import CertifiedCurve, CurvePiece, Outputs, certify_curve
from exactline.smooth.certified.decisions import certify_decisions
from exactline.smooth.certified.line import Line
from exactline.smooth.certified.record import record_values
from tests.smooth.certified import balls
from tests.smooth.certified.balls import to_balls
from tests.smooth.certified.networks import Encoder, Gated, mlp

ALPHAS = np.linspace(0, 1, 257)


def outputs_along(model: nn.Module, start: torch.Tensor, end: torch.Tensor) -> np.ndarray:
    points = start + torch.from_numpy(ALPHAS)[:, None] * (end - start)
    with torch.no_grad():
        return model.double()(points).numpy()


def test_a_curve_contains_ball_arithmetic():
    model = mlp(nn.GELU(), (3, 5, 5, 2)).double().eval()
    start, end = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    curve = certify_curve(model, start, end, 1e-9)
    assert curve.status == "certified"
    layers = [(to_balls(m.weight.detach()), to_balls(m.bias.detach())) for m in model if isinstance(m, nn.Linear)]
    for alpha in (0.0, 0.1, 0.377, 0.5, 0.9, 1.0):
        hidden = to_balls(start) + acb(alpha) * (to_balls(end) - to_balls(start))
        for weight, bias in layers[:-1]:
            hidden = weight @ hidden + bias
            hidden = hidden * balls.normal(hidden)
        truth = layers[-1][0] @ hidden + layers[-1][1]
        distance = [float(abs(a - acb(float(b))).upper()) for a, b in zip(truth, curve.at([alpha])[0], strict=True)]
        assert max(distance) <= curve.error + curve.rounding_error <= 1e-9


@pytest.mark.parametrize(("build", "size"), [(lambda: Encoder(1), 12), (Gated, 7)], ids=["encoder", "gated"])
def test_a_curve_contains_the_outputs(build, size):
    model = build().eval()
    start, end = torch.randn(2, size, dtype=torch.float64)
    curve = certify_curve(model, start, end, 1e-8)
    assert curve.error <= 1e-8
    distance = np.abs(curve.at(ALPHAS) - outputs_along(model, start, end)).max()
    assert distance <= curve.error + 1e-12
    assert curve.breakpoints[0] == 0
    assert curve.breakpoints[-1] == 1


def test_decisions_are_certain_outside_of_brackets():
    model = mlp(nn.Tanh(), (4, 8, 8, 3)).double().eval()
    start, end = 3 * torch.randn(2, 4, dtype=torch.float64)
    decisions = certify_decisions(certify_curve(model, start, end, 1e-9))
    truth = outputs_along(model, start, end).argmax(1)
    assert decisions[0].left == 0
    assert decisions[-1].right == 1
    assert all(a.right == b.left for a, b in pairwise(decisions))
    for alpha, label in zip(ALPHAS, truth, strict=True):
        assert all(label in d.labels for d in decisions if d.left <= alpha <= d.right)
    assert all(d.right - d.left < 1e-6 for d in decisions if not d.is_certain)


def test_the_bracket_of_a_known_boundary_is_narrow():
    model = nn.Sequential(nn.Linear(1, 2), nn.Tanh()).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 0.5]))
    first, bracket, last = certify_decisions(certify_curve(model, [0.0], [1.5], 1e-10))
    assert first.labels == (1,)
    assert last.labels == (0,)
    assert bracket.left < 1 / 3 < bracket.right
    assert bracket.right - bracket.left < 1e-9


def test_an_error_as_large_as_the_gap_leaves_the_label_open():
    coefficients = np.array([[1.0, 0.0]])
    for error, labels in ((0.1, (0,)), (0.6, (0, 1))):
        piece = CurvePiece(0.0, 1.0, coefficients, np.full(2, error), np.zeros(2))
        (interval,) = certify_decisions(CertifiedCurve((piece,), (2,), 1.0, 1))
        assert interval.labels == labels


def test_a_single_output_has_no_decisions():
    with pytest.raises(xl.ArgumentError, match="single output"):
        certify_decisions(certify_curve(nn.Tanh(), [0.0], [1.0]))


def test_kinks_agree_with_exact_attributions():
    model = mlp(nn.ReLU()).double().eval()
    start, end = torch.randn(2, 4, dtype=torch.float64)
    result = certified_integrated_gradients(model, start, end, 0, 1e-8)
    exact = xl.attr.IntegratedGradients(model).attribute(end[None], start[None], target=0)[0]
    assert result.status == "certified"
    assert any(part.is_kink for part in result.sub_intervals)
    bounds = result.truncation[0] + result.rounding[0]
    assert bool(((result.attributions[0] - exact).abs() <= bounds + 1e-13).all())


def test_the_bracket_of_a_kink_contains_both_branches():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU()).double().eval()
    torch.nn.init.ones_(model[0].weight)
    function = Outputs(
        record_values(model, [torch.zeros(1, dtype=torch.float64)]),
        Line((-torch.ones(1).double(),), (torch.ones(1).double(),)),
    )
    values, bounds = function.on_interval(0.5, 2.0**-20)  # x = 2 alpha - 1 is within 2^-19 of 0
    assert float(values[0] - bounds[0]) <= 0.0
    assert float(values[0] + bounds[0]) >= 2.0**-19
    assert float(bounds[0]) < 2.0**-17


def test_kinks_behind_layer_norm_are_isolated():
    layers = (nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3), nn.LeakyReLU(0.1), nn.Softmax(1))
    model = nn.Sequential(*layers).double().eval()
    start, end = torch.randn(2, 4, dtype=torch.float64)
    curve = certify_curve(model, start, end, 1e-7)
    assert curve.status == "certified"
    distance = np.abs(curve.at(ALPHAS) - outputs_along(model, start, end)).max()
    assert distance <= curve.error + curve.rounding_error
    kinks = [piece for piece in curve.pieces if len(piece.coefficients) == 1]
    assert kinks
    hidden = nn.Sequential(*layers[:2])
    for piece in kinks:
        ends = torch.tensor([[piece.left], [piece.right]], dtype=torch.float64)
        with torch.no_grad():
            first = hidden(start + ends * (end - start))
            second = model[3](first.relu())
        assert bool((first[0] * first[1] <= 0).any() | (second[0] * second[1] <= 0).any())


def test_a_unit_that_stays_on_its_kink_is_not_certified():
    class Touching(nn.Module):
        def forward(self, x):
            return torch.relu(x - x) + torch.tanh(x)

    result = certified_integrated_gradients(Touching().eval(), [0.0, 0.0], [1.0, 1.0], 0, 1e-6, seconds=1)
    assert result.status == "not certified"
