"""A picture of decisions: the outputs along a line, and below them a band coloured by the output that leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..arrays import Floats
from ..humanize import count_noun
from .figure import get_axes, matplotlib_style
from .line import MAX_TICKS, MAX_VECTOR_BREAKS, thin_ticks
from .palette import HATCHES as HATCHES
from .palette import class_turn
from .style import check_labels, current_theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.intervals import Decisions, Interval, Label

STRIP_HEIGHT, BAND_SPAN, TICK_SPAN = 0.24, (0.08, 0.17), (0.015, 0.055)  # shares of the picture's height
MIN_VISIBLE_WIDTH = 0.004  # narrower intervals, as a share of the line, get a marker
MAX_GREY_CURVES = 50  # of outputs that never lead
MAX_LEGEND_ROWS = 12  # labels that are named
MAX_VECTOR_INTERVALS = 2000  # more intervals than this become pixels in vector formats
MAX_MARKERS = 400  # more markers than this are thinned

LabelStyles = dict["Label", tuple[str, str]]  # colour and hatch of each label


def plot_decisions(decisions: Decisions, ax: Axes | None = None, *, labels: Sequence[str] | None = None) -> Axes:
    """Draw which output leads where.

    A coloured band shows the intervals; outputs that are tied share its height. Triangles mark intervals that are too
    narrow to see, thin ticks the breaks of the line. Outputs that never lead are grey.

    Args:
        decisions: what to draw.
        ax: axes to draw into; by default new ones.
        labels: a name for each output; by default its number.

    Raises MissingError where matplotlib is not installed, ArgumentError for labels that do not fit.
    """
    with matplotlib_style("plot_decisions"):
        values, alphas = decisions.values, decisions.line.alphas.numpy()
        names, styles = check_labels(labels, values.shape[1]), _choose_styles(decisions)
        ax = get_axes(ax, 7.2, 4.0)
        has_grey = _draw_curves(ax, alphas, values, styles)
        has_markers = _draw_band(ax, list(decisions), styles)
        breaks = getattr(decisions.line, "breaks", decisions.line.alphas)  # a curve is drawn at more alphas
        inner = breaks.numpy()[1:-1]
        ticks = inner if len(inner) <= MAX_TICKS else thin_ticks(inner)
        ax.vlines(ticks, *TICK_SPAN, color=current_theme().soft, linewidth=0.4, transform=ax.get_xaxis_transform())
        _set_limits(ax, values)
        intervals, pieces = count_noun(len(decisions), "interval"), count_noun(len(decisions.line), "piece")
        ax.set_xlabel(f"alpha ({intervals}, {pieces})")
        ax.set_ylabel("output")
        _draw_legend(ax, styles, names, has_grey=has_grey, has_markers=has_markers)
    return ax


def format_label(label: Label, names: Sequence[str]) -> str:
    """The name of one output, or the names of several in order."""
    return names[label] if isinstance(label, int) else " > ".join(names[i] for i in label)


def _band_labels(interval: Interval) -> tuple[Label, ...]:
    """The labels that share the height of the band: all that are tied, where one label was asked for."""
    return interval.tied if interval.tied and isinstance(interval.label, int) else (interval.label,)


def _choose_styles(decisions: Decisions) -> LabelStyles:
    """The colour of each label's first class; hatches where several labels share it. The widest labels come first."""
    widths: Counter[Any] = Counter()
    for interval in decisions:
        for label in _band_labels(interval):
            widths[label] += interval.width  # pyright: ignore[reportArgumentType]
    labels = sorted(widths) if len(widths) <= MAX_LEGEND_ROWS else [label for label, _ in widths.most_common()]
    theme, seen, styles = current_theme(), Counter[int](), LabelStyles()
    for label in labels:
        first = label if isinstance(label, int) else label[0]
        turn = class_turn(first) if isinstance(label, int) else seen[first]
        seen[first] += 1
        styles[label] = theme.colour(first), HATCHES[turn % len(HATCHES)]
    return styles


def _draw_curves(ax: Axes, alphas: Floats, values: Floats, styles: LabelStyles) -> bool:
    """Draw the outputs; returns whether some of them never lead."""
    is_dense, leaders = len(alphas) > MAX_VECTOR_BREAKS, dict[int, str]()
    for label, (colour, _) in styles.items():
        leaders.setdefault(label if isinstance(label, int) else label[0], colour)
    others = [i for i in range(values.shape[1]) if i not in leaders]
    for i in others[:MAX_GREY_CURVES]:
        ax.plot(alphas, values[:, i], color=current_theme().faint, linewidth=0.8, zorder=1, rasterized=is_dense)
    for i, colour in leaders.items():
        ax.plot(alphas, values[:, i], color=colour, zorder=2, rasterized=is_dense)
    return bool(others)


def _draw_band(ax: Axes, intervals: list[Interval], styles: LabelStyles) -> bool:
    """Draw the intervals; returns whether some are too narrow to see."""
    across = ax.get_xaxis_transform()  # x in alphas, y in shares of the picture
    bars: dict[tuple[Label, int, int], list[tuple[float, float]]] = {}
    for interval in intervals:
        for slot, label in enumerate(shared := _band_labels(interval)):
            bars.setdefault((label, slot, len(shared)), []).append((interval.start, interval.width))
    for (label, slot, slots), spans in bars.items():
        height, (colour, hatch) = (BAND_SPAN[1] - BAND_SPAN[0]) / slots, styles[label]
        ax.broken_barh(
            spans,
            (BAND_SPAN[1] - (slot + 1) * height, height),
            facecolor=colour,
            edgecolor=current_theme().paper if hatch else "none",
            hatch=hatch,
            linewidth=0,
            transform=across,
            zorder=3,
            rasterized=len(intervals) > MAX_VECTOR_INTERVALS,
        )
    narrow = [i for i in intervals if i.width < MIN_VISIBLE_WIDTH]
    for interval in narrow[:: -(-len(narrow) // MAX_MARKERS) or 1]:
        middle, (colour, _) = interval.start + interval.width / 2, styles[interval.label]
        ax.plot(
            [middle],
            [BAND_SPAN[1] + 0.02],
            marker="v",
            markersize=6,
            color=colour,
            markeredgecolor=current_theme().ink,
            markeredgewidth=0.5,
            clip_on=False,
            transform=across,
            zorder=4,
        )
    return bool(narrow)


def _set_limits(ax: Axes, values: Floats) -> None:
    """Leave room for the band below all values."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    pad = 0.05 * (high - low) or 1.0
    span = (high - low + 2 * pad) / (1 - STRIP_HEIGHT)
    ax.set_ylim(high + pad - span, high + pad)
    ax.set_yticks([y for y in ax.get_yticks() if low - pad <= y <= high + pad])  # none beside the band
    ax.set_ylim(high + pad - span, high + pad)
    ax.set_xlim(0, 1)


def _draw_legend(ax: Axes, styles: LabelStyles, names: list[str], *, has_grey: bool, has_markers: bool) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows: list[Artist] = []
    theme = current_theme()
    for label, (colour, hatch) in list(styles.items())[:MAX_LEGEND_ROWS]:
        name = format_label(label, names)
        rows.append(Patch(facecolor=colour, edgecolor=theme.paper, hatch=hatch, linewidth=0, label=name))
    if has_markers:
        label = f"under {100 * MIN_VISIBLE_WIDTH:g} %"
        rows.append(Line2D([], [], marker="v", linestyle="", color=theme.paper, markeredgecolor=theme.ink, label=label))
    if has_grey:
        rows.append(Line2D([], [], color=theme.faint, linewidth=0.8, label="never"))
    title = "leads" if len(styles) <= MAX_LEGEND_ROWS else f"leads ({MAX_LEGEND_ROWS} of {len(styles)})"
    ax.legend(
        handles=rows,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        borderaxespad=0,
        alignment="left",
    )
