"""Read a point from numbers on the command line, or from a .npy, .npz, .csv, .png or .jpg file."""

from __future__ import annotations

import csv
import io
import re
import warnings
import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ExactlineError, FileError, LineError
from ..optional import require_package
from . import limits
from .open_file import read_file

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = NDArray[Any]

MAX_NPZ_ARRAYS = 1000  # in one .npz
MAX_ARRAY_BYTES = 8 * limits.MAX_VALUE_ELEMENTS + (1 << 16)  # of one array with its header
MAX_CSV_BYTES = 64 << 20  # of a .csv
MAX_UNCHECKED_BYTES = 1 << 20  # of an unpacked array whose compression ratio does not matter
MAX_COMPRESSION_RATIO = 200  # unpacked bytes for each packed byte of a larger array
MAX_IMAGE_PIXELS = limits.MAX_VALUE_ELEMENTS  # of an image
POINT_HINT = "Give numbers (20,30), or a file: .npy, .npz:key, .csv, .csv:row, .png or .jpg."
FILE_PATTERN = re.compile(
    r"(?P<path>.*\.(?P<ending>npy|npz|csv|png|jpg|jpeg))(?::(?P<part>[^:]*))?", re.IGNORECASE | re.DOTALL
)


def read_point(text: str, shape: Shape, where: str = "point") -> NDArray[np.float64]:
    """Read a point from numbers or from a file.

    Args:
        text: numbers separated by commas, or the name of a .npy, .npz, .csv, .png or .jpg file. ``file.npz:key`` is one
            array of a file and ``file.csv:row`` one row. Images are resized to (C, H, W) and scaled to [0, 1].
        shape: the network's input shape, to which the point is reshaped.
        where: what the point is for, for error messages.

    >>> read_point("1,-2,3,4", (2, 2))
    array([[ 1., -2.],
           [ 3.,  4.]])

    Raises LineError where the numbers do not fit, FileError for unreadable files, MissingError without Pillow.
    """
    if match := FILE_PATTERN.fullmatch(text):
        ending, part = match["ending"].lower(), match["part"]
        if ending not in ("npz", "csv") and part is not None:
            raise LineError(f"A .{ending} file has no parts to choose from.", where=f"{where} {text}", hint=POINT_HINT)
        values = _READERS[ending](Path(match["path"]), part, shape)
    else:
        values = _parse_inline(text, where)
    return _fit_to_shape(values, shape, f"{where} {text}" if match else where)


def read_array(path: Path, key: str | None = None) -> Array:
    """Read a .npy file, or one array of a .npz; raises FileError for a damaged file, LineError for a missing array."""
    return _read_npz(path, key, ()) if path.suffix.lower() == ".npz" else _read_npy(path, None, ())


def _parse_inline(text: str, where: str) -> Array:
    try:
        return np.array([float(number) for number in text.split(",")])
    except ValueError as problem:
        short = text if len(text) <= 60 else f"{text[:60]}..."
        raise LineError(
            f"{short!r} is neither a list of numbers nor a known type of file.", where=where, hint=POINT_HINT
        ) from problem


def _fit_to_shape(values: Array, shape: Shape, where: str) -> NDArray[np.float64]:
    """Reshape an array to the network's shape; raises LineError unless it holds that many real, finite numbers."""
    if values.dtype.kind not in "fiu":
        raise LineError(
            f"The point has type {values.dtype}, which does not hold real numbers.",
            where=where,
            hint="Give real numbers.",
        )
    if values.size != prod(shape):
        raise LineError(
            f"The network takes points of shape {shape}, the point has shape {values.shape}.",
            where=where,
            hint=f"Give {prod(shape):,} numbers.",
        )
    with np.errstate(over="ignore"):
        point = values.astype(np.float64).reshape(shape)
    if not np.isfinite(point).all():
        raise LineError("The point holds NaN or infinite numbers.", where=where, hint="Give finite points.")
    if values.dtype.kind in "iu" and np.abs(point).max(initial=0) > 2**53:
        raise LineError("The point holds integers that float64 cannot hold.", where=where, hint="Stay below 2**53.")
    return point


def _read_npy(path: Path, part: str | None, shape: Shape) -> Array:
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


def _read_npz(path: Path, part: str | None, shape: Shape) -> Array:
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


def _read_csv(path: Path, part: str | None, shape: Shape) -> Array:
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


def _read_image(path: Path, part: str | None, shape: Shape) -> Array:
    """Read an image in the network's shape, with values from 0 (black) to 1."""
    with require_package("Images need Pillow.", where=str(path), hint='pip install "exactline[plot]", which brings it'):
        from PIL import Image

    data = read_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        limits.check_limit(image.width * image.height, MAX_IMAGE_PIXELS, "pixels", str(path))
        channels, height, width, order = _choose_image_layout(shape, (image.height, image.width), str(path))
        return _convert_pixels(image, channels, height, width).transpose(order)
    except ExactlineError:
        raise
    except Exception as problem:  # Pillow's decoders raise many types of errors
        raise FileError(
            f"The image cannot be read: {problem}.", where=str(path), hint="Give a .png or .jpg."
        ) from problem


def _choose_image_layout(shape: Shape, size: tuple[int, int], where: str) -> tuple[int, int, int, tuple[int, ...]]:
    """The channels, height and width that fit a network's shape, and the permutation from (C, H, W) to it."""
    dims = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    for channels in (1, 3, 4):
        if prod(shape) == max(shape, default=1) == channels * prod(size):  # a vector, possibly as a row or a column
            return (channels, *size, (0, 1, 2))
    if len(dims) == 3 and dims[0] in (1, 3, 4):
        return (*dims, (0, 1, 2))
    if len(dims) == 3 and dims[2] in (1, 3, 4):
        return (dims[2], *dims[:2], (1, 2, 0))
    if len(dims) == 2 and min(dims) > 1:
        return (1, *dims, (0, 1, 2))
    raise LineError(
        f"An image of {size[0]} by {size[1]} pixels does not fit a network that takes points of shape {shape}.",
        where=where,
        hint="Images fit shapes (C, H, W) with 1, 3 or 4 channels, and vectors with one number for each pixel.",
    )


def _convert_pixels(image: Any, channels: int, height: int, width: int) -> Array:  # (C, H, W)
    """Resize an image and convert it to an array (C, H, W) with values from 0 to 1."""
    from PIL import Image

    has_16_bits = channels == 1 and image.mode.startswith("I")
    converted = image if has_16_bits else image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    if converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(converted, dtype=np.float64) / (65535 if has_16_bits else 255)
    return np.moveaxis(values.reshape(height, width, channels), 2, 0)


_READERS: dict[str, Callable[[Path, str | None, Shape], Array]] = {
    "npy": _read_npy,
    "npz": _read_npz,
    "csv": _read_csv,
    "png": _read_image,
    "jpg": _read_image,
    "jpeg": _read_image,
}
