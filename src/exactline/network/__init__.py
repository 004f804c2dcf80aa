"""What a network is and how a model becomes one, once per module and again only when it changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import ArgumentError
from ..locks import settings_lock
from .capture import capture, readable
from .fingerprint import fingerprint
from .graph import Network as Network
from .graph import Node as Node
from .graph import Tail as Tail
from .reader import read
from .simplify import simplified

KEPT = 8  # captures remembered for each module: other shapes, other submodules
_cache: weakref.WeakKeyDictionary[nn.Module, _Captures] = weakref.WeakKeyDictionary()


@dataclass
class _Captures:
    """What was captured of a module while it was in one state."""

    state: tuple[Any, ...]
    networks: dict[Any, Network] = field(default_factory=dict)


def as_network(
    model: Any,
    points: Sequence[Tensor],  # one for each input, without a batch dimension
    *,
    rewrite: bool = True,
    until: str | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float64,
) -> Network:
    """A model of any kind as a network; a module is captured once for each input shape.

    >>> as_network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), [torch.zeros(1, 8, 8)])
    <Network (1, 8, 8) -> (2, 6, 6): 3 nodes, 72 relu units>
    """
    place = torch.device("cpu") if device is None else device
    if isinstance(model, Network):
        return _cached_move(model, place, dtype)
    if isinstance(model, ExportedProgram):
        return simplified(read(readable(model), until), rewrite).to(place, dtype)
    module = unwrapped(model)
    key = (tuple(tuple(p.shape) for p in points), rewrite, until)
    with settings_lock:  # torch.export is not made for several threads at once
        state = fingerprint(module)  # not while another thread captures: export dresses the weights up
        known = _cache.get(module)
        if known is None or known.state != state or len(known.networks) >= KEPT:
            known = _cache[module] = _Captures(state)
        if key not in known.networks:
            known.networks[key] = simplified(capture(module, points, until), rewrite)
        return _cached_move(known.networks[key], place, dtype)


def _cached_move(network: Network, device: torch.device, dtype: torch.dtype) -> Network:
    if (device, dtype) == (network.device, network.dtype):
        return network
    moved = network.moved
    if (device, dtype) not in moved:
        moved[device, dtype] = network.to(device, dtype)
    return moved[device, dtype]


def unwrapped(model: Any) -> nn.Module:
    """The module itself, out of DataParallel and torch.compile; a function becomes a module."""
    while True:
        if isinstance(model, nn.DataParallel):
            model = model.module
        elif isinstance(model, nn.Module) and hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            break
    if isinstance(model, nn.Module):
        return model
    if callable(model):
        return _Function(model)
    raise ArgumentError(
        f"A model must be a module, an exported program or a Network, not {type(model).__name__}.",
        where="argument model",
        hint="Give a torch.nn.Module.",
    )


class _Function(nn.Module):
    """A plain function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)
