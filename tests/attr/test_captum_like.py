"""Tests of the captum-compatible attributions: shapes, the limit of many steps, and completeness."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import sampling_options

QUICK, SLOW = 5_000, 50_000


class Residual(nn.Module):
    """Two layers and a connection around the second."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first, self.relu = nn.Linear(3, 6), nn.ReLU()
        self.second, self.leaky = nn.Linear(6, 6), nn.LeakyReLU(0.1, inplace=inplace)
        self.drop, self.last = nn.Dropout(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.first(x))
        return self.last(self.drop(self.leaky(self.second(h))) + h)


class Pair(nn.Module):
    """A layer that returns two tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.relu(), (x - 1).abs()


class TwoInputs(nn.Module):
    """captum's own example of several arguments: relu(relu(x - 1) - relu(y) / divisor), and a column of it."""

    def forward(self, x: Tensor, y: Tensor, divisor: Any = 1.0, column: int = 0) -> Tensor:
        return torch.relu(torch.relu(x - 1) - torch.relu(y) / divisor)[:, column]


def seeded(make: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


build = cache(seeded)  # for tests that do not change the model: it is captured once


def dense(*after: nn.Module) -> nn.Sequential:
    layers = nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), *after
    return nn.Sequential(*layers).double().eval()


def conv() -> nn.Sequential:
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    return nn.Sequential(*layers).double().eval()


def points(count: int = 4, *shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *(shape or (3,)), generator=generator, dtype=torch.float64)


def sample(kind: str, *model_and_layer: Any, steps: int = QUICK, **arguments: Any) -> Any:
    """The answer of captum, with many steps of the midpoint rule."""
    methods = pytest.importorskip("captum.attr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(methods, kind)(*model_and_layer).attribute(n_steps=steps, method="riemann_middle", **arguments)


def gap(ours: Any, theirs: Any) -> float:
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        return max(gap(a, b) for a, b in zip(ours, theirs, strict=True))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert not ours.requires_grad
    return float((ours - theirs.detach()).abs().max())


X, Y = points(), points(seed=2)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one target": (dense, {"inputs": X, "target": 1}),
    "negative target": (dense, {"inputs": X, "target": -1}),
    "list of targets": (dense, {"inputs": X, "target": [0, 3, 2, 1]}),
    "tensor of targets": (dense, {"inputs": X, "target": torch.tensor([0, 3, 2, 1])}),
    "tensor of one target": (dense, {"inputs": X, "target": torch.tensor(2)}),
    "tuple": (lambda: dense(nn.Unflatten(1, (2, 2))), {"inputs": X, "target": (1, 0)}),
    "list of tuples": (
        lambda: dense(nn.Unflatten(1, (2, 2))),
        {"inputs": X, "target": [(1, 0), (0, 0), (0, 1), (1, 1)]},
    ),
    "no target, one column": (lambda: dense(nn.Linear(4, 1).double()), {"inputs": X}),
    "no target, no column": (lambda: dense(nn.Linear(4, 1).double(), nn.Flatten(0)), {"inputs": X}),
    "baselines": (dense, {"inputs": X, "baselines": Y, "target": 1}),
    "one baseline": (dense, {"inputs": X, "baselines": Y[:1], "target": 1}),
    "scalar baseline": (dense, {"inputs": X, "baselines": 0.5, "target": 1}),
    "images": (conv, {"inputs": points(2, 1, 4, 4), "baselines": -1, "target": 2}),
    "tuple of one": (dense, {"inputs": (X,), "baselines": (Y,), "target": 0}),
    "tuple of two": (TwoInputs, {"inputs": (3 * X, Y), "baselines": (1.0, Y[:1])}),
    "numbers held": (TwoInputs, {"inputs": (3 * X, Y), "additional_forward_args": (2.0, 1)}),
    "one number held": (TwoInputs, {"inputs": (3 * X, Y), "additional_forward_args": 4}),
    "divisors held": (TwoInputs, {"inputs": (3 * X, Y), "additional_forward_args": (X.abs() + 1, 2)}),
    "input held": (TwoInputs, {"inputs": 3 * X, "additional_forward_args": Y}),
    "softmax": (lambda: dense(nn.Softmax(-1)), {"inputs": X, "baselines": Y, "target": [0, 3, 2, 1]}),
    "log_softmax": (lambda: dense(nn.LogSoftmax(-1)), {"inputs": X, "target": 0}),
    "sigmoid": (lambda: dense(nn.Sigmoid()), {"inputs": X, "target": 0}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(24)
def test_integrated_gradients_are_complete_and_the_limit_of_captum(name: str):
    make, call = CASES[name]
    model = build(make)
    ours, delta = xl.attr.IntegratedGradients(model).attribute(return_convergence_delta=True, **call)
    assert delta.shape == (len(X) if name != "images" else 2,)
    assert float(delta.abs().max()) < 1e-12
    # the midpoint rule misses a break by at most half a step, 1e-4, times the jump and the step of the input
    ends = call["inputs"] if isinstance(call["inputs"], tuple) else (call["inputs"],)
    most = 1e-4 * max(1.0, *(float(x.abs().max()) for x in ends))
    assert gap(ours, sample("IntegratedGradients", model, **call)) < most
    held = {k: v for k, v in call.items() if k in ("target", "additional_forward_args")}
    start = call.get("baselines", tuple(torch.zeros_like(x) for x in call["inputs"]) if isinstance(ours, tuple) else 0)
    again = xl.attr.IntegratedGradients(model).compute_convergence_delta(ours, start, call["inputs"], **held)
    assert torch.allclose(again, delta, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES)[3::4])
def test_integrated_gradients_agree_with_captum_with_many_steps(name: str):
    make, call = CASES[name]
    model = build(make)
    ours = xl.attr.IntegratedGradients(model).attribute(**call)
    assert gap(ours, sample("IntegratedGradients", model, steps=SLOW, **call)) < 1e-4


def test_a_function_and_a_network_are_as_good_as_a_module():
    model = build(dense)
    expected = xl.attr.IntegratedGradients(model).attribute(X, target=1)
    network = xl.restrict(model, X[0], Y[0]).network
    for other in (network, lambda x: model(x), model.forward):
        assert torch.equal(xl.attr.IntegratedGradients(other).attribute(X, target=1), expected)


def test_weights_of_a_function_may_change_between_calls():
    model = seeded(dense)
    ig = xl.attr.IntegratedGradients(lambda x: model(x))
    before = ig.attribute(X, target=1)
    with torch.no_grad():
        model[4].weight.mul_(2)
    assert torch.allclose(ig.attribute(X, target=1), 2 * before, atol=1e-14)


def test_without_multiplication_gradients_come_back():
    model = build(dense)
    local = xl.attr.IntegratedGradients(model, multiply_by_inputs=False)
    assert not local.multiplies_by_inputs
    assert local.has_convergence_delta()
    grads, delta = local.attribute(X, Y, 1, return_convergence_delta=True)
    assert torch.allclose(grads * (X - Y), xl.attr.IntegratedGradients(model).attribute(X, Y, 1), atol=1e-13)
    change = (model(X) - model(Y))[:, 1].detach()
    assert torch.allclose(delta, grads.sum(1) - change, atol=1e-13)  # as captum defines it: not 0 here


def test_results_have_the_inputs_precision():
    model = seeded(dense).float()
    ig = xl.attr.IntegratedGradients(model)
    ours, delta = ig.attribute(X.float().requires_grad_(), target=1, return_convergence_delta=True)
    assert ours.dtype == delta.dtype == torch.float32
    # the delta is that of the attributions as returned, each rounded to float32 once
    assert float(delta.abs().max()) <= float(ours.abs().sum(1).max()) * torch.finfo(torch.float32).eps
    assert torch.equal(delta, ig.compute_convergence_delta(ours, 0, X.float(), target=1))
    assert ig.attribute(X.half(), target=1).dtype == torch.float16
    assert ig.attribute(torch.tensor([[1, 2, 3]]), target=1).dtype == torch.float32
    assert ig.attribute(X[:0], target=1).shape == (0, 3)


def test_memory_and_progress_do_not_change_the_answer():
    model, reports = build(dense), []
    ig = xl.attr.IntegratedGradients(model)
    ours = ig.attribute(X, target=1, memory=20_000, progress=lambda share, pieces: reports.append((share, pieces)))
    assert torch.allclose(ours, ig.attribute(X, target=1), atol=1e-13)
    assert reports[-1] == (1.0, ig.report.pieces)


def test_masks_are_filled_in_example_by_example():
    model, mask = build(dense), torch.tensor([True, False, True, True])
    function = lambda x, keep: torch.where(keep[:, None], model(x), -model(x))  # noqa: E731
    ours = xl.attr.IntegratedGradients(function).attribute(X, target=1, additional_forward_args=mask)
    plain = xl.attr.IntegratedGradients(model).attribute(X, target=1)
    assert torch.allclose(ours, torch.where(mask[:, None], plain, -plain), atol=1e-14)


def test_sampling_options_warn_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling_options, "_warned_options", set())
    ig = xl.attr.IntegratedGradients(build(dense))
    with pytest.warns(xl.attr.ExactWarning) as warned:
        ig.attribute(X, target=1, n_steps=50, method="gausslegendre", internal_batch_size=4)
    assert len(warned) == 2
    ig.attribute(X, target=1, n_steps=50, method="gausslegendre")  # a warning would be an error


def test_the_report_counts_pieces_and_the_subgradient_range():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
        model[2].weight.copy_(torch.tensor([[3.0, 1.0]]))
    ig = xl.attr.IntegratedGradients(model)
    ig.attribute(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))  # x - y is 0 along the first line
    assert ig.report.pieces == 2
    assert ig.report.ambiguous == 1
    assert ig.report.subgradient_range.tolist() == [6.0, 0.0]


KINDS = ("LayerConductance", "InternalInfluence", "LayerIntegratedGradients", "NeuronConductance")
LAYERS = ("first", "relu", "second", "leaky", "drop", "last")  # relu also feeds last directly


def layer_call(kind: str, at_input: bool) -> dict[str, Any]:
    call: dict[str, Any] = {"inputs": X, "baselines": Y, "target": [0, 1, 1, 0]}
    if kind == "NeuronConductance":
        return {**call, "neuron_selector": 1, "attribute_to_neuron_input": at_input}
    return {**call, "attribute_to_layer_input": at_input}


def layers_agree(kind: str, names: tuple[str, ...], steps: int, most: float) -> None:
    model = seeded(Residual).double().eval()
    for name in names:
        layer = model.get_submodule(name)
        for at_input in (False, True):
            call = layer_call(kind, at_input)
            ours = getattr(xl.attr, kind)(model, layer).attribute(**call)
            assert gap(ours, sample(kind, model, layer, steps=steps, **call)) < most, (name, at_input)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_layers_are_the_limit_of_captum(kind: str):
    layers_agree(kind, LAYERS[1::3], 2_000, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_layers_agree_with_captum_with_many_steps(kind: str):
    layers_agree(kind, LAYERS, 20_000, 1e-4)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.slow
def test_the_flow_through_a_layer_is_the_change_of_the_output(inplace: bool):
    model = seeded(lambda: Residual(inplace)).double().eval()
    change = (model(X) - model(Y))[:, 1].detach()
    for name, at_input in (("first", True), ("relu", False), ("last", True)):
        layer = model.get_submodule(name)
        call: dict[str, Any] = {"target": 1, "attribute_to_layer_input": at_input, "return_convergence_delta": True}
        for kind in (xl.attr.LayerConductance, xl.attr.LayerIntegratedGradients):
            found, delta = kind(model, layer).attribute(X, Y, **call)
            assert float((found.sum(1) - change).abs().max()) < 1e-12
            assert float(delta.abs().max()) < 1e-12


def test_the_conductance_of_a_unit_is_the_sum_of_its_neuron_conductances():
    model = seeded(conv)
    images = points(2, 1, 4, 4)
    layer = xl.attr.LayerConductance(model, model[1]).attribute(images, target=2)
    neuron = xl.attr.NeuronConductance(model, model[1])
    for unit in ((0, 1, 2), (1, 3, -1)):
        found = neuron.attribute(images, unit, target=2)
        assert found.shape == images.shape
        assert torch.allclose(found.flatten(1).sum(1), layer[:, *unit], atol=1e-13)


@pytest.mark.slow
def test_layers_may_return_tuples_and_models_may_end_smoothly_or_be_functions():
    model = nn.Sequential(seeded(dense), Pair()).eval()
    function = lambda x: torch.softmax(sum(model(x)), -1)  # noqa: E731
    for layer, at_input in ((model[1], False), (model[0][1], False), (model[0][2], True)):
        call: dict[str, Any] = {"inputs": X, "target": 1, "attribute_to_layer_input": at_input}
        for kind in KINDS[:3]:
            ours = getattr(xl.attr, kind)(function, layer).attribute(**call)
            assert gap(ours, sample(kind, function, layer, steps=2_000, **call)) < 1e-3


@pytest.mark.slow
def test_layers_with_divisors_held():
    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = dense()

        def forward(self, x: Tensor, by: Tensor) -> Tensor:
            return self.body(x) / by

    model = seeded(Divided)
    by = torch.tensor([[1.0], [2.0], [2.0], [4.0]], dtype=torch.float64)
    for kind in KINDS[:3]:
        ours = getattr(xl.attr, kind)(model, model.body[1]).attribute(X, target=1, additional_forward_args=by)
        plain = getattr(xl.attr, kind)(model.body, model.body[1]).attribute(X, target=1)
        assert torch.allclose(ours, plain / by, atol=1e-13)


NAN = torch.full((4, 3), float("nan"))
WRONG: dict[str, tuple[dict[str, Any], type[xl.ExactlineError], str]] = {
    "out of range": ({"target": 4}, xl.ArgumentError, "argument target"),
    "missing": ({}, xl.ArgumentError, "argument target"),
    "too few": ({"target": [1, 2]}, xl.ArgumentError, "argument target"),
    "too few in a tensor": ({"target": torch.tensor([1, 2])}, xl.ArgumentError, "argument target"),
    "too many dims": ({"target": (1, 2)}, xl.ArgumentError, "argument target"),
    "not whole": ({"target": 1.5}, xl.ArgumentError, "argument target"),
    "baseline of another shape": ({"target": 1, "baselines": Y[:2]}, xl.LineError, "argument baselines"),
    "too many baselines": ({"target": 1, "baselines": (Y, Y)}, xl.LineError, "argument baselines"),
    "a baseline that is no number": ({"target": 1, "baselines": float("inf")}, xl.LineError, "argument baselines"),
    "inputs that are no numbers": ({"target": 1, "inputs": NAN}, xl.LineError, "argument inputs"),
    "inputs that are words": ({"target": 1, "inputs": "words"}, xl.LineError, "argument inputs"),
    "no examples": ({"target": 1, "inputs": torch.tensor(1.0)}, xl.LineError, "argument inputs"),
    "device": ({"target": 1, "device": "nowhere"}, xl.ArgumentError, "argument device"),
    "memory": ({"target": 1, "memory": -1}, xl.ArgumentError, "argument memory"),
}


def test_errors_name_the_argument():
    ig = xl.attr.IntegratedGradients(build(dense))
    for name, (call, kind, where) in WRONG.items():
        with pytest.raises(kind) as error:
            ig.attribute(**{"inputs": X, **call})
        assert error.value.where == where, name


def test_models_and_layers_that_cannot_be_used_are_refused():
    model = build(dense)
    with pytest.raises(xl.UnsupportedError):
        xl.attr.IntegratedGradients(nn.Sequential(nn.Tanh(), *model)).attribute(X, target=1)
    with pytest.raises(xl.ArgumentError, match="has 2 outputs"):
        xl.attr.IntegratedGradients(Pair()).attribute(X, target=1)
    with pytest.raises(xl.ArgumentError, match="not a submodule"):
        xl.attr.LayerConductance(model, nn.ReLU())
    with pytest.raises(xl.ArgumentError, match="takes no part"):
        xl.attr.LayerConductance(lambda x: model(x), nn.ReLU()).attribute(X, target=1)
    pair = nn.Sequential(nn.ReLU(), Pair())
    with pytest.raises(xl.ArgumentError, match="has 2 outputs"):
        xl.attr.LayerConductance(pair, pair[0]).attribute(X, target=1)
    for unit in (8, (0, 1), "a", ()):
        with pytest.raises(xl.ArgumentError) as error:
            xl.attr.NeuronConductance(model, model[1]).attribute(X, unit, target=1)
        assert error.value.where == "argument neuron_selector"


def test_the_model_may_be_given_by_captums_name():
    x = torch.tensor([[3.0]])
    ours = xl.attr.IntegratedGradients(forward_func=torch.nn.ReLU()).attribute(x, baselines=-1.0, target=0)
    assert ours.tolist() == [[3.0]]
    with pytest.raises(xl.ArgumentError, match="no model"):
        xl.attr.IntegratedGradients()


def test_layers_report_the_subgradient_range():
    # the second unit is 0 along the line: its gradient of 3 is a convention, the flow through the first is not
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[2].weight.copy_(torch.tensor([[1.0, 3.0]]))
    x, start = torch.tensor([[2.0, 0.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    influence = xl.attr.InternalInfluence(model, model[0])
    assert influence.attribute(x, start).tolist() == [[1.0, 0.0]]
    assert influence.report is not None
    assert (influence.report.ambiguous, influence.report.subgradient_range.tolist()) == (1, [3.0])
    conductance = xl.attr.LayerConductance(model, model[0])
    assert conductance.attribute(x, start).tolist() == [[1.0, 0.0]]
    assert conductance.report is not None
    assert conductance.report.subgradient_range.tolist() == [0.0]  # the unit does not move
