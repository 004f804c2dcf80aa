"""Small ONNX models, one for each operator and way to use it, for every operator set they exist in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


@dataclass
class Draft:
    """A model in the making: constants get names, nodes follow one another."""

    opset: int
    kind: Any = np.float64  # of weights and input
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    random: Any = field(default_factory=lambda: np.random.default_rng(0))

    def weight(self, *shape: int) -> str:
        """A random weight."""
        return self.const(self.random.standard_normal(shape).astype(self.kind))

    def const(self, value: Any, kind: Any = None) -> str:
        """A constant; real numbers have the precision of the model unless another is named."""
        array = np.asarray(value)
        array = array.astype(kind or self.kind) if array.dtype.kind == "f" else array
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> Any:
        """A node; gives the name of its output, or the names of several."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"{kind}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def axes(self, kind: str, x: str, axes: list[int], since: int, **more: Any) -> str:
        """A node whose axes are an attribute up to some operator set and an input since."""
        if self.opset < since:
            return self.node(kind, [x], axes=axes, **more)
        return self.node(kind, [x, self.const(np.array(axes, dtype=np.int64))], **more)


Draw: TypeAlias = Callable[[Draft, str], str]  # on an input, giving the name of the output


@dataclass(frozen=True)
class Case:
    """One way to use an operator: the input's shape with its batch, and what is drawn on it."""

    name: str
    shape: tuple[int, ...]
    draw: Draw
    since: int = 7
    before: int = 100
    kind: Any = np.float64

    def model(self, opset: int, batch: Any = None, kind: Any = None) -> ModelProto:
        """The model; ``batch`` replaces the first dim, for instance by a name."""
        draft = Draft(opset, kind or self.kind)
        out = self.draw(draft, "x")
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(draft.kind))
        shape = self.shape if batch is None else (batch, *self.shape[1:])
        info = helper.make_tensor_value_info("x", elem, shape)
        result = helper.make_tensor_value_info(out, elem, None)
        graph = helper.make_graph(draft.nodes, self.name, [info], [result], draft.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


CASES: list[Case] = []
V, S, J = (1, 6), (1, 2, 5), (1, 3, 7, 6)  # a vector, a sequence, an image


def add(name: str, shape: tuple[int, ...], draw: Draw, **more: Any) -> None:
    CASES.append(Case(name, shape, draw, **more))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


for trans in (0, 1):
    size = (4, 6) if trans else (6, 4)
    add(
        f"Gemm transB={trans}",
        V,
        lambda d, x, t=trans, s=size: d.node("Gemm", [x, d.weight(*s), d.weight(4)], transB=t),
    )
add("Gemm alpha beta", V, lambda d, x: d.node("Gemm", [x, d.weight(6, 4), d.weight(1, 4)], alpha=0.5, beta=2.0))
add("Gemm transA", (6, 1), lambda d, x: d.node("Gemm", [x, d.weight(6, 4), d.weight(4)], transA=1))
add("Gemm weight first", (1, 6), lambda d, x: d.node("Gemm", [d.weight(3, 6), x, d.weight(3, 1)], transB=1))
add("Gemm no bias", V, lambda d, x: d.node("Gemm", [x, d.weight(6, 4)]), since=11)
add("MatMul", V, lambda d, x: d.node("MatMul", [x, d.weight(6, 4)]))
add("MatMul sequence", S, lambda d, x: d.node("MatMul", [x, d.weight(5, 3)]))
add("MatMul left", S, lambda d, x: d.node("MatMul", [d.weight(4, 2), x]))
add("MatMul left of a batch of one", V, lambda d, x: d.node("MatMul", [d.weight(3, 1), x]))
add("MatMul by a stack", S, lambda d, x: d.node("MatMul", [x, d.weight(3, 5, 4)]))
add("MatMul by a vector", S, lambda d, x: d.node("MatMul", [x, d.weight(5)]))
add("MatMul without a batch", (6,), lambda d, x: d.node("MatMul", [x, d.weight(6, 4)]))
add("MatMul left without a batch", (6,), lambda d, x: d.node("MatMul", [d.weight(4, 6), x]))

CONVS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides pads": {"strides": [2, 1], "pads": [1, 0, 1, 0]},
    "asymmetric": {"pads": [0, 1, 2, 0]},
    "dilations": {"dilations": [2, 2], "pads": [1, 1, 1, 1]},
    "same upper": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "same lower": {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    "valid": {"auto_pad": "VALID"},
    "kernel_shape": {"kernel_shape": [3, 2]},
}
for label, given in CONVS.items():
    add(f"Conv {label}", J, lambda d, x, g=given: d.node("Conv", [x, d.weight(4, 3, 3, 2), d.weight(4)], **g))
add("Conv group", J, lambda d, x: d.node("Conv", [x, d.weight(6, 1, 3, 3)], group=3))
add("Conv 1d", S, lambda d, x: d.node("Conv", [x, d.weight(3, 2, 2), d.weight(3)], pads=[1, 1]))
add("Conv 3d", (1, 2, 3, 4, 3), lambda d, x: d.node("Conv", [x, d.weight(2, 2, 2, 2, 2)]))
TRANSPOSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides": {"strides": [2, 3]},
    "pads": {"strides": [2, 2], "pads": [1, 0, 0, 1]},
    "output_padding": {"strides": [2, 2], "output_padding": [1, 1]},
    "output_shape": {"strides": [2, 2], "output_shape": [14, 12]},
    "dilations": {"dilations": [2, 1]},
}
for label, given in TRANSPOSED.items():
    add(f"ConvTranspose {label}", J, lambda d, x, g=given: d.node("ConvTranspose", [x, d.weight(3, 2, 3, 2)], **g))
add("ConvTranspose group", (1, 4, 3, 3), lambda d, x: d.node("ConvTranspose", [x, d.weight(4, 2, 2, 2)], group=2))
add("ConvTranspose 1d", S, lambda d, x: d.node("ConvTranspose", [x, d.weight(2, 3, 2), d.weight(3)], strides=[2]))


def norm(d: Draft, x: str) -> str:
    var = d.const(np.array([0.5, 1.5, 2.0]))
    return d.node("BatchNormalization", [x, d.weight(3), d.weight(3), d.weight(3), var], epsilon=1e-3)


add("BatchNormalization", J, norm)
add("BatchNormalization of a vector", (1, 3), norm)

for kind in ("Relu", "Abs", "Neg", "Identity", "Sigmoid", "Tanh"):
    add(kind, V, lambda d, x, k=kind: d.node(k, [x]))
add("Relu of an image without a batch", (3, 4), lambda d, x: d.node("Relu", [x]))
add("LeakyRelu", V, lambda d, x: d.node("LeakyRelu", [x], alpha=0.3))
add("LeakyRelu default", V, lambda d, x: d.node("LeakyRelu", [x]))
add("PRelu", J, lambda d, x: d.node("PRelu", [x, d.weight(3, 1, 1)]))
add("PRelu one slope", V, lambda d, x: d.node("PRelu", [x, d.weight(1)]))
add("HardSigmoid", V, lambda d, x: d.node("HardSigmoid", [x]))
add("HardSigmoid settings", V, lambda d, x: d.node("HardSigmoid", [x], alpha=0.5, beta=0.25))
add("Clip attributes", V, lambda d, x: d.node("Clip", [x], min=-0.5, max=0.75), before=11)
add("Clip inputs", V, lambda d, x: d.node("Clip", [x, d.const(-0.5), d.const(0.75)]), since=11)
add("Clip below", V, lambda d, x: d.node("Clip", [x, d.const(-0.5)]), since=11)
add("Clip above", V, lambda d, x: d.node("Clip", [x, "", d.const(0.5)]), since=11)
add("Shrink", V, lambda d, x: d.node("Shrink", [x], lambd=0.5, bias=0.5), since=9)
add("Dropout", V, lambda d, x: d.node("Dropout", [x]))

for kind in ("Add", "Sub", "Mul", "Div"):
    add(f"{kind} constant", J, lambda d, x, k=kind: d.node(k, [x, d.weight(3, 1, 1)]))
    add(f"{kind} scalar", J, lambda d, x, k=kind: d.node(k, [x, d.const(1.5)]))
    add(f"{kind} more dims", V, lambda d, x, k=kind: d.node(k, [x, d.weight(2, 1, 6)]))
    add(f"{kind} widens the batch dim", V, lambda d, x, k=kind: d.node(k, [x, d.weight(4, 1)]))
for kind in ("Add", "Sub", "Mul"):
    add(f"{kind} constant first", V, lambda d, x, k=kind: d.node(k, [d.weight(1, 6), x]))
for kind in ("Add", "Sub", "Sum", "Mean", "Max", "Min"):
    add(f"{kind} branches", V, lambda d, x, k=kind: d.node(k, [x, d.node("MatMul", [x, d.weight(6, 6)])]))
add(
    "Add branches of different rank",
    V,
    lambda d, x: d.node("Add", [x, d.axes("Unsqueeze", d.node("Relu", [x]), [1], 13)]),
)
add("Sum of three", V, lambda d, x: d.node("Sum", [x, d.weight(6), d.node("Relu", [x])]))
add("Max with a constant", V, lambda d, x: d.node("Max", [x, d.weight(6)]))
add("Min of three", V, lambda d, x: d.node("Min", [x, d.const(0.25), d.node("Neg", [x])]), since=8)

for kind in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"):
    since = 13 if kind == "ReduceSum" else 18
    for axes, keep in (([1], 1), ([2, 3], 0), ([-1], 1), ([0, 2], 1), ([0, 1], 0)):
        label = f"{kind} {axes} {keep}"
        add(label, J, lambda d, x, k=kind, a=axes, p=keep, s=since: d.axes(k, x, a, s, keepdims=p))
    add(f"{kind} all", V, lambda d, x, k=kind: d.node(k, [x]))

POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [2, 2]},
    "strides": {"kernel_shape": [3, 2], "strides": [2, 2]},
    "pads": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "asymmetric": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]},
    "same upper": {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "same lower": {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
}
for kind in ("MaxPool", "AveragePool"):
    for label, given in POOLS.items():
        add(f"{kind} {label}", J, lambda d, x, k=kind, g=given: d.node(k, [x], **g))
    add(f"{kind} 1d", S, lambda d, x, k=kind: d.node(k, [x], kernel_shape=[2]))
    add(f"{kind} 3d", (1, 2, 3, 4, 3), lambda d, x, k=kind: d.node(k, [x], kernel_shape=[2, 2, 2]))
    ceil: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    add(f"{kind} ceil_mode", J, lambda d, x, k=kind, g=ceil: d.node(k, [x], **g), since=10)
add("MaxPool dilations", J, lambda d, x: d.node("MaxPool", [x], kernel_shape=[2, 2], dilations=[2, 3]), since=10)
add(
    "AveragePool dilations", J, lambda d, x: d.node("AveragePool", [x], kernel_shape=[2, 2], dilations=[2, 3]), since=19
)
for pads in ([1, 1, 1, 1], [1, 0, 0, 1]):
    setting: dict[str, Any] = {"kernel_shape": [3, 3], "pads": pads, "count_include_pad": 1}
    add(f"AveragePool include {pads}", J, lambda d, x, g=setting: d.node("AveragePool", [x], **g))
for kind in ("GlobalAveragePool", "GlobalMaxPool"):
    add(kind, J, lambda d, x, k=kind: d.node(k, [x]))


def shifted(d: Draft, x: str) -> str:
    """Another branch of the same shape."""
    return d.node("Relu", [x])


for axis in (1, -1, 0):
    add(f"Concat {axis}", J, lambda d, x, a=axis: d.node("Concat", [x, shifted(d, x)], axis=a))
add("Concat with a constant", V, lambda d, x: d.node("Concat", [d.weight(1, 2), x], axis=1))


def parts(axis: int, sizes: list[int] | None) -> Draw:
    def draw(d: Draft, x: str) -> str:
        if sizes is None and d.opset >= 18:
            one, two = d.node("Split", [x], 2, axis=axis, num_outputs=2)
        elif sizes is None:
            one, two = d.node("Split", [x], 2, axis=axis)
        elif d.opset < 13:
            one, two = d.node("Split", [x], 2, axis=axis, split=sizes)
        else:
            one, two = d.node("Split", [x, d.const(ints(*sizes))], 2, axis=axis)
        return d.node("Concat", [two, d.node("Relu", [one])], axis=axis)

    return draw


add("Split equal", J, parts(3, None))
add("Split sizes", J, parts(2, [2, 5]))


def cut(starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None = None) -> Draw:
    def draw(d: Draft, x: str) -> str:
        if d.opset < 10:
            return d.node("Slice", [x], starts=starts, ends=ends, axes=axes)
        more = [] if steps is None else [d.const(ints(*steps))]
        return d.node("Slice", [x, *(d.const(ints(*v)) for v in (starts, ends, axes)), *more])

    return draw


add("Slice", J, cut([1, -4], [100, -1], [1, 3]))
add("Slice of the batch", J, cut([0], [1], [0]))
add("Slice steps", J, cut([6, 0], [-100, 6], [2, 3], [-2, 2]), since=10)
add("Gather", J, lambda d, x: d.node("Gather", [x, d.const(ints(2, 0, -1))], axis=2))
add("Gather one", J, lambda d, x: d.node("Gather", [x, d.const(np.array(1, dtype=np.int64))], axis=1))
add("Gather the batch", V, lambda d, x: d.node("Gather", [x, d.const(np.array(0, dtype=np.int64))], axis=0))
add("Gather a matrix", V, lambda d, x: d.node("Gather", [x, d.const(np.array([[0, 5], [2, 1]]))], axis=1))
for target in ([1, -1], [-1, 18], [0, 0, -1], [3, 42], [-1]):
    add(f"Reshape {target}", J, lambda d, x, t=target: d.node("Reshape", [x, d.const(ints(*t))]))
add(
    "Reshape and back",
    V,
    lambda d, x: d.node("Reshape", [d.node("Reshape", [x, d.const(ints(6))]), d.const(ints(1, 6))]),
)
for axis in (0, 1, 2, -1):
    add(f"Flatten {axis}", J, lambda d, x, a=axis: d.node("Flatten", [x], axis=a), since=7 if axis >= 0 else 11)
add("Squeeze", (1, 1, 4), lambda d, x: d.axes("Squeeze", x, [1], 13))
add("Squeeze the batch", (1, 1, 4), lambda d, x: d.axes("Squeeze", x, [0], 13))
add("Squeeze all", (1, 1, 4), lambda d, x: d.node("Squeeze", [x]))
add("Unsqueeze", V, lambda d, x: d.axes("Unsqueeze", x, [0, 3], 13))
for perm in ([0, 2, 3, 1], [3, 0, 1, 2], None):
    given = {} if perm is None else {"perm": perm}
    add(f"Transpose {perm}", J, lambda d, x, g=given: d.node("Transpose", [x], **g))
add("Expand", (1, 1, 4), lambda d, x: d.node("Expand", [x, d.const(ints(1, 3, 4))]), since=8)
add("Expand more dims", V, lambda d, x: d.node("Expand", [x, d.const(ints(2, 3, 6))]), since=8)
add("Tile", V, lambda d, x: d.node("Tile", [x, d.const(ints(1, 3))]))
add("Tile the batch", V, lambda d, x: d.node("Tile", [x, d.const(ints(2, 1))]))


def padded(pads: list[int], mode: str, value: float = 0.0) -> Draw:
    def draw(d: Draft, x: str) -> str:
        if d.opset < 11:
            return d.node("Pad", [x], pads=pads, mode=mode, value=value)
        return d.node("Pad", [x, d.const(ints(*pads)), d.const(value)], mode=mode)

    return draw


for mode in ("constant", "reflect", "edge"):
    add(f"Pad {mode}", J, padded([0, 0, 1, 2, 0, 0, 3, 0], mode))
add("Pad value", J, padded([0, 1, 0, 2, 0, 0, 3, 0], "constant", -1.5))
add("Pad cuts", J, padded([0, 0, -1, 2, 0, 0, 0, -1], "constant"))
add("Pad wrap", J, padded([0, 0, 1, 2, 0, 0, 3, 0], "wrap"), since=19)
add("Pad axes", J, lambda d, x: d.node("Pad", [x, d.const(ints(1, 2)), "", d.const(ints(3))]), since=18)


def resized(mode: str, scales: list[float] | None, sizes: list[int] | None = None, **more: Any) -> Draw:
    def draw(d: Draft, x: str) -> str:
        fine = None if scales is None else d.const(np.array(scales), np.float32)
        if d.opset < 9:
            return d.node("Upsample", [x], mode=mode, scales=scales)
        if d.opset < 10:
            return d.node("Upsample", [x, fine], mode=mode)
        if d.opset < 11:
            return d.node("Resize", [x, fine], mode=mode)
        if sizes is not None:
            return d.node("Resize", [x, "", "", d.const(ints(*sizes))], mode=mode, **more)
        return d.node("Resize", [x, "", fine], mode=mode, **more)

    return draw


ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
add("Resize nearest", J, resized("nearest", [1.0, 1.0, 2.0, 3.0], **ASYMMETRIC))
add("Resize linear", J, resized("linear", [1.0, 1.0, 2.0, 2.0], coordinate_transformation_mode="asymmetric"))
for way in ("half_pixel", "pytorch_half_pixel", "align_corners"):
    for mode in ("nearest", "linear"):
        more = {"coordinate_transformation_mode": way}
        add(f"Resize {mode} {way}", J, resized(mode, None, [1, 3, 11, 4], **more), since=11)
add("Resize nearest half_pixel by scales", J, resized("nearest", [1.0, 1.0, 0.6, 1.7]), since=11)
add("DepthToSpace", (1, 8, 2, 3), lambda d, x: d.node("DepthToSpace", [x], blocksize=2))
add("DepthToSpace CRD", (1, 8, 2, 3), lambda d, x: d.node("DepthToSpace", [x], blocksize=2, mode="CRD"), since=11)
add("SpaceToDepth", (1, 2, 4, 6), lambda d, x: d.node("SpaceToDepth", [x], blocksize=2))


def best(axis: int, largest: int = 1) -> Draw:
    def draw(d: Draft, x: str) -> str:
        if d.opset < 10:
            return d.node("TopK", [x], 2, k=2, axis=axis)[0]
        more = {"largest": largest} if d.opset >= 11 else {}
        return d.node("TopK", [x, d.const(ints(2))], 2, axis=axis, **more)[0]

    return draw


add("TopK", V, best(1))
add("TopK of an image", J, best(2))
add("TopK smallest", J, best(-1, 0), since=11)


def chosen(d: Draft, x: str) -> str:
    mask = d.const(np.array([True, False, True, False, False, True]))
    return d.node("Where", [mask, x, d.node("Neg", [x])])


add("Where constant condition", V, chosen, since=9)
add("Where with a constant", V, lambda d, x: d.node("Where", [d.const(np.arange(6) > 2), x, d.weight(1, 6)]), since=9)


def by_shape(d: Draft, x: str) -> str:
    """What exporters make of x.view(x.size(0), -1)."""
    shape = d.node("Shape", [x])
    first = d.node("Gather", [shape, d.const(np.array(0, dtype=np.int64))])
    one = d.axes("Unsqueeze", first, [0], 13)
    rest = d.node("Constant", [], value=numpy_helper.from_array(ints(-1)))
    return d.node("Reshape", [x, d.node("Concat", [one, rest], axis=0)])


add("Shape arithmetic", J, by_shape)


def ranged(d: Draft, x: str) -> str:
    ends = (d.const(np.array(v, dtype=np.int64)) for v in (0, 6, 2))
    return d.node("Gather", [x, d.node("Range", list(ends))], axis=1)


add("Range", V, ranged, since=11)


def made(d: Draft, x: str) -> str:
    value = helper.make_tensor("v", TensorProto.INT64, [1], [3])
    filled = d.node("ConstantOfShape", [d.const(ints(1, 6))], value=value)
    return d.node("Mul", [x, d.node("Cast", [filled], to=helper.np_dtype_to_tensor_dtype(np.dtype(d.kind)))])


add("ConstantOfShape and Cast", V, made, since=9)
for kind in ("Softmax", "LogSoftmax"):
    add(kind, V, lambda d, x, k=kind: d.node(k, [x], axis=1))
    add(f"{kind} of a sequence", S, lambda d, x, k=kind: d.node(k, [x], axis=2))
    add(f"{kind} default", V, lambda d, x, k=kind: d.node(k, [x]))


def rows(*shape: int) -> Any:
    """Whole numbers from 0 on, as indices of the given shape."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


add("Gather elements", (3, 4), lambda d, x: d.node("GatherElements", [x, d.const(rows(2, 4) % 3)], axis=0), since=11)
add(
    "GatherElements of a batch",
    S,
    lambda d, x: d.node("GatherElements", [x, d.const(-1 - rows(1, 2, 3) % 5)], axis=2),
    since=11,
)
add("GatherND", J, lambda d, x: d.node("GatherND", [x, d.const(np.array([[0, 2, 1], [0, -1, 6]]))]), since=11)
add(
    "GatherND batch_dims",
    (2, 3, 4),
    lambda d, x: d.node("GatherND", [x, d.const(np.array([[1], [2]]))], batch_dims=1),
    since=12,
)
add("ScatterND", (4, 3), lambda d, x: d.node("ScatterND", [x, d.const(np.array([[1], [3]])), d.weight(2, 3)]), since=11)
add(
    "ScatterND of the input",
    V,
    lambda d, x: d.node("ScatterND", [d.weight(2, 6), d.const(np.array([[1]])), x]),
    since=11,
)
for reduction in ("add", "mul", "max", "min"):
    since = 18 if reduction in ("max", "min") else 16
    add(
        f"ScatterND {reduction}",
        (4, 3),
        lambda d, x, r=reduction: d.node("ScatterND", [x, d.const(np.array([[1], [1]])), d.weight(2, 3)], reduction=r),
        since=since,
    )
    add(
        f"ScatterElements {reduction}",
        V,
        lambda d, x, r=reduction: d.node(
            "ScatterElements", [x, d.const(np.array([[1, 4, 1]])), d.weight(1, 3)], axis=1, reduction=r
        ),
        since=since,
    )
add(
    "ScatterElements",
    S,
    lambda d, x: d.node("ScatterElements", [x, d.const(np.array([[[4, 1], [0, -2]]])), d.weight(1, 2, 2)], axis=-1),
    since=11,
)
add(
    "Scatter",
    V,
    lambda d, x: d.node("Scatter", [x, d.const(np.array([[4, 1]])), d.weight(1, 2)], axis=1),
    since=9,
    before=11,
)
add("Trilu", J, lambda d, x: d.node("Trilu", [x]), since=14)
add("Trilu lower", J, lambda d, x: d.node("Trilu", [x, d.const(np.array(-1, dtype=np.int64))], upper=0), since=14)
add("Compress", J, lambda d, x: d.node("Compress", [x, d.const(np.array([True, False, True]))], axis=1), since=9)
add(
    "Compress all",
    (2, 3),
    lambda d, x: d.node("Compress", [x, d.const(np.array([False, True, True, False, True]))]),
    since=9,
)
add(
    "ReverseSequence",
    (4, 3, 2),
    lambda d, x: d.node("ReverseSequence", [x, d.const(ints(2, 4, 1))], time_axis=0, batch_axis=1),
    since=10,
)
add(
    "ReverseSequence of rows",
    (3, 4),
    lambda d, x: d.node("ReverseSequence", [x, d.const(ints(2, 4, 1))], time_axis=1, batch_axis=0),
    since=10,
)
add("CenterCropPad", J, lambda d, x: d.node("CenterCropPad", [x, d.const(ints(1, 3, 4, 9))]), since=18)
add("CenterCropPad axes", J, lambda d, x: d.node("CenterCropPad", [x, d.const(ints(10, 3))], axes=[-2, 3]), since=18)
add(
    "MaxUnpool",
    (1, 1, 2, 2),
    lambda d, x: d.node(
        "MaxUnpool", [x, d.const(np.array([[[[5, 7], [13, 15]]]]))], kernel_shape=[2, 2], strides=[2, 2]
    ),
    since=9,
)
for label, more in {
    "": {},
    "reverse": {"reverse": 1},
    "exclusive": {"exclusive": 1},
    "both": {"reverse": 1, "exclusive": 1},
}.items():
    add(
        f"CumSum {label}",
        S,
        lambda d, x, m=more: d.node("CumSum", [x, d.const(np.array(2, dtype=np.int64))], **m),
        since=11,
    )
add("CumSum of the batch", (3, 4), lambda d, x: d.node("CumSum", [x, d.const(np.array(0, dtype=np.int64))]), since=11)
EINSUMS: dict[str, tuple[tuple[int, ...], list[tuple[int, ...]]]] = {
    "bij, bjk -> bik": ((1, 2, 5), [(1, 5, 3)]),
    "ij,jk": ((1, 6), [(6, 2)]),
    "...ij,...jk->...ik": ((1, 2, 3, 4), [(1, 2, 4, 5)]),
    "bij->bji": ((1, 2, 5), []),
    "...ii->...i": ((2, 3, 3), []),
    "ij,j,jk->ik": ((1, 6), [(6,), (6, 3)]),
}
for equation, (shape, others) in EINSUMS.items():
    add(
        f"Einsum {equation}",
        shape,
        lambda d, x, e=equation, o=others: d.node("Einsum", [x, *(d.weight(*s) for s in o)], equation=e),
        since=12,
    )
add("Einsum weight first", V, lambda d, x: d.node("Einsum", [d.weight(4, 6), x], equation="kj,bj->bk"), since=12)
COLUMNS: dict[str, tuple[tuple[int, ...], list[int], list[int], dict[str, Any]]] = {
    "plain": ((1, 4, 12), [4, 5], [2, 2], {}),
    "channels": ((1, 12, 12), [4, 5], [2, 2], {}),
    "pads": ((1, 4, 24), [4, 4], [2, 2], {"pads": [0, 1, 1, 2]}),
    "strides": ((1, 9, 4), [5, 5], [3, 3], {"strides": [2, 2]}),
    "dilations": ((1, 4, 6), [4, 5], [2, 2], {"dilations": [2, 2]}),
    "volume": ((1, 8, 4), [2, 3, 3], [2, 2, 2], {}),
}
for label, (shape, image, block, more) in COLUMNS.items():
    add(
        f"Col2Im {label}",
        shape,
        lambda d, x, i=image, b=block, m=more: d.node("Col2Im", [x, d.const(ints(*i)), d.const(ints(*b))], **m),
        since=18,
    )
add("AffineGrid", (1, 2, 3), lambda d, x: d.node("AffineGrid", [x, d.const(ints(1, 1, 3, 4))]), since=20)
for mode in ("linear", "nearest", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        add(
            f"GridSample {mode} {padding}",
            (1, 2, 4, 5),
            lambda d, x, m=mode, p=padding: d.node(
                "GridSample",
                [x, d.const(d.random.uniform(-1.2 if p != "border" else -1, 1, (1, 3, 2, 2)))],
                mode=m,
                padding_mode=p,
            ),
            since=20,
        )
add(
    "RotaryEmbedding",
    (1, 2, 3, 4),
    lambda d, x: d.node("RotaryEmbedding", [x, d.weight(1, 3, 2), d.weight(1, 3, 2)]),
    since=23,
)
add(
    "NegativeLogLikelihoodLoss",
    (3, 4),
    lambda d, x: d.node("NegativeLogLikelihoodLoss", [x, d.const(ints(1, 3, 0)), d.weight(4)]),
    since=12,
)
add(
    "NegativeLogLikelihoodLoss none",
    (1, 4, 2),
    lambda d, x: d.node("NegativeLogLikelihoodLoss", [x, d.const(np.array([[1, 3]]))], reduction="none"),
    since=12,
)
for label, more in {"": {}, "onesided": {"onesided": 1}}.items():
    add(f"DFT {label}", (1, 5, 1), lambda d, x, m=more: d.node("DFT", [x], axis=1, **m), since=17, before=20)
add(
    "DFT inverse",
    (1, 3, 4, 2),
    lambda d, x: d.node("DFT", [x, "", d.const(np.array(1, dtype=np.int64))], inverse=1),
    since=20,
)
add(
    "STFT",
    (2, 20, 1),
    lambda d, x: d.node("STFT", [x, d.const(np.array(4)), d.weight(8), d.const(np.array(8))], onesided=1),
    since=17,
)
add(
    "STFT of complex numbers",
    (1, 9, 2),
    lambda d, x: d.node("STFT", [x, d.const(np.array(3)), d.weight(4)], onesided=0),
    since=17,
)


def deformed(batch: int, width: int, **more: Any) -> Draw:
    def draw(d: Draft, x: str) -> str:
        offset, mask = (d.const(d.random.uniform(-2, 2, (batch, n, 3, width))) for n in (16, 8))
        return d.node("DeformConv", [x, d.weight(2, 2, 2, 2), offset, d.weight(2), mask], offset_group=2, **more)

    return draw


add("DeformConv", (1, 2, 4, 4), deformed(1, 3), since=19)
add(
    "DeformConv of two rows",
    (2, 4, 5, 5),
    deformed(2, 2, group=2, pads=[1, 0, 1, 0], strides=[2, 2], dilations=[2, 1]),
    since=19,
)
add(
    "OneHot",
    (2,),
    lambda d, x: d.node("OneHot", [d.const(np.array([[0, 2], [-1, 5]])), d.const(ints(3)), x], axis=1),
    since=11,
)
add(
    "InstanceNormalization of a constant",
    (3,),
    lambda d, x: d.node("InstanceNormalization", [d.weight(2, 3, 4), x, d.weight(3)]),
)
add(
    "Conv of two rows",
    (1, 20),
    lambda d, x: d.node("Conv", [d.node("Reshape", [x, d.const(ints(2, 2, 5))]), d.weight(3, 2, 2)]),
)
add("LayerNormalization of a constant", (3,), lambda d, x: d.node("LayerNormalization", [d.weight(2, 3), x]), since=17)
add(
    "Attention of values",
    (1, 2, 3, 4),
    lambda d, x: d.node("Attention", [d.weight(1, 2, 3, 4), d.weight(1, 2, 3, 4), x], is_causal=1),
    since=23,
)


add("LpPool", J, lambda d, x: d.node("LpPool", [x], kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1], p=1))
add("GlobalLpPool", J, lambda d, x: d.node("GlobalLpPool", [x], p=1), before=22)


def recurrent(direction: str) -> Draw:
    def draw(d: Draft, x: str) -> str:
        count = 2 if direction == "bidirectional" else 1
        weights = [d.weight(count, 3, 2), d.weight(count, 3, 3), d.weight(count, 6), "", d.weight(count, 1, 3)]
        return d.node("RNN", [x, *weights], hidden_size=3, direction=direction, activations=["Relu"] * count)

    return draw


add("RNN", (4, 1, 2), recurrent("forward"))
add("RNN in both directions", (4, 1, 2), recurrent("bidirectional"))
BOXES = np.array([[0, 0, 0, 3, 3], [0, 1, 2, 5, 6], [0, 2, 2, 2, 2]], dtype=np.float64)
add("MaxRoiPool", J, lambda d, x: d.node("MaxRoiPool", [x, d.const(BOXES)], pooled_shape=[2, 2]), before=22)
for mode, samples in (("avg", 2), ("max", 2), ("max", 0)):
    add(
        f"RoiAlign {mode} {samples}",
        J,
        lambda d, x, mode=mode, samples=samples: d.node(
            "RoiAlign",
            [x, d.const(BOXES[:, 1:] + 0.3), d.const(ints(0, 0, 0))],
            mode=mode,
            output_height=2,
            output_width=3,
            sampling_ratio=samples,
        ),
        since=16,
    )


def dequantized(d: Draft, x: str) -> str:
    weight = d.const(np.arange(-12, 12, dtype=np.int8).reshape(6, 4))
    scale, zero = d.const(np.array([0.5, 0.25, 1.5, 2.0]), np.float32), d.const(np.array([1, 0, -3, 2], dtype=np.int8))
    real = d.node("DequantizeLinear", [weight, scale, zero], axis=1)
    return d.node("MatMul", [x, d.node("Cast", [real], to=helper.np_dtype_to_tensor_dtype(np.dtype(d.kind)))])


add("DequantizeLinear of a weight", V, dequantized, since=13)
add("ThresholdedRelu at 0", V, lambda d, x: d.node("ThresholdedRelu", [x], alpha=0.0), since=10)
for more in (
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "antialias": 1},
):
    since = 18 if "antialias" in more else 11
    add(
        f"Resize {more}",
        J,
        lambda d, x, m=more: d.node("Resize", [x, "", "", d.const(ints(1, 3, 4, 9))], **m),
        since=since,
    )
for policy in ("not_larger", "not_smaller"):
    add(
        f"Resize {policy}",
        J,
        lambda d, x, p=policy: d.node(
            "Resize", [x, "", "", d.const(ints(9, 5))], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=p
        ),
        since=18,
    )
for mode in ("linear", "nearest"):
    add(
        f"Resize crop {mode}",
        J,
        lambda d, x, m=mode: d.node(
            "Resize",
            [x, d.const(np.array([0, 0, 0.2, 0.1, 1, 1, 1.3, 0.9])), "", d.const(ints(1, 3, 5, 4))],
            mode=m,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
        ),
        since=13,
    )
add(
    "ConvTranspose larger output",
    (1, 1, 3, 3),
    lambda d, x: d.node("ConvTranspose", [x, d.weight(1, 2, 3, 3), d.weight(2)], strides=[3, 2], output_shape=[11, 8]),
)
add(
    "MaxPool of a constant",
    V,
    lambda d, x: d.node(
        "Add", [x, d.node("Reshape", [d.node("MaxPool", [d.weight(1, 1, 8)], kernel_shape=[3]), d.const(ints(1, 6))])]
    ),
    since=8,
)
add("MatMul of a vector by a stack", (2,), lambda d, x: d.node("MatMul", [x, d.weight(3, 2, 4)]))
add(
    "Where by channel",
    J,
    lambda d, x: d.node("Where", [d.node("Less", [x, d.const(0.0)]), d.node("Mul", [x, d.weight(3, 1, 1)]), x]),
    since=9,
)


def opsets(case: Case, newest: int) -> Iterator[int]:
    """The operator sets a case is tried in: the oldest, the middle and the newest that have it."""
    return iter(sorted({v for v in (7, 13, 23, newest, case.since) if max(7, case.since) <= v < case.before}))
