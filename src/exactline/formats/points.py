"""Points as people write them: numbers inline, or a .npy, .npz, .csv, .png or .jpg file."""

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
from .open_file import opened

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = NDArray[Any]

MEMBERS = 1000  # arrays in a .npz
BYTES = 8 * limits.WIDTH + (1 << 16)  # of one array with its header
CSV = 64 << 20  # bytes of a .csv
SMALL, RATIO = 1 << 20, 200  # a packed array larger than SMALL may unpack to RATIO times its size
PIXELS = limits.WIDTH  # of an image
FORMS = "Give numbers (20,30), or a file: .npy, .npz:key, .csv, .csv:row, .png or .jpg."
FILE = re.compile(r"(?P<path>.*\.(?P<ending>npy|npz|csv|png|jpg|jpeg))(?::(?P<part>[^:]*))?", re.IGNORECASE | re.DOTALL)


def read_point(text: str, shape: Shape, where: str = "point") -> NDArray[np.float64]:
    """A point in the network's input ``shape``, out of numbers or a file.

    Points whose count fits are reshaped; images are resized to the network's (C, H, W) and scaled to [0, 1].

    >>> read_point("1,-2,3,4", (2, 2))
    array([[ 1., -2.],
           [ 3.,  4.]])

    Raises LineError where the numbers do not fit, FileError for unreadable files, MissingError without Pillow.
    """
    if found := FILE.fullmatch(text):
        ending, part = found["ending"].lower(), found["part"]
        if ending not in ("npz", "csv") and part is not None:
            raise LineError(f"A .{ending} file has no parts to choose from.", where=f"{where} {text}", hint=FORMS)
        values = _READERS[ending](Path(found["path"]), part, shape)
    else:
        values = _inline(text, where)
    return _fitted(values, shape, f"{where} {text}" if found else where)


def read_array(path: Path, key: str | None = None) -> Array:
    """All numbers of a .npy file, or of one array of a .npz, read as carefully as points are."""
    return _npz(path, key, ()) if path.suffix.lower() == ".npz" else _npy(path, None, ())


def _inline(text: str, where: str) -> Array:
    try:
        return np.array([float(number) for number in text.split(",")])
    except ValueError as problem:
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise LineError(f"{shown!r} is neither numbers nor a file we know.", where=where, hint=FORMS) from problem


def _fitted(values: Array, shape: Shape, where: str) -> NDArray[np.float64]:
    """Real, finite numbers in the network's shape."""
    if values.dtype.kind not in "fiu":
        raise LineError(f"The point is of type {values.dtype}.", where=where, hint="Give real numbers.")
    if values.size != prod(shape):
        raise LineError(
            f"The network takes points of shape {shape}, the point has shape {values.shape}.",
            where=where,
            hint=f"Give {prod(shape):,} numbers.",
        )
    with np.errstate(over="ignore"):
        found = values.astype(np.float64).reshape(shape)
    if not np.isfinite(found).all():
        raise LineError("The point holds NaN or infinite numbers.", where=where, hint="Give finite points.")
    if values.dtype.kind in "iu" and np.abs(found).max(initial=0) > 2**53:
        raise LineError("The point holds integers that float64 cannot hold.", where=where, hint="Stay below 2**53.")
    return found


def _npy(path: Path, part: str | None, shape: Shape) -> Array:
    return _array(opened(path), str(path))


def _array(data: bytes, where: str) -> Array:
    """An array from the bytes of a .npy file, whose header is believed only where it fits the bytes that follow."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format is not read")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        dims, _, dtype = read(file)
        limits.sized(dims, "a point", where, limits.WIDTH)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not opened")
        if prod(dims) * dtype.itemsize != len(data) - file.tell():
            raise ValueError("it is longer or shorter than its header says")
        return np.load(io.BytesIO(data), allow_pickle=False)
    except FileError:
        raise
    except Exception as problem:  # the header is a Python literal: what can be wrong with it has many types
        raise FileError(
            f"The file is not a .npy array that we read: {problem}.",
            where=where,
            hint="Write it with np.save; give plain numbers.",
        ) from problem


def _npz(path: Path, part: str | None, shape: Shape) -> Array:
    """One array of a .npz, whose sizes are checked before anything is unpacked."""
    data = opened(path)
    where = f"{path}:{part}" if part else str(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as box:
            member = _member(box, part, where)
            _measured(member, where)
            with box.open(member) as file:
                return _array(file.read(BYTES + 1), where)
    except ExactlineError:
        raise
    except Exception as problem:  # damaged archives fail in as many ways as there are parts of one
        raise FileError(f"The .npz is damaged: {problem}.", where=where, hint="Write it with np.savez.") from problem


def _member(box: zipfile.ZipFile, key: str | None, where: str) -> zipfile.ZipInfo:
    members = box.infolist()
    limits.within(len(members), MEMBERS, "arrays", where)
    named = {m.filename.removesuffix(".npy"): m for m in members}
    if key is None and len(named) == 1:
        return next(iter(named.values()))
    if key not in named:
        names = ", ".join(sorted(named)[:20]) or "none"
        problem = "Which array of the file is meant?" if key is None else f"There is no array {key!r} in the file."
        raise LineError(problem, where=where, hint=f"Give file.npz:key with one of: {names}.")
    return named[key]


def _measured(member: zipfile.ZipInfo, where: str) -> None:
    limits.within(member.file_size, BYTES, "unpacked bytes", where)
    if member.file_size > max(SMALL, RATIO * member.compress_size):
        raise FileError(
            f"The array is packed suspiciously tightly: {member.compress_size:,} bytes for {member.file_size:,}.",
            where=where,
            hint="Write it with np.savez, which does not pack.",
        )


def _csv(path: Path, part: str | None, shape: Shape) -> Array:
    """A row of a .csv, counted from 0; a first row without any number is a heading."""
    where = str(path)
    row = int(part) if part and part.isascii() and part.isdigit() and len(part) < 10 else None
    if part is not None and row is None:
        raise LineError(f"{part!r} is not the number of a row.", where=where, hint="Count rows from 0: file.csv:0.")
    data = opened(path)
    limits.within(len(data), CSV, "bytes", where)
    try:
        cells = _row(data.decode("utf-8-sig"), row or 0)
        if cells is None:
            raise LineError(f"There is no row {row or 0}.", where=where, hint="Count rows from 0.")
        return np.array([float(cell) for cell in cells])
    except (ValueError, csv.Error) as problem:
        raise FileError(f"The row is not numbers: {problem}.", where=where, hint="Part numbers by commas.") from problem


def _row(text: str, row: int) -> list[str] | None:
    rows = (cells for cells in csv.reader(io.StringIO(text, newline="")) if any(cell.strip() for cell in cells))
    for count, cells in enumerate(rows):
        if count == 0 and not any(map(is_number, cells)):
            row += 1
        elif count == row:
            return cells
    return None


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _image(path: Path, part: str | None, shape: Shape) -> Array:
    """An image in the network's shape, from 0 (black) to 1."""
    with require_package("Images need Pillow.", where=str(path), hint='pip install "exactline[plot]", which brings it'):
        from PIL import Image

    data = opened(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        limits.within(image.width * image.height, PIXELS, "pixels", str(path))
        channels, height, width, order = _frame(shape, (image.height, image.width), str(path))
        return _pixels(image, channels, height, width).transpose(order)
    except ExactlineError:
        raise
    except Exception as problem:  # Pillow's decoders fail with errors of many types
        raise FileError(
            f"The image cannot be read: {problem}.", where=str(path), hint="Give a .png or .jpg."
        ) from problem


def _frame(shape: Shape, size: tuple[int, int], where: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Channels, height and width that a network's shape asks for, and the order of its dims out of (C, H, W)."""
    dims = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    for channels in (1, 3, 4):
        if prod(shape) == max(shape, default=1) == channels * prod(size):  # a vector, maybe as a row or a column
            return (channels, *size, (0, 1, 2))
    if len(dims) == 3 and dims[0] in (1, 3, 4):
        return (*dims, (0, 1, 2))
    if len(dims) == 3 and dims[2] in (1, 3, 4):
        return (dims[2], *dims[:2], (1, 2, 0))
    if len(dims) == 2 and min(dims) > 1:
        return (1, *dims, (0, 1, 2))
    raise LineError(
        f"The network takes points of shape {shape}, which an image of {size[0]} by {size[1]} pixels does not fit.",
        where=where,
        hint="Images fit networks of shape (C, H, W) with 1, 3 or 4 channels, or as many numbers as pixels.",
    )


def _pixels(image: Any, channels: int, height: int, width: int) -> Array:  # (C, H, W)
    """An image with so many channels and pixels, from 0 to 1."""
    from PIL import Image

    deep = channels == 1 and image.mode.startswith("I")  # 16 bits
    plain = image if deep else image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    if plain.size != (width, height):
        plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(plain, dtype=np.float64) / (65535 if deep else 255)
    return np.moveaxis(values.reshape(height, width, channels), 2, 0)


_READERS: dict[str, Callable[[Path, str | None, Shape], Array]] = {
    "npy": _npy,
    "npz": _npz,
    "csv": _csv,
    "png": _image,
    "jpg": _image,
    "jpeg": _image,
}
