"""A copy of a model in evaluation mode that follows its weights: the model itself is never touched."""

from __future__ import annotations

import copy
import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError, CaptureError
from ..network import as_network, unwrap_model
from ..network.capture import check_eval_mode, export_module
from ..network.graph import Network
from ..network.sequential import read_sequential

LIGHTNING_REFERENCES = ("_trainer", "_fabric")  # attributes of a LightningModule that lead to everything else


class EvalCopy:
    """A copy of a module; `network` reads its weights again without tracing it again.

    Args:
        model: The module, in any mode.
        point: (*in) one input; only its shape matters.
    """

    def __init__(self, model: nn.Module, point: Tensor) -> None:
        memo = {id(getattr(model, name, None)): None for name in LIGHTNING_REFERENCES}
        memo.pop(id(None), None)
        try:
            self.module: Any = copy.deepcopy(model, memo)
        except Exception as problem:  # modules may hold anything
            raise CaptureError(
                f"The model cannot be copied: {type(problem).__name__}: {problem}",
                where="argument model",
                hint="Give the network itself, without loggers or data loaders inside.",
            ) from problem
        self.module.requires_grad_(False).eval()
        self.module.zero_grad(set_to_none=True)
        self.point = point
        check_eval_mode(self.module)
        with keep_random_state():
            as_network(self.module, [point])  # with all checks
            # chains of layers are read without tracing
            is_chain = read_sequential(self.module, point.shape) is not None
            self.program = None if is_chain else export_module(self.module, [point])

    def follow(self, model: nn.Module) -> Network:
        """The network with the weights that the model has now."""
        with torch.no_grad():
            mine, theirs = _state_of(self.module), _state_of(model)
            if mine.keys() != theirs.keys() or any(mine[name].shape != theirs[name].shape for name in mine):
                raise ArgumentError(
                    "The model has other weights than the one that was measured first.",
                    where="argument model",
                    hint="Make a new callback for another model.",
                )
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        with keep_random_state():
            return as_network(self.module if self.program is None else self.program, [self.point])


def _state_of(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, also those that are not saved."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def select_network(model: Any, name: str | None) -> nn.Module:
    """The module to measure: the model, unwrapped, or one of its submodules.

    Raises ArgumentError for anything but a module, and for a submodule that does not exist.
    """
    module = unwrap_model(model)
    if name is None:
        return module
    try:
        return module.get_submodule(name)
    except AttributeError as problem:
        raise ArgumentError(
            f"There is no submodule {name!r}.", where="argument network", hint="Give a name of named_modules()."
        ) from problem


@contextmanager
def keep_random_state() -> Generator[None]:
    """Leave all random generators as they are."""
    states = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
