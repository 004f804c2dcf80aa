"""Pictures of attributions: a heat map over an image, or bars for the largest of many inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..optional import require_package
from .axes import axes_of
from .line import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 15
BLUE, RED, GREY = COLOURS[0], COLOURS[1], "#999999"

# Red speaks for the output, blue against it, white for neither: told apart by every kind of colour vision.
HEAT = ("#08306b", "#2f79b5", "#a7cfe4", "#ffffff", "#f8bfa4", "#cf5246", "#7f0000")


def plot_attribution(
    attributions: Any,  # (*in)
    input: Any = None,  # (*in)
    *,
    ax: Axes | None = None,
    title: str = "",
    limit: float | None = None,  # where the colours end; None: at the largest attribution
    most: int = BARS,  # bars
) -> Axes:
    """Draw attributions of an image as a heat map, its input beside it; of anything else as bars, the largest on top.

    Images are (C, H, W), (H, W) or (H, W, C) with 1 or 3 channels, over which attributions are summed; dimensions of
    size 1 in front do not count. White is 0. With an ``ax`` of yours only the heat map or the bars are drawn, into it.

    Raises MissingError where matplotlib is not installed, ArgumentError for shapes that differ or numbers not finite.
    """
    with require_package("Pictures need matplotlib.", where="plot_attribution", hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context

    values = _numbers(attributions, "attributions")
    given = None if input is None else _numbers(input, "input")
    if given is not None and given.shape != values.shape:
        raise ArgumentError(
            f"The attributions have shape {values.shape}, the input {given.shape}.",
            where="plot_attribution",
            hint="Give the point whose attributions they are.",
        )
    heat, picture = image_of(values), None if given is None else image_of(given)
    with rc_context(STYLE):
        if heat is None:
            rows = min(most, values.size) + (values.size > most)
            drawn = axes_of(ax, 6.0, 0.9 + 0.27 * max(rows, 3))
            _draw_bars(drawn, values, given, most)
        elif ax is None and picture is not None:
            left, drawn = _panels(*_size(heat, 2))
            _draw_input(left, picture)
            _draw_heat(drawn, heat, limit)
        else:
            drawn = axes_of(ax, *_size(heat, 1))
            _draw_heat(drawn, heat, limit)
        if title:
            drawn.set_title(title)
    return drawn


def image_of(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """An image as (H, W, C), or None where the shape is not that of one.

    >>> image_of(np.zeros((3, 32, 16))).shape, image_of(np.zeros((1, 1, 8, 8))).shape, image_of(np.zeros(5))
    ((32, 16, 3), (8, 8, 1), None)
    """
    while values.ndim > 3 and values.shape[0] == 1:
        values = values[0]
    if values.ndim == 3 and values.shape[0] not in (1, 3) and values.shape[2] in (1, 3):
        found = values
    elif values.ndim == 3:
        found = np.moveaxis(values, 0, 2)
    elif values.ndim == 2:
        found = values[:, :, None]
    else:
        return None
    return found if min(found.shape[:2]) > 1 and found.size else None


def _numbers(values: Any, name: str) -> NDArray[np.float64]:
    found = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
        raise ArgumentError(
            f"The {name} are not finite real numbers.", where="plot_attribution", hint="Give an array of numbers."
        )
    return found.astype(np.float64)


def _panels(width: float, height: float) -> tuple[Axes, Axes]:
    """Two beside one another on a new figure of pyplot's, so that notebooks show it."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)


def _size(heat: NDArray[np.float64], panels: int) -> tuple[float, float]:
    """Inches that fit so many panels of one image, the colour bar and a heading."""
    height, width = heat.shape[:2]
    tall = 2.9 * min(max(height / width, 0.4), 2.5)
    return 2.9 * panels + 1.0, tall + 0.5


def _bare(ax: Axes) -> None:
    """No ticks, a thin frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(visible=True, linewidth=0.6, edgecolor=GREY)


def _draw_input(ax: Axes, picture: NDArray[np.float64]) -> None:
    """The input in colour where it has three channels, else in grey; numbers outside [0, 1] are stretched over it."""
    low, high = float(picture.min()), float(picture.max())
    if low < 0 or high > 1:
        picture = (picture - low) / ((high - low) or 1.0)
    if picture.shape[2] == 3:
        ax.imshow(picture, interpolation="nearest")
    else:
        ax.imshow(picture.mean(2), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_title("input")
    _bare(ax)


def _draw_heat(ax: Axes, heat: NDArray[np.float64], limit: float | None) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    summed = heat.sum(2)
    largest = float(np.abs(summed).max())
    end = limit or largest or 1.0
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    shown = ax.imshow(summed, cmap=colours, vmin=-end, vmax=end, interpolation="nearest")
    _bare(ax)
    ax.set_title("attribution" if heat.shape[2] == 1 else f"attribution, sum of {heat.shape[2]} channels")
    figure = ax.get_figure()
    if figure is not None:
        clipped = "both" if largest > end else "neither"
        bar = figure.colorbar(shown, ax=ax, fraction=0.046, pad=0.03, extend=clipped)
        bar.outline.set(linewidth=0.6, edgecolor=GREY)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(width=0.6, color=GREY)


def _draw_bars(ax: Axes, values: NDArray[np.float64], given: NDArray[np.float64] | None, most: int) -> None:
    flat = values.reshape(-1)
    order = np.argsort(-np.abs(flat), kind="stable")[:most]
    names = [place_name(i, values.shape) for i in order.tolist()]
    if given is not None:
        names = [f"{name} = {x:.4g}" for name, x in zip(names, given.reshape(-1)[order].tolist(), strict=True)]
    lengths, colours = flat[order].tolist(), [RED if v > 0 else BLUE for v in flat[order].tolist()]
    if rest := flat.size - len(order):
        names.append(f"{rest:,} others")
        lengths.append(float(np.delete(flat, order).sum()))
        colours.append(GREY)
    rows = ax.barh(range(len(names)), lengths, color=colours, height=0.72)
    ax.bar_label(rows, [f"{v:+.3g}" for v in lengths], padding=3, fontsize="small", color="#444444")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.margins(x=0.16)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("attribution")


def place_name(flat: int, shape: tuple[int, ...]) -> str:
    """A flat position as people write it.

    >>> place_name(3, (5,)), place_name(5, (2, 3)), place_name(0, ())
    ('x[3]', 'x[1, 2]', 'x')
    """
    return f"x[{', '.join(str(int(i)) for i in np.unravel_index(flat, shape))}]" if shape else "x"
