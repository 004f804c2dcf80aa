"""scikit-learn's multilayer perceptrons as torch modules, alone or behind scalers in a pipeline.

scikit-learn itself is never imported: fitted estimators are recognised by their class and read by their attributes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError, UnsupportedError

PERCEPTRONS = ("MLPClassifier", "MLPRegressor")
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
    "softmax": lambda: nn.Softmax(dim=-1),
}
SCALERS = {  # attributes of the offset and of the scale; each maps x to (x - offset) / scale
    "StandardScaler": ("mean_", "scale_"),
    "RobustScaler": ("center_", "scale_"),
    "MaxAbsScaler": (None, "scale_"),
    "MinMaxScaler": ("data_min_", "data_range_"),
}
SUPPORTED_HINT = f"Give {' or '.join(PERCEPTRONS)}, or a Pipeline of {', '.join(SCALERS)} and one of them at the end."
_modules: weakref.WeakKeyDictionary[Any, nn.Sequential] = weakref.WeakKeyDictionary()


def is_estimator(model: Any) -> bool:
    """Whether a model is an estimator of scikit-learn, or of a class that inherits from one."""
    return not isinstance(model, type) and any(c.__module__.split(".")[0] == "sklearn" for c in type(model).__mro__)


def as_module(estimator: Any) -> nn.Sequential:
    """Convert a fitted estimator to a module in float64; one module for each estimator until its weights change.

    The module ends in the softmax or sigmoid of ``predict_proba``.

    Raises UnsupportedError for another kind of estimator, ArgumentError for one that is not fitted.
    """
    module = nn.Sequential(*_layers(estimator)).double().eval()
    known = _modules.get(estimator)
    if known is not None and _is_equal(known, module):
        return known
    _modules[estimator] = module
    return module


def feature_count(estimator: Any) -> int:
    """How many features a fitted estimator takes."""
    return int(_read(estimator, "n_features_in_"))


def class_names(estimator: Any) -> list[str] | None:
    """The names of a classifier's classes in order; None for other models."""
    names = getattr(estimator, "classes_", None) if is_estimator(estimator) else None
    return None if names is None else [str(name) for name in names]


def feature_names(estimator: Any) -> list[str] | None:
    """The names of the features that an estimator was fitted with, where it was fitted with a data frame."""
    names = getattr(estimator, "feature_names_in_", None) if is_estimator(estimator) else None
    return None if names is None else [str(name) for name in names]


class Rescale(nn.Module):
    """(x - offset) / scale for each feature: a fitted scaler."""

    offset: Tensor
    scale: Tensor

    def __init__(self, offset: Tensor, scale: Tensor) -> None:  # (features,) each
        super().__init__()
        self.register_buffer("offset", offset)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:  # (n, features)
        return (x - self.offset) / self.scale


def _layers(estimator: Any) -> list[nn.Module]:
    kind = _find_kind(estimator, ("Pipeline", *PERCEPTRONS))
    if kind == "Pipeline":
        *scalers, (_, last) = estimator.steps
        steps = [_scaler(step) for _, step in scalers if step is not None and step != "passthrough"]
        return [*steps, *_layers(last)]
    activation, ending = (_activation(estimator, name) for name in ("activation", "out_activation_"))
    layers: list[nn.Module] = []
    for weight, bias in zip(_read(estimator, "coefs_"), _read(estimator, "intercepts_"), strict=True):
        layers += [_linear(weight, bias), activation()]
    return [*layers[:-1], ending()]


def _activation(estimator: Any, attribute: str) -> Callable[[], nn.Module]:
    name = _read(estimator, attribute)
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"The activation {name!r} is not known.",
            where=f"{attribute} of {type(estimator).__name__}",
            hint=f"Use one of {', '.join(ACTIVATIONS)}.",
        )
    return ACTIVATIONS[name]


def _linear(weight: Any, bias: Any) -> nn.Linear:  # (in, out) and (out,)
    layer = nn.Linear(*weight.shape, dtype=torch.float64)
    layer.weight = nn.Parameter(_as_tensor(weight).T.contiguous())
    layer.bias = nn.Parameter(_as_tensor(bias))
    return layer


def _scaler(step: Any) -> Rescale:
    kind = _find_kind(step, SCALERS)
    count = feature_count(step)
    if kind == "MinMaxScaler":
        if getattr(step, "clip", False):
            raise UnsupportedError(
                "A MinMaxScaler that clips is not supported.", where="the pipeline", hint="Fit it with clip=False."
            )
        # scikit-learn computes x * scale_ + min_
        scale, shift = (_as_tensor(_read(step, name)) for name in ("scale_", "min_"))
        return Rescale(-shift / scale, 1 / scale)
    offset_name, scale_name = SCALERS[kind]
    offset = None if offset_name is None else _read(step, offset_name)
    scale = _read(step, scale_name)
    return Rescale(
        torch.zeros(count, dtype=torch.float64) if offset is None else _as_tensor(offset),
        torch.ones(count, dtype=torch.float64) if scale is None else _as_tensor(scale),
    )


def _find_kind(estimator: Any, kinds: Any) -> str:
    """The name of the class of scikit-learn, among several, that an estimator is or inherits from."""
    names = [c.__name__ for c in type(estimator).__mro__ if c.__module__.split(".")[0] == "sklearn"]
    found = next((name for name in names if name in kinds), None)
    if found is None:
        raise UnsupportedError(
            f"{type(estimator).__name__} cannot be read as a network.", where="argument model", hint=SUPPORTED_HINT
        )
    return found


def _read(estimator: Any, name: str) -> Any:
    """An attribute that fitting sets."""
    try:
        return getattr(estimator, name)
    except AttributeError as problem:
        raise ArgumentError(
            f"The {type(estimator).__name__} is not fitted.", where="argument model", hint="Call fit(X, y) first."
        ) from problem


def _as_tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))  # a copy: partial_fit changes weights in place


def _is_equal(one: nn.Sequential, two: nn.Sequential) -> bool:
    """Whether two modules have the same layers and weights."""
    if [type(layer) for layer in one] != [type(layer) for layer in two]:
        return False
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
