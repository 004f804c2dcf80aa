"""Read images with their labels from a .npz, .npy or .csv file."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError, FileError, LineError
from . import limits
from .open_file import read_file
from .points import MAX_CSV_BYTES, read_array
from .points_convert import drop_ones

IMAGES_HINT = (
    "Give a .npz with arrays images (n, *in) and labels (n,), a .npy of images, or a .csv with one image in each row."
)


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images in the input shape of a network, with their classes if they are known."""

    name: str  # of the file
    points: Floats  # (n, *in)
    labels: tuple[int, ...] | None  # one class for each image

    def __len__(self) -> int:
        return len(self.points)

    def take(self, count: int) -> LabelledImages:
        """The first ``count`` images."""
        return LabelledImages(self.name, self.points[:count], None if self.labels is None else self.labels[:count])

    def digest(self, index: int) -> str:
        """The SHA-256 of one image and its label."""
        label = "none" if self.labels is None else str(self.labels[index])
        return sha256(self.points[index].tobytes() + label.encode()).hexdigest()


def make_labelled_images(name: str, images: Any, labels: Any, shape: tuple[int, ...], where: str) -> LabelledImages:
    """Check arrays of images and labels, and reshape the images to a network's input shape.

    Args:
        name: for the images as a whole.
        images: an array (n, ...) of real numbers.
        labels: an array (n,) of whole numbers, or None.
        shape: of one input point of the network.
        where: where the arrays come from, for error messages.

    >>> make_labelled_images("zeros", np.zeros((3, 4)), [0, 1, 1], (2, 2), "an example").points.shape
    (3, 2, 2)

    Raises LineError where an array does not fit or holds numbers that are not finite.
    """
    array = np.asarray(images)
    size = prod(shape)
    if array.dtype.kind not in "fiu" or array.ndim < 1 or not len(array) or array.size != len(array) * size:
        raise LineError(
            f"The network takes points of shape {shape}; the images have shape {array.shape} and type {array.dtype}.",
            where=where,
            hint=IMAGES_HINT,
        )
    dims, expected = drop_ones(array.shape[1:]), drop_ones(shape)
    if len(dims) == len(expected) and dims != expected:  # such as channels last for a network with channels first
        raise LineError(
            f"The network takes points of shape {shape}; each image has shape {array.shape[1:]}.",
            where=where,
            hint="Put the dims of the images in the network's order, such as images.transpose(0, 3, 1, 2).",
        )
    points = np.ascontiguousarray(array.astype(np.float64).reshape(-1, *shape))
    if not np.isfinite(points).all():
        raise LineError("The images hold NaN or infinite numbers.", where=where, hint="Give finite images.")
    if labels is None:
        return LabelledImages(name, points, None)
    classes = np.asarray(labels)
    is_whole = classes.dtype.kind in "iu" or (classes.dtype.kind == "f" and bool((classes == np.floor(classes)).all()))
    if classes.shape != (len(points),) or not is_whole or bool((classes < 0).any()) or bool((classes > 2**31).any()):
        raise LineError(
            f"Each of the {len(points)} images needs a whole number of at least 0 as its label; the labels have shape "
            f"{classes.shape} and type {classes.dtype}.",
            where=f"labels of {where}",
            hint=IMAGES_HINT,
        )
    return LabelledImages(name, points, tuple(int(c) for c in classes))


def read_labelled_images(path: Path, shape: tuple[int, ...], scale: float = 1.0) -> LabelledImages:
    """Read images and their labels from a file.

    Args:
        path: a .npz with arrays ``images`` (or ``x``) and optionally ``labels`` (or ``y``), a .npy of images, or a .csv
            with one image in each row; a row that is one number longer begins with its label.
        shape: of one input point of the network.
        scale: divides the images, such as 255 for bytes where the network takes 0 to 1.

    Raises FileError for unreadable files, LineError where images do not fit the network, ArgumentError for a scale that
    is not positive.
    """
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise ArgumentError(f"The scale must be above 0, not {scale!r}.", where="argument scale", hint="Give 255.")
    ending = path.suffix.lower()
    labels: Any = None
    if ending == ".npz":
        images, labels = _read_npz(path)
    elif ending == ".npy":
        images = read_array(path)
    elif ending == ".csv":
        images, labels = _read_csv(path, prod(shape))
    else:
        raise FileError("Images cannot be read from a file of this type.", where=str(path), hint=IMAGES_HINT)
    result = make_labelled_images(path.name, images, labels, shape, str(path))
    return result if scale == 1.0 else LabelledImages(result.name, result.points / scale, result.labels)


def _read_npz(path: Path) -> tuple[Any, Any]:
    """The images and labels of a .npz, under either of their usual names; None for missing labels."""
    images, labels = _read_first_array(path, "images", "x"), _read_first_array(path, "labels", "y")
    if images is None:
        raise LineError("The file has no array named images.", where=str(path), hint=IMAGES_HINT)
    return images, labels


def _read_first_array(path: Path, *names: str) -> Any:
    """The first of some arrays of a .npz that exists, or None."""
    arrays: list[Any] = []
    for name in names:
        try:
            arrays.append(read_array(path, name))
        except LineError:  # there is no array of this name
            continue
    return arrays[0] if arrays else None


def _read_csv(path: Path, size: int) -> tuple[Any, Any]:
    """The images and labels of a .csv; None for missing labels."""
    data = read_file(path)
    limits.check_limit(len(data), MAX_CSV_BYTES, "bytes", str(path))
    try:
        table = np.array([[float(cell) for cell in row.split(b",")] for row in data.split()], dtype=np.float64)
    except (ValueError, OverflowError) as problem:
        raise FileError(f"The rows are not numbers: {problem}.", where=str(path), hint=IMAGES_HINT) from problem
    if table.ndim == 2 and table.shape[1] == size + 1:
        return table[:, 1:], table[:, 0]
    return table, None
