"""What scripts for captum rely on: AssertionErrors, deltas of returned values, layers with other values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl

X = torch.linspace(-2, 2, 6, dtype=torch.float64).reshape(2, 3)


def make_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double().eval()


MODEL = make_model()


class WithState(nn.Module):
    """A layer that returns a tensor between values that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4).double()

    def forward(self, x: Tensor) -> tuple[None, Tensor, str]:
        return None, self.linear(x), "state"


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = WithState()

    def forward(self, x: Tensor) -> Tensor:
        none, values, name = self.layer(x)
        if none is not None or name != "state":
            raise ValueError("the layer's other values have changed")
        return values.relu().cumsum(1)


@pytest.mark.parametrize("selector", [9, (0, 0), "a", (slice(4, 9),), lambda y: y])
def test_wrong_selectors_are_assertion_errors(selector: Any):
    calls: list[tuple[Any, dict[str, Any]]] = [
        (xl.attr.NeuronIntegratedGradients(MODEL, MODEL[1]), {}),
        (xl.attr.NeuronConductance(MODEL, MODEL[1]), {"target": 0}),
    ]
    for method, call in calls:
        with pytest.raises(AssertionError) as error:
            method.attribute(X, selector, **call)
        assert isinstance(error.value, xl.ArgumentError)
        assert error.value.where == "argument neuron_selector"


@pytest.mark.parametrize("baselines", ["a", [[0.0, "b", 1.0]], object()])
def test_baselines_that_are_not_numbers_are_assertion_errors(baselines: Any):
    with pytest.raises(AssertionError) as error:
        xl.attr.IntegratedGradients(MODEL).attribute(X, baselines, target=0)
    assert isinstance(error.value, xl.LineError)


def test_a_failed_assertion_of_the_model_remains_one():
    def forward(x: Tensor) -> Tensor:
        if x.shape[1] != 7:
            raise AssertionError("seven features are needed")
        return x

    with pytest.raises(AssertionError, match="seven features are needed") as error:
        xl.attr.IntegratedGradients(forward).attribute(X, target=0)
    assert isinstance(error.value, xl.CaptureError)


def test_hints_of_captures_name_what_attribute_takes():
    ids, embedding = torch.tensor([[1, 2]]), nn.Embedding(4, 3)
    model = nn.Sequential(embedding, nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)).eval()
    with pytest.raises(xl.CaptureError) as error:
        xl.attr.LayerConductance(model, embedding).attribute(ids, target=0)
    assert "LayerIntegratedGradients" in error.value.hint
    with pytest.raises(xl.CaptureError) as error:
        xl.attr.IntegratedGradients(lambda x: {"scores": MODEL(x)}).attribute(X, target=0)
    assert 'output="logits"' in error.value.hint


def test_the_hint_for_a_loss_leads_to_its_attributions():
    def loss(x: Tensor, reduction: str = "none") -> Tensor:
        return nn.functional.cross_entropy(MODEL(x), torch.ones(x.shape[0], dtype=torch.long), reduction=reduction)

    with pytest.raises(xl.CaptureError) as error:
        xl.attr.IntegratedGradients(lambda x: loss(x, "mean")).attribute(X)
    assert "reduction='none'" in error.value.hint
    found = xl.attr.IntegratedGradients(loss).attribute(X)
    change = (loss(X) - loss(torch.zeros_like(X))).detach()
    assert torch.allclose(found.sum(1), change, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_delta_is_that_of_the_returned_attributions(dtype: torch.dtype):
    inputs, baselines = X.to(dtype), X.flip(0).to(dtype)
    call: dict[str, Any] = {"target": [0, 1], "return_convergence_delta": True}
    layers = [MODEL[1], [MODEL[0], MODEL[1]]]
    methods = [xl.attr.IntegratedGradients(MODEL), *(xl.attr.LayerIntegratedGradients(MODEL, k) for k in layers)]
    for method in methods:
        found, delta = method.attribute(inputs, baselines, **call)
        assert torch.equal(delta, method.compute_convergence_delta(found, baselines, inputs, [0, 1]))


def test_values_that_are_not_tensors_pass_a_layer():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Outer().eval()
    for kind in (xl.attr.LayerIntegratedGradients, xl.attr.LayerConductance):
        found = kind(model, model.layer).attribute(X, target=3)
        inner = kind(model, model.layer.linear).attribute(X, target=3)
        assert torch.allclose(found, inner, atol=1e-14)
        smooth = kind(lambda x: nn.functional.gelu(model(x)), model.layer, tol=1e-8).attribute(X, target=3)
        assert smooth.shape == (2, 4)
