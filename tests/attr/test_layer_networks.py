"""Layers between ReLUs and max pools: the same flow as the sum over the pieces of the model itself, and no ties."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import InternalInfluence, LayerConductance, LayerIntegratedGradients, NeuronConductance
from exactline.attr.layer_networks import watch_before_pools, watch_before_relus
from exactline.engines import select
from exactline.network import as_network
from exactline.network.simplify import fuse_relu_with_maximum
from exactline.ops.maximum import Maximum

TARGET = 1


class Pooled(nn.Module):
    """Two pools behind ReLUs; the first ReLU is read by its pool alone, or by a second path as well."""

    def __init__(self, is_shared: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        self.relu, self.last_relu, self.pool = nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2)
        self.head, self.is_shared = nn.Linear(16, 3), is_shared

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.first(x))
        pooled = self.pool(y) + y[:, :, ::2, ::2] if self.is_shared else self.pool(y)
        return self.head(self.pool(self.last_relu(self.second(pooled))).flatten(1))


def make_model(is_shared: bool) -> tuple[Pooled, Tensor, Tensor]:
    torch.manual_seed(3)
    model = Pooled(is_shared).double().eval()
    baseline, x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    return model, baseline, x


def sum_flow(model: Pooled, layer: nn.Module, baseline: Tensor, x: Tensor) -> Tensor:
    """The gradient at a layer in the middle of each piece of the model, times the layer's change along it."""
    line = xl.restrict(model, baseline, x, rewrite=False)
    middles = (line.alphas[1:] + line.alphas[:-1]) / 2
    taken = list[Tensor]()
    handle = layer.register_forward_hook(lambda _, __, out: taken.append(out))
    out = model(torch.lerp(baseline, x, middles.view(-1, 1, 1, 1)))
    model(torch.lerp(baseline, x, line.alphas.view(-1, 1, 1, 1)))
    handle.remove()
    (gradients,) = torch.autograd.grad(out[:, TARGET].sum(), taken[0])
    return (gradients * taken[1].detach().diff(dim=0)).sum(0, keepdim=True)


def sum_gradients(model: Pooled, layer: nn.Module, baseline: Tensor, x: Tensor) -> Tensor:
    """The gradient at a layer in the middle of each piece of the model, times the width of the piece."""
    line = xl.restrict(model, baseline, x, rewrite=False)
    middles, taken = (line.alphas[1:] + line.alphas[:-1]) / 2, list[Tensor]()
    handle = layer.register_forward_hook(lambda _, __, out: taken.append(out))
    out = model(torch.lerp(baseline, x, middles.view(-1, 1, 1, 1)))
    handle.remove()
    (gradients,) = torch.autograd.grad(out[:, TARGET].sum(), taken[0])
    return (gradients * line.alphas.diff().view(-1, 1, 1, 1)).sum(0, keepdim=True)


@pytest.mark.parametrize("is_shared", [False, True], ids=["read once", "read twice"])
@pytest.mark.parametrize("name", ["relu", "last_relu", "second"])
def test_conductance_is_the_sum_over_all_pieces(name, is_shared):
    model, baseline, x = make_model(is_shared)
    layer = getattr(model, name)
    expected = sum_flow(model, layer, baseline, x)
    method = LayerConductance(model, layer)
    found = method.attribute(x[None], baseline[None], target=TARGET)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
    if not is_shared:
        assert method.report.ambiguous == 0  # units that are off do not tie


@pytest.mark.parametrize("is_shared", [False, True], ids=["read once", "read twice"])
def test_the_conductance_of_a_neuron_adds_up_to_that_of_its_layer(is_shared):
    model, baseline, x = make_model(is_shared)
    layer = LayerConductance(model, model.relu).attribute(x[None], baseline[None], target=TARGET)
    unit = tuple(int(k) for k in torch.unravel_index(layer[0].abs().argmax(), layer.shape[1:]))
    found = NeuronConductance(model, model.relu).attribute(x[None], unit, baseline[None], target=TARGET)
    assert float(layer[0][unit]) != 0
    assert float(found.sum()) == pytest.approx(float(layer[0][unit]), rel=1e-11)


def test_a_maximum_still_reads_an_output():
    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.relu(x)
        pooled = nn.functional.max_pool1d(y, 2)
        return nn.functional.max_pool1d(pooled, 2), y, pooled

    network = as_network(forward, [torch.zeros(1, 8)], rewrite=False)
    fused = fuse_relu_with_maximum(network, passes_outputs=False)
    last, y, pooled = fused.outputs
    assert fused.nodes[pooled].inputs == (y,)
    assert fused.nodes[last].inputs == (pooled,)
    passed = fuse_relu_with_maximum(network)
    assert isinstance(passed.nodes[passed.outputs[0]].op, Maximum)
    assert not {passed.outputs[1], passed.outputs[2]} & set(passed.nodes[passed.outputs[0]].inputs)


class Branches(nn.Module):
    """Two ReLUs that a pool reads together and a convolution reads as well; a second pool reads the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.side, self.mixed = (nn.Conv2d(*sizes, 3, padding=1) for sizes in ((2, 4), (2, 2), (6, 4)))
        self.relu, self.other, self.pool, self.head = nn.ReLU(), nn.ReLU(), nn.MaxPool2d(3, 1, 1), nn.Linear(64, 3)
        for part in (self.first, self.side):
            nn.init.constant_(part.get_parameter("bias"), -1.0)  # whole windows are off

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([self.other(self.side(x)), self.relu(self.first(x))], 1)
        pooled = self.pool(y)
        z = torch.cat([torch.relu(self.mixed(y)), self.pool(pooled)[:, 2:]], 1)
        return self.head((z[:, :4] + z[:, 4:])[:, :, ::2, ::2].flatten(1))


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("name", ["relu", "other"])
def test_influence_at_units_that_tie_in_pools(name, engine, monkeypatch):
    torch.manual_seed(5)
    model = Branches().double().eval()
    baseline, x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0 if engine == "patches" else float("inf"))
    monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
    layer = getattr(model, name)
    plain = InternalInfluence(model, layer)
    with monkeypatch.context() as without:
        without.setattr("exactline.attr.layers.watch_before_pools", lambda n, nodes: (n, [[i] for i in nodes]))
        without.setattr(select, "MIN_POINT_WORK", float("inf"))
        expected = plain.attribute(x[None], baseline[None], target=TARGET)
    method = InternalInfluence(model, layer)
    found = method.attribute(x[None], baseline[None], target=TARGET)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
    assert method.report.ambiguous > 0
    assert torch.allclose(method.report.subgradient_range, plain.report.subgradient_range, rtol=1e-12, atol=0)


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("name", ["relu", "last_relu"])
def test_influence_at_units_that_only_a_pool_reads(name, engine, monkeypatch):
    model, baseline, x = make_model(False)
    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0 if engine == "patches" else float("inf"))
    monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
    layer = getattr(model, name)
    expected = sum_gradients(model, layer, baseline, x)
    method = InternalInfluence(model, layer)
    found = method.attribute(x[None], baseline[None], target=TARGET)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def test_both_engines_count_as_many_ties(monkeypatch):
    counts = list[int]()
    for least_work in (0.0, float("inf")):
        torch.manual_seed(5)
        model = Branches().double().eval()
        baseline, x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
        monkeypatch.setattr(select, "MIN_POINT_WORK", least_work)
        monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
        method = InternalInfluence(model, model.relu)
        method.attribute(x[None], baseline[None], target=TARGET)
        counts.append(method.report.ambiguous)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("multiply", [True, False])
def test_units_that_stay_off_on_the_line_of_a_layer(multiply, monkeypatch):
    found, counts = list[Tensor](), list[int]()
    for least_work in (0.0, float("inf")):
        model, baseline, x = make_model(False)
        monkeypatch.setattr(select, "MIN_POINT_WORK", least_work)
        monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
        method = LayerIntegratedGradients(model, model.relu, multiply_by_inputs=multiply)
        found.append(method.attribute(x[None], baseline[None], target=TARGET))
        counts.append(method.report.ambiguous)
    assert torch.allclose(*found, rtol=0, atol=1e-12 * float(found[1].abs().max()))
    assert counts[1] > 0  # units tie at 0 in pools, which matters only if they are not multiplied by their change of 0
    assert counts[0] == (0 if multiply else counts[1])


@pytest.mark.parametrize("rewrite", [watch_before_relus, watch_before_pools])
def test_rewritten_networks_are_freed_with_their_original(rewrite):
    model, _, x = make_model(False)
    network = replace(as_network(model, [x], rewrite=False))  # a copy, which no cache of the model keeps alive
    for i in range(len(network.nodes) - 1):
        rewrite(network, [i])
    freed = weakref.ref(network)
    del network
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_internal_influence_at_a_relu_that_only_a_pool_reads(engine, monkeypatch):
    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0)
    monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0 if engine == "patches" else 1e9})
    model, baseline, x = make_model(False)
    line = xl.restrict(model, baseline, x, rewrite=False)
    middles, taken = (line.alphas[1:] + line.alphas[:-1]) / 2, list[Tensor]()
    handle = model.relu.register_forward_hook(lambda _, __, out: taken.append(out))
    out = model(torch.lerp(baseline, x, middles.view(-1, 1, 1, 1)))
    handle.remove()
    (gradients,) = torch.autograd.grad(out[:, TARGET].sum(), taken[0])
    expected = (gradients * line.alphas.diff().view(-1, 1, 1, 1)).sum(0, keepdim=True)
    found = InternalInfluence(model, model.relu).attribute(x[None], baseline[None], target=TARGET)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
