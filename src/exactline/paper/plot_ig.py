"""Pictures of the study of integrated gradients: errors against samples, and a digit faded in from black."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.heat import HEAT, image_of
from ..plot.line import BINS, COLOURS
from .plot_linearity import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .figures import Fade
    from .ig import Study

STRIP = 9  # images from black to the digit
PIXELS = 24  # whose gradients are shown on every piece
MOST = 4000  # more ticks than this are thinned


def draw_curves(found: Study) -> Figure:
    """The mean error of every rule against the number of samples, a panel for each network."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from .ig import BEYOND, TOLERANCE
    from .ig import PAPER as RULES

    with rc_context(PAPER):
        subjects = found.suite.subjects
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        axes: Any = figure.subplots(1, len(subjects), squeeze=False, sharey=True)[0]
        for ax, subject in zip(axes, subjects, strict=True):
            for place, rule in enumerate((*RULES, *BEYOND)):
                curve = found.curve(subject.name, rule)
                dash = "-" if rule in RULES else "--"
                ax.plot(range(1, len(curve) + 1), curve, dash, color=COLOURS[place], label=rule, linewidth=1.1)
            ax.axhline(TOLERANCE, color="0.6", linewidth=0.8)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("samples")
            ax.set_title(f"{subject.name}, {len(found.of(subject.name))} images", fontsize="medium")
        axes[0].set_ylabel("mean relative error")
        axes[0].legend(fontsize="small")
    return figure


def draw_fade(shown: Fade) -> Figure:
    """Figure 3: images from black to a digit, every break as a tick, and the gradients of the pieces beneath."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(PAPER):
        figure = Figure(figsize=(9.6, 6.2), layout="constrained")
        parts: Any = figure.subfigures(3, 1, height_ratios=(1.25, 1.45, 3.1))
        alphas = np.linspace(0, 1, STRIP)
        _strip(parts[0], shown, alphas)
        _held(parts[1], shown, alphas)
        _mesh(parts[2].subplots(2, 1, sharex=True, height_ratios=(1, 7)), shown, alphas)
        figure.suptitle(
            f"{shown.images}, image {shown.image}, class {shown.label}, {shown.network} network:"
            f" {len(shown.line):,} pieces from black to the image",
            fontsize="medium",
        )
    return figure


def _strip(part: Any, shown: Fade, alphas: Any) -> None:
    """The images themselves."""
    for ax, alpha in zip(part.subplots(1, STRIP), alphas, strict=True):
        pixels = image_of(alpha * shown.point.numpy())
        if pixels is not None:
            ax.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray", vmin=0, vmax=1)
        ax.set_title(f"alpha {alpha:.3g}", fontsize="x-small")
        ax.set_axis_off()


def _held(part: Any, shown: Fade, alphas: Any) -> None:
    """The gradients on the pieces that hold those alphas."""
    inner = shown.line.alphas[1:-1].numpy()
    pieces = np.searchsorted(inner, alphas, side="right")
    chosen = shown.gradients[pieces.tolist()].sum(1).numpy()
    end = float(np.abs(chosen).max()) or 1.0
    for ax, piece, gradient in zip(part.subplots(1, STRIP), pieces.tolist(), chosen, strict=True):
        ax.imshow(gradient, cmap=_colours(), vmin=-end, vmax=end, interpolation="nearest")
        ax.set_title(f"piece {piece:,}", fontsize="x-small")
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set(visible=True, linewidth=0.5, edgecolor="#999999")


def _mesh(axes: Any, shown: Fade, alphas: Any) -> None:
    """Every break as a tick; beneath, the gradient on every piece for the pixels that count most."""
    above, below = axes
    breaks = shown.line.alphas.numpy()
    ticks = breaks if len(breaks) <= MOST else breaks[np.unique(np.floor(breaks * BINS), return_index=True)[1]]
    above.vlines(ticks, 0, 1, color="#222222", linewidth=0.4)
    above.plot(alphas, np.full(STRIP, 1.25), "v", color=COLOURS[1], markersize=4, clip_on=False)
    above.set_ylim(0, 1.1)
    above.set_axis_off()
    order = shown.attribution.abs().flatten().argsort(descending=True, stable=True)[:PIXELS]
    rows = shown.gradients.flatten(1)[:, order].T.numpy()  # (pixels, pieces)
    end = float(np.abs(rows).max()) or 1.0
    drawn = below.pcolormesh(
        breaks, np.arange(len(rows) + 1), rows, cmap=_colours(), vmin=-end, vmax=end, rasterized=True
    )
    below.set_xlim(0, 1)
    below.invert_yaxis()
    below.set_xlabel("alpha, from black to the image; triangles: where the images above are")
    below.set_ylabel(f"the {len(rows)} pixels that\ncount most")
    below.set_yticks([])
    bar = below.get_figure().colorbar(drawn, ax=[above, below], fraction=0.02, pad=0.01)
    bar.set_label("gradient on the piece", fontsize="small")


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", HEAT)
