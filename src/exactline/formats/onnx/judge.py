"""Judge the nodes after an unsupported one, so that a refusal names every node at fault and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...network.builder import MULTIPLIES_INPUTS, MUST_BE_LAST, SmoothOutput, UnsupportedOperator, UnusableValue
from ...network.scalar_functions import ScalarFunction, SourceOperator
from ...ops.base import Input
from .. import limits
from ..graph_builder import OperatorRecorder
from .control_flow import CONTROL_FLOW
from .recurrent import find_smooth_activation
from .rejection import infer_shape
from .unsupported import UNSUPPORTED_REASONS
from .values import DependentValue, OnnxNode, Shape, Value

ONNX_DOMAINS = ("", "ai.onnx")
TAIL_OPERATORS = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "sigmoid": "Sigmoid", "tanh": "Tanh"}
# may follow a smooth operator at the end of a network
TAKES_SMOOTH = (
    *("Identity", "Dropout", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Size"),
)
READS_SHAPE = ("Shape", "Size")  # which does not depend on the numbers
PRODUCTS = ("Mul", "MatMul", "Gemm", "Div", "Einsum")
MISSING_OUTPUTS = {
    "TopK": "has indices that are used, and they are discontinuous",
    "MaxPool": "has indices that are used, and they are discontinuous",
    "Dropout": "has a mask that is used, which is not supported",
}


@dataclass(frozen=True)
class Judge:
    """Rejects the nodes that are at fault, and makes values that stand for the outputs of unsupported nodes."""

    recorder: OperatorRecorder
    batch_size: int  # that the file declares

    def report_jumps(self, node: Any, inputs: list[Value]) -> None:
        """Reject the sources of discontinuous functions that an unsupported operator takes."""
        if node.op_type not in UNSUPPORTED_REASONS or node.op_type in CONTROL_FLOW:  # these take conditions
            return
        functions = [v.value for v in inputs if isinstance(v, DependentValue)]
        for function in functions:
            if isinstance(function, ScalarFunction) and (function.is_boolean or function.find_jump() is not None):
                self.report_jump(function)

    def report_jump(self, function: ScalarFunction) -> None:
        """Reject the source of a discontinuous function."""
        knot = function.find_jump()
        at = "" if knot is None else f" (it jumps at {float(knot):g})"
        self.recorder.begin_node(shorten_name(function.source.path))
        self.recorder.reject(function.source.name, f"is discontinuous{at}")

    def replace_smooth(self, value: Value) -> Value:
        """A value that other operators may use: the output of a smooth operator is refused, and a placeholder used."""
        if not isinstance(value, DependentValue) or not isinstance(value.value, SmoothOutput):
            return value
        self.recorder.begin_node(shorten_name(value.value.path))
        self.recorder.reject(TAIL_OPERATORS[value.value.tail.name], MUST_BE_LAST)
        return self._make_placeholder(value.shape)

    def _make_placeholder(self, shape: Shape) -> DependentValue:
        """A value of known shape that stands for the output of an unsupported node, to judge the nodes after it."""
        has_batch_dim = bool(shape) and shape[0] == 1
        limits.count_elements(shape, "the result", self.recorder.where, limits.MAX_VALUE_ELEMENTS)
        output = self.recorder.graph.add_node(Input(), [], shape[has_batch_dim:])
        return DependentValue(output, shape, has_batch_dim)

    def replace_outputs(self, node: OnnxNode, inputs: list[Value], domain: str = "") -> list[Value]:
        """Values for all outputs of an unsupported node."""
        depends = not inputs or any(depends_on_input(v) for v in inputs)
        unknown = DependentValue(UnusableValue("", depends_on_input=depends), (), False)
        results: list[Value] = [unknown] * node.output_count
        is_known = all(not isinstance(v, DependentValue) or not isinstance(v.value, UnusableValue) for v in inputs)
        shape = infer_shape(node, inputs) if depends and is_known and domain in ONNX_DOMAINS else None
        if shape is not None and results:
            if self.batch_size > 1 and shape[:1] == (self.batch_size,):
                shape = (1, *shape[1:])
            results[0] = self._make_placeholder(shape)
        return results

    def make_missing_output(self, node: OnnxNode, index: int) -> DependentValue:
        """The value of an output that readers do not make, such as the indices of a maximum."""
        reason = MISSING_OUTPUTS.get(node.op_type, f"has an output {index} that is used, which is not supported")
        return DependentValue(UnusableValue(reason, smooth_source=SourceOperator(node.op_type, node.name)), (), False)

    def judge_unknown(self, node: OnnxNode, inputs: list[Value], unknown: list[UnusableValue]) -> Sequence[Value]:
        """Judge a node of inputs whose shapes are not known by its type alone; its outputs are unknown too."""
        if node.op_type in READS_SHAPE:
            return [DependentValue(UnusableValue("", depends_on_input=False), (), False)]
        data = inputs[0].value if inputs and isinstance(inputs[0], DependentValue) else None
        if node.op_type in TAKES_SMOOTH and isinstance(data, UnusableValue):
            return [inputs[0]] * node.output_count
        for value in unknown:
            self.report_unusable(value)
        if node.op_type not in TAKES_SMOOTH:
            inputs = [self.replace_smooth(v) for v in inputs]
        self.recorder.begin_node(shorten_name(node.name))
        is_relu = node.op_type == "RNN" and find_smooth_activation(node) is None
        if node.op_type in UNSUPPORTED_REASONS and not is_relu and not self._has_constant_conditions(node, inputs):
            raise UnsupportedOperator(UNSUPPORTED_REASONS[node.op_type])
        if node.op_type in PRODUCTS and sum(depends_on_input(v) for v in inputs) > 1:
            raise UnsupportedOperator(MULTIPLIES_INPUTS)
        source = SourceOperator(node.op_type, node.name) if node.op_type in TAIL_OPERATORS.values() else None
        reason = MUST_BE_LAST if source else ""
        depends = any(depends_on_input(v) for v in inputs)
        return [DependentValue(UnusableValue(reason, source, depends), (), False)] * node.output_count

    def _has_constant_conditions(self, node: OnnxNode, inputs: list[Value]) -> bool:
        """Whether a node is control flow that does not depend on the network's input."""
        conditions = {"If": inputs[:1], "Loop": inputs[:2], "Scan": []}.get(node.op_type)
        return conditions is not None and not any(depends_on_input(v) for v in conditions)

    def report_unusable(self, value: UnusableValue) -> UnusableValue:
        """Reject the node that makes a value nothing may use, unless it is reported already."""
        if value.smooth_source and value.reason:
            self.recorder.begin_node(shorten_name(value.smooth_source.path))
            self.recorder.reject(value.smooth_source.name, value.reason)
        return UnusableValue("")


def depends_on_input(value: Value) -> bool:
    """Whether a value depends on the network's input; an unsupported node of constants makes one that does not."""
    if not isinstance(value, DependentValue):
        return False
    return not isinstance(value.value, UnusableValue) or value.value.depends_on_input


def shorten_name(name: str) -> str:
    """Shorten a name and replace unprintable characters, for messages and tables."""
    return "".join(c if c.isprintable() else "?" for c in name[:120])
