"""Arrays on the wire: raw bytes, little-endian, C order, checked against what they say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from .protos.exactline.v1 import exactline_pb2 as pb

LITTLE = {pb.FLOAT64: "<f8", pb.FLOAT32: "<f4", pb.INT64: "<i8", pb.BOOL: "|b1"}
NATIVE = {pb.FLOAT64: np.float64, pb.FLOAT32: np.float32, pb.INT64: np.int64, pb.BOOL: np.bool_}
KINDS = {torch.float64: pb.FLOAT64, torch.float32: pb.FLOAT32, torch.int64: pb.INT64, torch.bool: pb.BOOL}
TORCH = {kind: dtype for dtype, kind in KINDS.items()}
DIMS = 16


def raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor."""
    array = tensor.detach().cpu().contiguous().numpy()
    return array.astype(LITTLE[KINDS[tensor.dtype]], copy=False).tobytes()


def array_of(tensor: Tensor) -> pb.Array:
    """A tensor as a message; numbers of other kinds as double precision, which holds them.

    >>> tensor_of(array_of(torch.tensor([1.0, 2.0])), "x")
    tensor([1., 2.])
    """
    known = tensor if tensor.dtype in KINDS else tensor.to(torch.float64)
    return pb.Array(dtype=KINDS[known.dtype], shape=list(known.shape), data=raw(known))


def tensor_of(array: pb.Array, where: str) -> Tensor:
    """A tensor out of a message.

    Raises ArgumentError where its bytes are not what its type and shape say.
    """
    if array.dtype not in LITTLE or len(array.shape) > DIMS:
        raise ArgumentError(
            "An array is of no type we know, or has too many dims.", where=where, hint="See exactline.proto."
        )
    return rows_of([array.data], array.dtype, list(array.shape), where)


def rows_of(data: Sequence[bytes], dtype: pb.DType, shape: Sequence[int], where: str) -> Tensor:
    """A tensor of this shape out of pieces of its bytes; -1 as first dim for as many rows as there are."""
    size = np.dtype(LITTLE[dtype]).itemsize
    whole = b"".join(data) if len(data) != 1 else data[0]
    dims = list(shape)
    row = prod(dims[1:]) * size
    if dims and dims[0] == -1:
        dims[0] = len(whole) // row if row else 0
    if prod(dims) * size != len(whole):
        raise ArgumentError(
            f"An array of shape {tuple(dims)} comes with {len(whole):,} bytes.",
            where=where,
            hint="See exactline.proto.",
        )
    array = np.frombuffer(bytearray(whole), LITTLE[dtype]).astype(NATIVE[dtype], copy=False)
    return torch.from_numpy(array.reshape(dims))


def point_of(tensors: Sequence[Tensor]) -> pb.Point:
    """Tensors, one for each input, as a message."""
    return pb.Point(inputs=[array_of(t) for t in tensors])


def tensors_of(point: pb.Point, where: str) -> tuple[Tensor, ...]:
    """The tensors of a message."""
    if not point.inputs:
        raise ArgumentError("No array is given.", where=where, hint="Give one for each input of the network.")
    return tuple(tensor_of(array, where) for array in point.inputs)


def given(value: tuple[Tensor, ...]) -> Any:
    """One tensor, or a tuple of several, as the library takes points."""
    return value[0] if len(value) == 1 else value
