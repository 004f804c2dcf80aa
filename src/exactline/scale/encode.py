"""Values that a user's function returns, as bytes: numbers, text, arrays, lists and dicts of them. Never a pickle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError, FileError

TYPE_KEY = "$"  # the JSON key that names the type of what JSON itself cannot hold
MAX_DEPTH = 32  # of nested lists and dicts
NUMBER_KINDS = "biufc"  # NumPy's letters for the types of numbers that are stored


def encode_value(value: Any) -> bytes:
    """A value as bytes.

    >>> decode_value(encode_value({"breaks": 3, "widths": torch.tensor([0.5, 0.5])}))
    {'breaks': 3, 'widths': tensor([0.5000, 0.5000])}

    Raises ArgumentError for a value of another type.
    """
    arrays: list[bytes] = []
    tree = json.dumps(_to_tree(value, arrays, 0)).encode()
    return b"".join([len(tree).to_bytes(8, "little"), tree, *arrays])


def decode_value(data: bytes) -> Any:
    """The value that `encode_value` was given; raises FileError where the bytes are not one."""
    try:
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(data[8 : 8 + size])
        return _from_tree(tree, data, 8 + size)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as problem:
        raise FileError(
            f"A stored value cannot be read: {problem}", where="a shard", hint="Run again with resume=True."
        ) from problem


def _to_tree(value: Any, arrays: list[bytes], depth: int) -> Any:
    """A value as JSON; the bytes of its arrays are appended to ``arrays``."""
    if depth > MAX_DEPTH:
        raise _type_error(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        array = _to_array(value)
        position = sum(map(len, arrays))
        arrays.append(array.tobytes())
        return {TYPE_KEY: kind, "dtype": array.dtype.str, "shape": list(array.shape), "at": position}
    if isinstance(value, (list, tuple)):
        items = [_to_tree(item, arrays, depth + 1) for item in value]
        return items if isinstance(value, list) else {TYPE_KEY: "tuple", "items": items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {TYPE_KEY: "dict", "items": {key: _to_tree(item, arrays, depth + 1) for key, item in value.items()}}
    raise _type_error(value)


def _to_array(value: Any) -> np.ndarray[Any, Any]:
    try:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    except (TypeError, RuntimeError) as problem:
        raise _type_error(value) from problem
    if array.dtype.kind not in NUMBER_KINDS:
        raise _type_error(value)
    return np.asarray(array, order="C")


def _from_tree(tree: Any, data: bytes, base: int) -> Any:
    if isinstance(tree, list):
        return [_from_tree(item, data, base) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree[TYPE_KEY]
    if kind == "tuple":
        return tuple(_from_tree(item, data, base) for item in tree["items"])
    if kind == "dict":
        return {key: _from_tree(item, data, base) for key, item in tree["items"].items()}
    dtype = np.dtype(tree["dtype"])
    if dtype.kind not in NUMBER_KINDS:
        raise ValueError(f"arrays of {dtype} are not numbers")
    shape = tuple(int(d) for d in tree["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    array = np.frombuffer(data, dtype, count, base + int(tree["at"])).reshape(shape).copy()
    return torch.from_numpy(array) if kind == "tensor" else array


def _type_error(value: Any) -> ArgumentError:
    return ArgumentError(
        f"The function returned {type(value).__name__}, which cannot be stored.",
        where="argument job",
        hint="Return numbers, text, tensors or arrays, or lists, tuples and dicts of them.",
    )
