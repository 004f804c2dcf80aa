"""Bad ONNX files: damaged bytes, and graphs that make no sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .text_files import ERAN, RUBBISH, Bad

FLOAT = TensorProto.FLOAT


def const(name: str, value: Any, kind: Any = None) -> TensorProto:
    """A constant; whole numbers become int64."""
    return numpy_helper.from_array(np.asarray(value, dtype=kind), name)


def model(
    nodes: Sequence[Any],
    weights: Sequence[TensorProto] = (),
    *,
    shape: Sequence[Any] = (1, 2),
    opset: int = 13,
    outputs: Sequence[str] = ("y",),
    kind: int = FLOAT,
) -> ModelProto:
    """A graph from ``x`` to ``y``."""
    graph = helper.make_graph(
        list(nodes),
        "bad",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(kind: str, inputs: str, output: str = "y", **settings: Any) -> Any:
    """A node; its inputs and outputs are words."""
    return helper.make_node(kind, inputs.split(" "), output.split(), **settings)


def good() -> ModelProto:
    """Two layers with a ReLU between them."""
    weights = [
        const("w", [[1, -1], [2, 0.5], [0, 3]], np.float32),
        const("b", [0, 1, 2], np.float32),
        const("v", [[1, 1, -1]], np.float32),
    ]
    nodes = [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v", "y", transB=1)]
    return model(nodes, weights)


def changed(change: Callable[[ModelProto], Any]) -> bytes:
    """The good model after a change."""
    made = good()
    change(made)
    return made.SerializeToString(deterministic=True)


def onnx_files() -> Iterator[Bad]:
    """Bad ONNX files that no single operator is to blame for."""
    whole = changed(lambda m: None)
    yield "onnx-good.onnx", whole, None, ""
    graph = whole.index(b"\x3a")  # the tag of the graph
    for at in range(graph + 1, len(whole) - 8, 9):
        yield f"onnx-cut-{at:03d}.onnx", whole[:at], "FileError", "not an ONNX file"
    for at in (0, graph):
        yield f"onnx-cut-{at:03d}.onnx", whole[:at], "FileError", "no graph"
    yield from _flips(whole)
    yield "onnx-rubbish.onnx", RUBBISH, "FileError", "not an ONNX file"
    yield "onnx-blank.onnx", b"  \n ", "FileError", "not an ONNX file"
    yield "onnx-zeros.onnx", b"\0" * 2000, "FileError", "not an ONNX file"
    yield "onnx-is-eran.onnx", ERAN, "FileError", "not an ONNX file"
    yield "onnx-bom.onnx", b"\xef\xbb\xbf" + whole, "FileError", "not an ONNX file"
    yield "onnx-crlf.onnx", whole.replace(b"\n", b"\r\n"), "FileError", "not an ONNX file"
    yield "onnx-claims-2gb.onnx", b"\x3a\xff\xff\xff\xff\x07" + whole, "FileError", "not an ONNX file"
    yield "onnx-deep-groups.onnx", b"\x3b" * 100_000, "FileError", "not an ONNX file"
    yield "onnx-deep-graphs.onnx", _deep(200), "FileError", "not an ONNX file"
    yield "onnx-deep-20.onnx", _deep(20), "UnsupportedError", "Loop"
    for name, (change, error, says) in _changes().items():
        yield f"onnx-{name}.onnx", changed(change), error, says
    for name, change in _words().items():
        yield f"onnx-utf8-{name}.onnx", changed(change).replace(b"QQQQ", b"\x88\xff\xfe\x80"), "FileError", "UTF-8"
    yield from _tensors()


def _flips(whole: bytes) -> Iterator[Bad]:
    """One bit the other way, where it is known what that means."""
    flips = {
        "op-type": (b"Relu", 0, "UnsupportedError", "Rdlu"),
        "op-input": (b"Relu", -4, "FileError", ""),
        "graph-tag": (b"\x3a", 0, "FileError", ""),
    }
    for name, (what, shift, error, says) in flips.items():
        at = whole.index(what) + (1 if name == "op-type" else shift)
        yield f"onnx-flip-{name}.onnx", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], error, says
    three = np.float32(3).tobytes()
    yield "onnx-flip-nan.onnx", whole.replace(three, b"\x01\x00\xc0\x7f", 1), "NumberError", "NaN"
    yield "onnx-flip-dim.onnx", whole.replace(b"\x08\x03\x08\x02", b"\x08\x03\x08\x03", 1), "FileError", "need 36 bytes"


def _deep(depth: int) -> bytes:
    """Loops within loops; built as bytes, for no writer makes them."""
    inner = b""
    for _ in range(depth):
        loop = _field(4, b"Loop") + _field(1, b"x") + _field(2, b"y")
        body = _field(5, _field(1, b"body") + _field(6, inner) + b"\xa0\x01\x05")
        inner = _field(1, loop + body)  # a graph of one node
    graph = inner + _field(12, _field(1, b"y")) + _field(11, INPUT)
    return _field(7, graph) + OPSET


def _field(number: int, data: bytes) -> bytes:
    """One field of a protobuf message, with its length."""
    length, size = b"", len(data)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


INPUT = helper.make_tensor_value_info("x", FLOAT, (1, 2)).SerializeToString(deterministic=True)
OPSET = _field(8, helper.make_opsetid("", 13).SerializeToString(deterministic=True))


def _graph(field: str, *values: Any) -> Callable[[ModelProto], Any]:
    return lambda m: getattr(m.graph, field).extend(values)


def _clear(*path: str) -> Callable[[ModelProto], Any]:
    def change(m: ModelProto) -> None:
        at: Any = m
        for part in path[:-1]:
            at = getattr(at, part)
        at.ClearField(path[-1])

    return change


def _opset(version: int, domain: str = "") -> Callable[[ModelProto], Any]:
    def change(m: ModelProto) -> None:
        m.opset_import[0].version = version
        m.opset_import[0].domain = domain

    return change


def _dims(*dims: Any) -> Callable[[ModelProto], Any]:
    def change(m: ModelProto) -> None:
        m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, dims))

    return change


def _input(kind: int) -> Callable[[ModelProto], Any]:
    return lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, (1, 2)))


def _named(field: str, place: int, name: str, new: str) -> Callable[[ModelProto], Any]:
    def change(m: ModelProto) -> None:
        item = getattr(m.graph, field)[place]
        values = getattr(item, name)
        if isinstance(values, str):
            setattr(item, name, new)
        else:
            values[0] = new

    return change


def _changes() -> dict[str, tuple[Callable[[ModelProto], Any], str, str]]:
    """Changes of the good model, the error and a word of it."""
    bad, odd = "FileError", "UnsupportedError"
    extra = helper.make_tensor_value_info("x2", FLOAT, None)
    sparse = helper.make_sparse_tensor(const("s", [1.0], np.float32), const("i", [0]), [9])
    return {
        "no-nodes": (_clear("graph", "node"), bad, "no graph"),
        "no-graph": (_clear("graph"), bad, "no graph"),
        "no-opset": (_clear("opset_import"), bad, "operator set"),
        "opset-0": (_opset(0), odd, "Operator set 0"),
        "opset-29": (_opset(29), odd, "Operator set 29"),
        "opset-99": (_opset(99), odd, "Operator set 99"),
        "opset-huge": (_opset(2**63 - 1), odd, "Operator set"),
        "opset-minus": (_opset(-5), odd, "Operator set -5"),
        "opset-other": (_opset(13, "ai.onnx.ml"), bad, "operator set"),
        "no-outputs": (_clear("graph", "output"), bad, "no output"),
        "no-inputs": (_clear("graph", "input"), bad, "Nothing produces 'x'"),
        "no-weights": (_clear("graph", "initializer"), bad, "Nothing produces 'w'"),
        "weight-missing": (_named("initializer", 0, "name", "u"), bad, "Nothing produces 'w'"),
        "weight-unnamed": (_named("initializer", 0, "name", ""), bad, "Two tensors"),
        "weight-twice": (_named("initializer", 0, "name", "b"), bad, "Two tensors"),
        "output-unmade": (_named("output", 0, "name", "z"), bad, "No node produces the output"),
        "output-unnamed": (_named("output", 0, "name", ""), bad, "No node produces the output"),
        "output-weight": (_named("output", 0, "name", "w"), odd, "does not depend"),
        "input-unmade": (_named("node", 0, "input", "z"), bad, "Nothing produces 'z'"),
        "input-left-out": (_named("node", 0, "input", ""), bad, "missing"),
        "input-left-out-later": (_named("node", 1, "input", ""), bad, "missing"),
        "cycle": (_named("node", 0, "input", "r"), bad, "depends on itself"),
        "cycle-self": (_named("node", 1, "input", "r"), bad, "depends on itself"),
        "cycle-all": (_named("node", 0, "input", "y"), bad, "depends on itself"),
        "made-twice": (_named("node", 0, "output", "r"), bad, "Two nodes"),
        "made-input": (_graph("node", node("Relu", "h", "x")), bad, "x"),
        "made-weight": (_graph("node", node("Relu", "h", "b")), bad, "b"),
        "input-twice": (_graph("input", good().graph.input[0]), bad, "Two inputs"),
        "input-shapeless": (_graph("input", extra), bad, "no shape"),
        "input-typeless": (_clear_type, bad, "no shape"),
        "input-int64": (_input(TensorProto.INT64), odd, "floating"),
        "input-bool": (_input(TensorProto.BOOL), odd, "floating"),
        "input-string": (_input(TensorProto.STRING), odd, "floating"),
        "input-complex": (_input(TensorProto.COMPLEX64), odd, "floating"),
        "input-type-99": (_input(99), odd, "floating"),
        "input-free": (_dims(1, "n"), "ArgumentError", "dynamic dimension"),
        "input-zero": (_dims(1, 0), "ArgumentError", "dynamic dimension"),
        "input-minus": (_dims(1, -2), "ArgumentError", "dynamic dimension"),
        "input-huge": (_dims(1, 2**40), bad, "too many"),
        "input-overflow": (_dims(1, *[2**62] * 8), bad, "too many"),
        "input-ranks": (_dims(*[1] * 500), bad, "too many dimensions"),
        "input-rank-0": (_dims(), bad, "single numbers"),
        "input-three": (_dims(1, 3), odd, "fit"),
        "sparse": (_graph("sparse_initializer", sparse), odd, "Sparse"),
        "op-unknown": (_named("node", 1, "op_type", "Frobnicate"), odd, "Frobnicate"),
        "op-empty": (_named("node", 1, "op_type", ""), odd, "not known to be piecewise linear"),
        "op-lower": (_named("node", 1, "op_type", "relu"), odd, "relu"),
        "op-dunder": (_named("node", 1, "op_type", "__class__"), odd, "__class__"),
        "domain": (_named("node", 1, "domain", "com.example"), odd, "com.example"),
        "domain-ml": (_named("node", 1, "domain", "ai.onnx.ml"), odd, "ai.onnx.ml"),
        "function": (_function("Exp"), odd, "/c: Exp"),
        "function-endless": (_function("F", "mine"), bad, "calls itself"),
        "name-long": (_named("node", 2, "output", "y" * 5000), bad, "characters of a name"),
        "name-odd": (_named("node", 1, "op_type", "R\x1b[31m\u202e\n" * 20), odd, "not known to be piecewise linear"),
        "weight-wide": (lambda m: m.graph.initializer[1].CopyFrom(const("b", [1.0] * 7, np.float32)), bad, ""),
        "weight-inf": (lambda m: m.graph.initializer[0].CopyFrom(_infinite()), "NumberError", "infinite"),
    }


def _words() -> dict[str, Callable[[ModelProto], Any]]:
    """Names that the caller makes unreadable."""
    return {
        "operator": _named("node", 1, "op_type", "QQQQ"),
        "domain": _named("node", 1, "domain", "QQQQ"),
        "node": _named("node", 1, "name", "QQQQ"),
        "value": _named("node", 1, "output", "QQQQ"),
        "weight": _named("initializer", 0, "name", "QQQQ"),
        "input": _named("input", 0, "name", "QQQQ"),
        "output": _named("output", 0, "name", "QQQQ"),
        "setting": lambda m: setattr(m.graph.node[0].attribute[0], "name", "QQQQ"),
    }


def _infinite() -> TensorProto:
    return const("w", [[np.inf, -1], [2, 0.5], [0, 3]], np.float32)


def _clear_type(m: ModelProto) -> None:
    m.graph.input[0].ClearField("type")


def _function(kind: str, domain: str = "") -> Callable[[ModelProto], Any]:
    """Replace a node by a function of one operator."""

    def change(m: ModelProto) -> None:
        inside = helper.make_node(kind, ["a"], ["c"], domain=domain)
        m.functions.append(helper.make_function("mine", "F", ["a"], ["c"], [inside], [helper.make_opsetid("", 13)]))
        m.graph.node[1].op_type, m.graph.node[1].domain = "F", "mine"

    return change


def _tensors() -> Iterator[Bad]:
    """Tensors whose claims and bytes do not agree."""
    raw = np.zeros(6, np.float32).tobytes()
    cases: dict[str, tuple[dict[str, Any], str, str]] = {
        "empty": ({"dims": [3, 2], "data_type": 1}, "FileError", "needs 6 numbers, but 0"),
        "short": ({"dims": [3, 2], "data_type": 1, "raw_data": raw[:-1]}, "FileError", "need 24 bytes"),
        "long": ({"dims": [3, 2], "data_type": 1, "raw_data": raw + b"\0"}, "FileError", "need 24 bytes"),
        "double": ({"dims": [3, 2], "data_type": 11, "raw_data": raw}, "FileError", "need 48 bytes"),
        "dims-2gb": (
            {"dims": [2**14, 2**14], "data_type": 11, "raw_data": raw},
            "FileError",
            "need 2,147,483,648 bytes",
        ),
        "dims-huge": ({"dims": [2**40], "data_type": 1, "raw_data": raw}, "FileError", "too many"),
        "dims-overflow": ({"dims": [2**32, 2**32], "data_type": 1, "raw_data": raw}, "FileError", "too many"),
        "dims-wrap": ({"dims": [2**63 - 1] * 16, "data_type": 1, "raw_data": raw}, "FileError", "too many"),
        "dims-minus": ({"dims": [-3, -2], "data_type": 1, "raw_data": raw}, "FileError", "negative"),
        "dims-minus-one": ({"dims": [-1, 2], "data_type": 1, "raw_data": raw}, "FileError", "negative"),
        "dims-100": ({"dims": [1] * 100, "data_type": 1, "raw_data": raw[:4]}, "FileError", "too many dimensions"),
        "dims-zero-huge": ({"dims": [0, 2**40], "data_type": 1}, "FileError", ""),
        "dims-zero-overflow": ({"dims": [0, 2**62, 2**62], "data_type": 1}, "FileError", "too many"),
        "type-0": ({"dims": [3, 2], "raw_data": raw}, "UnsupportedError", "element type 0"),
        "type-99": ({"dims": [3, 2], "data_type": 99, "raw_data": raw}, "UnsupportedError", "element type 99"),
        "string": ({"dims": [2], "data_type": 8, "string_data": [b"a", b"b"]}, "UnsupportedError", "element type 8"),
        "complex": ({"dims": [1], "data_type": 14, "float_data": [1, 2]}, "UnsupportedError", "element type 14"),
        "float8": ({"dims": [3, 2], "data_type": 17, "raw_data": b"12345"}, "FileError", "need 6 bytes"),
        "int4": ({"dims": [3, 2], "data_type": 22, "raw_data": b"1234"}, "FileError", "need 3 bytes"),
        "listed-short": (
            {"dims": [3, 2], "data_type": 1, "float_data": [1.0] * 5},
            "FileError",
            "needs 6 numbers, but 5",
        ),
        "listed-elsewhere": (
            {"dims": [3, 2], "data_type": 1, "double_data": [1.0] * 6},
            "FileError",
            "needs 6 numbers, but 0",
        ),
        "listed-half": ({"dims": [3, 2], "data_type": 10, "int32_data": [70000] * 6}, "FileError", "out of range"),
        "both": ({"dims": [3, 2], "data_type": 1, "raw_data": raw[:8], "float_data": [1.0]}, "FileError", ""),
        "nan": ({"dims": [3, 2], "data_type": 1, "float_data": [float("nan")] * 6}, "NumberError", "NaN"),
        "nan-half": ({"dims": [3, 2], "data_type": 10, "raw_data": b"\xff\x7f" * 6}, "NumberError", "NaN"),
        "nan-bfloat": ({"dims": [3, 2], "data_type": 16, "raw_data": b"\xff\x7f" * 6}, "NumberError", "NaN"),
    }
    for name, (fields, error, says) in cases.items():
        tensor = TensorProto(name="w", **fields)
        yield f"onnx-tensor-{name}.onnx", changed(lambda m, t=tensor: m.graph.initializer[0].CopyFrom(t)), error, says
