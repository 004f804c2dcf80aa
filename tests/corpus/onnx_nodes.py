"""Bad ONNX files that one operator is to blame for: wrong settings, and claims of gigabytes in a kilobyte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .onnx_files import const, model, node
from .text_files import Bad

BAD, ODD = "FileError", "UnsupportedError"
IMAGE = (1, 1, 4, 4)
F = np.float32


def node_files() -> Iterator[Bad]:
    """All of them."""
    for cases in (_smooth(), _modes(), _shapes(), _windows(), _bombs(), _chains()):
        for name, data, error, says in cases:
            yield f"onnx-{name}.onnx", data, error, says


def _one(
    kind: str, *constants: Any, shape: Sequence[Any] = (1, 2), opset: int = 13, outputs: str = "y", **settings: Any
) -> bytes:
    """A node of ``x`` and constants."""
    names = [f"c{i}" for i in range(len(constants))]
    weights = [const(n, v) for n, v in zip(names, constants, strict=True)]
    first = outputs.split()[0]
    made = model(
        [node(kind, " ".join(["x", *names]), outputs, **settings)], weights, shape=shape, opset=opset, outputs=(first,)
    )
    return made.SerializeToString(deterministic=True)


def _of(*nodes: Any, weights: Sequence[TensorProto] = (), shape: Sequence[Any] = (1, 2), opset: int = 13) -> bytes:
    return model(nodes, weights, shape=shape, opset=opset).SerializeToString(deterministic=True)


def _smooth() -> Iterator[Bad]:
    """Operators that are not piecewise linear, or not known."""
    for kind in ("Elu", "Exp", "Sin", "Gelu", "Sign", "Floor", "ArgMax", "LRN", "HardSwish", "Det", "Erf"):
        yield f"op-{kind.lower()}", _one(kind, opset=20), ODD, kind
    for kind in ("Sigmoid", "Tanh", "Softmax"):
        yield f"{kind.lower()}-inside", _of(node(kind, "x", "s"), node("Relu", "s")), ODD, f"{kind} is smooth"
    yield "product", _of(node("Mul", "x x")), ODD, "Mul"
    yield "quotient", _of(node("Div", "x x")), ODD, "Div"
    yield "matmul-data", _of(node("MatMul", "x x"), shape=(1, 2, 2)), ODD, "two values that depend on the input"
    yield "power", _one("Pow", F(2)), ODD, "power"
    body = model([node("Relu", "x")]).graph
    yield "if", _of(helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)), ODD, "If"
    yield "loop", _of(helper.make_node("Loop", ["x", "", "x"], ["y"], body=body)), ODD, "Loop"
    yield "loop-body", _of(helper.make_node("Loop", ["", "", "x"], ["y"], body=body)), BAD, "body"
    yield "scan", _of(helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=2)), BAD, "Scan"
    yield "relu-body", _of(helper.make_node("Relu", ["x"], ["y"], body=body)), ODD, "subgraph"
    yield "lstm", _one("LSTM"), ODD, "LSTM"
    for kind in ("Greater", "Equal", "And", "Where"):
        yield f"too-few-{kind.lower()}", _one(kind), ODD, "lacks its input"
    yield "many-refused", _of(*[node("Exp", f"t{i}", f"t{i + 1}") for i in range(60)], node("Identity", "x", "t0"),
                              node("Identity", "t60")), ODD, "60 operators"  # fmt: skip


def _modes() -> Iterator[Bad]:
    """Training modes, and settings of the wrong type."""
    norm = [F([1]), F([0]), F([0]), F([1])]
    yield (
        "batchnorm-training",
        _one("BatchNormalization", *norm, shape=(1, 1), opset=15, training_mode=1),
        ODD,
        "training",
    )
    yield "batchnorm-short", _one("BatchNormalization", *norm[:2], shape=(1, 1), opset=15), BAD, ""
    yield "batchnorm-wide", _one("BatchNormalization", *[F([1, 2, 3])] * 4, shape=(1, 2), opset=15), ODD, "fit"
    yield "batchnorm-minus", _one("BatchNormalization", *norm[:3], F([-9]), shape=(1, 1), opset=15), "NumberError", ""
    yield "dropout-training", _one("Dropout", F(0.5), True), ODD, "training"
    yield "gemm-alpha-word", _one("Gemm", F([[1, 2]]), transB=1, alpha="one"), BAD, "alpha"
    yield "gemm-alpha-nan", _one("Gemm", F([[1, 2]]), transB=1, alpha=float("nan")), "NumberError", ""
    yield "gemm-vector", _one("Gemm", F([1, 2])), BAD, ""
    yield "gemm-inner", _one("Gemm", F([[1, 2, 3]]), transB=1), ODD, "fit"
    yield "gemm-alone", _one("Gemm"), BAD, "missing"
    yield "matmul-alone", _one("MatMul"), BAD, ""
    yield "matmul-number", _one("MatMul", np.ones((1, 2, 1, 2), F), shape=()), BAD, "single numbers"
    yield "matmul-by-number", _one("MatMul", F(2)), BAD, "single numbers"
    yield "matmul-left-out", _of(node("MatMul", "x ")), BAD, "missing"
    yield "add-alone", _one("Add"), BAD, ""
    yield "add-left-out", _of(node("Add", "x ")), BAD, "missing"
    yield "add-three", _one("Add", F(1), F(1)), BAD, ""
    yield "relu-of-nothing", _of(helper.make_node("Relu", [], ["y"])), BAD, ""
    yield "reshape-of-nothing", _of(helper.make_node("Reshape", [], ["y"])), BAD, ""
    yield "leaky-nan", _one("LeakyRelu", alpha=float("nan")), BAD, ""
    yield "leaky-inf", _one("LeakyRelu", alpha=float("inf")), BAD, ""
    yield "leaky-list", _one("LeakyRelu", alpha=[0.1, 0.2]), BAD, "alpha"
    yield "hardsigmoid-zero", _one("HardSigmoid", alpha=0.0), ODD, "constant"
    yield "clip-crossed-word", _one("Clip", shape=(1, 2), opset=7, min="low"), BAD, "min"
    yield "prelu-wide", _one("PRelu", F([1, 2, 3])), BAD, ""
    yield "cast-int", _one("Cast", to=7), ODD, "integers or booleans"
    yield "cast-99", _one("Cast", to=99), ODD, "integers or booleans"
    yield "concat-no-axis", _of(node("Concat", "x x")), BAD, "axis"
    yield "concat-axis-9", _of(node("Concat", "x x", axis=9)), BAD, "Axis"
    yield "concat-axis-word", _of(node("Concat", "x x", axis="1")), BAD, "axis"
    yield "concat-of-nothing", _of(helper.make_node("Concat", [], ["y"], axis=0)), BAD, ""
    yield "softmax-axis", _one("Softmax", axis=7), BAD, "Axis"
    yield "reduce-axis", _one("ReduceMean", axes=[5]), BAD, "Axis"
    yield "flatten-axis", _one("Flatten", axis=2**62), BAD, "Axis"
    typeless = node("LeakyRelu", "x", alpha=0.1)
    typeless.attribute[0].ClearField("type")
    yield "attribute-typeless", _of(typeless), BAD, "type"
    typeless.attribute[0].type = 11
    yield "attribute-sparse", _of(typeless), BAD, "type"
    named = node("LeakyRelu", "x", alpha=0.1)
    named.attribute[0].ref_attr_name = "outer"
    yield "attribute-outer", _of(named), ODD, ""
    yield (
        "constant-word",
        _of(helper.make_node("Constant", [], ["k"], value_string="x"), node("Add", "x k")),
        ODD,
        "neither a number",
    )
    yield "constant-empty", _of(helper.make_node("Constant", [], ["k"]), node("Add", "x k")), ODD, "neither a number"


def _shapes() -> Iterator[Bad]:
    """Shapes that do not fit."""
    yield "reshape-minus", _one("Reshape", [-2, 1]), BAD, "not a shape"
    yield "reshape-two-free", _one("Reshape", [-1, -1]), BAD, "not a shape"
    yield "reshape-wrong", _one("Reshape", [3, 5]), BAD, "cannot become"
    yield "reshape-zero", _one("Reshape", [0, 0, 0, 2]), BAD, "copies a dimension"
    yield "reshape-float", _one("Reshape", F([1, 2])), BAD, "whole"
    yield "reshape-huge", _one("Reshape", [2**40, 2**40]), BAD, "too many"
    yield "reshape-data", _of(node("Reshape", "x x")), ODD, "from the input"
    yield "reshape-50", _one("Reshape", [1] * 50), BAD, "too many dimensions"
    yield "squeeze-two", _one("Squeeze", [1]), BAD, "size 1"
    yield "squeeze-axis", _one("Squeeze", [9]), BAD, "Axis"
    yield "unsqueeze-many", _one("Unsqueeze", list(range(2, 40))), BAD, "too many dimensions"
    yield "unsqueeze-twice", _one("Unsqueeze", [0, 0]), BAD, ""
    yield "transpose-perm", _one("Transpose", perm=[0, 0]), BAD, "not a permutation"
    yield "transpose-long", _one("Transpose", perm=[0, 1, 2]), BAD, "not a permutation"
    yield "gather-outside", _one("Gather", [5], axis=1), BAD, "outside"
    yield "gather-minus", _one("Gather", [-9], axis=1), BAD, "outside"
    yield "gather-float", _one("Gather", F([0]), axis=1), BAD, "whole"
    yield "slice-steps", _one("Slice", [0], [1], [0], [0]), BAD, "steps"
    yield "slice-lists", _one("Slice", [0, 0], [1], [0]), BAD, "fit together"
    yield "slice-axis", _one("Slice", [0], [1], [7]), BAD, "Axis"
    yield "split-sizes", _one("Split", [1, 5], outputs="y z", axis=1), BAD, "cannot be split"
    yield "split-minus", _one("Split", [-1, 3], outputs="y z", axis=1), BAD, "cannot be split"
    yield "split-many", _one("Split", outputs="y z", axis=1, num_outputs=2**40, opset=18), BAD, "splits"
    yield "split-zero", _one("Split", outputs="y z", axis=1, num_outputs=0, opset=18), BAD, "splits"
    yield "expand-wrong", _one("Expand", [3, 7]), BAD, ""
    yield "expand-minus", _one("Expand", [-3, 2]), BAD, ""
    yield "tile-lists", _one("Tile", [2]), BAD, "Repeats"
    yield "tile-minus", _one("Tile", [1, -2]), BAD, "Repeats"
    yield "pad-lists", _one("Pad", [1, 1]), BAD, "pads"
    yield "pad-cut", _one("Pad", [0, -9, 0, -9]), BAD, "removes more"
    yield "pad-mode", _one("Pad", [0, 1, 0, 1], mode="mirror"), BAD, "mirror"
    yield "pad-nan", _one("Pad", [0, 1, 0, 1], F(np.nan)), "NumberError", "NaN"
    yield "pad-empty-value", _one("Pad", [0, 1, 0, 1], F([])), BAD, ""
    yield "broadcast", _one("Add", F([1, 2, 3])), BAD, ""
    yield "depth-zero", _one("DepthToSpace", shape=IMAGE, blocksize=0), BAD, "block"
    yield "depth-huge", _one("DepthToSpace", shape=IMAGE, blocksize=2**40), BAD, "block"
    yield (
        "range-step",
        _of(node("Range", "a b a", "r"), node("Add", "x r"), weights=[const("a", 0), const("b", 9)]),
        BAD,
        "step",
    )


def _windows() -> Iterator[Bad]:
    """Convolutions, pools and changes of resolution."""
    kernel = np.ones((1, 1, 2, 2), F)
    conv: dict[str, tuple[dict[str, Any], str]] = {
        "pads-short": ({"pads": [1, 1]}, "number of dimensions"),
        "pads-minus": ({"pads": [-1, 0, 0, 0]}, "less than"),
        "pads-huge": ({"pads": [2**40] * 4}, "too large"),
        "pads-wide": ({"pads": [2**23] * 4}, ""),
        "strides-zero": ({"strides": [0, 1]}, "less than"),
        "strides-minus": ({"strides": [-1, 1]}, "less than"),
        "strides-huge": ({"strides": [2**62, 1]}, "too large"),
        "dilations-huge": ({"dilations": [2**62, 1]}, "too large"),
        "kernel": ({"kernel_shape": [3, 3]}, "kernel_shape"),
        "kernel-floats": ({"kernel_shape": [2.0, 2.0]}, "whole"),
        "auto-pad": ({"auto_pad": "SOMEHOW"}, "auto_pad"),
        "group-word": ({"group": "one"}, "group"),
    }
    for name, (settings, says) in conv.items():
        yield f"conv-{name}", _one("Conv", kernel, shape=IMAGE, **settings), BAD, says
    for name, group in (("zero", 0), ("minus", -1), ("two", 2), ("huge", 2**62)):
        yield f"conv-group-{name}", _one("Conv", kernel, shape=IMAGE, group=group), ODD, "fit"
    yield "conv-channels", _one("Conv", np.ones((1, 3, 2, 2), F), shape=IMAGE), ODD, "fit"
    yield "conv-flat", _one("Conv", kernel), BAD, "spatial"
    yield "conv-4d", _one("Conv", np.ones((1, 1, 1, 1, 1, 1), F), shape=(1, 1, 2, 2, 2, 2)), ODD, "spatial"
    yield "conv-bias", _one("Conv", kernel, F([1, 2, 3]), shape=IMAGE), BAD, "bias"
    yield "conv-large", _one("Conv", np.ones((1, 1, 9, 9), F), shape=IMAGE), ODD, "fit"
    yield "conv-scalar", _one("Conv", F(1), shape=IMAGE), ODD, "spatial"
    yield "transposed-strides", _one("ConvTranspose", kernel, shape=IMAGE, strides=[2**40, 2**40]), BAD, ""
    yield "transposed-zero", _one("ConvTranspose", kernel, shape=IMAGE, strides=[0, 0]), BAD, ""
    yield "transposed-pads", _one("ConvTranspose", kernel, shape=IMAGE, pads=[9, 9, 9, 9]), BAD, ""
    pool: dict[str, tuple[dict[str, Any], str]] = {
        "gone": ({}, "window"),
        "large": ({"kernel_shape": [9, 9]}, "larger"),
        "huge": ({"kernel_shape": [2**62, 2**62]}, "too large"),
        "zero": ({"kernel_shape": [0, 2]}, "less than"),
        "minus": ({"kernel_shape": [-2, 2]}, "less than"),
        "rank": ({"kernel_shape": [2]}, "window"),
        "strides": ({"kernel_shape": [2, 2], "strides": [0, 0]}, "less than"),
        "windows": ({"kernel_shape": [2**12, 2**12], "pads": [2**12] * 4}, "too many"),
    }
    for name, (settings, says) in pool.items():
        yield f"maxpool-{name}", _one("MaxPool", shape=IMAGE, **settings), BAD, says
        yield f"averagepool-{name}", _one("AveragePool", shape=IMAGE, **settings), BAD, says
    yield "maxpool-padding", _one("MaxPool", shape=IMAGE, kernel_shape=[1, 1], pads=[3, 3, 3, 3]), ODD, "padding"
    yield "resize-mode", _one("Resize", F([]), F([1, 1, 2, 2]), shape=IMAGE, mode="sinc"), ODD, "sinc"
    yield "resize-zero", _one("Resize", F([]), F([1, 1, 0, 2]), shape=IMAGE), BAD, "positive"
    yield "resize-minus", _one("Resize", F([]), F([1, 1, -2, 2]), shape=IMAGE), BAD, "positive"
    yield "resize-inf", _one("Resize", F([]), F([1, 1, np.inf, 2]), shape=IMAGE), BAD, ""
    yield "resize-short", _one("Resize", F([]), F([2, 2]), shape=IMAGE), BAD, ""
    yield "resize-nothing", _one("Resize", F([]), F([1, 1, 0.01, 1]), shape=IMAGE), BAD, "nothing"


def _bombs() -> Iterator[Bad]:
    """Gigabytes that are claimed in a kilobyte, each in one node."""
    made = {
        "constantofshape": [node("ConstantOfShape", "big", "k")],
        "expand": [node("Expand", "one big", "k")],
        "tile": [node("Tile", "square big", "k")],
    }
    weights = [const("big", [2**14, 2**14]), const("one", F(1)), const("square", np.ones((1, 1), F))]
    for name, nodes in made.items():
        yield f"bomb-{name}", _of(*nodes, node("Add", "x k"), weights=weights), BAD, "too many"
    ends = [const("a", 0), const("b", 2**40), const("c", 1)]
    yield "bomb-range", _of(node("Range", "a b c", "k"), node("Add", "x k"), weights=ends), BAD, "too many"
    ends = [const("a", F(0)), const("b", F(1)), const("c", F(1e-30))]
    yield "bomb-range-step", _of(node("Range", "a b c", "k"), node("Add", "x k"), weights=ends), BAD, "too many"
    yield "bomb-pad", _one("Pad", [0, 2**40, 0, 2**40]), BAD, "too many"
    yield "bomb-pad-edge", _one("Pad", [0, 2**30, 0, 0], mode="edge"), BAD, "too many"
    yield "bomb-expand-data", _one("Expand", [2**20, 2**20, 1, 2]), BAD, "too many"
    yield "bomb-tile-data", _one("Tile", [2**20, 2**20]), BAD, "too many"
    yield "bomb-resize", _one("Resize", F([]), F([1, 1, 1e6, 1e6]), shape=IMAGE), BAD, "too many"
    yield "bomb-resize-sizes", _one("Resize", F([]), F([]), [1, 1, 2**31, 2**31], shape=IMAGE), BAD, ""
    yield "bomb-upsample", _one("Upsample", F([1, 1, 1e6, 1e6]), shape=IMAGE, opset=9), BAD, "too many"
    yield (
        "bomb-resize-linear",
        _one("Resize", F([]), F([1, 1, 4096]), shape=(1, 1, 4096), mode="linear"),
        BAD,
        "too many",
    )
    yield "bomb-slice", _one("Slice", [0], [2**62], [1], shape=(1, 2**40)), BAD, "too many"
    yield "bomb-conv-pads", _one("Conv", np.ones((1, 1, 1, 1), F), shape=IMAGE, pads=[2**15] * 4), BAD, "too many"
    yield (
        "bomb-transposed",
        _one("ConvTranspose", np.ones((1, 1, 1, 1), F), shape=IMAGE, strides=[2**15] * 2),
        BAD,
        "too many",
    )
    yield "bomb-maxpool", _one("MaxPool", shape=(1, 1, 4096, 4096), kernel_shape=[5, 5]), BAD, "too many"
    yield "bomb-maxpool-2gb", _one("MaxPool", shape=(1, 1, 4096, 4096), kernel_shape=[4, 4]), BAD, "too many"
    shape = [const("s", [2**14, 1]), const("t", [1, 2**14])]
    outer = [node("ConstantOfShape", "s", "a"), node("ConstantOfShape", "t", "b")]
    yield (
        "bomb-outer-matmul",
        _of(*outer, node("MatMul", "a b", "k"), node("Add", "x k"), weights=shape),
        BAD,
        "too many",
    )
    yield "bomb-outer-gemm", _of(*outer, node("Gemm", "a b", "k"), node("Add", "x k"), weights=shape), BAD, "too many"
    yield "bomb-outer-add", _of(*outer, node("Add", "a b", "k"), node("Add", "x k"), weights=shape), BAD, "too many"
    yield "bomb-outer-pow", _of(*outer, node("Pow", "a b", "k"), node("Add", "x k"), weights=shape), BAD, "too many"
    row = const("r", np.ones((1, 2**14), np.int8))
    mod = [outer[0], node("Mod", "a r", "k"), node("Add", "x k")]
    yield "bomb-outer-mod", _of(*mod, weights=[shape[0], row]), BAD, "too many"
    gather = [const("w", np.zeros((1, 4096), F)), const("s", [2**16])]
    zeros = helper.make_node("ConstantOfShape", ["s"], ["i"], value=const("", [0]))
    yield "bomb-gather", _of(zeros, node("Gather", "w i", "k"), node("Add", "x k"), weights=gather), BAD, "too many"


def _chains() -> Iterator[Bad]:
    """Small steps that grow: doublings, and many constants of an allowed size."""
    doubled = [node("Concat", f"k{i} k{i}", f"k{i + 1}", axis=0) for i in range(40)]
    yield "bomb-concat", _of(*doubled, node("Add", "x k40"), weights=[const("k0", F([1, 2]))]), BAD, "too many"
    wider = [node("Concat", " ".join([f"k{i}"] * 64), f"k{i + 1}", axis=1) for i in range(9)]
    yield "bomb-concat-data", _of(node("Identity", "x", "k0"), *wider, node("Relu", "k9")), BAD, "too many"
    parts = [helper.make_node("Concat", ["x"] * 16, [f"k{i}"], axis=1) for i in range(200)]
    total = [node("Add", f"t{i} k{i}", f"t{i + 1}") for i in range(200)]
    many = (node("Identity", "k0", "t0"), *parts, *total, node("Identity", "t200"))
    yield "bomb-many-values", _of(*many, shape=(1, 2**15)), BAD, "too many"
    made = [node("ConstantOfShape", "s", f"k{i}") for i in range(60)]
    total = [node("Add", f"t{i} k{i}", f"t{i + 1}") for i in range(60)]
    many = (node("Identity", "x", "t0"), *made, *total, node("Identity", "t60"))
    yield "bomb-many-constants", _of(*many, weights=[const("s", [2**22])]), BAD, "too many"
    squared = [node("Mul", f"k{i} k{i}", f"k{i + 1}") for i in range(12)]
    yield "overflow-constant", _of(*squared, node("Mul", "x k12"), weights=[const("k0", F([9e9]))]), "NumberError", ""
    yield "split-100000", _one("Split", outputs="y", axis=1, num_outputs=100_000, opset=18), BAD, "splits"
    zero, last = const("s", [0] * 4000), const("e", [2] * 4000)
    cuts = [zero, last, const("a", [1] * 4000)]
    yield "slice-4000-times", _of(node("Slice", "x s e a"), weights=cuts), BAD, "twice"
    wide = model([helper.make_node("Frobnicate", ["x"] * 20_000, ["y"])], outputs=["y"] * 5000)
    yield "many-outputs", wide.SerializeToString(deterministic=True), ODD, "Frobnicate"
    every = model([node("Exp", "x", f"t{i}") for i in range(6000)], outputs=[f"t{i}" for i in range(6000)])
    yield "many-refused-apart", every.SerializeToString(deterministic=True), ODD, "and 5,936 more"
    alike = [node("Relu" if i < 1499 else "Exp", f"t{i}", f"t{i + 1}", name="a") for i in range(1500)]
    yield "names-alike", _of(node("Identity", "x", "t0"), *alike, node("Identity", "t1500")), ODD, "Exp"
    plain = [node("Reshape", f"t{i} r{i % 2}", f"t{i + 1}") for i in range(200)]
    flat = [const("r0", [1, 2**12, 2**12]), const("r1", [1, 2**24])]
    large = (node("Identity", "x", "t0"), *plain, node("Exp", "t200"))
    yield "many-reshapes", _of(*large, weights=flat, shape=(1, 2**24)), ODD, "Exp"
    deep = [node("Relu", f"t{i}", f"t{i + 1}") for i in range(5000)]
    yield "long-chain-refused", _of(node("Round", "x", "t0"), *deep, node("Identity", "t5000")), ODD, "Round"
