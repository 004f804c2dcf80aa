"""What a user's function returns, as bytes: numbers, text, arrays, and lists and dicts of them. Never a pickle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError, FileError

MARK = "$"  # the key of what JSON cannot say itself
DEEPEST = 32


def freeze(value: Any) -> bytes:
    """A value as bytes.

    >>> thaw(freeze({"breaks": 3, "widths": torch.tensor([0.5, 0.5])}))
    {'breaks': 3, 'widths': tensor([0.5000, 0.5000])}

    Raises ArgumentError for a value of another kind.
    """
    arrays: list[bytes] = []
    tree = json.dumps(_plain(value, arrays, 0)).encode()
    return b"".join([len(tree).to_bytes(8, "little"), tree, *arrays])


def thaw(data: bytes) -> Any:
    """The value again; raises FileError where the bytes are not one."""
    try:
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(data[8 : 8 + size])
        return _value(tree, data, 8 + size)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as problem:
        raise FileError(
            f"A stored value cannot be read: {problem}", where="a shard", hint="Run again with resume=True."
        ) from problem


def _plain(value: Any, arrays: list[bytes], depth: int) -> Any:
    if depth > DEEPEST:
        raise _odd(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        array = _array(value)
        place = sum(map(len, arrays))
        arrays.append(array.tobytes())
        return {MARK: kind, "dtype": array.dtype.str, "shape": list(array.shape), "at": place}
    if isinstance(value, (list, tuple)):
        items = [_plain(item, arrays, depth + 1) for item in value]
        return items if isinstance(value, list) else {MARK: "tuple", "items": items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {MARK: "dict", "items": {key: _plain(item, arrays, depth + 1) for key, item in value.items()}}
    raise _odd(value)


def _array(value: Any) -> np.ndarray[Any, Any]:
    try:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    except (TypeError, RuntimeError) as problem:
        raise _odd(value) from problem
    if array.dtype.kind not in "biufc":
        raise _odd(value)
    return np.asarray(array, order="C")


def _value(tree: Any, data: bytes, base: int) -> Any:
    if isinstance(tree, list):
        return [_value(item, data, base) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree[MARK]
    if kind == "tuple":
        return tuple(_value(item, data, base) for item in tree["items"])
    if kind == "dict":
        return {key: _value(item, data, base) for key, item in tree["items"].items()}
    dtype = np.dtype(tree["dtype"])
    if dtype.kind not in "biufc":
        raise ValueError(f"arrays of {dtype} are not numbers")
    shape = tuple(int(d) for d in tree["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    array = np.frombuffer(data, dtype, count, base + int(tree["at"])).reshape(shape).copy()
    return torch.from_numpy(array) if kind == "tensor" else array


def _odd(value: Any) -> ArgumentError:
    return ArgumentError(
        f"The function returned {type(value).__name__}, which cannot be stored.",
        where="argument job",
        hint="Return numbers, text, tensors or arrays, or lists, tuples and dicts of them.",
    )
