"""Read a point from numbers, or from a .npy, .npz, .csv, .png or .jpg file."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ExactlineError, FileError, LineError
from . import limits
from .open_file import read_file
from .points_convert import Array, ConvertedPoint, PointOptions, Shape, fit_array
from .points_image import read_image

IMAGE_SUFFIXES = ("png", "jpg", "jpeg")
MAX_NPZ_ARRAYS = 1000  # in one .npz
MAX_ARRAY_BYTES = 8 * limits.MAX_VALUE_ELEMENTS + (1 << 16)  # of one array with its header
MAX_CSV_BYTES = 64 << 20  # of a .csv
MAX_UNCHECKED_BYTES = 1 << 20  # of an unpacked array whose compression ratio does not matter
MAX_COMPRESSION_RATIO = 200  # unpacked bytes for each packed byte of a larger array
POINT_HINT = "Give numbers (20,30), or a file: .npy, .npz:key, .csv, .csv:row, .png or .jpg."
FILE_PATTERN = re.compile(
    r"(?P<path>.*\.(?P<ending>npy|npz|csv|png|jpg|jpeg))(?::(?P<part>[^:]*))?", re.IGNORECASE | re.DOTALL
)


# how the conversions of an image begin that no option has asked for
UNASKED_CONVERSIONS = ("recoloured", "rotated", "mirrored", "taken from", "reduced", "made opaque")


class ConversionWarning(UserWarning):
    """An image was resized or recoloured to fit a network without being asked for."""


def read_point(
    text: str | os.PathLike[str],
    shape: Sequence[int],
    where: str = "point",
    *,
    resize: bool = False,
    layout: str | None = None,
    scale: float | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> NDArray[np.float64]:
    """Read a point from numbers or from a file, in the input shape of a network.

    Images are recoloured, resized and scaled to [0, 1], with a warning for the first two. Arrays are taken as they
    are: another layout or size, or pixels of 0 to 255, are refused unless an argument says what is meant.

    Args:
        text: Numbers separated by commas, or the name of a .npy, .npz, .csv, .png or .jpg file. ``file.npz:key`` is one
            array of a file and ``file.csv:row`` one row.
        shape: The network's input shape.
        where: What the point is for, for error messages.
        resize: Resize an array that is an image of another size.
        layout: The order of an array's dims: "chw" or "hwc", which is turned into the network's; or "flat" to take its
            numbers in their order whatever its shape.
        scale: Divides all numbers: 255 for pixels of a network that takes 0 to 1; 1 takes them as they are. Images are
            divided by 255 by default, 16-bit ones by 65535.
        mean: Subtracted after the scale; one number, or one for each channel.
        std: Divides after the mean; one number, or one for each channel.

    >>> read_point("1,-2,3,4", (2, 2))
    array([[ 1., -2.],
           [ 3.,  4.]])
    >>> read_point("0,51,255", (3, 1, 1), scale=255, mean=[0.5, 0.5, 0.5], std=0.5).ravel()
    array([-1. , -0.6,  1. ])

    Raises LineError where the numbers do not fit, ArgumentError for invalid options, FileError for unreadable files,
    MissingError without Pillow.
    """
    options = PointOptions.check(resize=resize, layout=layout, scale=scale, mean=mean, std=std)
    point = convert_point(os.fspath(text), tuple(shape), options, where)
    wanted = UNASKED_CONVERSIONS if resize else (*UNASKED_CONVERSIONS, "resized")
    for conversion in point.conversions:
        if conversion.startswith(wanted):
            warnings.warn(f"{os.fspath(text)}: {conversion}", ConversionWarning, stacklevel=2)
    return point.values


def convert_point(text: str, shape: Shape, options: PointOptions, where: str) -> ConvertedPoint:
    """Read a point as `read_point` does, with a list of its conversions instead of warnings."""
    match = FILE_PATTERN.fullmatch(text)
    if match is None:
        return fit_array(_parse_inline(text, where), shape, options, where)
    ending, part = match["ending"].lower(), match["part"]
    if ending not in ("npz", "csv") and part is not None:
        raise LineError(f"A .{ending} file has no parts to choose from.", where=f"{where} {text}", hint=POINT_HINT)
    if ending in IMAGE_SUFFIXES:
        return read_image(Path(match["path"]), shape, options)
    return fit_array(_READERS[ending](Path(match["path"]), part), shape, options, f"{where} {text}")


def read_array(path: Path, key: str | None = None) -> Array:
    """Read a .npy file, or one array of a .npz; raises FileError for a damaged file, LineError for a missing array."""
    return _read_npz(path, key) if path.suffix.lower() == ".npz" else _read_npy(path, None)


def _parse_inline(text: str, where: str) -> Array:
    try:
        return np.array([float(number) for number in text.split(",")])
    except ValueError as problem:
        short = text if len(text) <= 60 else f"{text[:60]}..."
        raise LineError(
            f"{short!r} is neither a list of numbers nor a known type of file.", where=where, hint=POINT_HINT
        ) from problem


def _read_npy(path: Path, part: str | None) -> Array:
    return _parse_npy(read_file(path), str(path))


def _parse_npy(data: bytes, where: str) -> Array:
    """Parse the bytes of a .npy file, after checking that its header fits the data that follows."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format is not supported")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        dims, _, dtype = read(file)
        limits.count_elements(dims, "a point", where, limits.MAX_VALUE_ELEMENTS)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not opened")
        if prod(dims) * dtype.itemsize != len(data) - file.tell():
            raise ValueError("it is longer or shorter than its header says")
        return np.load(io.BytesIO(data), allow_pickle=False)
    except FileError:
        raise
    except Exception as problem:  # the header is a Python literal, and numpy raises many types of errors for it
        raise FileError(
            f"The file is not a readable .npy array: {problem}.",
            where=where,
            hint="Write it with np.save, from an array of plain numbers.",
        ) from problem


def _read_npz(path: Path, part: str | None) -> Array:
    """Read one array of a .npz; sizes are checked before anything is unpacked."""
    data = read_file(path)
    where = f"{path}:{part}" if part else str(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = _find_member(archive, part, where)
            _check_compression(member, where)
            with archive.open(member) as file:
                return _parse_npy(file.read(MAX_ARRAY_BYTES + 1), where)
    except ExactlineError:
        raise
    except Exception as problem:  # zipfile raises many types of errors for a damaged archive
        raise FileError(f"The .npz is damaged: {problem}.", where=where, hint="Write it with np.savez.") from problem


def _find_member(archive: zipfile.ZipFile, key: str | None, where: str) -> zipfile.ZipInfo:
    """The array of a .npz with this name; without a name, the only array."""
    members = archive.infolist()
    limits.check_limit(len(members), MAX_NPZ_ARRAYS, "arrays", where)
    arrays = {m.filename.removesuffix(".npy"): m for m in members}
    if key is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    if key not in arrays:
        names = ", ".join(sorted(arrays)[:20]) or "none"
        problem = "The file does not have exactly one array." if key is None else f"The file has no array {key!r}."
        raise LineError(problem, where=where, hint=f"Give file.npz:key with one of: {names}.")
    return arrays[key]


def _check_compression(member: zipfile.ZipInfo, where: str) -> None:
    """Raise FileError for an array that would unpack to too many bytes."""
    limits.check_limit(member.file_size, MAX_ARRAY_BYTES, "unpacked bytes", where)
    if member.file_size > max(MAX_UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * member.compress_size):
        raise FileError(
            f"The compression is suspiciously strong: {member.compress_size:,} bytes for {member.file_size:,}.",
            where=where,
            hint="Write it with np.savez, which does not compress.",
        )


def _read_csv(path: Path, part: str | None) -> Array:
    """Read a row of a .csv, counted from 0; a first row without any number is a header."""
    where = str(path)
    row = int(part) if part and part.isascii() and part.isdigit() and len(part) < 10 else None
    if part is not None and row is None:
        raise LineError(f"{part!r} is not the number of a row.", where=where, hint="Count rows from 0: file.csv:0.")
    data = read_file(path)
    limits.check_limit(len(data), MAX_CSV_BYTES, "bytes", where)
    try:
        cells = _select_row(data.decode("utf-8-sig"), row or 0)
        if cells is None:
            raise LineError(f"There is no row {row or 0}.", where=where, hint="Count rows from 0.")
        return np.array([float(cell) for cell in cells])
    except (ValueError, csv.Error) as problem:
        raise FileError(
            f"The row does not consist of numbers: {problem}.", where=where, hint="Separate numbers by commas."
        ) from problem


def _select_row(text: str, row: int) -> list[str] | None:
    """The cells of a row after the header, without counting empty rows; None at the end."""
    rows = (cells for cells in csv.reader(io.StringIO(text, newline="")) if any(cell.strip() for cell in cells))
    for count, cells in enumerate(rows):
        if count == 0 and not any(map(is_number, cells)):
            row += 1
        elif count == row:
            return cells
    return None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


_READERS: dict[str, Callable[[Path, str | None], Array]] = {"npy": _read_npy, "npz": _read_npz, "csv": _read_csv}
