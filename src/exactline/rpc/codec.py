"""Arrays in messages: raw bytes, little-endian, in C order, checked against the type and shape sent with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..decide.intervals import IntervalTable
from ..errors import ArgumentError
from .protos.exactline.v1 import exactline_pb2 as pb

NUMPY_DTYPES = {pb.FLOAT64: "<f8", pb.FLOAT32: "<f4", pb.INT64: "<i8", pb.BOOL: "|b1"}  # little-endian
WIRE_DTYPES = {torch.float64: pb.FLOAT64, torch.float32: pb.FLOAT32, torch.int64: pb.INT64, torch.bool: pb.BOOL}
TORCH_DTYPES = {wire_dtype: dtype for dtype, wire_dtype in WIRE_DTYPES.items()}
MAX_DIMS = 16
MAX_NUMBERS = 1 << 40  # of the dims of an array that are not 0, multiplied: numpy's own limit is not far beyond
INTERVAL_ARRAYS = (  # the names in messages of the fields of an IntervalTable, in their order
    *("table.offsets", "table.starts", "table.stops", "table.labels", "table.tied"),
    *("table.margins", "table.margins_at", "table.start_errors", "table.stop_errors"),
)


def encode_bytes(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor."""
    array = tensor.detach().cpu().contiguous().numpy()
    return array.astype(NUMPY_DTYPES[WIRE_DTYPES[tensor.dtype]], copy=False).tobytes()


def encode_array(tensor: Tensor) -> pb.Array:
    """Convert a tensor to a message; a type that messages do not have is converted to float64.

    >>> decode_array(encode_array(torch.tensor([1.0, 2.0])), "x")
    tensor([1., 2.])
    """
    supported = tensor if tensor.dtype in WIRE_DTYPES else tensor.to(torch.float64)
    return pb.Array(dtype=WIRE_DTYPES[supported.dtype], shape=list(supported.shape), data=encode_bytes(supported))


def decode_array(array: pb.Array, where: str) -> Tensor:
    """Convert a message to a tensor.

    Raises ArgumentError if the type is unknown or the bytes do not fit the type and shape.
    """
    if array.dtype not in NUMPY_DTYPES or len(array.shape) > MAX_DIMS:
        raise ArgumentError(
            "An array has an unknown type or too many dimensions.", where=where, hint="See exactline.proto."
        )
    return decode_rows([array.data], array.dtype, list(array.shape), where)


def decode_rows(pieces: Sequence[bytes], dtype: pb.DType, shape: Sequence[int], where: str) -> Tensor:
    """Join pieces of bytes into a tensor of a shape; a first dimension of -1 takes as many rows as there are.

    Raises ArgumentError if the bytes do not fit the shape.
    """
    numpy_dtype = np.dtype(NUMPY_DTYPES[dtype])
    data = b"".join(pieces) if len(pieces) != 1 else pieces[0]
    dims = list(shape)
    row_bytes = prod(dims[1:]) * numpy_dtype.itemsize
    if dims and dims[0] == -1:
        dims[0] = len(data) // row_bytes if row_bytes else 0
    if prod(dims) * numpy_dtype.itemsize != len(data) or prod(dim for dim in dims if dim) > MAX_NUMBERS:
        raise ArgumentError(
            f"An array of shape {tuple(dims)} comes with {len(data):,} bytes.",
            where=where,
            hint="See exactline.proto.",
        )
    array = np.frombuffer(bytearray(data), numpy_dtype).astype(numpy_dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(array.reshape(dims))


def encode_point(tensors: Sequence[Tensor]) -> pb.Point:
    """Convert tensors, one for each input of the network, to a message."""
    return pb.Point(inputs=[encode_array(t) for t in tensors])


def decode_point(point: pb.Point, where: str) -> tuple[Tensor, ...]:
    """Convert a message to tensors, one for each input of the network."""
    if not point.inputs:
        raise ArgumentError("An array is missing.", where=where, hint="Give one for each input of the network.")
    return tuple(decode_array(array, where) for array in point.inputs)


def unwrap_single(tensors: tuple[Tensor, ...]) -> Any:
    """Return the only tensor, or the tuple of several: points as the library takes them."""
    return tensors[0] if len(tensors) == 1 else tensors


def name_interval_arrays(table: IntervalTable) -> dict[str, Tensor]:
    """Return the arrays of a table of intervals by their names in messages."""
    arrays = [torch.from_numpy(getattr(table, field.name)) for field in fields(IntervalTable)]
    return dict(zip(INTERVAL_ARRAYS, arrays, strict=True))
