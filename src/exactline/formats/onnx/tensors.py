"""Tensors as ONNX stores them: sizes are checked against the bytes that are there before anything is allocated."""

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
from .. import limits

FLOAT16, BFLOAT16, EXTERNAL = 10, 16, 1
KINDS: dict[int, Any] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    FLOAT16: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
    BFLOAT16: np.uint16,
}
FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data"}


@dataclass
class Store:
    """Where a model's tensors come from, and how many numbers were read so far."""

    where: str
    folder: Path | None  # for data outside of the file; None: refused
    count: int = 0

    def tensor(self, proto: Any) -> Tensor:
        """A tensor in float64 or, for whole numbers, int64."""
        name = proto.name[:80] or "a constant"
        where = f"{self.where}: tensor {name}"
        if proto.data_type not in KINDS:
            raise UnsupportedError(
                f"{name} has element type {proto.data_type}, which is not a plain number.",
                where=where,
                hint="Store weights as float, double, float16, bfloat16 or whole numbers.",
            )
        count = limits.sized(proto.dims, name, where)
        self.count += count
        limits.within(self.count, limits.WEIGHTS, "weights", where)
        kind = np.dtype(KINDS[proto.data_type])
        if proto.data_location == EXTERNAL:
            numbers = np.frombuffer(self._outside(proto, count * kind.itemsize, where), dtype=kind)
        elif proto.raw_data or not count:
            if len(proto.raw_data) != count * kind.itemsize:
                raise _damaged(f"{name} claims {count:,} elements and holds {len(proto.raw_data):,} bytes.", where)
            numbers = np.frombuffer(proto.raw_data, dtype=kind.newbyteorder("<"))
        else:
            numbers = self._listed(proto, count, kind, where)
        return _as_tensor(numbers, proto.data_type, list(proto.dims), name, where)

    @staticmethod
    def _listed(proto: Any, count: int, kind: np.dtype[Any], where: str) -> np.ndarray[Any, Any]:
        listed = getattr(proto, FIELDS.get(proto.data_type, "int32_data"))
        if len(listed) != count:
            raise _damaged(f"It claims {count:,} elements and holds {len(listed):,}.", where)
        if proto.data_type in (FLOAT16, BFLOAT16):
            bits = np.array(listed, dtype=np.int64)
            if bits.size and (bits.min() < 0 or bits.max() > 0xFFFF):
                raise _damaged("Its 16-bit floats are out of range.", where)
            return bits.astype(np.uint16).view(kind)
        with np.errstate(all="ignore"):
            return np.array(listed).astype(kind)

    def _outside(self, proto: Any, size: int, where: str) -> bytes:
        """Data from a neighbouring file: inside the model's folder, a regular file with one name, and no link."""
        entries = {e.key: e.value for e in proto.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            raise _damaged("It keeps data in another file, and only data inside the file is read here.", where)
        folder = self.folder.resolve()
        if not isinstance(location, str):
            raise _damaged("The name of the file with its data is not UTF-8 text.", where)
        parts = Path(location).parts
        if not location or "\0" in location or Path(location).is_absolute() or ".." in parts or "\\" in location:
            raise _damaged(f"Its data is said to be in {location[:80]!r}, outside of the model's folder.", where)
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(size)))
        except ValueError:
            raise _damaged("The place of its data is not a number.", where) from None
        if length != size or offset < 0:
            raise _damaged(f"It needs {size:,} bytes and names {length:,} from {offset:,} on.", where)
        try:
            path = folder
            for part in parts:
                path = path / part
                if path.is_symlink():
                    raise _damaged(f"Its data in {location[:80]!r} is behind a link.", where)
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(handle, "rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                    raise _damaged(f"{location[:80]!r} is not a plain file of its own.", where)
                if offset + length > facts.st_size:
                    raise _damaged(f"{location[:80]!r} ends before the data does.", where)
                file.seek(offset)
                return file.read(length)
        except OSError as problem:
            raise _damaged(f"{location[:80]!r} cannot be read: {problem.strerror}.", where) from problem


def _as_tensor(numbers: np.ndarray[Any, Any], kind: int, dims: list[int], name: str, where: str) -> Tensor:
    if kind == BFLOAT16:
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    if numbers.dtype.kind == "f":
        made = torch.from_numpy(numbers.astype(np.float64))
        if bool(torch.isnan(made).any()):
            raise NumberError(f"{name} holds NaN.", where=where, hint="Repair the weights.")
    elif numbers.dtype.kind == "b":
        made = torch.from_numpy(numbers.astype(np.bool_))
    else:
        made = torch.from_numpy(numbers.astype(np.int64))
    return made.reshape(dims)


def _damaged(problem: str, where: str) -> FileError:
    return FileError(problem, where=where, hint="The file is damaged, or made by something that breaks the format.")
