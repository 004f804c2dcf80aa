"""Turn a model into a `Network`, and cache the captures of each module until the module changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import ArgumentError
from ..fp_context import settings_lock
from .capture import capture_module, decompose_unknown
from .fingerprint import Fingerprint, fingerprint_module
from .graph import Network as Network
from .graph import Node as Node
from .graph import Tail as Tail
from .reader import read_program
from .simplify import simplify_network
from .sklearn_models import as_module, is_estimator
from .smooth_network import SmoothNetwork, require_piecewise_linear
from .state_walk import ForwardRecord as ForwardRecord

MAX_CACHED_CAPTURES = 8  # networks cached for one module: one for each input shape and submodule
_captured_networks: weakref.WeakKeyDictionary[nn.Module, _CapturedNetworks] = weakref.WeakKeyDictionary()


@dataclass
class _CapturedNetworks:
    """The networks captured from one module while its fingerprint stayed the same."""

    state: Fingerprint
    networks: dict[Any, Network] = field(default_factory=dict)  # by input shapes, rewrite and until


def as_network(
    model: Any,
    points: Sequence[Tensor],  # (*in) each, one for every input
    *,
    rewrite: bool = True,
    until: str | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float64,
) -> Network:
    """Convert a model to a `Network`.

    A module is captured once for each input shape. It is captured again after its weights, structure, settings or
    hooks change.

    Args:
        model: a module, a function of tensors, an `ExportedProgram` with a dynamic batch dimension, a fitted perceptron
            of scikit-learn, or a `Network`.
        points: one tensor (*in) for every input, without a batch dimension; only their shapes matter.
        rewrite: fuse each ReLU with a neighbouring maximum.
        until: stop after this submodule, named as in ``named_modules()``.
        device: where the constants of the network go; the CPU by default.
        dtype: the precision of the constants.

    >>> as_network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), [torch.zeros(1, 8, 8)])
    <Network (1, 8, 8) -> (2, 6, 6): 3 nodes, 72 relu units>

    Raises CaptureError where torch.export cannot trace the model, UnsupportedError naming every operator that is not
    piecewise linear, TrainingModeError for a module in training mode, ArgumentError for an unknown ``until``.
    """
    target_device = torch.device("cpu") if device is None else device
    if isinstance(model, (Network, SmoothNetwork)):
        return _move_with_cache(require_piecewise_linear(model), target_device, dtype)
    if isinstance(model, ExportedProgram):
        return simplify_network(read_program(decompose_unknown(model), until), rewrite).to(target_device, dtype)
    module = unwrap_model(model)
    key = (tuple(tuple(p.shape) for p in points), rewrite, until)
    with settings_lock:  # torch.export is not thread-safe
        state = fingerprint_module(module)  # inside the lock: torch.export replaces the weights while it traces
        captured = _captured_networks.get(module)
        is_valid = captured is not None and captured.state.proves_unchanged(state)
        if captured is None or not is_valid or len(captured.networks) >= MAX_CACHED_CAPTURES:
            captured = _captured_networks[module] = _CapturedNetworks(state)
        if key not in captured.networks:
            captured.networks[key] = simplify_network(capture_module(module, points, until), rewrite)
        return _move_with_cache(captured.networks[key], target_device, dtype)


def _move_with_cache(network: Network, device: torch.device, dtype: torch.dtype) -> Network:
    """`Network.to`, with one copy kept for each device and dtype."""
    if (device, dtype) == (network.device, network.dtype):
        return network
    copies = network.device_copies
    if (device, dtype) not in copies:
        copies[device, dtype] = network.to(device, dtype)
    return copies[device, dtype]


def unwrap_model(model: Any) -> nn.Module:
    """Unwrap a module from DataParallel, DistributedDataParallel and torch.compile; convert scikit-learn's perceptrons;
    wrap a plain function in a module.

    Raises ArgumentError for anything else.
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(model, nn.Module) and hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            break
    if isinstance(model, nn.Module):
        return model
    if is_estimator(model):
        return as_module(model)
    if callable(model):
        return _FunctionModule(model)
    raise ArgumentError(
        f"A model must be a module, an exported program or a Network, not {type(model).__name__}.",
        where="argument model",
        hint="Read a file with exactline.load(path)."
        if isinstance(model, (str, PathLike))
        else "Give a torch.nn.Module.",
    )


class _FunctionModule(nn.Module):
    """A module whose forward pass calls a plain function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)
