"""Tests of the explanation function for Quantus: exact, complete, arrays in and out."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from exactline.attr.quantus import explain_func
from exactline.errors import ArgumentError, LineError


@pytest.fixture
def model():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)).eval()


def outputs(model, x, targets):
    with torch.no_grad():
        return deepcopy(model).double()(torch.from_numpy(np.array(x, dtype=np.float64)))[range(len(x)), targets].numpy()


@pytest.mark.parametrize("name", ["baseline", "baselines"])
def test_attributions_add_up_for_every_kind_of_baseline(model, name):
    random = np.random.default_rng(0)
    x, targets = random.normal(size=(3, 2, 6, 6)).astype(np.float32), np.array([0, 3, 1])
    for given in (
        None,
        0.5,
        random.normal(size=(2, 6, 6)),
        random.normal(size=(1, 2, 6, 6)),
        random.normal(size=x.shape),
    ):
        found = explain_func(model=model, inputs=x, targets=targets, **({} if given is None else {name: given}))
        assert isinstance(found, np.ndarray)
        assert found.shape == x.shape
        start = np.broadcast_to(0.0 if given is None else given, x.shape)
        change = outputs(model, x, targets) - outputs(model, start, targets)
        np.testing.assert_allclose(found.sum((1, 2, 3)), change, atol=1e-12)


def test_a_riemann_sum_with_many_samples_is_close(model):
    x = np.random.default_rng(1).normal(size=(1, 2, 6, 6))
    steps = 20_000
    at = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[:-1] + 0.5 / steps
    points = (at.view(-1, 1, 1, 1) * torch.as_tensor(x)).requires_grad_()
    model.double()(points)[:, 2].sum().backward()
    sampled = points.grad.mean(0).numpy() * x[0]
    np.testing.assert_allclose(explain_func(model, x, 2)[0], sampled, atol=2e-3 * np.abs(sampled).max())


def test_the_softmax_is_explained_by_default():
    body = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    model = nn.Sequential(body, nn.Softmax(1)).eval()
    x = np.random.default_rng(2).normal(size=(2, 3))
    for tail, part in ((True, model), (False, body)):
        found = explain_func(model, x, [1, 2], tail=tail)
        np.testing.assert_allclose(found.sum(1), outputs(part, x, [1, 2]) - outputs(part, 0 * x, [1, 2]), atol=1e-12)


@pytest.mark.parametrize(
    ("inputs", "targets", "options", "error"),
    [
        (np.zeros((2, 2, 6, 6)), [0, 4], {}, ArgumentError),
        (np.zeros((2, 2, 6, 6)), [0, 1, 2], {}, ArgumentError),
        (np.zeros((2, 2, 6, 6)), [0.5, 1], {}, ArgumentError),
        (np.zeros((2, 2, 6, 6)), [-1, 0], {}, ArgumentError),
        (np.full((1, 2, 6, 6), np.nan), [0], {}, LineError),
        (np.zeros((1, 2, 6, 6)), [0], {"baseline": np.zeros(5)}, LineError),
        (np.zeros((1, 2, 6, 6)), [0], {"baseline": 0, "baselines": 0}, ArgumentError),
        (np.zeros((1, 2, 6, 6)), [0], {"basline": 0}, ArgumentError),
        (3.0, [0], {}, LineError),
    ],
)
@pytest.mark.every(2)
def test_invalid_arguments_are_refused(model, inputs, targets, options, error):
    with pytest.raises(error):
        explain_func(model, inputs, targets, **options)


def test_no_inputs_have_no_attributions(model):
    assert explain_func(model, np.zeros((0, 2, 6, 6)), []).shape == (0, 2, 6, 6)
