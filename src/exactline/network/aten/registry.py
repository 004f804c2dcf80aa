"""The table from torch's operators to ours, readable at a glance by importing this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def bind(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Args:
    """Arguments by the names of the operator's schema, defaults filled in; those that are missing are left out."""
    bound: Args = {}
    for i, argument in enumerate(target._schema.arguments):
        if i < len(args):
            bound[argument.name] = args[i]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound


def flattened(value: Any) -> Iterator[Any]:
    """Everything in nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flattened(item)
    else:
        yield value
