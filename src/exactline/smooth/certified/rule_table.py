"""The table from operator to rule.

A rule takes the arguments of the operator, with Taylor models in the place of tensors that depend on alpha; plain
tensors and numbers are constants. Gradients need hardly any rules of their own: torch differentiates the graph, and the
graph of the gradient holds operators of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .taylor_model import TaylorModel

Operand = TaylorModel | Tensor | float
Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function into the table, for operators by their names in torch's schema."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def as_model(value: Operand) -> TaylorModel:
    """A constant as a model without error."""
    if isinstance(value, TaylorModel):
        return value
    return TaylorModel.constant(torch.as_tensor(value, dtype=torch.float64))


def positive_dims(dim: Any, rank: int) -> list[int]:
    """The dims of an argument as a list of nonnegative ones; all of them for None or an empty list."""
    dims = list(range(rank)) if dim is None else [dim] if isinstance(dim, int) else list(dim) or list(range(rank))
    return [d % rank for d in dims]
