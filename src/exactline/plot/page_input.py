"""What the page of a line shows of the input: an image where it has the shape of one, else a table of features."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..humanize import count_noun
from ..lines import Lines
from .attribution import as_image
from .page import encode_array
from .style import format_index

MIN_IMAGE_PIXELS = 4  # on the shorter side of what is taken for an image by default
MAX_TABLE_ROWS = 200


def encode_inputs(
    lines: Lines, features: Sequence[str] | None, image: bool | tuple[int, ...] | None
) -> list[dict[str, Any]]:
    """One entry for each input.

    Args:
        lines: one line.
        features: names for the numbers of all inputs, one after another.
        image: True or a shape asks for an image, False for a table; by default the shape decides.

    Raises ArgumentError for names or a shape that do not fit.
    """
    shapes = [tuple(t.shape[1:]) for t in lines.starts]
    names = _check_features(features, sum(map(prod, shapes)))
    entries: list[dict[str, Any]] = []
    for start, end, shape in zip(lines.starts, lines.ends, shapes, strict=True):
        own, names = (None, None) if names is None else (names[: prod(shape)], names[prod(shape) :])
        ends = [t[0].detach().cpu().double().numpy() for t in (start, end)]
        entry = {"name": f"input {len(entries)}" if len(shapes) > 1 else "input"}
        entries.append(entry | _encode_input(ends, shape, own, image))
    if image is not None and image is not False and not any(entry["kind"] == "image" for entry in entries):
        raise ArgumentError(
            f"The input has shape {shapes[0]}, which is not an image{'' if image is True else f' of shape {image}'}.",
            where="argument image",
            hint="Give (H, W), (1, H, W) or (3, H, W) with as many numbers as the input has, or leave it out.",
        )
    return entries


def _check_features(features: Sequence[str] | None, count: int) -> list[str] | None:
    if features is not None and len(features) != count:
        raise ArgumentError(
            f"That is {count_noun(len(features), 'name')} for {count_noun(count, 'feature')}.",
            where="argument features",
            hint="Give one name for each number of the input.",
        )
    return None if features is None else [str(name) for name in features]


def _encode_input(
    ends: list[NDArray[np.float64]],
    shape: tuple[int, ...],
    names: list[str] | None,
    image: bool | tuple[int, ...] | None,
) -> dict[str, Any]:
    first, last = (None, None) if image is False else (_as_shown_image(end, image, names) for end in ends)
    if first is not None and last is not None:
        both = np.stack([first, last])
        low, high = float(both.min()), float(both.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1.0)
        size = {"high": first.shape[0], "wide": first.shape[1], "channels": first.shape[2]}
        return size | {
            "kind": "image",
            "range": [low, high],
            "start": encode_array(both[0]),
            "end": encode_array(both[1]),
        }
    start, end = (e.reshape(-1) for e in ends)
    rows = np.arange(len(start))
    if len(start) > MAX_TABLE_ROWS:
        with np.errstate(over="ignore"):
            rows = np.sort(np.argsort(-np.abs(end - start), kind="stable")[:MAX_TABLE_ROWS])
    return {
        "kind": "table",
        "count": len(start),
        "names": [names[i] if names else format_index(i, shape) for i in rows.tolist()],
        "changed": int((start != end).sum()),
        "start": encode_array(start[rows]),
        "end": encode_array(end[rows]),
    }


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
