"""Random changes of an ONNX graph: other operators, inputs, settings, shapes, weights; new nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .harness import OPERATORS

KINDS = [*sorted(OPERATORS), "Exp", "If", "LSTM"]
INTS = [0, 1, 2, 3, 4, 5, 7, -1, -2, -3, 100, 2**15, 2**31, 2**40, 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, -1.0, 0.5, -0.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
LISTS = ("axes", "dilations", "kernel_shape", "output_padding", "output_shape", "pads", "perm", "split", "strides")
LISTS += ("value_ints", "shape", "starts", "ends", "repeats", "paddings")
WHOLE = ("axis", "group", "keepdims", "transA", "transB", "ceil_mode", "count_include_pad", "to", "blocksize", "end")
WHOLE += ("start", "num_outputs", "allowzero", "noop_with_empty_axes", "antialias", "value_int", "fmod", "exclusive")
REAL = ("alpha", "beta", "epsilon", "min", "max", "value", "lambd", "bias", "value_float", "ratio", "gamma")
WORDS = {
    "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", ""),
    "mode": ("linear", "nearest", "reflect", "edge", "wrap", "constant", "CRD", "bilinear"),
    "coordinate_transformation_mode": ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"),
    "nearest_mode": ("floor", "ceil", "round_prefer_ceil"),
}
TYPES = (np.float32, np.float64, np.int64, np.int32, np.bool_, np.float16, np.uint8)


def changed(data: bytes, chance: Random) -> bytes | None:
    """The file after one to four changes of its graph, or None where it holds none."""
    try:
        model = ModelProto.FromString(data)
        if not model.graph.node:
            return None
        for _ in range(chance.randint(1, 4)):
            chance.choice(CHANGES)(model, chance)
        return model.SerializeToString(deterministic=True)
    except Exception:  # noqa: BLE001 (damaged files upset protobuf and onnx in many ways)
        return None


def _kind(model: Any, chance: Random) -> None:
    chance.choice(model.graph.node).op_type = chance.choice(KINDS)


def _input(model: Any, chance: Random) -> None:
    node = chance.choice(model.graph.node)
    name = chance.choice([*_names(model), ""])
    if node.input and chance.random() < 0.6:
        node.input[chance.randrange(len(node.input))] = name
    elif node.input and chance.random() < 0.4:
        del node.input[chance.randrange(len(node.input))]
    else:
        node.input.append(name)


def _setting(model: Any, chance: Random) -> None:
    node = chance.choice(model.graph.node)
    if node.attribute and chance.random() < 0.3:
        del node.attribute[chance.randrange(len(node.attribute))]
        return
    name, value = _drawn(chance)
    node.attribute.append(helper.make_attribute(name, value, attr_type=_type(value)))


def _type(value: Any) -> int:
    first = value[0] if isinstance(value, list) and value else value
    kinds = {int: (2, 7), float: (1, 6), str: (3, 8), TensorProto: (4, 9), list: (7, 7)}
    return kinds[type(first)][isinstance(value, list)]


def _drawn(chance: Random) -> tuple[str, Any]:
    """A setting, now and then of the wrong type."""
    values = {
        "list": [chance.choice(INTS[:9]) for _ in range(chance.randint(0, 6))],
        "int": chance.choice(INTS),
        "float": chance.choice(FLOATS),
        "word": chance.choice(chance.choice(list(WORDS.values()))),
        "tensor": _weight(chance, ""),
    }
    kind = chance.choice(list(values))
    names = {"list": LISTS, "int": WHOLE, "float": REAL, "word": tuple(WORDS), "tensor": ("value",)}
    name = chance.choice(names[kind] if chance.random() < 0.9 else LISTS + WHOLE + REAL)
    return name, values[kind]


def _weight(chance: Random, name: str) -> TensorProto:
    shape = [chance.choice((1, 1, 2, 2, 3, 4, 0)) for _ in range(chance.randint(0, 5))]
    kind = chance.choice(TYPES)
    values = [chance.choice(INTS[:9] if chance.random() < 0.9 else FLOATS[:7]) for _ in range(int(np.prod(shape)))]
    with np.errstate(all="ignore"):
        return numpy_helper.from_array(np.array(values, dtype=np.float64).astype(kind).reshape(shape), name)


def _tensor(model: Any, chance: Random) -> None:
    weights = model.graph.initializer
    if not weights or chance.random() < 0.3:
        weights.append(_weight(chance, f"n{len(weights)}"))
        return
    at = chance.choice(weights)
    if chance.random() < 0.7:
        at.CopyFrom(_weight(chance, at.name))
    elif at.dims:
        at.dims[chance.randrange(len(at.dims))] = chance.choice(INTS)
    else:
        at.data_type = chance.randint(0, 24)


def _shape(model: Any, chance: Random) -> None:
    if model.graph.input:
        shape = [chance.choice((1, 1, 2, 3, 4, 8)) for _ in range(chance.randint(0, 5))]
        info = model.graph.input[0]
        info.CopyFrom(helper.make_tensor_value_info(info.name, 1, shape))


def _opset(model: Any, chance: Random) -> None:
    for opset in model.opset_import:
        opset.version = chance.randint(7, 24)


def _grow(model: Any, chance: Random) -> None:
    """A new node behind those there are, which the network now ends in."""
    names = [*_names(model), *(o.name for o in model.graph.output)]
    inputs = [chance.choice(names) for _ in range(chance.randint(1, 4))]
    if model.graph.output and chance.random() < 0.7:
        inputs[0] = model.graph.output[0].name
    outputs = [f"g{len(model.graph.node)}_{i}" for i in range(chance.choice((1, 1, 1, 2, 3)))]
    settings = dict(_drawn(chance) for _ in range(chance.randint(0, 3)))
    node = helper.make_node(chance.choice(KINDS), inputs, outputs)
    node.attribute.extend(helper.make_attribute(k, v, attr_type=_type(v)) for k, v in settings.items())
    model.graph.node.append(node)
    if model.graph.output:
        model.graph.output[0].name = outputs[0]


def _names(model: Any) -> list[str]:
    made = [o for n in model.graph.node for o in n.output]
    return [*made, *(t.name for t in model.graph.initializer), *(i.name for i in model.graph.input), "x"]


CHANGES = (_kind, _input, _setting, _setting, _tensor, _tensor, _shape, _opset, _grow, _grow, _grow)
