"""What a page shows of the input along a line: an image where it is one, else a table of features."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..humanize import count_noun
from ..lines import Lines
from .heat import image_of, place_name
from .page import packed

LEAST = 4  # pixels on the shorter side of what is taken for an image unasked
ROWS = 200  # of a table


def inputs_of(
    lines: Lines, features: Sequence[str] | None, image: bool | tuple[int, ...] | None
) -> list[dict[str, Any]]:
    """One entry for each input; ``features`` names the numbers of all of them, one after another."""
    shapes = [tuple(t.shape[1:]) for t in lines.starts]
    names = _names(features, sum(map(prod, shapes)))
    found: list[dict[str, Any]] = []
    for start, end, shape in zip(lines.starts, lines.ends, shapes, strict=True):
        mine, names = (None, None) if names is None else (names[: prod(shape)], names[prod(shape) :])
        ends = [t[0].detach().cpu().double().numpy() for t in (start, end)]
        entry = {"name": f"input {len(found)}" if len(shapes) > 1 else "input"}
        found.append(entry | _entry(ends, shape, mine, image))
    if image is not None and image is not False and not any(entry["kind"] == "image" for entry in found):
        raise ArgumentError(
            f"The input has shape {shapes[0]}, which is no image{'' if image is True else f' of shape {image}'}.",
            where="argument image",
            hint="Give (H, W), (1, H, W) or (3, H, W) with as many numbers as the input has, or leave it out.",
        )
    return found


def _names(features: Sequence[str] | None, count: int) -> list[str] | None:
    if features is not None and len(features) != count:
        raise ArgumentError(
            f"That is {count_noun(len(features), 'name')} for {count_noun(count, 'feature')}.",
            where="argument features",
            hint="Give one name for each number of the input.",
        )
    return None if features is None else [str(name) for name in features]


def _entry(
    ends: list[NDArray[np.float64]],
    shape: tuple[int, ...],
    names: list[str] | None,
    image: bool | tuple[int, ...] | None,
) -> dict[str, Any]:
    seen = [None, None] if image is False else [_image(end, image, names) for end in ends]
    if seen[0] is not None and seen[1] is not None:
        both = np.stack([seen[0], seen[1]])
        low, high = float(both.min()), float(both.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1.0)
        size = {"high": seen[0].shape[0], "wide": seen[0].shape[1], "channels": seen[0].shape[2]}
        return size | {"kind": "image", "range": [low, high], "start": packed(both[0]), "end": packed(both[1])}
    start, end = (e.reshape(-1) for e in ends)
    some = np.arange(len(start))
    if len(start) > ROWS:
        with np.errstate(over="ignore"):
            some = np.sort(np.argsort(-np.abs(end - start), kind="stable")[:ROWS])
    return {
        "kind": "table",
        "count": len(start),
        "names": [names[i] if names else place_name(i, shape) for i in some.tolist()],
        "changed": int((start != end).sum()),
        "start": packed(start[some]),
        "end": packed(end[some]),
    }


def _image(
    end: NDArray[np.float64], image: bool | tuple[int, ...] | None, names: list[str] | None
) -> NDArray[np.float64] | None:  # (H, W, 1 or 3)
    """A picture of the input, unless it is none; unasked, small and named inputs are tables."""
    if isinstance(image, (tuple, list)):
        if prod(image) != end.size or any(side < 1 for side in image):
            return None
        end = end.reshape(image)
    found = image_of(end)
    if found is None or found.shape[2] not in (1, 3):
        return None
    small = image is None and (min(found.shape[:2]) < LEAST or names is not None)
    return None if small else found
