"""Rules for elementwise operators with knots, and for comparisons and masks that can make up one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from ...ops import functions
from .. import scalar_functions
from ..builder import MIXES_BATCH, GraphBuilder, NodeOutput, UnsupportedOperator, Value
from .affine import add_values, depends_on_input, to_constant
from .maximum import binary_maximum
from .registry import Args, rule


@rule("relu", "relu_")
def relu(graph: GraphBuilder, args: Args) -> Value:
    return graph.add_pointwise(functions.relu(), graph.as_node_output(args["self"]))


@rule("leaky_relu")
def leaky_relu(graph: GraphBuilder, args: Args) -> Value:
    return graph.add_pointwise(functions.leaky_relu(args["negative_slope"]), graph.as_node_output(args["self"]))


@rule("rrelu")
def rrelu(graph: GraphBuilder, args: Args) -> Value:
    if args["training"]:
        raise UnsupportedOperator("draws its slope at random in training mode")
    slope = (Fraction(args["lower"]) + Fraction(args["upper"])) / 2
    return graph.add_pointwise(functions.leaky_relu(slope, "rrelu"), graph.as_node_output(args["self"]))


@rule("prelu", "_prelu_kernel")
def prelu(graph: GraphBuilder, args: Args) -> Value:
    x, weight = graph.as_node_output(args["self"]), to_constant(args["weight"], "its slope")
    if weight.numel() == 1:
        return graph.add_pointwise(functions.leaky_relu(float(weight), "prelu"), x)
    shape = (1, -1, *[1] * (len(x.shape) - 1)) if weight.dim() == 1 else weight.shape
    return graph.add_pointwise(functions.prelu(weight.view(shape)), x)


@rule("hardtanh", "relu6", "hardtanh_")
def hardtanh(graph: GraphBuilder, args: Args) -> Value:
    name = "relu6" if (args.get("min_val", 0), args.get("max_val", 6)) == (0, 6) else "hardtanh"
    return graph.add_pointwise(
        functions.clamp(args.get("min_val", 0), args.get("max_val", 6), name), graph.as_node_output(args["self"])
    )


@rule("hardsigmoid")
def hardsigmoid(graph: GraphBuilder, args: Args) -> Value:
    return graph.add_pointwise(functions.hardsigmoid(), graph.as_node_output(args["self"]))


@rule("softshrink")
def softshrink(graph: GraphBuilder, args: Args) -> Value:
    return graph.add_pointwise(functions.softshrink(args["lambd"]), graph.as_node_output(args["self"]))


@rule("abs")
def absolute(graph: GraphBuilder, args: Args) -> Value:
    return graph.add_pointwise(functions.absolute(), graph.as_node_output(args["self"]))


@rule("l1_loss")
def l1_loss(graph: GraphBuilder, args: Args) -> Value:
    if args["reduction"]:
        raise UnsupportedOperator(MIXES_BATCH)
    difference = add_values(graph, args["self"], args["target"], -1.0)
    return graph.add_pointwise(functions.absolute(), graph.as_node_output(difference))


@rule("threshold")
def threshold(graph: GraphBuilder, args: Args) -> Value:
    if float(args["threshold"]) != float(args["value"]):
        knot, value = float(args["threshold"]), float(args["value"])
        raise UnsupportedOperator(f"jumps at {knot:g}: value {value:g} is not the threshold")
    op = functions.clamp(args["threshold"], None, "threshold")
    return graph.add_pointwise(op, graph.as_node_output(args["self"]))


@rule("clamp", "clip", "clamp_min", "clamp_max", "clamp.Tensor")
def clamp(graph: GraphBuilder, args: Args) -> Value:
    x, low, high = args["self"], args.get("min"), args.get("max")
    if not depends_on_input(x):
        raise UnsupportedOperator("clamps a constant by values that depend on the input")
    x = graph.as_node_output(x)
    if depends_on_input(low) or depends_on_input(high):
        if low is not None:
            x = graph.as_node_output(binary_maximum(graph, x, low, 1))
        return x if high is None else binary_maximum(graph, x, high, -1)
    return _add_clamp(graph, x, _read_bound(low, -torch.inf), _read_bound(high, torch.inf))


@rule("maximum", "max.other", "fmax", "minimum", "min.other", "fmin")
def maximum(graph: GraphBuilder, args: Args) -> Value:
    sign = 1 if "max" in graph.target else -1
    left, right = args["self"], args["other"]
    if depends_on_input(left) and depends_on_input(right):
        return binary_maximum(graph, left, right, sign)
    x, constant = (left, right) if depends_on_input(left) else (right, left)
    bound = _read_bound(constant, -sign * torch.inf)
    return _add_clamp(graph, graph.as_node_output(x), *((bound, None) if sign > 0 else (None, bound)))


COMPARISONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}


@rule(*COMPARISONS)
def compare(graph: GraphBuilder, args: Args) -> Value:
    left, right = graph.as_functions_of_one_node(args["self"], args["other"])
    return scalar_functions.compare(left, right, COMPARISONS[graph.target.split(".")[0]])


@rule("sign", "sgn")
def sign(graph: GraphBuilder, args: Args) -> Value:
    return scalar_functions.sign(*graph.as_functions_of_one_node(args["self"]))


@rule("logical_not", "bitwise_not")
def logical_not(graph: GraphBuilder, args: Args) -> Value:
    return scalar_functions.logical_not(*graph.as_functions_of_one_node(args["self"]))


@rule("logical_and", "bitwise_and", "__and__", "logical_or", "bitwise_or", "__or__")
def logical(graph: GraphBuilder, args: Args) -> Value:
    left, right = graph.as_functions_of_one_node(args["self"], args["other"])
    if "and" in graph.target:
        return scalar_functions.logical_and(left, right)
    negated = (scalar_functions.logical_not(condition) for condition in (left, right))
    return scalar_functions.logical_not(scalar_functions.logical_and(*negated))


@rule("where", "masked_fill")
def where(graph: GraphBuilder, args: Args) -> Value:
    if "mask" in args:
        condition, yes, no = args["mask"], args["value"], args["self"]
    else:
        condition, yes, no = args["condition"], args["self"], args["other"]
    if isinstance(condition, Tensor):
        yes, no = (graph.as_node_output(v) if depends_on_input(v) else v for v in (yes, no))
        xs = [v for v in (yes, no) if isinstance(v, NodeOutput)]
        return graph.rearrange(_make_where(condition, yes, no), xs, "where")
    return scalar_functions.where(*graph.as_functions_of_one_node(condition, yes, no))


def _make_where(condition: Tensor, yes: Value, no: Value) -> Callable[..., Tensor]:
    """torch.where with a constant condition, as a function of the branches that are node outputs."""

    def call(*xs: Tensor) -> Tensor:
        tensors = iter(xs)
        branches = (next(tensors) if isinstance(v, NodeOutput) else to_constant(v) for v in (yes, no))
        return torch.where(condition.to(torch.bool), *branches)

    return call


def _add_clamp(
    graph: GraphBuilder, x: NodeOutput, low: float | Tensor | None, high: float | Tensor | None
) -> NodeOutput:
    return x if low is None and high is None else graph.add_pointwise(functions.clamp(low, high), x)


def _read_bound(value: Value, no_bound: float) -> float | Tensor | None:
    """A bound as a number or a tensor; None where it is missing, or infinite and without effect."""
    if value is None:
        return None
    tensor = to_constant(value, "its bound")
    if bool((tensor == no_bound).all()):
        return None
    if not bool(torch.isfinite(tensor).all()):
        raise UnsupportedOperator("has a bound that is infinite or NaN")
    return float(tensor) if tensor.numel() == 1 else tensor
