"""Rules for affine operators: products with constants, sums, averages."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import functions
from ...ops.affine import Average, Combine, Product, Scale
from .. import scalar_functions
from ..builder import (
    MIXES_BATCH,
    MULTIPLIES_INPUTS,
    GraphBuilder,
    NodeOutput,
    UnsupportedOperator,
    UnusableValue,
    Value,
)
from ..calls import Convolution, Einsum, Tensordot
from ..scalar_functions import NotPiecewiseLinear, ScalarFunction
from .registry import Args, rule


def to_constant(value: Value, what: str = "an operand") -> Tensor:
    """Convert a constant to a float64 tensor; raises UnsupportedOperator for a value that depends on the input."""
    if depends_on_input(value):
        raise UnsupportedOperator(f"{MULTIPLIES_INPUTS} ({what})")
    return value.to(torch.float64) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def depends_on_input(value: Value) -> bool:
    """Whether an argument depends on the network's input."""
    return isinstance(value, (NodeOutput, ScalarFunction))


def resolve_dims(args: Args, x: NodeOutput, key: str = "dim") -> list[int]:
    """The dimensions that an operator reduces, counted from 0; raises UnsupportedOperator for the batch dimension."""
    value = args[key]
    rank = len(x.shape) + 1
    dims = [value] if isinstance(value, int) else list(value or range(rank))
    dims = [d % rank for d in dims]
    if 0 in dims:
        raise UnsupportedOperator(MIXES_BATCH)
    return dims


@rule("linear")
def linear(graph: GraphBuilder, args: Args) -> Value:
    x, weight = graph.as_node_output(args["input"]), to_constant(args["weight"], "its weight")
    bias = None if args["bias"] is None else to_constant(args["bias"]).view(1, *[1] * (len(x.shape) - 1), -1)
    if weight.dim() == 1:
        return graph.add_node(Product(torch.matmul, weight, bias, "linear"), [x])
    return graph.add_node(Product(F.linear, weight, bias, "linear", F.linear), [x])


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolution(graph: GraphBuilder, args: Args) -> Value:
    x, weight = graph.as_node_output(args["input"]), to_constant(args["weight"], "its kernel")
    spatial = weight.dim() - 2
    if len(x.shape) != spatial + 1:
        raise UnsupportedOperator(f"expects {spatial + 1} dimensions after the batch dimension, found {len(x.shape)}")
    keys = ("stride", "padding", "output_padding", "dilation", "groups")
    keywords: dict[str, Any] = {k: args[k] for k in keys if k in args}
    name = f"conv_transpose{spatial}d" if "output_padding" in args else f"conv{spatial}d"
    settings = _read_convolution_settings(args, weight)
    call = Convolution(name, keywords, settings)
    bias = None if args["bias"] is None else to_constant(args["bias"]).view(1, -1, *[1] * spatial)
    return graph.add_node(Product(call, weight, bias, name, call, settings=settings), [x])


def _read_convolution_settings(args: Args, weight: Tensor) -> dict[str, Any]:
    """A convolution's settings, with one number for each spatial dimension.

    ``padding_end`` differs from ``padding`` only where the padding is "same" and the kernel is even.
    """
    spatial = weight.dim() - 2
    dilation = expand_per_dim(args["dilation"], spatial)
    padding = args["padding"]
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilation, weight.shape[2:], strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = expand_per_dim(padding, spatial)
    return {
        "stride": expand_per_dim(args["stride"], spatial),
        "padding": before,
        "padding_end": after,
        "dilation": dilation,
        "groups": int(args["groups"]),
        "output_padding": expand_per_dim(args.get("output_padding", 0), spatial),
        "transposed": "output_padding" in args,
    }


def expand_per_dim(value: int | list[int], count: int) -> list[int]:
    """Expand a setting to one number for each of ``count`` spatial dimensions."""
    values = [value] if isinstance(value, int) else [int(v) for v in value]
    return values * count if len(values) == 1 else values


@rule("_native_batch_norm_legit_no_training", "batch_norm")
def batch_norm(graph: GraphBuilder, args: Args) -> Value:
    if args.get("training") or args.get("running_mean") is None:
        raise UnsupportedOperator("uses the statistics of the batch")
    x = graph.as_node_output(args["input"])
    shape = (1, -1, *[1] * (len(x.shape) - 1))
    mean, var = to_constant(args["running_mean"]), to_constant(args["running_var"])
    weight = torch.ones_like(mean) if args["weight"] is None else to_constant(args["weight"])
    bias = torch.zeros_like(mean) if args["bias"] is None else to_constant(args["bias"])
    scale = weight / torch.sqrt(var + args["eps"])
    shift = bias - mean * scale
    settings = {"mean": mean, "var": var, "weight": weight, "bias": bias, "eps": float(args["eps"])}
    op = Scale(scale.view(shape), None, shift.view(shape), "batch_norm", settings=settings)
    output = graph.add_node(op, [x], x.shape)
    statistics = UnusableValue("uses the statistics of a batch norm")
    return (output, statistics, statistics) if isinstance(graph.shape[0], tuple) else output


@rule("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor")
def add(graph: GraphBuilder, args: Args) -> Value:
    left, right = args["self"], args["other"]
    factor = float(args["alpha"]) * (1 if graph.target.startswith("add") else -1)
    if graph.target.startswith("rsub"):
        left, right = right, left
    return add_values(graph, left, right, factor)


def add_values(graph: GraphBuilder, left: Value, right: Value, factor: float) -> Value:
    """Append left + factor * right, where at least one of the two depends on the input."""
    if isinstance(left, ScalarFunction) or isinstance(right, ScalarFunction):
        try:
            one, two = graph.as_functions_of_one_node(left, right)
        except UnsupportedOperator:
            left, right = (graph.as_node_output(v) if depends_on_input(v) else v for v in (left, right))
        else:
            return scalar_functions.add(one, two, scalar_functions.Fraction(factor))
    if depends_on_input(left) and depends_on_input(right):
        return graph.add_node(Combine((1.0, factor)), [graph.as_node_output(left), graph.as_node_output(right)])
    if depends_on_input(left):
        return graph.add_node(Scale(None, None, to_constant(right) * factor, "add"), [graph.as_node_output(left)])
    weight = None if factor == 1 else torch.tensor(factor, dtype=torch.float64)
    return graph.add_node(Scale(weight, None, to_constant(left), "sub"), [graph.as_node_output(right)])


@rule("mul.Tensor", "mul.Scalar")
def mul(graph: GraphBuilder, args: Args) -> Value:
    left, right = args["self"], args["other"]
    if depends_on_input(left) and depends_on_input(right):
        try:
            return scalar_functions.multiply(*graph.as_functions_of_one_node(left, right))
        except (NotPiecewiseLinear, UnsupportedOperator):
            raise UnsupportedOperator(MULTIPLIES_INPUTS) from None
    x, factor = (left, right) if depends_on_input(left) else (right, left)
    if isinstance(x, ScalarFunction):
        return scalar_functions.multiply(*graph.as_functions_of_one_node(x, factor))
    return graph.add_node(Scale(to_constant(factor), None, None, "mul"), [graph.as_node_output(x)])


@rule("div.Tensor", "div.Scalar")
def div(graph: GraphBuilder, args: Args) -> Value:
    if args.get("rounding_mode") is not None:
        raise UnsupportedOperator("rounds, which is discontinuous")
    if depends_on_input(args["other"]):
        raise UnsupportedOperator("divides by a value that depends on the input")
    divisor = to_constant(args["other"])
    if not bool((divisor != 0).all()):
        raise UnsupportedOperator("divides by zero")
    return graph.add_node(Scale(None, divisor, None, "div"), [graph.as_node_output(args["self"])])


@rule("neg")
def neg(graph: GraphBuilder, args: Args) -> Value:
    if isinstance(args["self"], ScalarFunction):
        return scalar_functions.multiply(*graph.as_functions_of_one_node(args["self"], -1.0))
    return graph.add_node(
        Scale(torch.tensor(-1.0, dtype=torch.float64), None, None, "neg"), [graph.as_node_output(args["self"])]
    )


@rule("matmul", "bmm", "mm", "mv", "dot")
def matmul(graph: GraphBuilder, args: Args) -> Value:
    left = args["self"]
    right = next(args[k] for k in ("other", "mat2", "vec", "tensor") if k in args)
    if depends_on_input(left) and depends_on_input(right):
        raise UnsupportedOperator(MULTIPLIES_INPUTS)
    if depends_on_input(left):
        x, weight = graph.as_node_output(left), to_constant(right)
        if weight.dim() == 2:
            return graph.add_node(Product(F.linear, weight.T.contiguous(), None, "matmul"), [x])
        return graph.add_node(Product(torch.matmul, weight, None, "matmul"), [x])
    x, weight = graph.as_node_output(right), to_constant(left)
    if len(x.shape) < 2:
        raise UnsupportedOperator(MIXES_BATCH)
    return graph.add_node(Product(_multiply_from_left, weight, None, "matmul"), [x])


def _multiply_from_left(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(weight, x)


@rule("rnn_relu")
def rnn_relu(graph: GraphBuilder, args: Args) -> Value:
    if not args["batch_first"] or len(graph.shape[0]) != 2:
        raise UnsupportedOperator("expects batches first, as with batch_first=True")
    if args["train"] and args["dropout"] > 0:
        raise UnsupportedOperator("drops units at random")
    if depends_on_input(args["hx"]):
        raise UnsupportedOperator("starts from a state that depends on the input, which is not supported")
    directions = 2 if args["bidirectional"] else 1
    weights = [to_constant(p, "its weights") for p in args["params"]]
    count = len(weights) // (args["num_layers"] * directions)  # of weights in one direction of one layer
    x, states = graph.as_node_output(args["input"]), to_constant(args["hx"])
    for layer in range(args["num_layers"]):
        outputs = [
            _unroll(graph, x, weights[first * count : (first + 1) * count], states[first, 0], first % directions == 1)
            for first in range(layer * directions, (layer + 1) * directions)
        ]
        x = outputs[0] if directions == 1 else graph.rearrange(lambda *p: torch.cat(p, 2), outputs, "cat")
    return x, UnusableValue("moves the batch dimension: use the outputs of the last step, not the final state")


def _unroll(graph: GraphBuilder, x: NodeOutput, weights: list[Tensor], state: Tensor, reverse: bool) -> NodeOutput:
    """Append the steps of one direction of a recurrent layer of ReLUs; returns all outputs (steps, units).

    ``x`` is (steps, features), ``weights`` are those for the input and the state, then the biases, ``state`` (units,).
    """
    steps, units = x.shape[0], len(state)
    bias = sum(weights[2:], torch.zeros(units, dtype=torch.float64)).view(1, 1, -1)
    inputs = graph.add_node(Product(F.linear, weights[0], bias, "linear", F.linear), [x], (steps, units))
    outputs: dict[int, NodeOutput] = {}
    last: NodeOutput | None = None
    for step in reversed(range(steps)) if reverse else range(steps):
        total = graph.rearrange(partial(torch.select, dim=1, index=step), [inputs], "select")
        if last is None:
            total = graph.add_node(Scale(None, None, (weights[1] @ state)[None], "add"), [total], (units,))
        else:
            fed_back = graph.add_node(Product(F.linear, weights[1], None, "linear", F.linear), [last], (units,))
            total = graph.add_node(Combine((1.0, 1.0)), [total, fed_back], (units,))
        last = outputs[step] = graph.add_pointwise(functions.relu(), total)
    return graph.rearrange(lambda *p: torch.stack(p, 1), [outputs[t] for t in range(steps)], "stack")


@rule("addmm", "baddbmm", "addmv")
def addmm(graph: GraphBuilder, args: Args) -> Value:
    keys = ("mat1", "mat2") if "mat1" in args else ("batch1", "batch2") if "batch1" in args else ("mat", "vec")
    product = matmul(graph, {"self": args[keys[0]], "other": args[keys[1]]})
    if float(args["alpha"]) != 1:
        product = graph.add_node(Scale(to_constant(args["alpha"]), None, None, "mul"), [product])
    if depends_on_input(args["self"]):
        return graph.add_node(Combine((1.0, float(args["beta"]))), [product, graph.as_node_output(args["self"])])
    return graph.add_node(Scale(None, None, to_constant(args["self"]) * float(args["beta"]), "add"), [product])


@rule("einsum")
def einsum(graph: GraphBuilder, args: Args) -> Value:
    equation, operands = args["equation"], list(args["tensors"])
    dependent = [i for i, v in enumerate(operands) if depends_on_input(v)]
    if len(dependent) > 1:
        raise UnsupportedOperator(MULTIPLIES_INPUTS)
    if len(operands) > 2:
        raise UnsupportedOperator("takes more than two operands, which is not supported")
    position = dependent[0]
    x = graph.as_node_output(operands[position])
    if len(operands) == 1:
        count = prod(x.shape) // max(prod(graph.shape), 1) or 1
        settings = {"equation": equation}
        return graph.add_node(Average(partial(torch.einsum, equation), max(count, 1), "einsum", settings=settings), [x])
    weight = to_constant(operands[1 - position])
    settings = {"equation": equation, "data_first": position == 0}
    return graph.add_node(Product(Einsum(equation, position == 0), weight, None, "einsum", settings=settings), [x])


@rule("tensordot")
def tensordot(graph: GraphBuilder, args: Args) -> Value:
    if not depends_on_input(args["self"]) or depends_on_input(args["other"]):
        raise UnsupportedOperator("is supported only with a constant as its second operand")
    dims = (list(args["dims_self"]), list(args["dims_other"]))
    x = graph.as_node_output(args["self"])
    resolve_dims({"dim": dims[0]}, x)
    return graph.add_node(Product(Tensordot(dims), to_constant(args["other"]), None, "tensordot"), [x])


@rule("addcmul", "addcdiv")
def addcmul(graph: GraphBuilder, args: Args) -> Value:
    one, two, value = args["tensor1"], args["tensor2"], float(args["value"])
    if graph.target.startswith("addcdiv"):
        product = div(graph, {"self": one, "other": two})
    else:
        product = mul(graph, {"self": one, "other": two})
    product = graph.as_node_output(product)
    if depends_on_input(args["self"]):
        return graph.add_node(Combine((1.0, value)), [graph.as_node_output(args["self"]), product])
    return graph.add_node(Scale(torch.tensor(value, dtype=torch.float64), None, to_constant(args["self"])), [product])


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(graph: GraphBuilder, args: Args) -> Value:
    if depends_on_input(args["weight"]):
        raise UnsupportedOperator(MULTIPLIES_INPUTS)
    weight = to_constant(args["weight"])
    if not (depends_on_input(args["self"]) and depends_on_input(args["end"])):
        raise UnsupportedOperator("interpolates with a constant, which is not supported")
    start, end = graph.as_node_output(args["self"]), graph.as_node_output(args["end"])
    rest = graph.add_node(Scale(1 - weight, None, None, "mul"), [start])
    part = graph.add_node(Scale(weight, None, None, "mul"), [end])
    return graph.add_node(Combine((1.0, 1.0)), [rest, part])


@rule("mean.dim", "sum.dim_IntList", "cumsum", "nansum")
def reduce(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    dims = resolve_dims(args, x)
    count = prod(x.shape[d - 1] for d in dims)
    name = graph.target.split(".")[0]
    if not count:
        raise UnsupportedOperator("reduces an empty dimension")
    settings: dict[str, Any] = {"dims": [d - 1 for d in dims]}
    if name == "cumsum":
        return graph.add_node(Average(partial(torch.cumsum, dim=dims[0]), count, name, settings=settings), [x])
    function, keepdim = torch.mean if name == "mean" else torch.sum, bool(args["keepdim"])
    call = partial(function, dim=dims, keepdim=keepdim)
    return graph.add_node(Average(call, count, name, settings={**settings, "keepdim": keepdim}), [x])


@rule("diff")
def diff(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    if args["n"] != 1 or args["prepend"] is not None or args["append"] is not None:
        raise UnsupportedOperator("takes differences in a way that is not supported")
    (dim,) = resolve_dims(args, x)
    length = x.shape[dim - 1] - 1
    later = graph.rearrange(lambda n: n.narrow(dim, 1, length), [x], "slice")
    earlier = graph.rearrange(lambda n: n.narrow(dim, 0, length), [x], "slice")
    return graph.add_node(Combine((1.0, -1.0)), [later, earlier])


AVERAGE_OPERATORS = (
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "col2im",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
)


@rule(*AVERAGE_OPERATORS)
def average(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args.get("self", args.get("input")))
    call, name = graph.bind_constants(args), graph.target.split(".")[0]
    kernel = args.get("kernel_size")
    if kernel is not None:
        count = prod(kernel) if len(kernel) > 1 else kernel[0] ** max(len(x.shape) - 1, 1)
    else:
        count = max(1, -(-prod(x.shape) // max(prod(graph.shape), 1))) * 4
    # the weights of a mean are 1/k; those of an interpolation are arbitrary floats
    is_mean, settings = "upsample" not in name, _read_pool_settings(args, name)
    return graph.add_node(Average(call, count, name, rational_coefficients=is_mean, settings=settings), [x])


def _read_pool_settings(args: Args, name: str) -> dict[str, Any]:
    """An average pool's settings, with one number for each spatial dimension; empty for other averages."""
    if "count_include_pad" not in args:
        return {}
    spatial = int(name[-2])
    kernel = expand_per_dim(args["kernel_size"], spatial)
    return {
        "kernel": kernel,
        "stride": expand_per_dim(args["stride"] or kernel, spatial),
        "padding": expand_per_dim(args["padding"], spatial),
        "ceil_mode": bool(args["ceil_mode"]),
        "count_include_pad": bool(args["count_include_pad"]),
        "divisor": args.get("divisor_override"),
    }
