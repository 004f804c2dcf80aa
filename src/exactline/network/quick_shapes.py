"""Shapes of the commonest operators while torch.export traces, without torch's long way to them.

With a dynamic batch dimension torch finds the shape of a ReLU, or of a BatchNorm with fixed statistics, by running a
decomposition of it on symbolic sizes. The result has the shape, type and layout of the input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

aten: Any = torch.ops.aten


def _like_input(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _normalize(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The result of BatchNorm with fixed statistics, and the two that it leaves empty."""
    return torch.empty_like(x), x.new_empty(0), x.new_empty(0)


QUICK_SHAPES: dict[Any, Callable[..., Any]] = {
    aten.relu.default: _like_input,
    aten.hardtanh.default: _like_input,
    aten.leaky_relu.default: _like_input,
    aten._native_batch_norm_legit_no_training.default: _normalize,
}


@contextlib.contextmanager
def use_quick_shapes() -> Generator[None]:
    """Make torch find these shapes quickly inside the block, which must only trace and not decompose.

    Integers keep torch's own way, since their type may change.
    """
    originals = {target: decomposition_table[target] for target in QUICK_SHAPES if target in decomposition_table}
    for target, original in originals.items():
        decomposition_table[target] = _for_floats(QUICK_SHAPES[target], original)
    try:
        yield
    finally:
        decomposition_table.update(originals)


def _for_floats(quick: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for tensors of one floating-point type, and torch's own for all others."""

    def find_shape(*args: Any, **keywords: Any) -> Any:
        types = {a.dtype for a in args if isinstance(a, Tensor)}
        is_simple = not keywords and len(types) == 1 and next(iter(types)).is_floating_point
        return quick(*args) if is_simple else original(*args, **keywords)

    return find_shape
