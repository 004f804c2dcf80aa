"""Lines from array files, read batch by batch: .npz, .npy and .safetensors."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import FileError, LineError
from .batch import LineBatch
from .checksums import file_crc
from .line_pairs import make_batch

SIDES = ("starts", "ends")
FORMAT_HINT = (
    "Give arrays starts and ends of shape (lines, *in) in a .npz or .safetensors, or one (lines, 2, *in) as .npy."
)
MAX_POINT_NUMBERS = 1 << 26  # numbers in one point
MAX_HEADER_BYTES = 1 << 16  # of an array in a .npz
MAX_NAMED_ARRAYS = 8  # in an error message


class RowReader(Protocol):
    """An array whose rows are read in order, some at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, first: int, count: int) -> NDArray[Any]:
        """The rows from ``first`` on; the caller has read all rows before."""
        ...


class FileLines:
    """All lines of a file."""

    def __init__(self, path: Path, sides: tuple[list[RowReader], list[RowReader]], is_paired: bool = False) -> None:
        self.path, self.sides, self.is_paired = path, sides, is_paired
        readers = [*sides[0], *sides[1]]
        if any(reader.dtype.kind not in "fiu" or not reader.shape for reader in readers):
            raise FileError("The arrays do not hold lines of numbers.", where=str(path), hint=FORMAT_HINT)
        if len({reader.shape[0] for reader in readers}) != 1 or len(sides[0]) != len(sides[1]):
            raise FileError("The arrays are not of the same number of lines.", where=str(path), hint=FORMAT_HINT)

    def __len__(self) -> int:
        return self.sides[0][0].shape[0]

    def _point_shapes(self, side: list[RowReader]) -> list[tuple[int, ...]]:
        return [tuple(reader.shape[2 if self.is_paired else 1 :]) for reader in side]

    def example_points(self) -> list[torch.Tensor]:
        """Points of the right shape, for a model that has to be captured."""
        shapes = self._point_shapes(self.sides[0])
        if any(prod(shape) > MAX_POINT_NUMBERS for shape in shapes):
            raise FileError("The points are too large.", where=str(self.path), hint=FORMAT_HINT)
        return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]

    def check_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse a file whose points do not fit the network; raises LineError."""
        for side in self.sides:
            found = self._point_shapes(side)
            if found != [tuple(shape) for shape in shapes]:
                raise LineError(
                    f"The network takes points of shape {_join_shapes(shapes)}, the file has {_join_shapes(found)}.",
                    where=str(self.path),
                    hint=FORMAT_HINT,
                )

    def batches(self, size: int) -> Iterator[LineBatch]:
        """Batches of ``size`` lines."""
        for first in range(0, len(self), size):
            count = min(size, len(self) - first)
            if self.is_paired:
                both = self.sides[0][0].read(first, count).astype(np.float64)
                yield make_batch(first, (_copy_floats(both[:, 0]),), (_copy_floats(both[:, 1]),))
            else:
                starts, ends = (tuple(_copy_floats(r.read(first, count)) for r in side) for side in self.sides)
                yield make_batch(first, starts, ends)

    def checksum(self) -> str:
        """A checksum of the whole file."""
        return f"{file_crc(self.path):08x}"


def open_line_file(path: Path) -> FileLines:
    """The lines of a file, in the format of its ending; only headers are read yet.

    Raises FileError.
    """
    openers = {".npz": _open_npz, ".npy": _open_npy, ".safetensors": _open_safetensors}
    opener = openers.get(path.suffix.lower())
    if opener is None:
        raise FileError(f"Lines are read from {', '.join(openers)}.", where=str(path), hint=FORMAT_HINT)
    try:
        return opener(path)
    except OSError as problem:
        reason = problem.strerror or problem
        raise FileError(f"The file cannot be read: {reason}.", where=str(path), hint=FORMAT_HINT) from problem
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as problem:
        raise FileError(f"The file holds no lines: {problem}", where=str(path), hint=FORMAT_HINT) from problem


def _open_npy(path: Path) -> FileLines:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim < 2 or array.shape[1] != 2:
        raise ValueError(f"its shape is {array.shape}, not (lines, 2, *in)")
    readers: list[RowReader] = [_NpyRows(array)]
    return FileLines(path, (readers, readers), is_paired=True)


def _open_npz(path: Path) -> FileLines:
    stack = ExitStack()
    archive = stack.enter_context(zipfile.ZipFile(path))
    names = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
    starts, ends = (
        [_NpzRows(archive.open(f"{name}.npy"), path) for name in _array_names(names, side)] for side in SIDES
    )
    return FileLines(path, (list[RowReader](starts), list[RowReader](ends)))


def _open_safetensors(path: Path) -> FileLines:
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, framework="numpy")
        names = set(file.keys())
        starts, ends = ([_SafetensorsRows(file.get_slice(n)) for n in _array_names(names, side)] for side in SIDES)
    except SafetensorError as problem:
        raise ValueError(problem) from problem
    return FileLines(path, (list[RowReader](starts), list[RowReader](ends)))


def _array_names(names: set[str], side: str) -> list[str]:
    """The arrays of one side: starts, or starts.0, starts.1 and so on for several inputs."""
    if side in names:
        return [side]
    count = sum(name.startswith(f"{side}.") for name in names)
    wanted = [f"{side}.{k}" for k in range(count)]
    if not wanted or not names.issuperset(wanted):
        shown = ", ".join(sorted(names)[:MAX_NAMED_ARRAYS]) or "none"
        raise KeyError(f"there is no array {side!r}; the file has {shown}")
    return wanted


def _copy_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.array(array, dtype=np.float64, order="C")


def _join_shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(tuple(shape)) for shape in shapes)


class _NpyRows:
    """Rows of a memory-mapped .npy file."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def read(self, first: int, count: int) -> NDArray[Any]:
        return self.array[first : first + count]


class _SafetensorsRows:
    """Rows of a tensor in a safetensors file."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.shape = tensor, tuple(tensor.get_shape())
        kinds = {"F": "f", "I": "i", "U": "u"}
        kind, bits = tensor.get_dtype()[:1], tensor.get_dtype()[1:]
        if kind not in kinds or not bits.isdigit():
            raise ValueError(f"numbers of type {tensor.get_dtype()} are not read")
        self.dtype = np.dtype(f"{kinds[kind]}{int(bits) // 8}")

    def read(self, first: int, count: int) -> NDArray[Any]:
        return self.tensor[first : first + count]


class _NpzRows:
    """Rows of an array in a zip file, which can only be read from beginning to end."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file, max_header_size=MAX_HEADER_BYTES)
        else:
            header = np.lib.format.read_array_header_2_0(file, max_header_size=MAX_HEADER_BYTES)
        self.shape, is_fortran, self.dtype = header
        if is_fortran and len(self.shape) > 1:
            raise ValueError("its arrays are in Fortran's order; np.ascontiguousarray makes them readable")
        if self.dtype.hasobject:
            raise ValueError("its arrays hold objects, not numbers")

    def read(self, first: int, count: int) -> NDArray[Any]:
        size = count * prod(self.shape[1:]) * self.dtype.itemsize
        try:
            data = self.file.read(size)
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
            raise FileError(f"The file is damaged: {problem}", where=str(self.path), hint=FORMAT_HINT) from problem
        if len(data) != size:
            raise FileError(
                f"The file ends within line {first:,} or soon after.", where=str(self.path), hint=FORMAT_HINT
            )
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])
