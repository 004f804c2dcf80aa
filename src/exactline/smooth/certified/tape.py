"""A network and its gradient as a list of torch operators, evaluated on Taylor models."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ...errors import UnsupportedError
from .rules import RULES
from .shape_rules import SHAPE_RULES
from .taylor_model import TaylorModel

# Operators that read only the shape of their input, and the number that they fill in; None if it is an argument.
FILLED = {"zeros_like": 0.0, "empty_like": 0.0, "ones_like": 1.0, "full_like": None, "new_zeros": 0.0, "new_ones": 1.0}
Observer = Callable[[Node, Any, Any], None]  # a node, its arguments and its value


@dataclass(frozen=True)
class Tape:
    """A traced graph whose inputs are the points of a line and, for gradients, a cotangent of the output.

    Constants are folded: operators that do not depend on the points are evaluated once, in float64, and their results
    count as exact.
    """

    graph: GraphModule
    constants: dict[Node, Any]
    output_shape: torch.Size

    def run(self, inputs: Sequence[TaylorModel | Tensor], observe: Observer | None = None) -> Any:
        """Evaluate the graph.

        Args:
            inputs: A model for each point, then the cotangent of the output if the tape has one.
            observe: Called with every node that depends on the points, its arguments and its value.

        Returns what the traced function returns, with models in the place of tensors.
        """
        values: dict[Node, Any] = dict(self.constants)
        feed = iter(inputs)
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(feed)
            elif node.op == "output":
                return map_arg(node.args[0], values.__getitem__)
            elif node not in self.constants:
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = apply_rule(node, args, kwargs)
                if observe is not None:
                    observe(node, args, values[node])
        return None

    def evaluate(self, points: Sequence[Tensor], *constants: Tensor) -> Any:  # (points, *in) each
        """Evaluate the graph at many points in plain float64."""
        in_dims = (*[0] * len(points), *[None] * len(constants))
        with torch.no_grad():
            return torch.vmap(self.graph, in_dims=in_dims)(*points, *constants)


def apply_rule(node: Node, args: Any, kwargs: Any) -> Any:
    """Evaluate one operator: by its rule on models, by torch on constants."""
    if node.target is operator.getitem:
        return args[0][args[1]]
    if not any(isinstance(value, TaylorModel) for value in iterate_leaves((args, tuple(kwargs.values())))):
        target: Any = node.target
        return target(*args, **kwargs)
    name = operator_name(node)
    try:
        return SHAPE_RULES[name](node, *args, **kwargs) if name in SHAPE_RULES else RULES[name](*args, **kwargs)
    except TypeError as problem:
        raise UnsupportedError(
            f"{name} has no rule for these arguments: {problem}",
            nodes=(describe_node(node),),
            where=describe_node(node),
            hint="Leave out certified=True for an estimated error.",
        ) from problem


def operator_name(node: Node) -> str:
    """The name of a node's operator without namespace and overload."""
    target: Any = node.target
    return (
        target._schema.name.split("::")[1] if hasattr(target, "_schema") else getattr(target, "__name__", str(target))
    )


def describe_node(node: Node) -> str:
    """An operator and the submodule that calls it, for messages."""
    return f"{operator_name(node)} in {node.meta.get('submodule') or 'the model itself'}"


def iterate_leaves(value: Any) -> Iterator[Any]:
    """All values in nested lists and tuples."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from iterate_leaves(item)
    else:
        yield value


def fold_constants(graph: GraphModule) -> dict[Node, Any]:
    """Evaluate all nodes that depend on no input, or only on its shape."""
    constants: dict[Node, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            value = getattr(graph, node.target).detach()
            constants[node] = value.to(torch.float64) if value.is_floating_point() else value
        elif node.op == "call_function" and operator_name(node) in FILLED:
            shape, fill = node.meta["val"].shape, FILLED[operator_name(node)]
            constants[node] = torch.full(shape, node.args[1] if fill is None else fill, dtype=torch.float64)
        elif node.op == "call_function" and all(n in constants for n in node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), constants.__getitem__)
            constants[node] = node.target(*args, **kwargs)
    return constants


def check_operators(graph: GraphModule, constants: dict[Node, Any]) -> None:
    """Raise UnsupportedError naming all operators on the line that have no rule."""
    names = {
        describe_node(node): None
        for node in graph.graph.nodes
        if node.op == "call_function" and node not in constants and node.target is not operator.getitem
        if operator_name(node) not in RULES and operator_name(node) not in SHAPE_RULES
    }
    if names:
        count = f"{len(names)} operator{'s have' if len(names) > 1 else ' has'}"
        raise UnsupportedError(
            f"{count} no rule for proven bounds.",
            nodes=tuple(names),
            where="; ".join(names),
            hint="Leave out certified=True for an estimated error, or replace the operators.",
        )
