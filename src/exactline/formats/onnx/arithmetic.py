"""Read elementwise arithmetic, comparisons and casts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...network import scalar_functions
from ...network.builder import NodeOutput, UnsupportedOperator
from ...network.scalar_functions import ScalarFunction
from ...ops.affine import Scale
from ...ops.pointwise import Pointwise
from .tensors import BFLOAT16, FLOAT, FLOAT16, FLOAT_TYPES
from .unsupported import explain_unsupported
from .values import DependentValue, OnnxNode, Value, drop_equal_rows, get_input, operator

BINARY_OPERATORS = {"Add": "add.Tensor", "Sub": "sub.Tensor", "Mul": "mul.Tensor", "Div": "div.Tensor"}
COMPARISON_OPERATORS = {
    "Greater": "gt.Tensor",
    "GreaterOrEqual": "ge.Tensor",
    "Less": "lt.Tensor",
    "LessOrEqual": "le.Tensor",
    "Equal": "eq.Tensor",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "ne.Tensor",
}
# supported only on constants
CONSTANT_OPERATORS = (
    *("Sqrt", "Exp", "Log", "Floor", "Ceil", "Reciprocal", "Sign", "Round", "Erf", "Sin", "Cos", "Tan", "Atan"),
    *("Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
)
BOOL, INT64 = 9, 7  # TensorProto.DataType
INTEGER_TYPES = (2, 3, 4, 5, 6, INT64, 12, 13)
SHORT_TYPES = {FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}
LEGACY_TYPE_NAMES = {"FLOAT": FLOAT, "DOUBLE": 11, "FLOAT16": 10, "INT32": 6, "INT64": INT64, "BOOL": BOOL}


def elementwise(node: OnnxNode, name: str, *values: Value) -> Value:
    """Apply an elementwise torch operator to values whose shapes broadcast as in ONNX."""
    if any(v is None for v in values):
        raise node.make_error("An input is missing.")
    dependent = [v for v in values if isinstance(v, DependentValue)]
    tensors = [v for v in values if isinstance(v, Tensor)]
    shapes = [v.shape if isinstance(v, DependentValue) else tuple(v.shape) for v in (*dependent, *tensors)]
    node.check_result_size(np.broadcast_shapes(*shapes))
    if not dependent:
        return node.call(name, *values)
    rank = max(len(s) for s in shapes)
    if node.batch_size > 1:
        values = tuple(v if len(v.shape) < rank else drop_equal_rows(node, v) for v in values)
        tensors = [v for v in values if isinstance(v, Tensor)]
    all_batched = all(v.has_batch_dim and len(v.shape) == rank for v in dependent)
    if all_batched and all(t.dim() < rank or t.shape[0] == 1 for t in tensors):
        args = [v.value if isinstance(v, DependentValue) else v for v in values]
        make = node.make_batched
    else:
        args = [_expand_rank(node, v, rank) if isinstance(v, DependentValue) else v for v in values]
        make = node.make_unbatched
    output = _call_elementwise(node, name, args)
    if isinstance(output, ScalarFunction):  # its constants are single numbers, which may have had a larger shape
        shape = np.broadcast_shapes(*(v.shape for v in values))
        output = node.reshape_function(output, shape[1:] if make == node.make_batched else shape)
    return make(output)


def _call_elementwise(node: OnnxNode, name: str, args: list[Any]) -> Any:
    """Record an elementwise operator; continuous functions become nodes where they cannot stay functions of one."""
    try:
        return node.call(name, *args)
    except UnsupportedOperator:
        functions = [a for a in args if isinstance(a, ScalarFunction)]
        if not functions or any(f.is_boolean or f.find_jump() is not None for f in functions):
            raise
        graph = node.recorder.graph
        return node.call(name, *(graph.as_node_output(a) if isinstance(a, ScalarFunction) else a for a in args))


def _expand_rank(node: OnnxNode, value: DependentValue, rank: int) -> NodeOutput | ScalarFunction:
    """An unbatched output with dimensions of size 1 in front, up to a rank."""
    node.check_keeps_batch(value)
    missing = rank - len(value.shape)
    value = node.reshape(value, (1,) * missing + value.shape) if missing > 0 else value
    if isinstance(value.value, ScalarFunction):
        return node.reshape_function(value.value, value.shape)
    return node.as_unbatched(value)


def align_legacy_operands(node: OnnxNode, values: list[Value]) -> list[Value]:
    """Two operands whose shapes broadcast; before operator set 7 the axis where the second one begins is given."""
    if node.opset >= 7 or len(values) < 2 or "axis" not in node.attributes or any(v is None for v in values[:2]):
        return values
    left, right = (tuple(v.shape) for v in values[:2])
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(left))
    missing = len(left) - axis - len(right)
    if missing < 0:
        raise node.make_error(f"A value of shape {list(right)} does not fit {list(left)} at axis {axis}.")
    shape = (*right, *[1] * missing)
    second = values[1].reshape(shape) if isinstance(values[1], Tensor) else node.reshape(values[1], shape)
    return [values[0], second, *values[2:]]


@operator(*BINARY_OPERATORS)
def binary(node: OnnxNode, inputs: list[Value]) -> Value:
    left, right = align_legacy_operands(node, inputs)
    are_integers = isinstance(left, Tensor) and isinstance(right, Tensor) and not left.is_floating_point()
    if node.op_type == "Div" and are_integers:
        if not bool((right != 0).all()):
            raise UnsupportedOperator("divides by zero")
        return torch.div(left, right, rounding_mode="trunc")
    return elementwise(node, BINARY_OPERATORS[node.op_type], left, right)


@operator(*COMPARISON_OPERATORS)
def compare(node: OnnxNode, inputs: list[Value]) -> Value:
    return elementwise(node, COMPARISON_OPERATORS[node.op_type], *align_legacy_operands(node, inputs)[:2])


@operator("Not")
def negate(node: OnnxNode, inputs: list[Value]) -> Value:
    return elementwise(node, "logical_not", inputs[0])


@operator("Where")
def where(node: OnnxNode, inputs: list[Value]) -> Value:
    slopes = _read_slopes(node, inputs)
    if slopes is not None:
        left, right, root = slopes
        op = Pointwise((Fraction(0),), (left, right), Fraction(0), name="where")
        return replace(root, value=node.recorder.graph.add_pointwise(op, node.as_node_output(root)))
    return elementwise(node, "where.self", *inputs[:3])


def _read_slopes(node: OnnxNode, inputs: list[Value]) -> tuple[Tensor, Tensor, DependentValue] | None:
    """The slopes left and right of 0, and x, where the operator is Where(x > 0, a * x, b * x) with tensors a and b."""
    if len(inputs) != 3 or not all(isinstance(v, DependentValue) for v in inputs):
        return None
    condition, shape = inputs[0].value, inputs[0].shape
    if not isinstance(condition, ScalarFunction) or not condition.is_boolean or condition.knots != (Fraction(0),):
        return None
    steps = [piece.intercept for piece in condition.pieces]
    factors = [_read_factor(node, branch, condition.node) for branch in inputs[1:]]
    one, two = factors
    if any(v.shape != shape for v in inputs) or sorted(steps) != [0, 1] or one is None or two is None:
        return None
    if not any(isinstance(f, Tensor) and f.numel() > 1 for f in factors):
        return None  # a function of one number, which may go on
    point_shape = node.recorder.graph.nodes[condition.node].shape
    wide = [f.expand(1, *point_shape).contiguous() for f in (one, two)]
    root = replace(inputs[0], value=NodeOutput(condition.node, point_shape))
    return (wide[1], wide[0], root) if steps == [0, 1] else (wide[0], wide[1], root)


def _read_factor(node: OnnxNode, branch: DependentValue, root: int) -> Tensor | None:
    """The factor of a node that is a multiple of another one, the root; None for anything else."""
    if not isinstance(branch.value, NodeOutput):
        return None
    if branch.value.index == root:
        return torch.ones((), dtype=torch.float64)
    recorded = node.recorder.graph.nodes[branch.value.index]
    op = recorded.op
    if not isinstance(op, Scale) or op.offset is not None or op.divisor is not None or recorded.inputs != (root,):
        return None
    return op.weight


@operator("Sum", "Mean")
def add_all(node: OnnxNode, inputs: list[Value]) -> Value:
    total = inputs[0]
    for value in inputs[1:]:
        total = elementwise(node, "add.Tensor", total, value)
    return elementwise(node, "div.Tensor", total, torch.tensor(float(len(inputs)))) if node.op_type == "Mean" else total


@operator("Max", "Min")
def max_or_min(node: OnnxNode, inputs: list[Value]) -> Value:
    name = "maximum" if node.op_type == "Max" else "minimum"
    constants = [v for v in inputs if isinstance(v, Tensor)]
    dependent = [v for v in inputs if isinstance(v, DependentValue)]
    result: Value = None
    for value in (*constants, *dependent):  # all constants together are one bound
        result = value if result is None else elementwise(node, name, value, result)
    return result


@operator("Pow")
def power(node: OnnxNode, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor) and isinstance(inputs[1], Tensor):
        return elementwise(node, "pow.Tensor_Tensor", *align_legacy_operands(node, inputs)[:2])
    if isinstance(inputs[1], Tensor) and bool((inputs[1] == 1).all()):
        return inputs[0]
    raise UnsupportedOperator("is a power, not piecewise linear")


@operator(*CONSTANT_OPERATORS)
def fold_constant(node: OnnxNode, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor):
        value = inputs[0]
        if node.op_type in ("Floor", "Ceil", "Round", "Sign") and not value.is_floating_point():
            return value
        return getattr(torch, node.op_type.lower())(value)
    if node.op_type == "Sign":
        return elementwise(node, "sign", inputs[0])  # continuous once it is multiplied by its input
    raise UnsupportedOperator(explain_unsupported(node.op_type, ""))


@operator("Mod")
def modulo(node: OnnxNode, inputs: list[Value]) -> Value:
    if any(isinstance(v, DependentValue) for v in inputs):
        raise UnsupportedOperator(explain_unsupported(node.op_type, ""))
    dividend, divisor = (node.require_constant(v, "an operand") for v in inputs[:2])
    if not bool((divisor != 0).all()):
        raise UnsupportedOperator("divides by zero")
    name = "fmod.Tensor" if node.get_attribute("fmod", 0) else "remainder.Tensor"
    return elementwise(node, name, dividend, divisor)


@operator("Identity", "OptionalGetElement")
def identity(node: OnnxNode, inputs: list[Value]) -> Value:
    return inputs[0]


@operator("Dropout")
def dropout(node: OnnxNode, inputs: list[Value]) -> Value:
    if node.opset < 7 and not node.get_attribute("is_test", 0):
        raise UnsupportedOperator("drops units at random: the file is in training mode")
    training = get_input(inputs, 2)
    ratio = get_input(inputs, 1)
    drops_none = isinstance(ratio, Tensor) and not bool(ratio.any())
    if training is not None and bool(node.require_constant(training, "its mode").any()) and not drops_none:
        raise UnsupportedOperator("drops units at random: the file is in training mode")
    return inputs[0]


@operator("Cast", "CastLike")
def cast(node: OnnxNode, inputs: list[Value]) -> Value:
    value = inputs[0]
    if node.op_type == "CastLike":
        data_type = FLOAT if not isinstance(inputs[1], Tensor) or inputs[1].is_floating_point() else INT64
    else:
        data_type = _read_data_type(node)
    if isinstance(value, DependentValue) and isinstance(value.value, ScalarFunction):
        return replace(value, value=_cast_function(value.value, data_type))
    if isinstance(value, DependentValue):
        if data_type not in FLOAT_TYPES:
            raise UnsupportedOperator("rounds its input to integers or booleans")
        if data_type in SHORT_TYPES and data_type not in node.recorder.float_types:
            raise UnsupportedOperator(f"rounds its input to {str(SHORT_TYPES[data_type]).removeprefix('torch.')}")
        node.recorder.graph.notes.append(f"{node.name}: a cast to a floating-point type is treated as exact")
        return value
    if data_type in FLOAT_TYPES:
        return value.to(SHORT_TYPES.get(data_type, torch.float64)).to(torch.float64)
    if data_type == BOOL:
        return value != 0
    if data_type in INTEGER_TYPES:
        return value.to(torch.int64)
    raise UnsupportedOperator("casts to a type that is not a number")


def _read_data_type(node: OnnxNode) -> int:
    """The type that a cast converts to, which is a name before operator set 6."""
    target = node.get_attribute("to", 0)
    if isinstance(target, str):
        return LEGACY_TYPE_NAMES.get(target.upper(), 0)
    return int(node.get_number("to", 0))


def _cast_function(function: ScalarFunction, data_type: int) -> ScalarFunction:
    """Cast an elementwise function, such as the condition x > 0; whole numbers can be cast to integers."""
    if data_type == BOOL:
        return scalar_functions.logical_not(scalar_functions.logical_not(function))
    values = [*function.knot_values, *(p.intercept for p in function.pieces)]
    is_whole = not any(p.slope for p in function.pieces) and all(v.denominator == 1 for v in values)
    if data_type not in FLOAT_TYPES and not (data_type in INTEGER_TYPES and is_whole):
        raise UnsupportedOperator("rounds its input to integers or booleans")
    return replace(function, is_boolean=False)
