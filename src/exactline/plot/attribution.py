"""Pictures of attributions: a heat map over an image, bars for the largest of many inputs, errors of sampling rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError
from .figure import get_axes, matplotlib_style
from .images import as_image, draw_image, hide_ticks
from .style import COLOURS, DASHES, FRAME_GREY, current_theme, format_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..attr.step_counts import SamplingReport

MAX_BARS = 15
NEGATIVE_COLOUR, POSITIVE_COLOUR, REST_COLOUR = COLOURS[0], COLOURS[1], FRAME_GREY

# Red for attributions towards the output, blue for those against it, the paper for 0: distinct for every colour vision.
HEAT_COLOURS = ("#08306b", "#2f79b5", "#a7cfe4", "#ffffff", "#f8bfa4", "#cf5246", "#7f0000")
DARK_HEAT_COLOURS = ("#c3e2fb", "#5aa5de", "#24527f", "#1f2126", "#7d3026", "#e4705a", "#ffd3bf")


def plot_attribution(
    attributions: Any,  # (*in)
    input: Any = None,  # (*in)
    *,
    ax: Axes | None = None,
    title: str = "",
    limit: float | None = None,
    max_bars: int = MAX_BARS,
) -> Axes:
    """Draw attributions of an image as a heat map with its input beside it, others as bars with the largest on top.

    Args:
        attributions: (*in) of one input. Images are (C, H, W), (H, W) or (H, W, C) with 1 or 3 channels, over which
            attributions are summed; leading dimensions of size 1 are ignored.
        input: (*in) the point whose attributions they are.
        ax: axes for the heat map or the bars alone; by default a new figure.
        title: of the picture.
        limit: the value at which the colours end; by default the largest attribution.
        max_bars: number of bars; the other attributions are summed into one more.

    Raises MissingError where matplotlib is not installed, ArgumentError for shapes that differ or numbers that are not
    finite.
    """
    with matplotlib_style("plot_attribution"):
        values = _as_floats(attributions, "attributions")
        point = None if input is None else _as_floats(input, "input")
        if point is not None and point.shape != values.shape:
            raise ArgumentError(
                f"The attributions have shape {values.shape}, the input {point.shape}.",
                where="plot_attribution",
                hint="Give the point whose attributions they are.",
            )
        heat, picture = as_image(values), None if point is None else as_image(point)
        if heat is None:
            rows = min(max_bars, values.size) + (values.size > max_bars)
            drawn = get_axes(ax, 6.0, 0.9 + 0.27 * max(rows, 3))
            _draw_bars(drawn, values, point, max_bars)
        elif ax is None and picture is not None:
            left, drawn = _new_panels(*_figure_inches(heat, 2))
            draw_image(left, picture)
            left.set_title("input")
            _draw_heat(drawn, heat, limit)
        else:
            drawn = get_axes(ax, *_figure_inches(heat, 1))
            _draw_heat(drawn, heat, limit)
        if title:
            drawn.set_title(title)
    return drawn


def plot_sampling_errors(report: SamplingReport, ax: Axes | None = None) -> Axes:
    """Draw the mean error of each sampling rule against the number of gradients, both axes logarithmic.

    Args:
        report: the errors.
        ax: axes to draw into; by default new ones.

    Raises MissingError where matplotlib is not installed.
    """
    with matplotlib_style("plot_sampling_errors"):
        ax = get_axes(ax, 6.0, 4.0)
        draw_error_curves(ax, {rule: errors.mean(0).numpy() for rule, errors in report.errors.items()})
        ax.axhline(report.tolerance, color="0.6", linewidth=0.8)
        ax.set(xlabel="gradients", ylabel="mean relative error")
        ax.legend()
    return ax


def draw_error_curves(
    ax: Axes, curves: Mapping[str, Floats]
) -> None:  # (counts,) each: errors with 1, 2, 3, ... samples
    """Draw the error of each sampling rule against the number of samples, both axes logarithmic."""
    for position, (rule, errors) in enumerate(curves.items()):
        colour, dash = current_theme().colour(position), DASHES[position % len(DASHES)]
        ax.plot(range(1, len(errors) + 1), errors, dash, color=colour, label=rule)
    ax.set(xscale="log", yscale="log")


def heat_colormap() -> Any:
    """Matplotlib's colour map for attributions, on light or on dark paper."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", DARK_HEAT_COLOURS if current_theme().is_dark else HEAT_COLOURS)


def _as_floats(values: Any, name: str) -> Floats:
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ArgumentError(
            f"The {name} are not finite real numbers.", where="plot_attribution", hint="Give an array of numbers."
        )
    return array.astype(np.float64)


def _new_panels(width: float, height: float) -> tuple[Axes, Axes]:
    """Two axes side by side on a new figure; it belongs to pyplot, so that notebooks show it."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)


def _figure_inches(heat: Floats, panels: int) -> tuple[float, float]:
    """Width and height that fit several panels of one image, the colour bar and a title."""
    height, width = heat.shape[:2]
    tall = 2.9 * min(max(height / width, 0.4), 2.5)
    return 2.9 * panels + 1.0, tall + 0.5


def _draw_heat(ax: Axes, heat: Floats, limit: float | None) -> None:  # heat is (H, W, C)
    summed = heat.sum(2)
    largest = float(np.abs(summed).max())
    end = limit or largest or 1.0
    image = ax.imshow(summed, cmap=heat_colormap(), vmin=-end, vmax=end, interpolation="nearest")
    hide_ticks(ax)
    ax.set_title("attribution" if heat.shape[2] == 1 else f"attribution, sum of {heat.shape[2]} channels")
    figure = ax.get_figure()
    if figure is not None:
        clipped = "both" if largest > end else "neither"
        bar = figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03, extend=clipped)
        bar.outline.set(linewidth=0.6, edgecolor=FRAME_GREY)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(width=0.6, color=FRAME_GREY)


def _draw_bars(ax: Axes, values: Floats, point: Floats | None, max_bars: int) -> None:
    flat = values.reshape(-1)
    order = np.argsort(-np.abs(flat), kind="stable")[:max_bars]
    names = [format_index(i, values.shape) for i in order.tolist()]
    if point is not None:
        names = [f"{name} = {x:.4g}" for name, x in zip(names, point.reshape(-1)[order].tolist(), strict=True)]
    lengths = flat[order].tolist()
    colours = [POSITIVE_COLOUR if v > 0 else NEGATIVE_COLOUR for v in lengths]
    if rest := flat.size - len(order):
        names.append(f"{rest:,} others")
        lengths.append(float(np.delete(flat, order).sum()))
        colours.append(REST_COLOUR)
    bars = ax.barh(range(len(names)), lengths, color=colours, height=0.72)
    ax.bar_label(bars, [f"{v:+.3g}" for v in lengths], padding=3, fontsize="small", color=current_theme().soft)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.margins(x=0.16)
    ax.axvline(0, color=current_theme().ink, linewidth=0.8)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("attribution")
