"""Read reductions over axes: sums, means, extrema, products and norms."""

from __future__ import annotations

import torch
from torch import Tensor

from ...network.builder import NodeOutput, UnsupportedOperator
from .arithmetic import elementwise
from .unsupported import explain_unsupported
from .values import DependentValue, OnnxNode, Value, get_input, operator

# the first operator set in which a reduction takes its axes as an input, not as an attribute
AXES_INPUT_OPSETS = {
    "ReduceSum": 13,
    "ReduceMean": 18,
    "ReduceMax": 18,
    "ReduceMin": 18,
    "ReduceProd": 18,
    "ReduceL1": 18,
}


@operator(*AXES_INPUT_OPSETS)
def reduce(node: OnnxNode, inputs: list[Value]) -> Value:
    value = inputs[0]
    if node.opset >= AXES_INPUT_OPSETS[node.op_type]:
        axes_input = get_input(inputs, 1)
        axes = [] if axes_input is None else node.require_whole_numbers(axes_input, "its axes")
        if not axes and node.get_attribute("noop_with_empty_axes", 0):
            return value
    else:
        axes = node.get_ints("axes")
    rank = value.dim() if isinstance(value, Tensor) else len(value.shape)
    dims = sorted(set(node.resolve_axes(axes or range(rank), rank)))
    keep = bool(node.get_attribute("keepdims", 1))
    if isinstance(value, Tensor):
        return _reduce_constant(node, value, dims, keep)
    if node.op_type == "ReduceProd":
        raise UnsupportedOperator(explain_unsupported(node.op_type, ""))
    if node.op_type == "ReduceL1":
        value = elementwise(node, "abs", value)
    if not value.has_batch_dim or 0 not in dims:
        return node.apply_along_axes(value, dims, lambda x, d: _reduce_output(node, x, d, keep)) if dims else value
    node.check_keeps_batch(value)
    others = dims[1:]  # the batch of one point needs no reduction
    output = node.as_node_output(value)
    output = _reduce_output(node, output, others, keep) if others else output
    return node.make_batched(output) if keep else DependentValue(output, output.shape, False)


def _reduce_output(node: OnnxNode, x: NodeOutput, dims: list[int], keep: bool) -> NodeOutput:
    names = {"ReduceSum": "sum.dim_IntList", "ReduceMean": "mean.dim", "ReduceMax": "amax", "ReduceMin": "amin"}
    return node.call(names.get(node.op_type, "sum.dim_IntList"), x, dims, keepdim=keep)


def _reduce_constant(node: OnnxNode, value: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in reversed(dims):
        if node.op_type in ("ReduceMax", "ReduceMin"):
            value = value.amax(dim, keep) if node.op_type == "ReduceMax" else value.amin(dim, keep)
        elif node.op_type == "ReduceProd":
            value = value.prod(dim, keep)
        elif node.op_type == "ReduceMean":
            value = value.to(torch.float64).mean(dim, keep)
        else:
            value = (value.abs() if node.op_type == "ReduceL1" else value).sum(dim, keep)
    return value
