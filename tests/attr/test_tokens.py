"""Token ids, lists of layers, layers that are called twice or return tuples: against captum, and analytic answers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl

IDS = torch.tensor([[1, 4, 2, 0], [3, 3, 5, 1]])
STEPS, TOLERANCE = 300, 1e-2  # captum's error is about a jump of the gradient, of size 1, times the width of a step
REFERENCE = torch.zeros(1, 4, dtype=torch.long)


def seeded(make: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().eval()


class Sentiment(nn.Module):
    """Two embeddings, a convolution over words, and optionally a mask that reads the ids again."""

    def __init__(self, masked: bool = False, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(6, 5), nn.Embedding(4, 5)
        self.conv, self.relu, self.fc = nn.Conv1d(5, 6, 2), activation or nn.ReLU(), nn.Linear(6, 2)
        self.masked = masked

    def forward(self, ids: Tensor, places: Tensor | None = None) -> Tensor:
        words = self.embedding(ids)
        if places is not None:
            words = words + self.position(places)
        if self.masked:
            words = words * (ids != 0).unsqueeze(2)
        return self.fc(self.relu(self.conv(words.transpose(1, 2))).max(2).values)


def sample(model: Any, layers: Any, *inputs: Any, **options: Any) -> Any:
    """captum's answer with many steps."""
    methods = pytest.importorskip("captum.attr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return methods.LayerIntegratedGradients(model, layers).attribute(*inputs, n_steps=STEPS, **options)


@pytest.mark.parametrize("masked", [False, True])
def test_ids_stay_integers_up_to_the_layer(masked: bool):
    model = seeded(lambda: Sentiment(masked))
    method = xl.attr.LayerIntegratedGradients(model, model.embedding)
    ours, delta = method.attribute(IDS, REFERENCE, target=[0, 1], return_convergence_delta=True)
    theirs, their_delta = sample(model, model.embedding, IDS, REFERENCE, target=[0, 1], return_convergence_delta=True)
    assert ours.shape == (2, 4, 5)
    assert ours.dtype == theirs.dtype == torch.float32
    assert torch.allclose(ours, theirs.detach(), atol=TOLERANCE)
    assert torch.allclose(
        delta, their_delta, atol=TOLERANCE
    )  # not 0 with a mask: it is that of the ids, not the reference
    rounding = float(ours.abs().sum((1, 2)).max()) * torch.finfo(torch.float32).eps  # of what is returned
    assert masked or float(delta.abs().max()) <= rounding
    assert method.report.status == "exact"
    if not masked:
        with torch.no_grad():
            assert torch.equal(method.attribute(IDS, target=[0, 1]), ours)  # id 0 is the default


@pytest.mark.slow
def test_further_ids_and_functions_around_the_model():
    model = seeded(Sentiment)
    places = torch.arange(4).expand(2, 4)
    ours = xl.attr.LayerIntegratedGradients(lambda i, p: model(i, p), model.embedding)
    found, delta = ours.attribute(
        IDS, REFERENCE, target=1, additional_forward_args=places, return_convergence_delta=True
    )
    assert float(delta.abs().max()) < 1e-6  # a function is evaluated in the precision of its weights
    theirs = sample(model, model.embedding, IDS, REFERENCE, target=1, additional_forward_args=places)
    assert torch.allclose(found, theirs.detach(), atol=TOLERANCE)


@pytest.mark.slow
def test_probabilities_and_smooth_models_of_ids():
    model = seeded(Sentiment)
    for function, options in (
        (lambda i: torch.softmax(model(i), 1), {}),
        (lambda i: torch.sigmoid(model(i)[:, :1]), {}),
        (seeded(lambda: Sentiment(activation=nn.GELU())), {"tol": 1e-8}),
    ):
        layer = function.embedding if isinstance(function, nn.Module) else model.embedding
        method = xl.attr.LayerIntegratedGradients(function, layer, **options)
        ours, delta = method.attribute(IDS, REFERENCE, target=0, return_convergence_delta=True)
        assert torch.allclose(ours, sample(function, layer, IDS, REFERENCE, target=0).detach(), atol=TOLERANCE)
        assert float(delta.abs().max()) < 1e-6


def test_interpretable_embeddings_of_captum():
    captum = pytest.importorskip("captum.attr")
    model = seeded(Sentiment)
    by_layer = xl.attr.LayerIntegratedGradients(model, model.embedding).attribute(IDS, REFERENCE, target=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapper = captum.configure_interpretable_embedding_layer(model, "embedding")
        inputs, baselines = wrapper.indices_to_embeddings(IDS), wrapper.indices_to_embeddings(REFERENCE)
        by_input = xl.attr.IntegratedGradients(model).attribute(inputs, baselines, target=1)
        captum.remove_interpretable_embedding_layer(model, wrapper)
    assert torch.allclose(by_layer, by_input, atol=1e-6)


class Branches(nn.Module):
    """Two branches with several inputs, outputs and calls."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.pair, self.last = nn.Linear(3, 4), Pair(), nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        low, high = self.pair(x, y)
        return self.last(torch.relu(self.one(x) + low) + high)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(3, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight(y), torch.relu(self.weight(x))


@pytest.mark.parametrize("at_input", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_lists_of_layers_move_together(at_input: bool):
    model = seeded(Branches).double()
    x, y = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(2, 2, 3)
    for layers in ([model.pair, model.one], [model.one]):
        method = xl.attr.LayerIntegratedGradients(model, layers)
        call: dict[str, Any] = {"target": 1, "attribute_to_layer_input": at_input}
        ours = method.attribute((x, y), **call)
        theirs = sample(model, layers, (x, y), **call)
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert isinstance(one, tuple) == isinstance(other, tuple)
            for a, b in zip(_as_tuple(one), _as_tuple(other), strict=True):
                assert torch.allclose(a, b.detach(), atol=TOLERANCE)


def _as_tuple(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_layers_that_are_called_twice():
    relu = nn.ReLU()
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 2))).double()
    x = torch.linspace(-2, 2, 6, dtype=torch.float64).reshape(2, 3)
    captum = pytest.importorskip("captum.attr")
    for name in ("LayerIntegratedGradients", "LayerConductance", "InternalInfluence"):
        ours = getattr(xl.attr, name)(model, relu).attribute(x, target=1)
        theirs = getattr(captum, name)(model, relu).attribute(x, target=1, n_steps=STEPS)
        assert torch.allclose(ours, theirs.detach(), atol=TOLERANCE), name


def test_layers_that_do_not_fit():
    model = seeded(Sentiment)
    with pytest.raises(xl.ArgumentError, match="not a submodule"):
        xl.attr.LayerIntegratedGradients(model, [model.embedding, nn.ReLU()])
    with pytest.raises(xl.ArgumentError, match="empty"):
        xl.attr.LayerIntegratedGradients(model, [])
    with pytest.raises(xl.ArgumentError, match="not a module"):
        xl.attr.LayerConductance(model, [model.conv])
    with pytest.raises(xl.ArgumentError, match="NoneType"):
        xl.attr.LayerIntegratedGradients(model, None).attribute(IDS, target=0)
    method = xl.attr.LayerIntegratedGradients(model, model.embedding)
    with pytest.raises(xl.ArgumentError, match="integers"):
        method.attribute(IDS, target=0, attribute_to_layer_input=True)
    with pytest.raises(xl.ArgumentError, match="no part"):
        xl.attr.LayerIntegratedGradients(lambda i: model(i), nn.ReLU()).attribute(IDS, target=0)
    lstm = seeded(lambda: nn.Sequential(nn.LSTM(3, 3)))
    with pytest.raises(xl.ExactlineError):
        xl.attr.LayerConductance(lstm, lstm[0]).attribute(torch.ones(2, 4, 3), target=(0, 0))
