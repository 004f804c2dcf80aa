"""Evaluate an ONNX file with 64-bit mantissas: the operators of a small vision transformer, as the truth for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .extended import ExtendedNumbers

Array = Any  # an array of long doubles, or of whole numbers for shapes


def evaluate_extended(path: Path, x: Array) -> Array:  # (n, *in) long double -> (n, *out)
    """The only output of a file for a batch."""
    graph = onnx.load(str(path)).graph
    values = {i.name: _widen(numpy_helper.to_array(i)) for i in graph.initializer}
    values[graph.input[0].name] = x
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPERATORS[node.op_type](attributes, *(values[name] for name in node.input))
    return values[graph.output[0].name]


def _widen(array: Array) -> Array:
    return array.astype(np.longdouble) if np.issubdtype(array.dtype, np.floating) else array


def _convolve(a: Any, x: Array, weight: Array, bias: Array) -> Array:
    """A convolution whose windows do not overlap."""
    n, c, h, w = x.shape
    out, _, kh, kw = weight.shape
    if a["strides"] != [kh, kw] or any(a["pads"]) or a["group"] != 1:
        raise NotImplementedError
    windows = x.reshape(n, c, h // kh, kh, w // kw, kw).transpose(0, 2, 4, 1, 3, 5).reshape(n, h // kh, w // kw, -1)
    return (windows @ weight.reshape(out, -1).T + bias).transpose(0, 3, 1, 2)


def _normalize(a: Any, x: Array, weight: Array, bias: Array, mean: Array, variance: Array) -> Array:
    factor = weight / np.sqrt(variance + np.longdouble(a["epsilon"]))
    along = (slice(None), *[None] * (x.ndim - 2))
    return (x - mean[along]) * factor[along] + bias[along]


def _reshape(a: Any, x: Array, shape: Array) -> Array:
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def _slice(a: Any, x: Array) -> Array:
    index = [slice(None)] * x.ndim
    for axis, first, last in zip(a["axes"], a["starts"], a["ends"], strict=True):
        index[axis] = slice(first, last)
    return x[tuple(index)]


OPERATORS = {
    "Add": lambda a, x, y: x + y,
    "BatchNormalization": _normalize,
    "Concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "Constant": lambda a: _widen(numpy_helper.to_array(a["value"])),
    "ConstantOfShape": lambda a, shape: np.full(shape, _widen(numpy_helper.to_array(a["value"]))[0]),
    "Conv": _convolve,
    "Gather": lambda a, x, index: np.take(x, index, a["axis"]),
    "Gemm": lambda a, x, weight, bias: x @ (weight.T if a.get("transB") else weight) + bias,
    "MatMul": lambda a, x, y: x @ y,
    "Mul": lambda a, x, y: x * y,
    "ReduceMean": lambda a, x: x.mean(tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "Relu": lambda a, x: np.maximum(x, 0),
    "Reshape": _reshape,
    "Shape": lambda a, x: np.array(x.shape),
    "Slice": _slice,
    "Softmax": lambda a, x: np.moveaxis(ExtendedNumbers.softmax(np.moveaxis(x, a["axis"], -1)), -1, a["axis"]),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Unsqueeze": lambda a, x: np.expand_dims(x, tuple(a["axes"])),
}
