"""The graph under construction, and the kinds of values that conversion rules take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import NumberError
from ..ops.affine import Rearrange, Reshape, Scale
from ..ops.base import Input, Op
from ..ops.pointwise import Pointwise
from . import scalar_functions
from .calls import ARGUMENT, BoundOperator
from .constants import all_finite
from .graph import Node, Shape, Tail
from .scalar_functions import ScalarFunction, SourceOperator


class UnsupportedOperator(Exception):
    """Raised by a conversion rule that cannot convert its operator, and collected by the reader of the model.

    Args:
        reason: why, as a phrase that follows the operator's name.
        name: the operator to blame; the one that is being converted by default.
        path: the module of that operator.
    """

    def __init__(self, reason: str, name: str = "", path: str | None = None) -> None:
        super().__init__(reason)
        self.name, self.path = name, path


# Reasons that several rules and readers give.
MUST_BE_LAST = "is smooth, so it can only be the last operator"
MULTIPLIES_INPUTS = "multiplies two values that depend on the input"
NOT_KNOWN = "is not known to be piecewise linear"
MIXES_BATCH = "mixes the batch dimension"
MOVES_BATCH = "moves or mixes the batch dimension"
READS_BATCH_SIZE = "computes with the batch size"
IS_INFINITE = "has a constant that is NaN or infinite"
IS_COMPLEX = "computes with complex numbers"
READS_UNINITIALIZED = "reads memory that torch.empty leaves uninitialized"


@dataclass(frozen=True)
class NodeOutput:
    """A value that depends on the network's input: the output of one node."""

    index: int  # of the node
    shape: Shape  # of one point, without the batch dimension


@dataclass(frozen=True)
class SmoothOutput:
    """The output of a smooth operator, which a network may return but no operator may use."""

    before: NodeOutput  # what the smooth operator is applied to
    tail: Tail
    path: str = ""  # of the smooth operator's module


@dataclass(frozen=True)
class UnusableValue:
    """A value that no operator may use."""

    reason: str  # empty where the operator that makes it has been reported already
    smooth_source: SourceOperator | None = None  # the smooth operator that makes it, to report where it is used
    depends_on_input: bool = True


class BatchSize(int):
    """The number of points in a batch, which may appear in a shape but not in arithmetic."""


# NodeOutput, ScalarFunction, SmoothOutput, UnusableValue, a constant Tensor, a number, or a tuple of these
Value: TypeAlias = Any


@dataclass
class GraphBuilder:
    """The nodes added so far, the operator that is being converted, and helpers for conversion rules."""

    nodes: list[Node] = field(default_factory=list)
    node_functions: dict[int, ScalarFunction] = field(default_factory=dict)  # each node as a function of an earlier one
    names: set[str] = field(default_factory=set)
    name: str = ""  # for the next node
    target: str = ""  # the operator that is being converted, as name.overload without a namespace
    call: Callable[..., Any] | None = None  # the torch operator itself
    path: str = ""  # of its module
    shape: Any = ()  # of its output for one point; a tuple of shapes for several outputs
    notes: list[str] = field(default_factory=list)
    may_be_uninitialized: bool = False  # whether constants may hold NaN for elements that torch.empty left open

    def add_node(self, op: Op, inputs: Sequence[NodeOutput], shape: Sequence[int] | None = None) -> NodeOutput:
        """Append a node; its shape defaults to that of the operator being converted."""
        shape = tuple(self.shape if shape is None else shape)
        self._check_finite(op)
        name, suffix = self.name, 1
        while name in self.names:
            name, suffix = f"{self.name}.{suffix}", suffix + 1
        self.names.add(name)
        index = len(self.nodes)
        self.nodes.append(Node(name, op, tuple(x.index for x in inputs), shape, self.path))
        composed = None if isinstance(op, Input) or len(inputs) != 1 else self._compose_scalar_function(op, inputs[0])
        self.node_functions[index] = composed or ScalarFunction.identity(index)
        return NodeOutput(index, shape)

    def add_pointwise(self, op: Pointwise, x: NodeOutput) -> NodeOutput:
        """Append a pointwise node, after expanding its input and its knots to one shape."""
        wide = np.broadcast_shapes((1, *x.shape), *(k.shape for k in op.knots if isinstance(k, Tensor)))
        x = self.expand(x, wide[1:])
        knots = tuple(k.expand(wide).contiguous() if isinstance(k, Tensor) else k for k in op.knots)
        return self.add_node(replace(op, knots=knots), [x], x.shape)

    def expand(self, x: NodeOutput, shape: Sequence[int]) -> NodeOutput:
        """Broadcast a value to a larger shape."""
        if tuple(shape) == x.shape:
            return x
        return self.rearrange(lambda n: n.expand(1, *shape), [x], "expand")

    def list_node_outputs(self, args: dict[str, Any]) -> list[NodeOutput]:
        """List the node outputs among an operator's arguments, also inside lists, in order."""
        outputs: list[NodeOutput] = []
        for value in args.values():
            values = value if isinstance(value, (list, tuple)) else [value]
            outputs.extend(v for v in values if isinstance(v, NodeOutput))
        return outputs

    def bind_constants(self, args: dict[str, Any]) -> Callable[..., Any]:
        """The torch operator being converted as a function of its node outputs alone, with all else fixed."""
        if self.call is None:
            raise UnsupportedOperator("has no operator")

        def mark(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [mark(v) for v in value]
            return ARGUMENT if isinstance(value, NodeOutput) else value

        return BoundOperator(self.call, {k: mark(v) for k, v in args.items()})

    def rearrange(self, call: Callable[..., Tensor], xs: Sequence[NodeOutput], name: str) -> NodeOutput:
        """Append an operator that only moves elements.

        Its index map is found by calling it on the flat positions of the elements. Elements that do not scale with
        the positions are constants.
        """
        counts = [torch.Size(x.shape).numel() for x in xs]
        positions, first = [], 1
        for x, count in zip(xs, counts, strict=True):
            positions.append(torch.arange(first, first + count, dtype=torch.float64).view(1, *x.shape))
            first += count
        try:
            once, twice, constants = (call(*(p * factor for p in positions)) for factor in (1, 2, 0))
        except (RuntimeError, IndexError):
            raise UnsupportedOperator("mixes the batch dimension, or does not accept a single point") from None
        if once.shape[:1] != (1,):
            raise UnsupportedOperator(MOVES_BATCH)
        is_moved = ((once != twice) & ~once.isnan()).flatten()  # NaN: a constant that is not initialized yet
        index = torch.where(is_moved, once.flatten() - 1, torch.full_like(once.flatten(), -1)).to(torch.int64)
        shape = tuple(once.shape[1:])
        if len(xs) == 1 and bool(is_moved.all()) and torch.equal(index, torch.arange(counts[0])):
            return xs[0] if shape == xs[0].shape else self.add_node(Reshape(shape), xs, shape)
        constant = None if bool(is_moved.all()) else constants.flatten().clone()
        return self.add_node(Rearrange(index, constant, shape, name), xs, shape)

    def as_node_output(self, value: Value) -> NodeOutput:
        """Convert a value to the output of a node; a scalar function becomes a node if it is continuous.

        Raises UnsupportedOperator where that is impossible.
        """
        if isinstance(value, NodeOutput):
            return value
        if isinstance(value, UnusableValue):
            raise UnsupportedOperator(value.reason)
        if isinstance(value, SmoothOutput):
            raise UnsupportedOperator(MUST_BE_LAST, value.tail.name, value.path)
        if not isinstance(value, ScalarFunction):
            raise UnsupportedOperator(f"expects a value that depends on the input, not {type(value).__name__}")
        knot = value.find_jump()
        if value.is_boolean or knot is not None:
            at = "" if knot is None else f" (it jumps at {float(knot):g})"
            raise UnsupportedOperator(f"is not continuous{at}", *value.source)
        x = NodeOutput(value.node, self.nodes[value.node].shape)
        op = value.to_operator()
        if isinstance(op, Pointwise):
            return self.add_pointwise(op, x)
        slope, intercept = (torch.tensor(float(v), dtype=torch.float64) for v in op)
        return self.add_node(Scale(slope, None, intercept), [x], x.shape)

    def as_scalar_function(self, value: Value, node: int | None = None) -> ScalarFunction:
        """Convert a value to a scalar function; a constant becomes a function of ``node``."""
        if isinstance(value, ScalarFunction):
            return value
        if isinstance(value, NodeOutput):
            return self.node_functions[value.index]
        if isinstance(value, (bool, int, float)) and node is not None and not isinstance(value, BatchSize):
            return scalar_functions.constant(node, float(value))
        if isinstance(value, Tensor) and value.numel() and node is not None:
            first = value.flatten()[0]
            if bool(first.isinf()):
                raise UnsupportedOperator(IS_INFINITE)
            if bool((value == first).all()):
                return scalar_functions.constant(node, float(first))
        raise UnsupportedOperator("combines its inputs in a way that is not piecewise linear")

    def as_functions_of_one_node(self, *values: Value) -> list[ScalarFunction]:
        """Convert values to scalar functions of one node.

        Raises UnsupportedOperator where they are functions of different nodes.
        """
        functions = [self.as_scalar_function(v) for v in values if isinstance(v, (NodeOutput, ScalarFunction))]
        if not functions:
            raise UnsupportedOperator("expects a value that depends on the input")
        node = functions[0].node
        functions = [self.as_scalar_function(v, node) for v in values]
        if any(f.node != node for f in functions):
            raise UnsupportedOperator("combines two tensors in a way that is not piecewise linear")
        return functions

    def _check_finite(self, op: Op) -> None:
        """Raise NumberError for NaN or infinite constants, which folding can produce from finite weights."""
        for value in vars(op).values():
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor) and not all_finite(tensor):
                    if self.may_be_uninitialized:
                        if isinstance(op, Rearrange):
                            continue  # later operators may overwrite these elements
                        raise UnsupportedOperator(READS_UNINITIALIZED)
                    raise NumberError(
                        f"{op.title} has a constant that is NaN or infinite.",
                        where=self.path or self.name,
                        hint="Look for a division by zero, such as a variance and an eps of 0.",
                    )

    def _compose_scalar_function(self, op: Op, x: NodeOutput) -> ScalarFunction | None:
        """An operator's output as a scalar function of an earlier node; None where no single function describes it."""
        inner = self.node_functions[x.index]
        if isinstance(op, Pointwise) and all(isinstance(v, Fraction) for v in (*op.knots, *op.slopes, op.value)):
            return scalar_functions.compose(op, inner)
        if isinstance(op, Scale):
            numbers = [op.weight, op.divisor, op.offset]
            if all(v is None or v.numel() == 1 for v in numbers):
                weight, divisor, offset = (None if v is None else Fraction(float(v)) for v in numbers)
                factor = (Fraction(1) if weight is None else weight) / (Fraction(1) if divisor is None else divisor)
                scaled = scalar_functions.multiply(inner, scalar_functions.constant(inner.node, factor))
                return scalar_functions.add(scaled, scalar_functions.constant(inner.node, offset or Fraction(0)))
        return None
