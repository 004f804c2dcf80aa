"""The table from torch's operators to ours, readable at a glance by importing this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..builder import Builder, Value

Args: TypeAlias = dict[str, Any]  # bound to the names of the operator's schema
Rule: TypeAlias = Callable[[Builder, Args], Value]

RULES: dict[str, Rule] = {}
SHAPED: set[str] = set()  # rules that may read the number of points, since they only make shapes of it
REFUSED: dict[str, str] = {}  # operators that are known not to be piecewise linear, and why


def rule(*names: str, shaped: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operators, by name or by ``name.overload``."""

    def keep(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if shaped:
                SHAPED.add(name)
        return function

    return keep


def refuse(reason: str, *names: str) -> None:
    """Register operators that are refused by name."""
    for name in names:
        REFUSED[name] = reason
