"""A picture of decisions: the outputs along a line, and below them a band coloured by which one leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..humanize import count_noun
from ..optional import require_package
from .axes import axes_of
from .line import BINS, COLOURS, DENSE, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.intervals import Decisions, Interval, Label

STRIP, BAND, TICKS = 0.24, (0.08, 0.17), (0.015, 0.055)  # shares of the picture's height
NARROW = 0.004  # intervals narrower than this share of the line get a marker, so that none is hidden
HATCHES = ("", "////", "....", "xxxx")  # tell labels apart when the colours have been used up
GREY = "#BBBBBB"
MOST = 50  # curves of outputs that never lead
LEGEND = 12  # labels that are named
MANY = 2000  # more intervals than this become pixels in vector formats
MARKERS = 400  # more than this many narrow intervals are thinned


def plot_band(decided: Decisions, ax: Axes | None = None, *, names: Sequence[str] | None = None) -> Axes:
    """Draw which label leads where; ``names`` replaces the numbers of the outputs.

    A coloured band shows the intervals; where several are tied they share its height. A triangle marks those too
    narrow to see, thin ticks are the breaks of the line. Outputs that never lead are grey.

    Raises MissingError where matplotlib is not installed, ArgumentError where names are too few.
    """
    with require_package("Pictures need matplotlib.", where="plot_band", hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context

    values, alphas = decided.values, decided.line.alphas.numpy()
    named = checked_names(names, values.shape[1])
    looks = _looks(decided)
    with rc_context(STYLE):
        ax = axes_of(ax, 7.2, 4.0)
        grey = _draw_curves(ax, alphas, values, looks)
        thin = _draw_band(ax, list(decided), looks)
        inner = alphas[1:-1]
        shown = inner if len(inner) <= 4000 else inner[np.unique(np.floor(inner * BINS), return_index=True)[1]]
        ax.vlines(shown, *TICKS, color="#444444", linewidth=0.4, transform=ax.get_xaxis_transform())
        _frame(ax, values, len(decided), len(decided.line))
        _legend(ax, looks, named, grey, thin)
    return ax


def checked_names(names: Sequence[str] | None, count: int) -> list[str]:
    """A name for each output; their numbers where none are given."""
    if names is None:
        return [str(i) for i in range(count)]
    if len(names) != count:
        raise ArgumentError(
            f"That is {count_noun(len(names), 'name')} for {count_noun(count, 'output')}.",
            where="argument labels",
            hint="Give one name for each output.",
        )
    return list(names)


def label_name(label: Label, names: Sequence[str]) -> str:
    """One label, or several in order, by name."""
    return names[label] if isinstance(label, int) else " > ".join(names[i] for i in label)


Looks = dict["Label", tuple[str, str]]  # colour and hatch of each label


def _shares(interval: Interval) -> tuple[Label, ...]:
    """Who shares the height of the band: all that are tied, where one label was asked for."""
    return interval.tied if interval.tied and isinstance(interval.label, int) else (interval.label,)


def _looks(decided: Decisions) -> Looks:
    """Colours in order of labels, or where there are more of those than colours by how much of the line they have."""
    widths: Counter[Any] = Counter()
    for interval in decided:
        for label in _shares(interval):
            widths[label] += interval.width  # pyright: ignore[reportArgumentType]
    labels = sorted(widths) if len(widths) <= len(COLOURS) else [label for label, _ in widths.most_common()]
    turns = ((label, *divmod(i, len(COLOURS))) for i, label in enumerate(labels))
    return {label: (COLOURS[colour], HATCHES[turn % len(HATCHES)]) for label, turn, colour in turns}


def _draw_curves(ax: Axes, alphas: Any, values: Any, looks: Looks) -> bool:
    """The outputs; whether some of them never lead."""
    dense, firsts = len(alphas) > DENSE, dict[int, str]()
    for label, (colour, _) in looks.items():
        firsts.setdefault(label if isinstance(label, int) else label[0], colour)
    others = [i for i in range(values.shape[1]) if i not in firsts]
    for i in others[:MOST]:
        ax.plot(alphas, values[:, i], color=GREY, linewidth=0.8, zorder=1, rasterized=dense)
    for i, colour in firsts.items():
        ax.plot(alphas, values[:, i], color=colour, zorder=2, rasterized=dense)
    return bool(others)


def _draw_band(ax: Axes, intervals: list[Interval], looks: Looks) -> bool:
    """The intervals; whether some are too narrow to see."""
    across = ax.get_xaxis_transform()  # x in alphas, y in shares of the picture
    spans: dict[tuple[Label, int, int], list[tuple[float, float]]] = {}
    for interval in intervals:
        for slot, label in enumerate(shared := _shares(interval)):
            spans.setdefault((label, slot, len(shared)), []).append((interval.start, interval.width))
    for (label, slot, slots), where in spans.items():
        height, (colour, hatch) = (BAND[1] - BAND[0]) / slots, looks[label]
        ax.broken_barh(
            where,
            (BAND[1] - (slot + 1) * height, height),
            facecolor=colour,
            edgecolor="white" if hatch else "none",
            hatch=hatch,
            linewidth=0,
            transform=across,
            zorder=3,
            rasterized=len(intervals) > MANY,
        )
    thin = [i for i in intervals if i.width < NARROW]
    for interval in thin[:: -(-len(thin) // MARKERS) or 1]:
        middle, (colour, _) = interval.start + interval.width / 2, looks[interval.label]
        ax.plot(
            [middle],
            [BAND[1] + 0.02],
            marker="v",
            markersize=6,
            color=colour,
            markeredgecolor="black",
            markeredgewidth=0.5,
            clip_on=False,
            transform=across,
            zorder=4,
        )
    return bool(thin)


def _frame(ax: Axes, values: Any, intervals: int, pieces: int) -> None:
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    pad = 0.05 * (high - low) or 1.0
    span = (high - low + 2 * pad) / (1 - STRIP)
    ax.set_ylim(high + pad - span, high + pad)
    ax.set_yticks([at for at in ax.get_yticks() if low - pad <= at <= high + pad])  # the band has no values
    ax.set_ylim(high + pad - span, high + pad)
    ax.set_xlim(0, 1)
    ax.set_xlabel(f"alpha ({count_noun(intervals, 'interval')}, {count_noun(pieces, 'piece')})")
    ax.set_ylabel("output")


def _legend(ax: Axes, looks: Looks, names: list[str], grey: bool, thin: bool) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows: list[Artist] = []
    for label, (colour, hatch) in list(looks.items())[:LEGEND]:
        name = label_name(label, names)
        rows.append(Patch(facecolor=colour, edgecolor="white", hatch=hatch, linewidth=0, label=name))
    if thin:
        label = f"under {100 * NARROW:g} %"
        rows.append(Line2D([], [], marker="v", linestyle="", color="white", markeredgecolor="black", label=label))
    if grey:
        rows.append(Line2D([], [], color=GREY, linewidth=0.8, label="never"))
    title = "leads" if len(looks) <= LEGEND else f"leads ({LEGEND} of {len(looks)})"
    ax.legend(
        handles=rows,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        borderaxespad=0,
        alignment="left",
    )
