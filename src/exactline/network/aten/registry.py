"""The tables of conversion rules and of unsupported operators, and helpers to read an operator's arguments.

A rule adds the nodes of one operator to the graph and returns the value of its output, or a tuple for several outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ..builder import GraphBuilder, Value

Args: TypeAlias = dict[str, Any]  # by the argument names of the operator's schema
Rule: TypeAlias = Callable[[GraphBuilder, Args], Value]

RULES: dict[str, Rule] = {}  # by name or name.overload; custom operators by namespace::name
SHAPE_OPERATORS: set[str] = set()  # may read the batch size, because they use it only in shapes
UNSUPPORTED_REASONS: dict[str, str] = {}  # why an operator is never supported, by name


def rule(*names: str, reads_batch_size: bool = False) -> Callable[[Rule], Rule]:
    """Register a function as the rule of some operators.

    Args:
        names: of the operators, as ``name`` or ``name.overload``.
        reads_batch_size: whether the operators may get the batch size as an argument.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if reads_batch_size:
                SHAPE_OPERATORS.add(name)
        return function

    return register


def register_unsupported(reason: str, *names: str) -> None:
    """Register operators that no rule can convert, with the reason as a phrase that follows the operator's name."""
    for name in names:
        UNSUPPORTED_REASONS[name] = reason


def bind_arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Args:
    """Bind arguments to the names in an operator's schema, with its defaults; missing arguments are left out."""
    bound: Args = {}
    for i, argument in enumerate(target._schema.arguments):
        if i < len(args):
            bound[argument.name] = args[i]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound


def iterate_leaves(value: Any) -> Iterator[Any]:
    """Iterate over the values in nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_leaves(item)
    else:
        yield value
