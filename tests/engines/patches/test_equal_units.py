"""Units that are the same function of the inputs: their labels, and gradients where they tie in a max pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients, InternalInfluence, LayerConductance, path_integrals
from exactline.engines import select
from exactline.engines.patches.equal_units import UnitLabels
from exactline.engines.patches.plan import patch_plan
from exactline.network import as_network
from tests.engines.patches.random_graphs import random_graph
from tests.oracle.families import Concat

TARGET = 1
POINTS = 4


def make_model() -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two blocks with a pool whose windows all cover the whole map of 2 x 2 pixels, as in a small GoogLeNet."""
    torch.manual_seed(2)
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
    first = Concat(nn.Sequential(nn.Conv2d(4, 2, 1), nn.ReLU()), pooled)
    second = Concat(nn.Sequential(nn.Conv2d(5, 2, 1), nn.ReLU()), nn.MaxPool2d(3, 1, 1))
    stem = nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU()
    model = nn.Sequential(*stem, first, second, nn.Flatten(), nn.Linear(28, 3)).double().eval()
    nn.init.constant_(pooled[1].get_parameter("bias"), 1.0)  # units are on, so that gradients pass
    start, end = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    return model, start, end


def sum_gradients(
    model: nn.Sequential, layer: nn.Module | None, start: Tensor, end: Tensor, over_values: bool
) -> Tensor:
    """The gradient at the input, or at a layer, in the middle of each piece, times its change or the piece's width."""
    line, taken = xl.restrict(model, start, end, rewrite=False), list[Tensor]()
    handle = None if layer is None else layer.register_forward_hook(lambda _, __, out: taken.append(out))
    points = torch.lerp(start, end, ((line.alphas[1:] + line.alphas[:-1]) / 2).view(-1, 1, 1, 1)).requires_grad_()
    ends = torch.lerp(start, end, line.alphas.view(-1, 1, 1, 1))
    out = model(points)
    model(ends)
    if handle is not None:
        handle.remove()
    (gradients,) = torch.autograd.grad(out[:, TARGET].sum(), taken[0] if taken else points)
    steps = (taken[1] if taken else ends).detach().diff(dim=0)
    return (gradients * (steps if over_values else line.alphas.diff().view(-1, 1, 1, 1))).sum(0, keepdim=True)


@pytest.fixture
def patch_results(monkeypatch) -> list[bool]:
    """For each integral, whether patches could find it."""
    results, integrate = list[bool](), path_integrals.patch_integral

    def record(*args, **options):
        found = integrate(*args, **options)
        results.append(found is not None)
        return found

    monkeypatch.setattr(path_integrals, "patch_integral", record)
    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0)
    monkeypatch.setattr(select, "MIN_PATCH_GAIN", {"cpu": 0.0})
    return results


def labels_of(network, watched=()) -> UnitLabels:
    return UnitLabels(network, patch_plan(network), frozenset(watched))


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_units_with_equal_labels_have_equal_values(seed):
    model, start, _ = make_model() if seed is None else random_graph(seed)
    network = as_network(model, [start])
    labels = labels_of(network)
    points = torch.randn(POINTS, *start.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    equal = 0
    for i, values in network.evaluate([points], range(len(network.nodes))).items():
        of_node, values = labels.of(i), values.flatten(1)
        representative = torch.zeros(int(of_node.max()) + 1, dtype=torch.int64)
        representative[of_node] = torch.arange(len(of_node))
        distance = (values - values[:, representative[of_node]]).abs().max()
        assert distance <= 1e-12 * max(float(values.abs().max()), 1.0)
        equal += len(of_node) - len(of_node.unique())
    if seed is None:
        assert equal > 0


def test_watched_units_are_told_apart():
    model, start, _ = make_model()
    network = as_network(model, [start])
    last = max(i for i, node in enumerate(network.nodes) if node.name.startswith("max_pool2d"))
    assert len(labels_of(network).of(last).unique()) < network.nodes[last].shape[0] * 4
    assert len(labels_of(network, [last]).of(last).unique()) == network.nodes[last].shape[0] * 4


def test_gradients_where_equal_units_tie(patch_results):
    model, start, end = make_model()
    method = IntegratedGradients(model)
    found = method.attribute(end[None], start[None], target=TARGET)
    expected = sum_gradients(model, None, start, end, True)
    assert patch_results == [True]
    assert method.report.ambiguous == 0
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", [LayerConductance, InternalInfluence])
def test_layers_where_equal_units_tie(kind, patch_results):
    model, start, end = make_model()
    pool_branch = [part for part in model[4].modules() if isinstance(part, nn.ReLU)][-1]
    for layer in (model[1], model[3], pool_branch):
        found = kind(model, layer).attribute(end[None], start[None], target=TARGET)
        expected = sum_gradients(model, layer, start, end, kind is LayerConductance)
        if layer is pool_branch:  # which of the equal units gets the gradient is a convention
            found, expected = found.sum((2, 3)), expected.sum((2, 3))
        assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
    assert patch_results[0]
    assert patch_results[-1] is False
