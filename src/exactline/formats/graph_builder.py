"""Build a network by calling torch operators by name, as the readers of file formats do.

The conversion rules of capture turn each call into nodes. Operators on constants are computed immediately.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FileError, UnsupportedError
from ..network.aten import RULES, UNSUPPORTED_REASONS
from ..network.aten.registry import bind_arguments, iterate_leaves
from ..network.builder import (
    MOVES_BATCH,
    MULTIPLIES_INPUTS,
    NOT_KNOWN,
    GraphBuilder,
    NodeOutput,
    SmoothOutput,
    UnsupportedOperator,
    UnusableValue,
    Value,
)
from ..network.constants import to_float64
from ..network.graph import Network, Tail
from ..network.scalar_functions import NotPiecewiseLinear, ScalarFunction
from ..network.simplify import simplify_network
from ..ops.base import Input
from ..ops.maximum import Maximum
from . import limits

ELEMENTWISE_OPERATORS = {  # whose shapes torch infers in Python, which loads its compiler first
    *("add", "sub", "mul", "div", "neg", "abs", "relu", "maximum", "minimum", "where", "gt", "ge", "lt", "le", "eq"),
    *("ne", "logical_and", "logical_or", "logical_not", "clamp", "leaky_relu", "hardtanh"),
}
SHAPE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError, AssertionError)
IS_CONSTANT = "does not depend on the input"
MAX_SHOWN_REJECTIONS = 64  # unsupported operators listed in one message


class OperatorRecorder:
    """Records calls of torch operators as the nodes of a network.

    Values are `NodeOutput`, with the shape of one point, or constant tensors.
    """

    def __init__(self, where: str) -> None:
        self.where = where  # the file, for error messages
        self.graph = GraphBuilder()
        self.rejections: dict[str, None] = {}  # unsupported operators, in order and each once
        self.reshaped: dict[tuple[int, tuple[int, ...]], NodeOutput] = {}  # by node and shape
        self.float_types: frozenset[int] = frozenset()  # of the inputs and weights of an ONNX file
        self.has_rows = False  # whether an operator that expects a batch was applied to several rows of a point
        self._counted_nodes, self._table_entries = 0, 0

    def add_input(self, name: str, shape: Sequence[int]) -> NodeOutput:
        """Add an input of the network; ``shape`` is that of one point."""
        limits.count_elements(shape, f"input {name}", self.where, limits.MAX_VALUE_ELEMENTS)
        self.graph.name = name
        return self.graph.add_node(Input(), [], shape)

    def begin_node(self, name: str, path: str = "") -> None:
        """Set the name and the module path, or the line in the file, of the nodes recorded next."""
        self._count_tables()
        self.graph.name, self.graph.path = name, path

    def _count_tables(self) -> None:
        """Limit the index tables of all nodes together: a short file could describe many large ones."""
        for node in self.graph.nodes[self._counted_nodes :]:
            tables = [v for v in vars(node.op).values() if isinstance(v, Tensor) and v.dtype == torch.int64]
            self._table_entries += sum(t.numel() for t in tables)
        self._counted_nodes = len(self.graph.nodes)
        what = "entries in the index tables of rearrangements and maxima"
        limits.check_limit(self._table_entries, limits.MAX_TABLE_ENTRIES, what, self.where)

    def call(self, operator: str, *args: Any, **kwargs: Any) -> Value:
        """Record a call of a torch operator, or compute it where all arguments are constants.

        Args:
            operator: ``name`` or ``name.overload``.
            args: positional arguments; a node output counts as a tensor (1, *shape).
            kwargs: keyword arguments.

        Raises UnsupportedOperator where the operator is not piecewise linear.
        """
        name, _, overload = operator.partition(".")
        packet: Any = getattr(torch.ops.aten, name)
        target: Any = getattr(packet, overload or "default", None) or getattr(packet, packet.overloads()[0])
        bound = bind_arguments(target, args, kwargs)
        missing = [a.name for a in target._schema.arguments if a.name not in bound]
        if missing:
            raise UnsupportedOperator(f"lacks its input {missing[0]!r}")
        flat = list(iterate_leaves(list(bound.values())))
        for value in flat:
            if isinstance(value, (SmoothOutput, UnusableValue)):
                self.graph.as_node_output(value)  # raises with the reason
        if not any(isinstance(v, (NodeOutput, ScalarFunction)) for v in flat):
            return self._fold_constant(target, bound)
        if name in UNSUPPORTED_REASONS:
            raise UnsupportedOperator(UNSUPPORTED_REASONS[name])
        rule = RULES.get(f"{name}.{target._overloadname}") or RULES.get(name)
        if rule is None:
            raise UnsupportedOperator(NOT_KNOWN)
        graph = self.graph
        graph.target, graph.call = f"{name}.{target._overloadname}", target
        graph.shape = self._infer_shape(target, bound)
        try:
            return rule(graph, bound)
        except NotPiecewiseLinear:
            raise UnsupportedOperator(MULTIPLIES_INPUTS) from None

    def reject(self, operator: str, reason: str) -> UnusableValue:
        """Record an unsupported operator; `build_network` reports all of them."""
        where = self.graph.path or self.graph.name
        line = f"{where}: {operator} {reason}" if where else f"{operator} {reason}"
        self.rejections[line] = None
        return UnusableValue("")

    def build_network(self, outputs: Sequence[Value], names: Sequence[str] = ()) -> Network:
        """Build the network with these outputs.

        Raises UnsupportedError naming all operators that were rejected.
        """
        indices: list[int] = []
        tails: list[Tail | None] = []
        for number, value in enumerate(outputs):
            self.begin_node(names[number] if number < len(names) else f"output_{number}", "output")
            tails.append(value.tail if isinstance(value, SmoothOutput) else None)
            try:
                if isinstance(value, Tensor):
                    self.graph.path = self.graph.name
                    raise UnsupportedOperator(IS_CONSTANT)
                output = value.before if isinstance(value, SmoothOutput) else self.graph.as_node_output(value)
                indices.append(output.index)
            except UnsupportedOperator as problem:
                if not (isinstance(value, UnusableValue) and value.reason == ""):
                    self.reject(problem.name or "output", str(problem))
        self.raise_rejections()
        nodes = tuple(self.graph.nodes)
        if not any(isinstance(n.op, Input) for n in nodes):
            raise FileError("The network has no input.", where=self.where, hint="The file is damaged or incomplete.")
        network = Network(
            nodes,
            tuple(indices),
            tuple(tails),
            several_inputs=sum(isinstance(n.op, Input) for n in nodes) > 1,
            several_outputs=len(indices) > 1,
            notes=tuple(self.graph.notes),
            output_names=tuple(names),
        )
        # only maxima are fused with their neighbours, and the search is slow in long networks
        return simplify_network(network, rewrite=any(isinstance(n.op, Maximum) for n in nodes))

    def raise_rejections(self) -> None:
        """Raise one UnsupportedError for all rejected operators, if there are any."""
        if self.rejections:
            count = len(self.rejections)
            lines = [
                *islice(self.rejections, MAX_SHOWN_REJECTIONS),
                *([f"and {count - MAX_SHOWN_REJECTIONS:,} more"] if count > MAX_SHOWN_REJECTIONS else []),
            ]
            raise UnsupportedError(
                f"{count} operator{'s are' if count > 1 else ' is'} not piecewise linear, or unknown.",
                nodes=tuple(self.rejections),
                where="\n         ".join([self.where, *lines]),
                hint="Only networks of affine and piecewise-linear operators can be restricted exactly.",
            )

    def _infer_shape(self, target: Any, bound: dict[str, Any]) -> Any:
        """The shape of an operator's output for one point, inferred on meta tensors; a tuple for several outputs."""

        def to_meta(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [to_meta(v) for v in value]
            if isinstance(value, ScalarFunction):
                dtype = torch.bool if value.is_boolean else torch.float64
                return torch.empty(1, *self.graph.nodes[value.node].shape, dtype=dtype, device="meta")
            if isinstance(value, NodeOutput):
                return torch.empty(1, *value.shape, dtype=torch.float64, device="meta")
            return value.to("meta") if isinstance(value, Tensor) else value

        try:
            output = _infer_output(target, {k: to_meta(v) for k, v in bound.items()})
        except SHAPE_ERRORS as problem:
            raise UnsupportedOperator(f"does not fit its input: {_first_line(problem)}") from None
        several = isinstance(output, (tuple, list))
        tensors = list(output) if several else [output]
        shapes = [tuple(t.shape[1:]) for t in tensors]
        where = f"{self.where}: {self.graph.name}"
        for shape, tensor in zip(shapes, tensors, strict=True):
            limits.check_limit(prod(shape), limits.MAX_VALUE_ELEMENTS, "elements of one value", where)
            if tensor.dim() == 0 or tensor.shape[0] != 1:
                raise UnsupportedOperator(MOVES_BATCH)
        return tuple(shapes) if several else shapes[0]

    def _fold_constant(self, target: Any, bound: dict[str, Any]) -> Value:
        """Compute an operator on constants."""
        try:
            return to_float64(target(**bound))
        except SHAPE_ERRORS as problem:
            raise UnsupportedOperator(f"does not fit its constants: {_first_line(problem)}") from None


def _first_line(problem: Exception) -> str:
    """The first line of an exception's message, or its type."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]


def _infer_output(target: Any, bound: dict[str, Any]) -> Any:
    """The output of an operator on meta tensors.

    For the simplest operators it is inferred here, because torch would first load its compiler.
    """
    name, tensors = target._schema.name.removeprefix("aten::"), [v for v in bound.values() if isinstance(v, Tensor)]
    if name in ELEMENTWISE_OPERATORS:
        return torch.empty(np.broadcast_shapes(*(t.shape for t in tensors)), device="meta")
    if name in ("linear", "matmul") and all(t.dim() > 1 for t in tensors[:2]):
        left, right = tensors[0], tensors[1].transpose(-1, -2) if name == "linear" else tensors[1]
        if left.shape[-1] != right.shape[-2] or (len(tensors) > 2 and tuple(tensors[2].shape) != (right.shape[-1],)):
            raise ValueError(f"shapes {[tuple(t.shape) for t in tensors]} do not fit together")
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return torch.empty((*batch, left.shape[-2], right.shape[-1]), device="meta")
    if name == "batch_norm" and tensors[0].dim() > 1:
        if any(tuple(t.shape) != (tensors[0].shape[1],) for t in tensors[1:]):
            raise ValueError(f"shapes {[tuple(t.shape) for t in tensors[1:]]} are not one number for each channel")
        return tensors[0]
    return target(**bound)
