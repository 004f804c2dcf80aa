"""What pages show of the input: an image where it has the shape of one, else a table of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..lines import Lines
from .images import as_image
from .page import encode_array
from .plane_style import check_features
from .style import format_index

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction

MIN_IMAGE_PIXELS = 4  # on the shorter side of what is taken for an image by default
MAX_TABLE_ROWS = 200


def encode_inputs(
    lines: Lines, features: Sequence[str] | None, image: bool | tuple[int, ...] | None
) -> list[dict[str, Any]]:
    """One entry for each input of a line, with its values at both ends.

    Args:
        lines: one line.
        features: names for the numbers of all inputs, one after another.
        image: True or a shape asks for an image, False for a table; by default the shape decides.

    Raises ArgumentError for names or a shape that do not fit.
    """
    ends = [[t[0].detach().cpu().double().numpy() for t in pair] for pair in zip(lines.starts, lines.ends, strict=True)]
    inputs = [PageInput({"start": start, "end": end}, np.stack([start, end])) for start, end in ends]
    return _encode_all(inputs, features, image)


def encode_plane_inputs(
    plane: PlaneRestriction, features: Sequence[str] | None, image: bool | tuple[int, ...] | None
) -> list[dict[str, Any]]:
    """One entry for each input of a plane: its value where the plane coordinates are 0, and along both axes.

    The arguments are those of `encode_inputs`.
    """
    shapes = [tuple(v.shape[1:]) for v in plane.vertices]
    cuts = np.cumsum([prod(shape) for shape in shapes])[:-1].tolist()
    rows = [np.split(t.numpy(), cuts) for t in (plane.origin, *plane.axes)]
    inputs = [
        PageInput(
            dict(zip(("start", "first", "second"), (part.reshape(shape) for part in parts), strict=True)),
            vertices.detach().cpu().double().numpy(),
        )
        for *parts, shape, vertices in zip(*rows, shapes, plane.vertices, strict=True)
    ]
    return _encode_all(inputs, features, image)


@dataclass(frozen=True)
class PageInput:
    """One input of a line or a plane: affine in the position, so its extremes are at the corners."""

    parts: dict[str, NDArray[np.float64]]  # (*in) each: what the page combines to the input at a position
    corners: NDArray[np.float64]  # (k, *in)


def _encode_all(
    inputs: Sequence[PageInput], features: Sequence[str] | None, image: bool | tuple[int, ...] | None
) -> list[dict[str, Any]]:
    shapes = [i.corners.shape[1:] for i in inputs]
    names = check_features(features, sum(map(prod, shapes)))
    entries: list[dict[str, Any]] = []
    for given, shape in zip(inputs, shapes, strict=True):
        own, names = (None, None) if names is None else (names[: prod(shape)], names[prod(shape) :])
        entry = {"name": f"input {len(entries)}" if len(shapes) > 1 else "input"}
        entries.append(entry | _encode_input(given, shape, own, image))
    if image is not None and image is not False and not any(entry["kind"] == "image" for entry in entries):
        raise ArgumentError(
            f"The input has shape {shapes[0]}, which is not an image{'' if image is True else f' of shape {image}'}.",
            where="argument image",
            hint="Give (H, W), (1, H, W) or (3, H, W) with as many numbers as the input has, or leave it out.",
        )
    return entries


def _encode_input(
    given: PageInput, shape: tuple[int, ...], names: list[str] | None, image: bool | tuple[int, ...] | None
) -> dict[str, Any]:
    shown = {key: None if image is False else _as_shown_image(part, image, names) for key, part in given.parts.items()}
    images = {key: part for key, part in shown.items() if part is not None}
    if len(images) == len(given.parts):
        low, high = float(given.corners.min()), float(given.corners.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1.0)
        first = images["start"]
        size = {"high": first.shape[0], "wide": first.shape[1], "channels": first.shape[2]}
        return size | {"kind": "image", "range": [low, high]} | {k: encode_array(v) for k, v in images.items()}
    corners = given.corners.reshape(len(given.corners), -1)
    with np.errstate(over="ignore"):
        spans = np.ptp(corners, axis=0)
    rows = np.arange(len(spans))
    if len(rows) > MAX_TABLE_ROWS:
        rows = np.sort(np.argsort(-spans, kind="stable")[:MAX_TABLE_ROWS])
    return {
        "kind": "table",
        "count": len(spans),
        "names": [names[i] if names else format_index(i, shape) for i in rows.tolist()],
        "changed": int((spans != 0).sum()),
    } | {key: encode_array(part.reshape(-1)[rows]) for key, part in given.parts.items()}


def _as_shown_image(
    end: NDArray[np.float64], image: bool | tuple[int, ...] | None, names: list[str] | None
) -> NDArray[np.float64] | None:  # (H, W, 1 or 3)
    """The image of an input, or None for a table; by default small inputs and inputs with names are tables."""
    if isinstance(image, (tuple, list)):
        if prod(image) != end.size or any(side < 1 for side in image):
            return None
        end = end.reshape(image)
    found = as_image(end)
    if found is None or found.shape[2] not in (1, 3):
        return None
    is_table = image is None and (min(found.shape[:2]) < MIN_IMAGE_PIXELS or names is not None)
    return None if is_table else found
