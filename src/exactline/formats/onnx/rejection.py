"""What follows an unsupported node: the shape of its output, so that the nodes after it can be judged as well."""

from __future__ import annotations

import torch

from .arithmetic import BINARY_OPERATORS, COMPARISON_OPERATORS
from .reductions import AXES_INPUT_OPSETS
from .unsupported import DISCONTINUOUS_OPERATORS, NORM_OPERATORS, SMOOTH_OPERATORS
from .values import DependentValue, OnnxNode, Shape, Value, get_input

OTHER_SHAPES = {
    *("Det", "ArgMax", "ArgMin", "OneHot", "NonZero", "DynamicQuantizeLinear", "LpPool", "GlobalLpPool", "Pow", "Mod"),
    *("SoftmaxCrossEntropyLoss", "SwiGLU", "Unique", "NonMaxSuppression"),
}
KEEPS_SHAPE = {  # of the first input
    *(name for name in (*SMOOTH_OPERATORS, *NORM_OPERATORS, *DISCONTINUOUS_OPERATORS) if name not in OTHER_SHAPES),
    *("HardSwish", "CumProd", "Cast", "CastLike", "Shrink", "Dropout", "BatchNormalization", "PRelu", "Clip"),
    *("Sigmoid", "Tanh", "Softmax", "LogSoftmax"),
}
BROADCASTS = {*BINARY_OPERATORS, *COMPARISON_OPERATORS, "Where", "Max", "Min", "Pow", "Mod", "Sum", "Mean", "BitShift"}
REDUCES = {"ReduceL2": 18, "ReduceLogSum": 18, "ReduceLogSumExp": 18, "ReduceSumSquare": 18, **AXES_INPUT_OPSETS}


def infer_shape(node: OnnxNode, inputs: list[Value]) -> Shape | None:
    """The shape in the file of an unsupported node's first output; None where it is not known.

    Args:
        node: the node.
        inputs: all of known shape, or None where left out.
    """
    if not inputs or inputs[0] is None:
        return None
    shapes = [tuple(v.shape) for v in inputs if v is not None]
    try:
        if node.op_type in REDUCES:
            return _reduce_shape(node, inputs)
        if node.op_type in KEEPS_SHAPE:
            return shapes[0]
        if node.op_type in BROADCASTS:
            return tuple(torch.broadcast_shapes(*shapes))
        if node.op_type == "MatMul" and len(shapes) == 2:
            return tuple(torch.matmul(*(torch.empty(s, device="meta") for s in shapes)).shape)
        if node.op_type == "GlobalLpPool":
            return (*shapes[0][:2], *[1] * (len(shapes[0]) - 2))
    except RuntimeError:  # shapes that do not fit together
        return None
    return None


def _reduce_shape(node: OnnxNode, inputs: list[Value]) -> Shape | None:
    shape, axes = tuple(inputs[0].shape), node.get_ints("axes")
    if node.opset >= REDUCES[node.op_type]:
        axes_input = get_input(inputs, 1)
        if isinstance(axes_input, DependentValue):
            return None
        axes = [] if axes_input is None else [int(v) for v in axes_input.reshape(-1)[: len(shape)]]
    dims = node.resolve_axes(axes or range(len(shape)), len(shape))
    keeps = bool(node.get_attribute("keepdims", 1))
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keeps or d not in dims)
