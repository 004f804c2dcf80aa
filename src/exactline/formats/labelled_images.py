"""A user's images with their labels, out of a .npz, .npy or .csv file."""

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
from .open_file import opened
from .points import CSV, read_array

HINT = (
    "Give a .npz with arrays images (n, *in) and labels (n,), a .npy of images, or a .csv with one image in each row."
)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Points in the shape a network takes, and the class of each where it is known."""

    name: str
    points: Floats  # (n, *in)
    labels: tuple[int, ...] | None

    def __len__(self) -> int:
        return len(self.points)

    def first(self, count: int) -> Labelled:
        """The first so many of them."""
        return Labelled(self.name, self.points[:count], None if self.labels is None else self.labels[:count])

    def mark(self, index: int) -> str:
        """A name for one image and its label that no other has."""
        label = "none" if self.labels is None else str(self.labels[index])
        return sha256(self.points[index].tobytes() + label.encode()).hexdigest()


def labelled(name: str, images: Any, labels: Any, shape: tuple[int, ...], where: str) -> Labelled:
    """Arrays as points in the network's shape; what is no number or does not fit is refused.

    Raises LineError.
    """
    found = np.asarray(images)
    size = prod(shape)
    if found.dtype.kind not in "fiu" or found.ndim < 1 or not len(found) or found.size != len(found) * size:
        raise LineError(
            f"The network takes points of shape {shape}; the images are of shape {found.shape} and type {found.dtype}.",
            where=where,
            hint=HINT,
        )
    points = np.ascontiguousarray(found.astype(np.float64).reshape(-1, *shape))
    if not np.isfinite(points).all():
        raise LineError("The images hold NaN or infinite numbers.", where=where, hint="Give finite images.")
    if labels is None:
        return Labelled(name, points, None)
    classes = np.asarray(labels)
    whole = classes.dtype.kind in "iu" or (classes.dtype.kind == "f" and bool((classes == np.floor(classes)).all()))
    if classes.shape != (len(points),) or not whole or bool((classes < 0).any()) or bool((classes > 2**31).any()):
        raise LineError(
            f"There must be one whole number of at least 0 for each of the {len(points)} images, not an array of shape "
            f"{classes.shape} and type {classes.dtype}.",
            where=f"labels of {where}",
            hint=HINT,
        )
    return Labelled(name, points, tuple(int(c) for c in classes))


def read_labelled(path: Path, shape: tuple[int, ...], scale: float = 1.0) -> Labelled:
    """The images of a file divided by ``scale``: 255 for bytes where the network takes 0 to 1.

    A .npz holds arrays ``images`` (or ``x``) and, if they are known, ``labels`` (or ``y``); a row of a .csv is an
    image in the network's order, after its label where it is one number longer.

    Raises FileError for unreadable files, LineError where images do not fit the network.
    """
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise ArgumentError(f"The scale must be above 0, not {scale!r}.", where="argument scale", hint="Give 255.")
    ending = path.suffix.lower()
    labels: Any = None
    if ending == ".npz":
        images, labels = _named(path)
    elif ending == ".npy":
        images = read_array(path)
    elif ending == ".csv":
        images, labels = _rows(path, prod(shape))
    else:
        raise FileError("Images are not read from such files.", where=str(path), hint=HINT)
    found = labelled(path.name, images, labels, shape, str(path))
    return found if scale == 1.0 else Labelled(found.name, found.points / scale, found.labels)


def _named(path: Path) -> tuple[Any, Any]:
    """Images and labels of a .npz, by the names people give them."""
    found: list[Any] = []
    for names in (("images", "x"), ("labels", "y")):
        arrays: list[Any] = []
        for name in names:
            try:
                arrays.append(read_array(path, name))
            except LineError:  # there is no array of this name
                continue
        found.append(arrays[0] if arrays else None)
    if found[0] is None:
        raise LineError("The file has no array of the name images.", where=str(path), hint=HINT)
    return found[0], found[1]


def _rows(path: Path, size: int) -> tuple[Any, Any]:
    data = opened(path)
    limits.within(len(data), CSV, "bytes", str(path))
    try:
        table = np.array([[float(cell) for cell in row.split(b",")] for row in data.split()], dtype=np.float64)
    except (ValueError, OverflowError) as problem:
        raise FileError(f"The rows are not numbers: {problem}.", where=str(path), hint=HINT) from problem
    if table.ndim == 2 and table.shape[1] == size + 1:
        return table[:, 1:], table[:, 0]
    return table, None
