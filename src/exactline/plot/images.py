"""Images in pictures: which inputs are images, and one way to draw them: 0 is black and 1 is white, as on pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats
from .style import FRAME_GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def as_image(values: Floats) -> Floats | None:
    """An image as (H, W, C), or None where the shape is not that of an image.

    >>> as_image(np.zeros((3, 32, 16))).shape, as_image(np.zeros((1, 1, 8, 8))).shape, as_image(np.zeros(5))
    ((32, 16, 3), (8, 8, 1), None)
    """
    while values.ndim > 3 and values.shape[0] == 1:
        values = values[0]
    if values.ndim == 3 and values.shape[0] not in (1, 3) and values.shape[2] in (1, 3):
        image = values
    elif values.ndim == 3:
        image = np.moveaxis(values, 0, 2)
    elif values.ndim == 2:
        image = values[:, :, None]
    else:
        return None
    return image if min(image.shape[:2]) > 1 and image.size else None


def shown_pixels(image: Floats) -> Floats:  # (H, W, C) -> (H, W, 3)
    """What is shown of an image: colours of three channels, else the mean as grey; from 0 for black to 1 for white.

    Images with values outside [0, 1] are rescaled.

    >>> shown_pixels(np.array([[[0.0], [2.0]]]))[0, :, 0].tolist()
    [0.0, 1.0]
    """
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        image = (image - low) / ((high - low) or 1.0)
    return image if image.shape[2] == 3 else np.repeat(image.mean(2, keepdims=True), 3, 2)


def draw_image(ax: Axes, image: Floats, linewidth: float = 0.5) -> None:  # image is (H, W, C)
    """Draw an image with a thin frame and without ticks."""
    ax.imshow(shown_pixels(image), interpolation="nearest")
    hide_ticks(ax, linewidth)


def hide_ticks(ax: Axes, linewidth: float = 0.6) -> None:
    """No ticks, and a thin frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set(visible=True, linewidth=linewidth, edgecolor=FRAME_GREY)
