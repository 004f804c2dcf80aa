"""Attributions to layers and neurons of smooth models, against integrals that a fine rule computes from autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import exactline as xl

NODES, PANELS = 24, 8


class CalledTwice(nn.Module):
    """One layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.act, self.two, self.three = nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        first = self.act(self.one(x))
        return torch.tanh(self.three(self.act(self.two(first)) + first))


class WithEnding(nn.Module):
    """A piecewise-linear body and an ending that gives one number for each example."""

    def __init__(self, ending: Any, outputs: int) -> None:
        super().__init__()
        self.one, self.relu, self.two = nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, outputs)
        self.ending = ending

    def forward(self, x: Tensor, *labels: Tensor) -> Tensor:
        return self.ending(self.two(self.relu(self.one(x))), *labels)


ENDINGS: dict[str, tuple[Any, int]] = {
    "sigmoid, squeeze": (lambda z: torch.sigmoid(z).squeeze(1), 1),
    "one probability": (lambda z: torch.softmax(z, 1)[:, 1] * 100, 3),
    "log of softmax": (lambda z: torch.log(torch.softmax(z, 1))[:, 0], 3),
    "loss with logits": (
        lambda z: functional.binary_cross_entropy_with_logits(z, torch.ones_like(z), reduction="none")[:, 0],
        1,
    ),
    "loss of a probability": (
        lambda z: functional.binary_cross_entropy(torch.sigmoid(z), torch.ones_like(z), reduction="none")[:, 0],
        1,
    ),
    "squares": (lambda z: ((z - 1) ** 2).mean(1), 3),
}


def make(build: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build().double().eval()


def points(count: int = 2) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def last_call_gradients(model: nn.Module, layer: nn.Module, x: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """The layer's tensor in its last call, (n, *shape), and the gradient of the output by it."""
    kept: list[Tensor] = []
    hook = layer.register_forward_hook(lambda *args: kept.append(args[2]))
    out = model(x)
    hook.remove()
    (gradient,) = torch.autograd.grad(out.reshape(len(x), -1)[:, index].sum(), kept[-1])
    return kept[-1], gradient


def fine_rule() -> tuple[Tensor, Tensor]:
    """Nodes and weights of a Gauss-Legendre rule on many panels of [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    alphas = ((np.arange(PANELS)[:, None] + (nodes + 1) / 2) / PANELS).reshape(-1)
    return torch.from_numpy(alphas), torch.from_numpy(np.tile(weights / 2 / PANELS, PANELS))


@pytest.mark.parametrize("times_change", [pytest.param(True, marks=pytest.mark.slow), False])
def test_flows_through_the_last_call_of_a_layer(times_change: bool) -> None:
    model, x = make(CalledTwice), points()
    alphas, weights = fine_rule()
    kind = xl.attr.LayerConductance if times_change else xl.attr.InternalInfluence
    method = kind(model, model.act, tol=1e-10)
    found = method.attribute(x, target=1)
    for k in range(len(x)):
        line = (alphas[:, None] * x[k]).requires_grad_()
        _, gradient = last_call_gradients(model, model.act, line, 1)
        layer = lambda a, k=k: last_call_gradients(model, model.act, (a * x[k])[None].requires_grad_(), 1)[0][0]  # noqa: E731
        slopes = torch.stack([torch.autograd.functional.jacobian(layer, a) for a in alphas])
        truth = weights @ (gradient * slopes if times_change else gradient)
        error = float((found[k] - truth).abs().sum() / truth.abs().sum())
        assert error <= float(method.report.error[k]) + 1e-13
        assert float(method.report.error[k]) <= 1e-10


@pytest.mark.slow
def test_the_flows_from_all_inputs_through_a_unit_called_twice_add_up_to_its_conductance() -> None:
    model, x = make(CalledTwice), points()
    layer = xl.attr.LayerConductance(model, model.act, tol=1e-10).attribute(x, target=0)
    for unit in (0, 3):
        neuron = xl.attr.NeuronConductance(model, model.act, tol=1e-10).attribute(x, unit, target=0)
        assert torch.allclose(neuron.sum(1), layer[:, unit], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "ending", [name if i == 0 else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(ENDINGS)]
)
def test_endings_need_no_tolerance_in_any_class(ending: str) -> None:
    model, x = make(lambda: WithEnding(*ENDINGS[ending])), points()
    with torch.no_grad():
        change = model(x) - model(torch.zeros_like(x))
    reports = []
    for kind, args in (
        (xl.attr.IntegratedGradients, ()),
        (xl.attr.LayerConductance, (model.relu,)),
        (xl.attr.LayerIntegratedGradients, (model.relu,)),
    ):
        method = kind(model, *args)
        assert torch.allclose(method.attribute(x).sum(1), change, rtol=1e-9, atol=1e-12)
        reports.append(method.report)
    conductance = xl.attr.LayerConductance(model, model.relu).attribute(x)
    neuron = xl.attr.NeuronConductance(model, model.relu)
    flow = neuron.attribute(x, 2)
    assert torch.allclose(flow.sum(1), conductance[:, 2], rtol=1e-8, atol=1e-12)
    influence = xl.attr.InternalInfluence(model, model.two)
    assert influence.attribute(x).shape == (2, ENDINGS[ending][1])
    for report in (*reports, neuron.report, influence.report):
        assert report.status == "estimated"
        assert float(report.error.max()) <= 1e-10
        assert report.gradients > 0


@pytest.mark.slow
def test_a_loss_takes_the_labels_of_the_examples() -> None:
    model = make(lambda: WithEnding(lambda z, y: functional.cross_entropy(z, y, reduction="none"), 3))
    x, labels = points(3), torch.tensor([0, 2, 0])
    with torch.no_grad():
        change = model(x, labels) - model(torch.zeros_like(x), labels)
    method = xl.attr.LayerConductance(model, model.relu)
    found = method.attribute(x, additional_forward_args=labels)
    assert torch.allclose(found.sum(1), change, rtol=1e-9, atol=1e-12)
    assert method.report.error.shape == (3,)


@pytest.mark.slow
def test_a_smooth_layer_at_the_end_can_be_attributed_to() -> None:
    """Its output is not piecewise linear, so that it is not exact."""
    model, x = make(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softmax(1))), points()
    method = xl.attr.LayerConductance(model, model[3])
    found = method.attribute(x, target=1)
    with torch.no_grad():
        change = (model(x) - model(torch.zeros_like(x)))[:, 1]
    assert torch.allclose(found, torch.stack([0 * change, change, 0 * change], 1), rtol=1e-9, atol=1e-12)
    assert method.report.status == "estimated"


@pytest.mark.slow
def test_a_smooth_body_still_needs_a_tolerance() -> None:
    model = make(CalledTwice)
    for kind in (xl.attr.LayerConductance, xl.attr.LayerIntegratedGradients, xl.attr.InternalInfluence):
        with pytest.raises(xl.UnsupportedError):
            kind(model, model.two).attribute(points(), target=0)
