"""scikit-learn's perceptrons are the networks that they predict with."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.network.sklearn_models import as_module

MOONS, SIDES = make_moons(80, noise=0.15, random_state=0)
IRIS = load_iris()


@cache
def fitted(kind, data="moons", activation="relu", scaler=None):
    inputs, targets = (MOONS, SIDES) if data == "moons" else (IRIS.data, IRIS.target)
    model = kind(hidden_layer_sizes=(8, 6), activation=activation, max_iter=40, learning_rate_init=0.03, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training stops before it converges
        return (model if scaler is None else make_pipeline(scaler(), model)).fit(inputs, targets)


@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_probabilities_of_a_line_are_those_of_the_classifier(activation):
    model = fitted(MLPClassifier, "iris", activation)
    line = xl.restrict(model, IRIS.data[0], IRIS.data[120])
    points = line.points.numpy()
    np.testing.assert_allclose(line.at(line.alphas, tail=True).numpy(), model.predict_proba(points), atol=1e-12)
    assert (len(line) == 1) == (activation == "identity")
    middles = (points[1:] + points[:-1]) / 2
    found = [next(i.best for i in line.decisions() if i.start <= a <= i.stop) for a in line.alphas[:-1].tolist()]
    assert len(found) == len(middles)
    assert model.predict(points[:1])[0] == found[0]


def test_a_binary_classifier_decides_at_one_half():
    model = fitted(MLPClassifier)
    plane = xl.grid(model, [0.0, 0.0], box=((-2, 3), (-1.5, 2)))
    rng = np.random.default_rng(0)
    points = rng.uniform((-2, -1.5), (3, 2), (200, 2))
    np.testing.assert_allclose(plane.at(points, tail=True).numpy()[:, 0], model.predict_proba(points)[:, 1], atol=1e-12)
    np.testing.assert_array_equal(plane.at(points).numpy()[:, 0] > 0, model.predict(points) == 1)
    assert set(plane.decisions().shares) == {0, 1}


def test_a_regressor_and_its_attributions():
    model = fitted(MLPRegressor)
    line = xl.restrict(model, MOONS[0], MOONS[1])
    np.testing.assert_allclose(line.values.numpy()[:, 0], model.predict(line.points.numpy()), atol=1e-12)
    inputs = torch.from_numpy(MOONS[:3])
    found = IntegratedGradients(model).attribute(inputs, baselines=0)
    change = model.predict(MOONS[:3]) - model.predict(np.zeros((1, 2)))
    np.testing.assert_allclose(found.sum(1).numpy(), change, atol=1e-12)


@pytest.mark.parametrize("scaler", [StandardScaler, RobustScaler, MaxAbsScaler, MinMaxScaler])
def test_a_pipeline_with_a_scaler_takes_raw_features(scaler):
    model = fitted(MLPClassifier, "iris", "relu", scaler)
    network = xl.load(model)
    expected = model.predict_proba(IRIS.data)
    np.testing.assert_allclose(network(torch.from_numpy(IRIS.data), tail=True).numpy(), expected, atol=1e-12)
    unscaled = make_pipeline(StandardScaler(with_mean=False, with_std=False), model[-1])
    unscaled[0].fit(IRIS.data)
    np.testing.assert_allclose(
        as_module(unscaled)(torch.from_numpy(IRIS.data)).detach().numpy(), unscaled.predict_proba(IRIS.data), atol=1e-12
    )


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_smooth_activations_are_approximated_and_refused_elsewhere(activation):
    model = fitted(MLPRegressor, "moons", activation)
    curve = xl.approximate(model, MOONS[0], MOONS[1], tol=1e-8)
    points = np.linspace(MOONS[0], MOONS[1], 50)
    np.testing.assert_allclose(curve.at(np.linspace(0, 1, 50)).numpy()[:, 0], model.predict(points), atol=1e-7)
    for call in (lambda: xl.load(model), lambda: xl.restrict(model, MOONS[0], MOONS[1])):
        with pytest.raises(xl.UnsupportedError, match="not piecewise linear"):
            call()


def test_a_model_that_is_fitted_again_is_read_again():
    model = MLPClassifier((5,), random_state=0).partial_fit(MOONS, SIDES, classes=[0, 1])
    first = as_module(model)
    assert as_module(model) is first
    before = xl.restrict(model, MOONS[0], MOONS[1]).values[0]
    model.partial_fit(MOONS, SIDES)
    assert as_module(model) is not first
    assert not torch.equal(xl.restrict(model, MOONS[0], MOONS[1]).values[0], before)


def test_refusals_say_what_is_accepted():
    with pytest.raises(xl.UnsupportedError, match="RandomForestClassifier cannot be read") as refused:
        xl.restrict(RandomForestClassifier(), [0.0, 0.0], [1.0, 1.0])
    assert "MLPClassifier" in refused.value.hint
    with pytest.raises(xl.UnsupportedError, match="Normalizer cannot be read"):
        xl.load(make_pipeline(Normalizer().fit(MOONS), fitted(MLPClassifier)))
    with pytest.raises(xl.UnsupportedError, match="clips"):
        xl.load(make_pipeline(MinMaxScaler(clip=True).fit(MOONS), fitted(MLPClassifier)))
    for model in (MLPRegressor(), make_pipeline(StandardScaler(), MLPRegressor())):
        with pytest.raises(xl.ArgumentError, match="is not fitted"):
            xl.load(model)
    with pytest.raises(xl.ArgumentError, match="dict is not a path"):
        xl.load({})
