"""Lines in array files, read block by block: .npz, .npy and .safetensors."""

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
from .batch import Block
from .source import block_of

NAMES = ("starts", "ends")
HINT = "Give arrays starts and ends of shape (lines, *in) in a .npz or .safetensors, or one (lines, 2, *in) as .npy."
CHUNK = 1 << 22
LONGEST = 1 << 16  # bytes of an array's header


class Rows(Protocol):
    """An array whose rows are read one block after another."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, first: int, count: int) -> NDArray[Any]:
        """Some rows, those after the ones read before."""
        ...


class FileLines:
    """All lines of a file."""

    def __init__(self, path: Path, sides: tuple[list[Rows], list[Rows]], paired: bool = False) -> None:
        self.path, self.sides, self.paired = path, sides, paired
        every = [*sides[0], *sides[1]]
        if any(rows.dtype.kind not in "fiu" or not rows.shape for rows in every):
            raise FileError("The arrays do not hold lines of numbers.", where=str(path), hint=HINT)
        if len({rows.shape[0] for rows in every}) != 1 or len(sides[0]) != len(sides[1]):
            raise FileError("The arrays are not of the same number of lines.", where=str(path), hint=HINT)

    def __len__(self) -> int:
        return self.sides[0][0].shape[0]

    def shapes(self) -> list[tuple[int, ...]]:
        """Of one point of each input."""
        return [rows.shape[2 if self.paired else 1 :] for rows in self.sides[0]]

    def points(self) -> list[torch.Tensor]:
        """Points of the right shape, for a model that has to be captured."""
        shapes = self.shapes()
        if any(prod(shape) > CHUNK * 16 for shape in shapes):
            raise FileError("The points are too large.", where=str(self.path), hint=HINT)
        return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]

    def fits(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse a file whose points are not the network's; raises LineError."""
        for side in self.sides:
            found = [tuple(rows.shape[2 if self.paired else 1 :]) for rows in side]
            if found != [tuple(shape) for shape in shapes]:
                raise LineError(
                    f"The network takes points of shape {_said(shapes)}, the file has {_said(found)}.",
                    where=str(self.path),
                    hint=HINT,
                )

    def blocks(self, size: int) -> Iterator[Block]:
        """Blocks of so many lines."""
        for first in range(0, len(self), size):
            count = min(size, len(self) - first)
            if self.paired:
                both = self.sides[0][0].read(first, count).astype(np.float64)
                yield block_of(first, (_own(both[:, 0]),), (_own(both[:, 1]),))
            else:
                starts, ends = (tuple(_own(r.read(first, count)) for r in side) for side in self.sides)
                yield block_of(first, starts, ends)

    def fingerprint(self) -> str:
        """A checksum of the whole file."""
        total = 0
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                total = zlib.crc32(chunk, total)
        return f"{total:08x}"


def file_lines(path: Path) -> FileLines:
    """The lines of a file, by its ending; nothing but headers is read yet.

    Raises FileError.
    """
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileError(f"Lines are read from {', '.join(readers)}.", where=str(path), hint=HINT)
    try:
        return reader(path)
    except OSError as problem:
        reason = problem.strerror or problem
        raise FileError(f"The file cannot be read: {reason}.", where=str(path), hint=HINT) from problem
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as problem:
        raise FileError(f"The file holds no lines: {problem}", where=str(path), hint=HINT) from problem


def _npy(path: Path) -> FileLines:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim < 2 or array.shape[1] != 2:
        raise ValueError(f"its shape is {array.shape}, not (lines, 2, *in)")
    rows: list[Rows] = [_Mapped(array)]
    return FileLines(path, (rows, rows), paired=True)


def _npz(path: Path) -> FileLines:
    stack = ExitStack()
    archive = stack.enter_context(zipfile.ZipFile(path))
    names = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
    found = [[_Stream(archive.open(f"{key}.npy"), path) for key in _keys(names, side)] for side in NAMES]
    return FileLines(path, (list[Rows](found[0]), list[Rows](found[1])))


def _safetensors(path: Path) -> FileLines:
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, framework="numpy")
        keys = set(file.keys())
        found = [[_Sliced(file.get_slice(key)) for key in _keys(keys, side)] for side in NAMES]
    except SafetensorError as problem:
        raise ValueError(problem) from problem
    return FileLines(path, (list[Rows](found[0]), list[Rows](found[1])))


def _keys(names: set[str], side: str) -> list[str]:
    """The arrays of one side: starts, or starts.0, starts.1 and so on for several inputs."""
    if side in names:
        return [side]
    count = sum(name.startswith(f"{side}.") for name in names)
    wanted = [f"{side}.{k}" for k in range(count)]
    if not wanted or not names.issuperset(wanted):
        raise KeyError(f"there is no array {side!r}; the file has {', '.join(sorted(names)[:8]) or 'none'}")
    return wanted


def _own(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.array(array, dtype=np.float64, order="C")


def _said(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(tuple(shape)) for shape in shapes)


class _Mapped:
    """An array on the disk."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def read(self, first: int, count: int) -> NDArray[Any]:
        return self.array[first : first + count]


class _Sliced:
    """A tensor of a safetensors file."""

    def __init__(self, piece: Any) -> None:
        self.piece, self.shape = piece, tuple(piece.get_shape())
        kinds = {"F": "f", "I": "i", "U": "u"}
        kind, bits = piece.get_dtype()[:1], piece.get_dtype()[1:]
        if kind not in kinds or not bits.isdigit():
            raise ValueError(f"numbers of type {piece.get_dtype()} are not read")
        self.dtype = np.dtype(f"{kinds[kind]}{int(bits) // 8}")

    def read(self, first: int, count: int) -> NDArray[Any]:
        return self.piece[first : first + count]


class _Stream:
    """An array inside a zip, which can only be read from its beginning to its end."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file, max_header_size=LONGEST)
        else:
            header = np.lib.format.read_array_header_2_0(file, max_header_size=LONGEST)
        self.shape, columns_first, self.dtype = header
        if columns_first and len(self.shape) > 1:
            raise ValueError("its arrays are in Fortran's order; np.ascontiguousarray makes them readable")
        if self.dtype.hasobject:
            raise ValueError("its arrays hold objects, not numbers")

    def read(self, first: int, count: int) -> NDArray[Any]:
        size = count * prod(self.shape[1:]) * self.dtype.itemsize
        try:
            data = self.file.read(size)
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
            raise FileError(f"The file is damaged: {problem}", where=str(self.path), hint=HINT) from problem
        if len(data) != size:
            raise FileError(f"The file ends within line {first:,} or soon after.", where=str(self.path), hint=HINT)
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])
