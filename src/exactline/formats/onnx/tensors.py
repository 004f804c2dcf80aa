"""Read the tensors of an ONNX file; sizes are checked against the available bytes before memory is allocated."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import FileError, NumberError, UnsupportedError
from ...humanize import count_noun
from .. import limits

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16  # TensorProto.DataType
FLOAT_TYPES = (FLOAT, FLOAT16, DOUBLE, BFLOAT16)
EXTERNAL = 1  # TensorProto.DataLocation
NUMPY_TYPES: dict[int, Any] = {
    FLOAT: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    FLOAT16: np.float16,
    DOUBLE: np.float64,
    12: np.uint32,
    13: np.uint64,
    BFLOAT16: np.uint16,
}
SMALL_TYPES = {
    17: 8,
    18: 8,
    19: 8,
    20: 8,
    21: 4,
    22: 4,
    23: 4,
    24: 8,
    25: 2,
    26: 2,
}  # bits of types below a byte, and float8
FLOAT8_TYPES = {
    17: torch.float8_e4m3fn,
    18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz,
}
SIGNED_TYPES, FLOAT4, SCALE8 = (22, 26), 23, 24  # int4 and int2; float4e2m1; float8e8m0, which holds powers of 2
FLOAT4_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code; the fourth bit is the sign
# fields of TensorProto by type; all other types are in int32_data
DATA_FIELDS = {FLOAT: "float_data", 7: "int64_data", DOUBLE: "double_data", 12: "uint64_data", 13: "uint64_data"}


def list_float_types(model: Any) -> frozenset[int]:
    """The types of the real inputs, weights and constants of a file: it computes in these."""
    nodes = [node for part in (model.graph, *model.functions) for node in part.node if node.op_type == "Constant"]
    types = {info.type.tensor_type.elem_type for info in model.graph.input}
    types |= {tensor.data_type for tensor in model.graph.initializer}
    types |= {attribute.t.data_type for node in nodes for attribute in node.attribute}
    return frozenset(types & set(FLOAT_TYPES))


@dataclass
class TensorReader:
    """Reads the tensors of one model, and limits how many numbers they hold together."""

    where: str  # the file, for error messages
    folder: Path | None  # where external data may be; None if none is allowed
    number_count: int = 0

    def read_tensor(self, proto: Any) -> Tensor:
        """Read a TensorProto as float64, int64 or bool."""
        name = proto.name[:80] or "a constant"
        where = f"{self.where}: tensor {name}"
        bits = SMALL_TYPES.get(proto.data_type)
        if proto.data_type not in NUMPY_TYPES and bits is None:
            raise UnsupportedError(
                f"{name} has element type {proto.data_type}, which is not supported.",
                where=where,
                hint="Store weights as float, double, float16, bfloat16 or whole numbers.",
            )
        count = limits.count_elements(proto.dims, name, where)
        self.number_count += count
        limits.check_limit(self.number_count, limits.MAX_WEIGHTS, "weights", where)
        kind = np.dtype(NUMPY_TYPES.get(proto.data_type, np.uint8))
        stored = count if bits is None else -(-count * bits // 8)  # numbers that are smaller than a byte are packed
        if proto.data_location == EXTERNAL:
            numbers = np.frombuffer(self._read_external_data(proto, stored * kind.itemsize, where), dtype=kind)
        elif proto.raw_data or not count:
            needed = stored * kind.itemsize
            if len(proto.raw_data) != needed:
                raise make_damaged_error(
                    f"The shape and type of {name} need {needed:,} bytes, but it has {len(proto.raw_data):,}.", where
                )
            numbers = np.frombuffer(proto.raw_data, dtype=kind.newbyteorder("<"))
        else:
            numbers = self._read_typed_field(proto, stored, kind, where)
        if bits is not None:
            numbers = _unpack(numbers, proto.data_type, bits)[:count]
        return _to_tensor(numbers, proto.data_type, name, where).reshape(list(proto.dims))

    @staticmethod
    def _read_typed_field(proto: Any, count: int, kind: np.dtype[Any], where: str) -> np.ndarray[Any, Any]:
        """Read the numbers of a tensor that is stored as a list of them."""
        numbers = getattr(proto, DATA_FIELDS.get(proto.data_type, "int32_data"))
        if len(numbers) != count:
            raise make_damaged_error(
                f"The shape needs {count_noun(count, 'number')}, but {len(numbers):,} are stored.", where
            )
        if proto.data_type in (FLOAT16, BFLOAT16):
            bits = np.array(numbers, dtype=np.int64)
            if bits.size and (bits.min() < 0 or bits.max() > 0xFFFF):
                raise make_damaged_error("Its 16-bit floats are out of range.", where)
            return bits.astype(np.uint16).view(kind)
        with np.errstate(all="ignore"):
            return np.array(numbers).astype(kind)

    def _read_external_data(self, proto: Any, size: int, where: str) -> bytes:
        """Read data from a file in the model's folder, which must be a regular file and no link."""
        entries = {e.key: e.value for e in proto.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            raise make_damaged_error(
                "It keeps data in another file, but only data inside the file can be read here.", where
            )
        folder = self.folder.resolve()
        if not isinstance(location, str):
            raise make_damaged_error("The name of the file with its data is not UTF-8 text.", where)
        parts = Path(location).parts
        if not location or "\0" in location or Path(location).is_absolute() or ".." in parts or "\\" in location:
            raise make_damaged_error(f"Its data is in {location[:80]!r}, outside of the model's folder.", where)
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(size)))
        except ValueError:
            raise make_damaged_error("The offset or length of its data is not a number.", where) from None
        if length != size or offset < 0:
            raise make_damaged_error(
                f"It needs {size:,} bytes, but refers to {length:,} bytes at offset {offset:,}.", where
            )
        try:
            path = folder
            for part in parts:
                path = path / part
                if path.is_symlink():
                    raise make_damaged_error(f"Its data in {location[:80]!r} is behind a symbolic link.", where)
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(handle, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                    raise make_damaged_error(
                        f"{location[:80]!r} is not a regular file, or has several hard links.", where
                    )
                if offset + length > status.st_size:
                    raise make_damaged_error(f"{location[:80]!r} ends before the data does.", where)
                file.seek(offset)
                return file.read(length)
        except OSError as problem:
            raise make_damaged_error(f"{location[:80]!r} cannot be read: {problem.strerror}.", where) from problem


def _unpack(stored: np.ndarray[Any, Any], data_type: int, bits: int) -> np.ndarray[Any, Any]:
    """The numbers in packed bytes (uint8, the lowest bits first), as float64 or int64."""
    codes = (stored[:, None] >> np.arange(0, 8, bits)).reshape(-1) & (2**bits - 1)
    if data_type in FLOAT8_TYPES:
        return torch.from_numpy(codes.astype(np.uint8)).view(FLOAT8_TYPES[data_type]).to(torch.float64).numpy()
    if data_type == SCALE8:
        return np.where(codes == 255, np.nan, 2.0 ** (codes.astype(np.float64) - 127))
    if data_type == FLOAT4:
        return np.array([*FLOAT4_NUMBERS, *(-n for n in FLOAT4_NUMBERS)])[codes]
    half = 2 ** (bits - 1) if data_type in SIGNED_TYPES else 2**bits
    return codes.astype(np.int64) - 2**bits * (codes >= half)


def _to_tensor(numbers: np.ndarray[Any, Any], data_type: int, name: str, where: str) -> Tensor:
    """Convert the stored numbers, (n,), to float64, int64 or bool; raises NumberError for NaN."""
    if data_type == BFLOAT16:
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    if numbers.dtype.kind == "b":
        return torch.from_numpy(numbers.astype(np.bool_))
    if numbers.dtype.kind != "f":
        return torch.from_numpy(numbers.astype(np.int64))
    tensor = torch.from_numpy(numbers.astype(np.float64))
    if bool(torch.isnan(tensor).any()):
        raise NumberError(f"{name} holds NaN.", where=where, hint="Repair the weights.")
    return tensor


def make_damaged_error(problem: str, where: str) -> FileError:
    """An error about a file that breaks the format."""
    return FileError(problem, where=where, hint="The file is damaged, or its exporter does not follow the format.")
