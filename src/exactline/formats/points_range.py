"""Compare the ranges of two points: pixels of 0 to 255 and of 0 to 1 do not belong on one line."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tolerances import FAR_RANGE_WIDTHS, MIN_RANGE_NUMBERS


class RangeWarning(UserWarning):
    """The values of one end of a line are far outside the range of the other, such as pixels of 0 to 255 and 0 to 1."""


def compare_ranges(one: Any, other: Any, names: tuple[str, str]) -> str:
    """Say whether the values of one point are far outside the range of the other; "" if they are not.

    Points of few numbers and constant points, such as a black image, have no range that says much.

    Args:
        one: An array (*in).
        other: An array (*in).
        names: What both are called in the message.

    >>> compare_ranges(np.linspace(0, 255, 64), np.linspace(0, 1, 64), ("start", "end"))
    'the values of start are 0 to 255, those of end 0 to 1.'
    """
    points = np.asarray(one), np.asarray(other)
    if min(p.size for p in points) < MIN_RANGE_NUMBERS:
        return ""
    (low, high), (other_low, other_high) = ranges = [(float(p.min()), float(p.max())) for p in points]
    outside = max(other_low - low, high - other_high), max(low - other_low, other_high - high)
    widths = other_high - other_low, high - low
    if not any(0 < FAR_RANGE_WIDTHS * width < distance for width, distance in zip(widths, outside, strict=True)):
        return ""
    first, second = (f"{a:.4g} to {b:.4g}" for a, b in ranges)
    return f"the values of {names[0]} are {first}, those of {names[1]} {second}."
