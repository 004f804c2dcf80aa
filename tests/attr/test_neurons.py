"""Attributions of one unit: selectors of every form, against captum and against the model that returns the unit."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl


def make_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 3)
        return nn.Sequential(*layers).double().eval()


MODEL = make_model()
X = torch.linspace(-2, 2, 32, dtype=torch.float64).reshape(2, 1, 4, 4)
Y = X.flip(2).roll(1, 3)
SELECTORS: dict[str, tuple[int, Any]] = {
    "an int": (4, 2),
    "a tuple": (1, (1, 2, -1)),
    "slices": (1, (slice(0, 2), 1, slice(None))),
    "a function": (1, lambda y: y[:, 1, 2, 3]),
    "a sum over the batch": (4, lambda y: torch.sum(y[:, 2:])),
}


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.every(2)
def test_integrated_gradients_of_a_unit(name: str):
    captum = pytest.importorskip("captum.attr")
    index, selector = SELECTORS[name]
    method = xl.attr.NeuronIntegratedGradients(MODEL, MODEL[index])
    ours = method.attribute(X, selector, Y)
    theirs = captum.NeuronIntegratedGradients(MODEL, MODEL[index]).attribute(X, selector, Y, n_steps=300)
    assert torch.allclose(ours, theirs.detach(), atol=1e-2)
    select = selector if callable(selector) else lambda y: y[(slice(None), *_as_tuple(selector))]
    with torch.no_grad():
        ends = [[select(MODEL[: index + 1](p[i : i + 1])).sum() for i in range(2)] for p in (X, Y)]
    change = torch.tensor(ends[0]) - torch.tensor(ends[1])
    assert torch.allclose(ours.flatten(1).sum(1), change, atol=1e-12)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", SELECTORS)
def test_conductance_through_a_unit(name: str):
    captum = pytest.importorskip("captum.attr")
    index, selector = SELECTORS[name]
    if name == "a sum over the batch":  # captum cannot multiply by a single number
        selector = lambda y: y[:, 2:].sum(1)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = xl.attr.NeuronConductance(MODEL, MODEL[index]).attribute(X, selector, Y, target=1)
        method = captum.NeuronConductance(MODEL, MODEL[index])
        theirs = method.attribute(X, selector, Y, target=1, n_steps=1000)
    assert torch.allclose(ours, theirs.detach(), atol=5e-3)


def test_several_units_are_warned_of():
    method = xl.attr.NeuronConductance(MODEL, MODEL[4])
    with pytest.warns(UserWarning, match="several units"):
        method.attribute(X, (slice(0, 2),), target=1)
    one = method.attribute(X, 1, target=1)
    assert torch.equal(method.attribute(X, (slice(1, 2),), target=1), one)


class Tuple(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.relu(), (x - 1).abs()


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Tuple()

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.pair(x)
        return 2 * one + 3 * two


def test_functions_select_from_layers_with_several_tensors():
    model = Sum()
    x = torch.tensor([[3.0, -1.0]])
    conductance = xl.attr.NeuronConductance(model, model.pair)
    assert conductance.attribute(x, lambda t: t[1][:, 0], target=0).tolist() == [[3.0, 0.0]]  # 3 * (|3 - 1| - |0 - 1|)
    assert xl.attr.NeuronIntegratedGradients(model, model.pair).attribute(x, lambda t: t[1][:, 0]).tolist() == [[1, 0]]
    with pytest.raises(AssertionError, match="several tensors"):
        conductance.attribute(x, 0, target=0)
    with pytest.raises(AssertionError, match="several tensors"):
        conductance.attribute(x, lambda t: t[0][:, 0] + t[1][:, 0], target=0)


def test_piecewise_linear_functions_of_units_are_integrated_exactly():
    # max(relu(x), relu(y)) from (0, 0) to (2, 1) is relu(x): the analytic answer
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 1))
    found = xl.attr.NeuronIntegratedGradients(model, model[0]).attribute(
        torch.tensor([[2.0, 1.0]]), lambda y: y.amax(1)
    )
    assert found.tolist() == [[2.0, 0.0]]
    with pytest.raises(xl.ArgumentError, match="not linear"):
        xl.attr.NeuronConductance(model, model[0]).attribute(torch.ones(1, 2), lambda y: y.amax(1))


def test_a_function_is_read_without_torch_warning_of_its_gradient():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise torch warns only once in a process, in whichever test comes first
    try:
        found = xl.attr.NeuronConductance(MODEL, MODEL[4]).attribute(X, lambda y: y[:, 2], target=1)
    finally:
        torch.set_warn_always(before)
    assert torch.equal(found, xl.attr.NeuronConductance(MODEL, MODEL[4]).attribute(X, 2, target=1))


WRONG = (5, (0, 1), "a", (), (slice(9, 12),), lambda y: y, lambda y: y[0], lambda y: 1.0)


@pytest.mark.parametrize("selector", WRONG, ids=range(len(WRONG)))
@pytest.mark.every(4)
def test_selectors_that_do_not_fit(selector: Any):
    for kind in (xl.attr.NeuronConductance, xl.attr.NeuronIntegratedGradients):
        options = {"target": 1} if kind is xl.attr.NeuronConductance else {}
        with pytest.raises(xl.ExactlineError) as error:
            kind(MODEL, MODEL[4]).attribute(X, selector, **options)
        assert "neuron_selector" in error.value.where or isinstance(error.value, xl.CaptureError)
