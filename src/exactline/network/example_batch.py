"""The batch of zeros with which a model is traced, in the precision and on the device of its weights."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

EXAMPLE_BATCH_POINTS = 3  # torch.export specializes on 0 and 1, and 2 may be a size in the model
MAX_FUNCTION_DEPTH = 4  # functions that functions refer to


def make_example_batch(model: nn.Module, point: Tensor) -> Tensor:  # (*in) -> (3, *in)
    """Make a batch of zeros in the dtype and on the device of the model's first floating-point weight.

    The weights of a module that wraps a plain function are those of the modules and tensors that the function reads.
    """
    weight = next(_find_weights(model), None)
    dtype = weight.dtype if weight is not None else torch.get_default_dtype()
    device = weight.device if weight is not None else torch.device("cpu")
    return torch.zeros(EXAMPLE_BATCH_POINTS, *point.shape, dtype=dtype, device=device)


def _find_weights(model: nn.Module) -> Iterator[Tensor]:
    yield from (p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point())
    held = list(find_held_values(model))
    for module in held:
        if isinstance(module, nn.Module):  # a module is more likely to be what takes the batch than a single tensor
            yield from (p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point())
    yield from (value for value in held if isinstance(value, Tensor) and value.is_floating_point())


def find_held_values(model: nn.Module) -> Iterator[nn.Module | Tensor]:
    """Find the modules and tensors that the plain functions in a model read."""
    for module in model.modules():
        yield from _find_holders(getattr(module, "function", None), MAX_FUNCTION_DEPTH)


def _find_holders(value: Any, depth: int) -> Iterator[nn.Module | Tensor]:
    """Find the modules and tensors that a function reads by its closure, its names and its defaults."""
    if isinstance(value, (nn.Module, Tensor)):
        yield value
    elif callable(value) and depth and not isinstance(value, type):
        for part in _list_references(value):
            yield from _find_holders(part, depth - 1)


def _list_references(function: Any) -> Iterator[Any]:
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
    yield getattr(function, "__self__", None)
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):  # an object that can be called
        yield from getattr(function, "__dict__", {}).values()
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    yield from getattr(function, "__defaults__", None) or ()
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    yield from (names[name] for name in (code.co_names if code is not None else ()) if name in names)
