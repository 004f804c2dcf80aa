"""Many rings or segments as a few paths, which matplotlib draws several times as fast as a path for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats

if TYPE_CHECKING:
    from matplotlib.path import Path as Outline

SEGMENTS_PER_PATH = 500


def compound_path(rings: list[Floats]) -> Outline:
    """One path of many closed rings; holes have the opposite orientation, so that they stay empty."""
    from matplotlib.path import Path as Outline

    lengths = np.array([len(ring) for ring in rings])
    closed = np.concatenate([part for ring in rings for part in (ring, ring[:1])])
    codes = np.full(len(closed), Outline.LINETO, dtype=Outline.code_type)
    last = np.cumsum(lengths + 1) - 1
    codes[last], codes[last - lengths] = Outline.CLOSEPOLY, Outline.MOVETO
    return Outline(closed, codes)


def bundle_segments(
    segments: Floats,  # (segments, 2, 2) their ends
) -> list[Outline]:
    """Paths of 500 separate segments each."""
    from matplotlib.path import Path as Outline

    codes = np.tile(np.array([Outline.MOVETO, Outline.LINETO], dtype=Outline.code_type), SEGMENTS_PER_PATH)
    return [
        Outline(part.reshape(-1, 2), codes[: 2 * len(part)])
        for part in np.split(segments, range(SEGMENTS_PER_PATH, len(segments), SEGMENTS_PER_PATH))
        if len(part)
    ]
